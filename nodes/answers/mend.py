"""A kernel put right in what its writer left out as a matter of course, or what a transport did to it."""

from __future__ import annotations

import ast
import html
import re
import textwrap
import warnings

from nkibench.syntax import parse
from tools import gate

from .message import Oddity

ENTRY = re.compile(
    r"^@(?:[\w.]*\b)?(?:jit|nki_jit|baremetal|benchmark|profile|trace)\b(?:\(.*)?$", re.MULTILINE
)
OF_NKI = re.compile(r"^(?:from|import)\s+(?:neuronxcc|nki)\b", re.MULTILINE)
_ELISION = re.compile(
    r"#\s*(?:\.\.\.|…).*\b(?:unchanged|same|rest|remain\w*|existing|omitted|before|original|previous|code)\b|"
    r"#.*\b(?:rest|remainder) of .*\b(?:unchanged|omitted)\b",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"^\s*\d+(?:\s*[|:]|\t) ?", re.MULTILINE)
_QUOTES = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "‚": "'", "‐": "-", "−": "-", "–": "-"}
)
_CUSTOMARY = {
    "nki": "import {root} as nki",
    "nl": "import {root}.language as nl",
    "nisa": "import {root}.isa as nisa",
    "np": "import numpy as np",
    "math": "import math",
}
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|#\d+|#x[0-9a-fA-F]+);")


def is_elided(tree: ast.Module, source: str) -> bool:
    """Whether parts are left out."""
    dots = any(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is Ellipsis
        for node in ast.walk(tree)
    )
    return dots or _ELISION.search(source) is not None


def returns(source: str) -> bool:
    """Whether the kernel of a file returns anything; half of one does not."""
    tree = gate.parsed(source)
    names = gate.kernel_names(source)
    return tree is not None and any(
        isinstance(node, ast.FunctionDef)
        and node.name == names[-1]
        and any(isinstance(inner, ast.Return) for inner in ast.walk(node))
        for node in (ast.walk(tree) if names else ())
    )


def repaired(source: str) -> tuple[str, list[Oddity]]:
    """A text that does not parse, with what transports and editors do to code undone."""
    if parses(source):
        return source, []
    attempts = [source]
    if _ENTITY.search(source):
        attempts.append(html.unescape(source))
    if source.strip().count("\n") == 0 and "\\n" in source:
        attempts.append(
            source.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
        )
    lines = [line for line in source.splitlines() if line.strip()]
    if lines and all(_NUMBERED.match(line) for line in lines):
        attempts.append(_NUMBERED.sub("", source))
    for attempt in list(attempts):
        attempts.append(attempt.translate(_QUOTES))
        attempts.append(textwrap.dedent(attempt))
    for attempt in attempts[1:]:
        if parses(attempt):
            return tidy(attempt), [Oddity.GARBLED]
    return source, []


