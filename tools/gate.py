"""The static gate: which texts may be traced at all.

Kernels are text from a model. Before a line of one runs, its syntax tree is held against an allow-list: NKI's modules,
NumPy for constants and element types, `math`, plain Python around them. What is refused is refused with the rule, the
line and what to write instead, because the one to read it may be able to repair it.

The gate is the first of several walls. It keeps out what has no place in a kernel; the confinement of the worker holds
whatever gets past it, and the verdict is computed where the kernel never runs.
"""

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from nkibench.syntax import parse

MAX_SOURCE_BYTES = 10_000_000
_MAX_BRACKETS = 150
_MAX_TREE_DEPTH = 300
_MAX_REJECTIONS = 20


class Rule(StrEnum):
    """What a text can violate."""

    syntax = "syntax"
    """It is not Python."""
    size = "source_too_large"
    nesting = "nested_too_deeply"
    no_kernel = "no_kernel"
    """No function is marked with @nki.jit."""
    imports = "import_not_allowed"
    builtin = "builtin_not_allowed"
    """A function of Python that reaches files, other code or itself."""
    reflection = "reflection_not_allowed"
    """Names and attributes through which Python objects give access to the interpreter."""
    state = "state_not_allowed"
    """Anything that one call could leave behind for the next."""
    exceptions = "exception_handling_not_allowed"
    host_array = "host_computation_not_allowed"
    """Arithmetic on arrays by NumPy instead of by NKI."""
    runner = "runner_not_allowed"
    """Ways to run or measure a kernel; that is the evaluation's part."""
    construct = "construct_not_allowed"


class Rejection(NamedTuple):
    """One reason to refuse a text."""

    rule: Rule
    line: int
    message: str
    advice: str


_NKI_ROOTS = ("neuronxcc.nki", "nki")
_OTHER_MODULES = ("numpy", "math", "typing", "__future__")

_ALLOWED_BUILTINS = frozenset(
    "abs all any bool dict divmod enumerate filter float int isinstance len list map max min pow print range repr "
    "reversed round set slice sorted str sum tuple zip True False None Ellipsis NotImplemented "
    "AssertionError NotImplementedError RuntimeError TypeError ValueError".split()
)
_BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)

NARROW_TYPES = frozenset(
    "bfloat16 float16 half tfloat32 float32r float8_e4m3 float8_e5m2 float8_e4m3fn float8_e8m0fnu bfp16 tf32".split()
)
"""Names of NKI's and NumPy's floating types that hold or multiply less than fp32 does."""

_RUNNERS = frozenset("baremetal benchmark profile simulate_kernel simulate".split())

# Attributes without a leading underscore that lead from an object to the interpreter, to memory or to a file.
_REFLECTIVE_ATTRIBUTES = frozenset(
    "mro format format_map gi_frame gi_code gi_yieldfrom cr_frame cr_code ag_frame ag_code f_back f_builtins f_code "
    "f_globals f_locals f_trace tb_frame tb_next tb_lasti co_code co_consts func_globals func_code "
    "ctypes tofile dump dumps setflags setfield getfield byteswap".split()
)
# Attributes of tensors and indices that lead to the trace itself, where whatever was checked could be changed afterwards.
_TRACE_ATTRIBUTES = frozenset("access affine terms refused".split())
# Names behind which a package could keep a whole module.
_MODULE_NAMES = frozenset(
    "np numpy os sys io re ast inspect builtins importlib ctypes types gc time threading socket subprocess pathlib "
    "pickle functools itertools operator random warnings ml_dtypes".split()
)

_NUMPY_TYPES = frozenset(
    "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ bool single double half intc "
    "uintc integer floating number".split()
)
_NUMPY_CONSTANTS = frozenset("pi e inf nan newaxis euler_gamma".split())
_NUMPY_MAKERS = frozenset(
    "dtype identity eye zeros ones full array arange tri tril triu prod finfo iinfo linspace".split()
)
# Functions of NumPy that NKI takes as the name of an operation: op=np.add. They are passed, never called.
_NUMPY_OPERATIONS = frozenset(
    "abs absolute add all amax amin any arctan bitwise_and bitwise_or bitwise_xor bitwise_not ceil copy cos divide equal "
    "exp floor fmod greater greater_equal invert left_shift less less_equal log logical_and logical_not logical_or "
    "logical_xor max maximum mean min minimum mod multiply negative not_equal power prod reciprocal remainder "
    "right_shift sign sin sqrt square subtract sum tan tanh true_divide trunc var".split()
)

