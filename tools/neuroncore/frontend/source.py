"""What the kernel's text tells that running it does not: names of results, and variables carried around a loop."""

from __future__ import annotations

import ast
from types import CodeType, FrameType

KERNEL_FILE = "<kernel>"
"""File name under which kernel source is compiled; frames of kernels are recognised by it."""


class SourceMap:
    """Facts about a kernel's syntax tree, looked up by frame."""

    def __init__(self, tree: ast.Module) -> None:
        """Walk the tree once."""
        self._assigned: dict[tuple[int | None, ...], str] = {}
        self._names: dict[int, list[str | None]] = {}
        self._codes: list[CodeType] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._note(node.targets[0], node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._note(node.target, node.value)

    def _note(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            key = (value.lineno, value.end_lineno or 0, value.col_offset, value.end_col_offset or 0)
            self._assigned[key] = target.id
        elif (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            for t, v in zip(target.elts, value.elts, strict=True):
                self._note(t, v)

    def assigned_name(self, frame: FrameType) -> str | None:
        """The variable that the expression now being evaluated in `frame` is assigned to."""
        names = self._names.get(id(frame.f_code))
        if names is None:
            names = self._names[id(frame.f_code)] = [
                self._assigned.get(where) for where in frame.f_code.co_positions()
            ]
            self._codes.append(frame.f_code)  # keeps its identity from being given to another
        return names[frame.f_lasti // 2]


LOOP_HOOK = "__nki_loop__"
"""Name under which a kernel's globals hold `loops.enter`."""

WHILE_HOOK = "__nki_while__"
"""Name under which a kernel's globals hold `loops.decided`."""

ANNOTATION_HOOK = "__nki_annotated__"
"""Name under which a kernel's globals hold `markers.annotated`."""


class Hooks(ast.NodeTransformer):
    """Hand to the tracer what it cannot see by running the kernel.

    * ``for i in ITER`` becomes ``for i in __nki_loop__(ITER, "i", ("acc",))``, with the names that the body carries. Only
      statements are changed: a range in a comprehension or in ``list(...)`` yields plain integers.
    * ``while TEST`` becomes ``while __nki_while__(TEST)``.
    * ``t: tensor[128, 512] = VALUE`` becomes ``t: ... = __nki_annotated__(VALUE, lambda: tensor[128, 512])``, since Python
      does not evaluate the annotations of a function's variables.
    """

    def visit_For(self, node: ast.For) -> ast.AST:  # noqa: N802 - the visitor's naming
        """Wrap the iterable."""
        carried = carried_names(node)
        self.generic_visit(node)
        if isinstance(node.iter, ast.Starred):
            return node  # a syntax error, which only a call would make legal
        target = node.target.id if isinstance(node.target, ast.Name) else "i"
        names = ast.Tuple([ast.Constant(name) for name in sorted(carried)], ast.Load())
        told: list[ast.expr] = [ast.Constant(target), names, ast.Constant(collects(node))]
        for child in (*told, *names.elts):
            ast.copy_location(child, node.iter)
        node.iter = _call(LOOP_HOOK, [node.iter, *told], node.iter)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:  # noqa: N802 - the visitor's naming
        """Wrap the condition."""
        self.generic_visit(node)
        node.test = _call(WHILE_HOOK, [node.test], node.test)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:  # noqa: N802 - the visitor's naming
        """Wrap the value, if the annotation says a shape."""
        self.generic_visit(node)
        if node.value is not None and isinstance(node.annotation, ast.Subscript):
            empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            later = ast.copy_location(ast.Lambda(empty, node.annotation), node.value)
            node.value = _call(ANNOTATION_HOOK, [node.value, later], node.value)
        return node


def _call(name: str, args: list[ast.expr], where: ast.expr) -> ast.Call:
    function = ast.copy_location(ast.Name(name, ast.Load()), where)
    return ast.copy_location(ast.Call(func=function, args=args, keywords=[]), where)


def collects(loop: ast.For) -> bool:
    """Whether a loop's body itself (not a loop inside it) appends to a Python list."""
    pending: list[ast.AST] = list(loop.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.For):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("append", "extend", "insert"):
                return True
        pending.extend(ast.iter_child_nodes(node))
    return False


def carried_names(loop: ast.For) -> frozenset[str]:
    """Names whose value one iteration of a loop's body hands to the next."""
    live_in: set[str] = set()
    assigned: set[str] = set()

    def reads(node: ast.AST, written: set[str]) -> None:
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load) and child.id not in written:
                live_in.add(child.id)

    def writes(target: ast.expr) -> set[str]:
        return {n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def visit(body: list[ast.stmt], written: set[str]) -> set[str]:
        for statement in body:
            if isinstance(statement, ast.Assign):
                reads(statement.value, written)
                for target in statement.targets:
                    reads(target, written)
                    names = writes(target)
                    assigned.update(names)
                    written = written | names
            elif isinstance(statement, ast.AugAssign):
                reads(statement.value, written)
                if isinstance(statement.target, ast.Name):
                    if statement.target.id not in written:
                        live_in.add(statement.target.id)
                    assigned.add(statement.target.id)
                else:
                    reads(statement.target, written)
            elif isinstance(statement, ast.AnnAssign):
                if statement.value is not None:
                    reads(statement.value, written)
                    names = writes(statement.target)
                    assigned.update(names)
                    written = written | names
            elif isinstance(statement, ast.For):
                reads(statement.iter, written)
                names = writes(statement.target)
                assigned.update(names)
                visit(statement.body, written | names)
                visit(statement.orelse, written)
            elif isinstance(statement, ast.If):
                reads(statement.test, written)
                left = visit(statement.body, written)
                right = visit(statement.orelse, written)
                written = written | (left & right)
            elif isinstance(statement, ast.With | ast.While | ast.Try):
                for field in ("test", "items"):
                    value = getattr(statement, field, None)
                    for item in value if isinstance(value, list) else [value] if value is not None else []:
                        reads(item, written)
                visit(statement.body, written)
            elif isinstance(statement, ast.FunctionDef):
                names = {statement.name}
                assigned.update(names)
                written = written | names
            else:
                reads(statement, written)
        return written

    visit(loop.body, writes(loop.target))
    return frozenset(live_in & assigned)