def completed(source: str, tree: ast.Module, parent: str) -> str:
    """A kernel with the imports and the decorator of its parent where it has none, and its entry last."""
    names = gate.kernel_names(parent)
    parent_tree = gate.parsed(parent)
    if not names or parent_tree is None:
        return source
    entry = names[-1]
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    decorated = [function for function in functions.values() if function.decorator_list]
    if entry in functions and not decorated:
        original = next(
            node for node in ast.walk(parent_tree) if isinstance(node, ast.FunctionDef) and node.name == entry
        )
        lines = source.split("\n")
        at = functions[entry].lineno - 1
        marks = [f"@{ast.unparse(decorator)}" for decorator in original.decorator_list]
        source = "\n".join([*lines[:at], *marks, *lines[at:]])
    if entry in functions and not OF_NKI.search(source):
        imports = [
            ast.unparse(node) for node in parent_tree.body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        source = "\n".join([*imports, "", "", source])
    found = gate.kernel_names(source)
    if len(found) > 1 and entry in found and found[-1] != entry:
        source = _entry_last(source, entry, found[-1])
    return source


def with_imports(source: str) -> str:
    """A file with the imports behind the customary names that it uses and gives no meaning to."""
    tree = gate.parsed(source)
    if tree is None:
        return source
    bound = {name for node in ast.walk(tree) if isinstance(node, ast.stmt) for name in _bound(node)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    later = re.search(r"^(?:from|import)\s+nki\b", source, re.MULTILINE)
    root = "nki" if later else "neuronxcc.nki"
    missing = [
        line.format(root=root)
        for name, line in _CUSTOMARY.items()
        if name in _names(tree) and name not in bound
    ]
    if not missing:
        return source
    # A file begins with its docstring and with what is imported from the future.
    first = next(
        (
            node
            for node in tree.body
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        ),
        None,
    )
    lines = source.split("\n")
    at = _first_line(first) - 1 if first is not None else len(lines)
    return "\n".join([*lines[:at], *missing, *lines[at:]])


def _entry_last(source: str, entry: str, last: str) -> str:
    """The entry after another kernel of the file, where the one is a part of the other or runs it."""
    tree = gate.parsed(source)
    assert tree is not None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if entry not in functions or last not in functions:
        return source
    if last not in _names(functions[entry]) and entry not in _names(functions[last]):
        # Two versions side by side: the last one is the new one.
        return source
    node = functions[entry]
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    end = node.end_lineno or node.lineno
    lines = source.split("\n")
    return "\n".join([*lines[:first], *lines[end:], "", *lines[first:end], ""])


def trimmed(source: str) -> str:
    """A file without what its kernel does not need, where the gate would refuse the file for it.

    Nothing that the kernel reaches is touched, and the gate judges what is left.
    """
    refused = gate.inspect(source)
    tree = gate.parsed(source)
    if not refused or tree is None:
        return source
    kernels = set(gate.kernel_names(source))
    last = gate.kernel_names(source)[-1]
    needed = {last}
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = {
        name: node
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in _bound(node)
    }
    pending = [last]
    while pending:
        name = pending.pop()
        user = defined.get(name) or assigned.get(name)
        for name in _names(user) - needed if user is not None else ():
            needed.add(name)
            pending.append(name)
    lines = source.split("\n")
    for node in tree.body:
        lines_of = range(_first_line(node) - 1, node.end_lineno or node.lineno)
        is_refused = any(line.line - 1 in lines_of for line in refused)
        # A test that nothing calls goes with the import that it was written for.
        if (is_refused or isinstance(node, ast.FunctionDef)) and not _is_needed(node, needed, kernels):
            for index in lines_of:
                lines[index] = "\x00"
    rest = tidy("\n".join(line for line in lines if line != "\x00"))
    left = gate.inspect(rest)
    if len(left) >= len(refused):
        return source
    # What was cut away may have been all that used a further import.
    return trimmed(rest) if left else rest


def _is_needed(node: ast.stmt, needed: set[str], kernels: set[str]) -> bool:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name in needed or name in kernels
        case ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign():
            return bool(needed & _bound(node))
        case ast.If(test=test):
            return "__name__" not in _names(test)
        case ast.Expr(value=ast.Call()) | ast.With() | ast.For() | ast.Try() | ast.Assert():
            return False
    return True


def _bound(node: ast.stmt) -> set[str]:
    """Names that a statement gives a meaning to."""
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name.split(".")[0] for alias in names}
        case ast.Assign(targets=targets):
            return {name for target in targets for name in _names(target)}
        case ast.AnnAssign(target=target):
            return _names(target)
    return set()


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def parses(source: str) -> bool:
    """Whether a text is Python."""
    return gate.parsed(source) is not None


def first_error(source: str) -> int | None:
    """The line at which a text stops being Python; None if it does not."""
    if parses(source):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parse(source)
    except SyntaxError as error:
        return error.lineno or 1
    except (ValueError, RecursionError, MemoryError):
        pass
    return 1


def tidy(source: str) -> str:
    """Trailing white space carries no meaning and would make one kernel two."""
    return "\n".join(line.rstrip() for line in source.strip("\n").splitlines()) + "\n"