_FORBIDDEN_NODES: dict[type[ast.AST], tuple[Rule, str, str]] = {
    ast.Try: (Rule.exceptions, "try", "let an error of NKI end the trace; it says what to change"),
    ast.ClassDef: (Rule.construct, "class", "write functions"),
    ast.AsyncFunctionDef: (Rule.construct, "async def", "write a plain function"),
    ast.AsyncFor: (Rule.construct, "async for", "write a plain loop"),
    ast.AsyncWith: (Rule.construct, "async with", "write a plain with"),
    ast.Await: (Rule.construct, "await", "call it directly"),
    ast.Yield: (Rule.construct, "yield", "return the tensors"),
    ast.YieldFrom: (Rule.construct, "yield from", "return the tensors"),
    ast.Global: (Rule.state, "global", "pass values as arguments"),
    ast.Nonlocal: (Rule.state, "nonlocal", "pass values as arguments"),
    ast.Match: (Rule.construct, "match", "write if and elif"),
}
if hasattr(ast, "TryStar"):
    _FORBIDDEN_NODES[ast.TryStar] = _FORBIDDEN_NODES[ast.Try]

_BRACKET = re.compile(r"[()\[\]{}]")
_MAX_PREFIXES = 60
_PREFIX_RUN = re.compile(rf"(?:(?:[-+~]|not\b|lambda\b[^:\n]{{0,40}}:)\s*){{{_MAX_PREFIXES},}}")
_POWER_RUN = re.compile(r"(?:[\w.]{1,40}\s*\*\*\s*){60,}")


def inspect(source: str) -> list[Rejection]:
    """Every reason to refuse `source`, in order of lines, at most 20; none if it may be traced.

    Never raises, whatever the text.
    """
    oversized = _too_large(source)
    if oversized:
        return [oversized]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parse(source)
    except SyntaxError as error:
        text = " ".join(str(error.msg).split())
        shown = f"{text}: {error.text.strip()[:120]!r}" if error.text else text
        return [Rejection(Rule.syntax, error.lineno or 1, shown, "send Python that parses")]
    except (RecursionError, MemoryError):
        return [_deep(1)]
    except ValueError as error:
        return [Rejection(Rule.syntax, 1, str(error), "send Python that parses")]
    too_deep = _deepest(tree)
    if too_deep:
        return [too_deep]
    rejections = sorted(_Inspection(tree).rejections(), key=lambda rejection: rejection.line)
    return rejections[:_MAX_REJECTIONS]


def kernel_names(source: str) -> list[str]:
    """Names of the functions under @nki.jit, in order of appearance; none where the text does not parse."""
    tree = parsed(source)
    return [] if tree is None else [function.name for function in _Inspection(tree).kernels()]


def launch_grid(source: str) -> str | None:
    """The sizes that a text launches its kernel with, as source; None where it has no grid, or does not parse.

    A grid is said at module level, ``launched = kernel[4, 2]``; of several, the last holds.
    """
    tree = parsed(source)
    if tree is None:
        return None
    names = {function.name for function in _Inspection(tree).kernels()}
    grids = [
        ast.unparse(value.slice)
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and isinstance(value := statement.value, ast.Subscript)
        and isinstance(value.value, ast.Name)
        and value.value.id in names
    ]
    return grids[-1] if grids else None


def narrow_types(source: str) -> list[tuple[str, int]]:
    """Element types below fp32 that a text names, each with the line of its first mention."""
    tree = parsed(source)
    found: dict[str, int] = {}
    for node in ast.walk(tree) if tree is not None else ():
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
                if name in NARROW_TYPES:
                    found.setdefault(name, node.lineno)
            case ast.ImportFrom(names=aliases):
                for alias in aliases:
                    if alias.name in NARROW_TYPES:
                        found.setdefault(alias.name, node.lineno)
    return sorted(found.items(), key=lambda item: item[1])


def parsed(source: str) -> ast.Module | None:
    """The syntax tree of a text; None where it does not parse, or is too large to be parsed safely."""
    if _too_large(source):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _too_large(source: str) -> Rejection | None:
    if len(source) > MAX_SOURCE_BYTES or len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        return Rejection(
            Rule.size,
            1,
            f"the source has {len(source):,} characters, at most {MAX_SOURCE_BYTES:,} bytes are read",
            "write loops instead of unrolled statements",
        )
    # The parser recurses on these; a text made to exhaust its stack must not take the caller down.
    depth = deepest = 0
    for bracket in _BRACKET.finditer(source):
        depth = depth + 1 if bracket[0] in "([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    if deepest > _MAX_BRACKETS:
        return _deep(1)
    run = _POWER_RUN.search(source)
    if run:
        return _deep(source.count("\n", 0, run.start()) + 1)
    # Rulers of dashes in comments and docstrings look the same, and are none.
    line = _prefixed(source) if _PREFIX_RUN.search(source) else 0
    return _deep(line) if line else None


def _prefixed(source: str) -> int:
    """Line of the first long run of prefix operators in the code of a text; 0 where there is none.

    Tokens are told apart without recursion. Where that fails, the parser gets no further either.
    """
    count, in_lambda = 0, False
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.NL, tokenize.COMMENT):
                continue
            if in_lambda:
                in_lambda = token.string != ":"
            elif token.string in ("-", "+", "~", "not", "lambda"):
                count += 1
                in_lambda = token.string == "lambda"
            else:
                count = 0
            if count >= _MAX_PREFIXES:
                return token.start[0]
    except (tokenize.TokenError, SyntaxError):
        return 0
    return 0


def _deep(line: int) -> Rejection:
    return Rejection(
        Rule.nesting,
        line,
        "expressions or blocks are nested too deeply to be read",
        "split the expression into several statements",
    )


def _deepest(tree: ast.AST) -> Rejection | None:
    level: list[ast.AST] = [tree]
    for _ in range(_MAX_TREE_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return None
    return _deep(next((node.lineno for node in level if hasattr(node, "lineno")), 1))


class _Inspection:
    """One pass over one tree."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._modules: dict[str, str] = {}
        """Local name to the module or member that it was imported as."""
        self._defined: set[str] = set()
        self._parameters: set[str] = set()
        self._called: set[int] = set()
        self._bases: set[int] = set()
        self._types: set[int] = set()
        self._scan()

    def _scan(self) -> None:
        for node in ast.walk(self._tree):
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        target = alias.name if alias.asname else alias.name.split(".")[0]
                        self._modules[alias.asname or target] = target
                case ast.ImportFrom(module=module, names=names):
                    for alias in names:
                        self._modules[alias.asname or alias.name] = f"{module}.{alias.name}"
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    self._defined.add(name)
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    self._defined.add(name)
                case ast.arg(arg=name):
                    self._defined.add(name)
                case ast.Call(func=function):
                    self._called.add(id(function))
                case ast.Attribute(value=value):
                    self._bases.add(id(value))
            for annotation in _annotations(node):
                parts = list(ast.walk(annotation))
                if not any(isinstance(part, ast.NamedExpr | ast.Call | ast.Lambda) for part in parts):
                    self._types.update(map(id, parts))
        for kernel in self.kernels():
            arguments = kernel.args
            self._parameters.update(
                a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            )

    def kernels(self) -> Iterator[ast.FunctionDef]:
        """The functions under @nki.jit."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    target = decorator.func if isinstance(decorator, ast.Call) else decorator
                    path = self._path(target)
                    if path and _is_nki(path) and path.rsplit(".", 1)[-1] in ("jit", "trace"):
                        yield node
                        break

    def _path(self, node: ast.AST) -> str | None:
        """The dotted path that an expression names through an import, or None."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._modules:
            return None
        return ".".join([self._modules[node.id], *reversed(names)])

    def rejections(self) -> Iterator[Rejection]:
        if not any(True for _ in self.kernels()):
            yield Rejection(
                Rule.no_kernel,
                1,
                "no function is decorated with @nki.jit",
                "decorate the kernel with @nki.jit",
            )
        yield from self._module_level()
        for node in ast.walk(self._tree):
            forbidden = _FORBIDDEN_NODES.get(type(node))
            if forbidden:
                rule, what, advice = forbidden
                yield Rejection(
                    rule, getattr(node, "lineno", 1), f"{what} is not allowed in a kernel", advice
                )
            match node:
                case ast.Import() | ast.ImportFrom():
                    yield from self._imports(node)
                case ast.Name():
                    yield from self._name(node)
                case ast.Attribute():
                    yield from self._attribute(node)
                case ast.Call():
                    yield from self._call(node)
                case ast.FunctionDef() | ast.Lambda():
                    yield from self._function(node)
                case ast.Raise():
                    yield from self._raise(node)

    def _imports(self, node: ast.Import | ast.ImportFrom) -> Iterator[Rejection]:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield _import_refused(node.lineno, "a relative import")
            return
        paths = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            paths = [f"{module}.{alias.name}" for alias in node.names] if module != "neuronxcc" else paths
            if module == "neuronxcc":
                paths = [f"neuronxcc.{name}" for name in paths]
            if any(alias.name == "*" for alias in node.names):
                yield _import_refused(node.lineno, f"from {module} import *")
                return
        for path in paths:
            root = path.split(".")[0]
            if _is_nki(path):
                last = path.rsplit(".", 1)[-1]
                if last in _RUNNERS:
                    yield _runner_refused(node.lineno, last)
                elif any(part.startswith("_") or part in _MODULE_NAMES for part in path.split(".")):
                    yield _import_refused(node.lineno, path)
            elif root == "numpy":
                if isinstance(node, ast.ImportFrom):
                    yield from _numpy_member(path, node.lineno, called=False)
                elif path != "numpy":
                    yield _import_refused(node.lineno, path)
            elif root not in _OTHER_MODULES or (isinstance(node, ast.Import) and path != root):
                yield _import_refused(node.lineno, path)

    def _name(self, node: ast.Name) -> Iterator[Rejection]:
        name = node.id
        if name.startswith("__") or (name.startswith("_") and name.endswith("__")):
            yield Rejection(
                Rule.reflection, node.lineno, f"the name {name}", "name things without underscores"
            )
        elif name in self._modules:
            if not isinstance(node.ctx, ast.Load):
                yield Rejection(
                    Rule.state,
                    node.lineno,
                    f"{name} is imported and must not be assigned to",
                    "use another name for the variable",
                )
            elif id(node) not in self._bases and _is_module(self._modules[name]):
                yield Rejection(
                    Rule.reflection,
                    node.lineno,
                    f"the module {name} is used as a value",
                    f"use its members directly, as in {name}.something",
                )
        elif (
            isinstance(node.ctx, ast.Load)
            and name not in self._defined
            and name in _BUILTINS
            and name not in _ALLOWED_BUILTINS
        ):
            yield Rejection(
                Rule.builtin,
                node.lineno,
                f"{name} is not available in a kernel",
                "kernels use NKI calls, loops, arithmetic on sizes, and simple functions such as range, min and len",
            )

    def _attribute(self, node: ast.Attribute) -> Iterator[Rejection]:
        name = node.attr
        if name.startswith("_") or name in _REFLECTIVE_ATTRIBUTES or name in _TRACE_ATTRIBUTES:
            yield Rejection(
                Rule.reflection,
                node.lineno,
                f"the attribute {name}",
                "use the public names of NKI, and f-strings to format text",
            )
            return
        if not isinstance(node.ctx, ast.Load):
            yield Rejection(
                Rule.state,
                node.lineno,
                f"an assignment to the attribute {name}",
                "keep values in variables of the kernel",
            )
            return
        path = self._path(node)
        if path is None or id(node) in self._bases:
            # The longest path is judged; its beginnings are parts of it.
            return
        if _is_nki(path):
            yield from self._nki_member(path, node.lineno)
        elif path.startswith("numpy."):
            # Called, np.ndarray is memory of the process as it was; as a type it is documentation.
            if path != "numpy.ndarray" or id(node) not in self._types:
                yield from _numpy_member(path, node.lineno, called=id(node) in self._called)
        elif path.startswith("neuronxcc"):
            yield _import_refused(node.lineno, path)

    def _nki_member(self, path: str, line: int) -> Iterator[Rejection]:
        parts = path.split(".")
        if any(part in _MODULE_NAMES for part in parts):
            yield Rejection(
                Rule.reflection, line, f"{path} is not part of NKI", "use names that NKI documents"
            )
        elif parts[-1] in _RUNNERS and len(parts) <= 3:
            yield _runner_refused(line, parts[-1])

    def _call(self, node: ast.Call) -> Iterator[Rejection]:
        path = self._path(node.func)
        if not path or not path.startswith("numpy.") or path.split(".")[1] not in _NUMPY_MAKERS:
            return
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            for name in self._whole_parameters(argument):
                yield Rejection(
                    Rule.host_array,
                    node.lineno,
                    f"{path} is applied to the kernel's argument {name}",
                    "load it with nl.load and compute with nl and nisa",
                )

    def _whole_parameters(self, expression: ast.expr) -> Iterator[str]:
        """Kernel parameters in an expression, other than through their shape or dtype."""
        pending: list[ast.AST] = [expression]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype", "ndim", "itemsize"):
                continue
            if isinstance(node, ast.Name) and node.id in self._parameters:
                yield node.id
            pending.extend(ast.iter_child_nodes(node))

    def _function(self, node: ast.FunctionDef | ast.Lambda) -> Iterator[Rejection]:
        defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default)]
        for default in defaults:
            if not self._is_constant(default):
                yield Rejection(
                    Rule.state,
                    default.lineno,
                    "a parameter's default lives from call to call and must be a constant",
                    "use None, a number or a tuple as the default",
                )
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                path = self._path(target)
                if path is None or not _is_nki(path):
                    yield Rejection(
                        Rule.construct,
                        decorator.lineno,
                        "only NKI's decorators are allowed",
                        "decorate the kernel with @nki.jit and helpers with nothing",
                    )

    def _raise(self, node: ast.Raise) -> Iterator[Rejection]:
        target = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if node.cause or not isinstance(target, ast.Name):
            yield Rejection(
                Rule.exceptions,
                node.lineno,
                "only a plain raise of a built-in error is allowed",
                "use assert",
            )

    def _module_level(self) -> Iterator[Rejection]:
        for statement in self._tree.body:
            match statement:
                case (
                    ast.Import()
                    | ast.ImportFrom()
                    | ast.FunctionDef()
                    | ast.ClassDef()
                    | ast.AsyncFunctionDef()
                ):
                    continue
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    continue
                case ast.Assign(targets=[ast.Name()], value=ast.Subscript() as value) if self._is_launch(
                    value
                ):
                    continue
                case ast.Assign(value=value) | ast.AnnAssign(value=value) if (
                    value is None or self._is_constant(value)
                ):
                    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                    if all(isinstance(target, ast.Name | ast.Tuple) for target in targets):
                        continue
                    what = "an assignment into an object"
                case ast.Assign() | ast.AnnAssign():
                    what = "a value that can change"
                case ast.Try():
                    # Refused by its own rule.
                    continue
                case _:
                    what = "a statement that runs at import"
            yield Rejection(
                Rule.state,
                statement.lineno,
                f"{what} at module level",
                "keep imports, constants (numbers, strings, tuples) and functions there; move the rest into the kernel",
            )

    def _is_launch(self, node: ast.Subscript) -> bool:
        """Whether an expression is a kernel with the sizes of its launch grid, ``kernel[4, nl.spmd_dim(nl.nc(2), 2)]``."""
        kernels = {kernel.name for kernel in self.kernels()}
        sizes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return (
            isinstance(node.value, ast.Name)
            and node.value.id in kernels
            and all(self._is_grid_size(size) for size in sizes)
        )

    def _is_grid_size(self, node: ast.expr) -> bool:
        """Whether an expression is the extent of a grid's axis: a constant, or constants laid out over cores."""
        match node:
            case ast.Call(func=function, args=arguments, keywords=[]):
                path = self._path(function) or ""
                maker = _is_nki(path) and path.rsplit(".", 1)[-1] in ("nc", "spmd_dim")
                return maker and all(self._is_grid_size(argument) for argument in arguments)
            case ast.BinOp(left=left, right=right):
                return self._is_grid_size(left) and self._is_grid_size(right)
        return self._is_constant(node)

    def _is_constant(self, node: ast.expr) -> bool:
        """Whether an expression is immutable: numbers, strings, tuples of them, arithmetic, named constants."""
        match node:
            case ast.Constant() | ast.Name():
                return True
            case ast.Tuple(elts=elements):
                return all(self._is_constant(element) for element in elements)
            case ast.UnaryOp(operand=operand):
                return self._is_constant(operand)
            case ast.BinOp(left=left, right=right):
                return self._is_constant(left) and self._is_constant(right)
            case ast.Compare(left=left, comparators=others):
                return self._is_constant(left) and all(self._is_constant(other) for other in others)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return all(self._is_constant(part) for part in (test, body, orelse))
            case ast.Attribute():
                path = self._path(node)
                return path is not None
            case ast.Call(func=function, args=arguments, keywords=keywords):
                path = self._path(function) or (function.id if isinstance(function, ast.Name) else "")
                pure = path.startswith("math.") or path in ("min", "max", "int", "float", "abs", "round")
                scalar = path.startswith("numpy.") and path.split(".")[1] in (_NUMPY_TYPES | {"dtype"})
                values = (*arguments, *(keyword.value for keyword in keywords))
                return (pure or scalar) and all(self._is_constant(value) for value in values)
            case ast.Lambda():
                return True
        return False


def _annotations(node: ast.AST) -> list[ast.expr]:
    """The types that a node gives to its names."""
    match node:
        case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation) if annotation:
            return [annotation]
        case ast.FunctionDef(returns=annotation) if annotation:
            return [annotation]
    return []


def _is_nki(path: str) -> bool:
    return any(path == root or path.startswith(f"{root}.") for root in _NKI_ROOTS)


def _is_module(path: str) -> bool:
    if path in ("numpy", "math", "typing", "neuronxcc", *_NKI_ROOTS):
        return True
    return _is_nki(path) and path.rsplit(".", 1)[-1] in (
        "language",
        "isa",
        "typing",
        "compiler",
        "collectives",
    )


def _numpy_member(path: str, line: int, *, called: bool) -> Iterator[Rejection]:
    parts = path.split(".")
    member = parts[1]
    if member in _NUMPY_TYPES or member in _NUMPY_CONSTANTS or member in _NUMPY_MAKERS:
        return
    if member in _NUMPY_OPERATIONS and not called and (len(parts) == 2 or parts[2:] == ["reduce"]):
        return
    if member in _NUMPY_OPERATIONS:
        yield Rejection(
            Rule.host_array,
            line,
            f"{path} would compute on the host",
            f"use nl.{member} on tiles, or math for numbers; NumPy's functions only name operations, as in op=np.add",
        )
    else:
        yield Rejection(
            Rule.host_array,
            line,
            f"{path} is not available in a kernel",
            "NumPy is for constants and element types: np.float32, np.identity, np.full",
        )


def _import_refused(line: int, what: str) -> Rejection:
    return Rejection(
        Rule.imports,
        line,
        f"{what} cannot be imported in a kernel",
        "import neuronxcc.nki (or nki) and its language, isa, typing and compiler modules, numpy, and math",
    )


def _runner_refused(line: int, name: str) -> Rejection:
    return Rejection(
        Rule.runner, line, f"nki.{name} runs or measures kernels", "write the kernel only, under @nki.jit"
    )
