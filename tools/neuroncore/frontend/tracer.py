"""From source text to `ir.Kernel`: compile the text, run the kernel's body once on symbolic tensors, check the result."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import gc
import inspect
import itertools
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..dtypes import as_dtype
from ..errors import KernelHostError, KernelSyntaxError, NKIError, TraceLimitError
from ..ir import Affine, Buffer, Kernel, Loop, LoopKind, LoopVar, Tensor, TensorKind
from . import loops
from .accumulation import settle
from .allocation import check_allocation, check_overwritten
from .arch import Architecture, architecture
from .dependences import check_dependencies
from .index import IndexExpr
from .markers import annotated
from .modules import neuron_modules
from .registry import signature_of_call
from .session import (
    Assumptions,
    Limits,
    NeedsInteger,
    Retrace,
    Session,
    activate,
    current,
    out_of_time,
)
from .source import ANNOTATION_HOOK, KERNEL_FILE, LOOP_HOOK, WHILE_HOOK, Hooks, SourceMap
from .tile import Tile
from .watchdog import DeadlinePassed, deadline


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """Shape and element type of a kernel argument, for tracing without data."""

    shape: tuple[int, ...]
    dtype: Any = np.float32


@dataclasses.dataclass
class JitFunction:
    """What ``@nki.jit`` makes of a function: a kernel that can be launched with a grid.

    Attributes:
        function: the kernel.
        grid: launch grid.
        by_reference: whether results go into parameters instead of being returned (kernels of before SDK 2.21).
        flags: experimental flags of the decorator.
        forced_auto: whether addresses that the kernel chooses are ignored.
    """

    function: Callable[..., Any]
    grid: tuple[int, ...] = ()
    by_reference: bool = False
    flags: frozenset[str] = frozenset()
    forced_auto: bool = False

    def __getitem__(self, grid: Any) -> JitFunction:
        """``kernel[n, m]``."""
        sizes = grid if isinstance(grid, tuple) else (grid,)
        return dataclasses.replace(self, grid=tuple(int(n) for n in sizes))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A kernel called from a kernel runs inline."""
        session = current()
        if session.loading:
            raise NKIError(
                "unsupported_api",
                f"kernel `{self.__name__}` is run while its module is loaded",
                line=session.line(),
                remedy='put what runs the kernel under `if __name__ == "__main__":`',
            )
        if self.grid:
            raise NKIError(
                "err_nested_kernel_with_spmd_grid",
                f"kernel `{self.__name__}` is launched with the grid {list(self.grid)} inside a kernel",
                line=session.line(),
            )
        return self.function(*args, **kwargs)

    @property
    def __name__(self) -> str:  # noqa: A003 - Python's name
        """The function's name."""
        return self.function.__name__


def jit(function: Any = None, mode: str = "auto", **options: Any) -> Any:
    """``@nki.jit``, with or without arguments."""
    if function is None:
        return lambda f: jit(f, mode, **options)
    if isinstance(function, JitFunction):
        return function
    if not callable(function):
        raise KernelSyntaxError(
            "no_kernel", f"nki.jit is applied to {type(function).__name__}, not to a function"
        )
    flags = frozenset(f.strip() for f in str(options.get("experimental_flags", "")).split(",") if f.strip())
    by_reference = mode == "trace" or options.get("kernel_return") is False
    return JitFunction(function, by_reference=by_reference, flags=flags)


def old_trace(function: Any = None, **options: Any) -> Any:
    """``@nki.trace``: a kernel that stores its results into parameters, or a function for other kernels to call."""
    return jit(function, "trace", **options)


def force_auto_alloc(function: Any = None) -> Any:
    """``@nki.compiler.force_auto_alloc``: the addresses that the kernel chooses are ignored."""
    if function is None:
        return force_auto_alloc
    return dataclasses.replace(jit(function), forced_auto=True)


_SAFE_BUILTINS = (
    "abs all any bool bytes callable chr complex dict divmod enumerate filter float format frozenset getattr hasattr "
    "hash int isinstance issubclass iter len list map max min next object ord pow print range repr reversed round set slice "
    "sorted str sum tuple type zip ArithmeticError AssertionError AttributeError Exception IndexError KeyError "
    "NotImplementedError RuntimeError StopIteration TypeError ValueError ZeroDivisionError True False None NotImplemented "
    "property staticmethod classmethod super __build_class__ Ellipsis"
).split()


def _quiet_print(*_: Any, **__: Any) -> None:
    """Kernels may print while tracing; nobody reads it."""


def kernel_builtins(modules: dict[str, types.ModuleType]) -> dict[str, Any]:
    """The builtins a kernel sees: no files, no processes, and imports of NKI, NumPy and a few pure modules only."""
    allowed = {
        "numpy",
        "math",
        "functools",
        "itertools",
        "typing",
        "dataclasses",
        "collections",
        "operator",
        "enum",
    }

    def importer(
        name: str, globals_: Any = None, locals_: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        if name in modules:
            root = name.split(".", 1)[0]
            return modules[name] if fromlist else modules[root]
        if name == "__future__" or name.split(".", 1)[0] in allowed:
            return builtins.__import__(name, globals_, locals_, fromlist, level)
        if name.split(".", 1)[0] in ("neuronxcc", "nki"):
            raise NKIError(
                "unknown_api",
                f"NKI has no module `{name}`",
                remedy=f"use {', '.join(m for m in sorted(modules) if '.' in m)}",
            )
        raise NKIError(
            "forbidden_import",
            f"a kernel cannot import `{name}`",
            remedy="use NKI, NumPy constants and math only",
        )

    table = {name: getattr(builtins, name) for name in _SAFE_BUILTINS if hasattr(builtins, name)}
    table["print"] = _quiet_print
    table["__import__"] = importer
    table["__name__"] = "builtins"
    return table


def detect_dialect(tree: ast.Module) -> str:
    """``neuronxcc.nki`` or ``nki``, from the imports.

    Raises:
        KernelSyntaxError: if the text imports neither.
    """
    found = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            if name == "neuronxcc" or name.startswith("neuronxcc."):
                found.add("neuronxcc.nki")
            elif name == "nki" or name.startswith("nki."):
                found.add("nki")
    if "neuronxcc.nki" in found:
        return "neuronxcc.nki"
    if "nki" in found:
        return "nki"
    raise KernelSyntaxError(
        "no_nki_import",
        "the source imports neither neuronxcc.nki nor nki",
        remedy="import neuronxcc.nki as nki, and neuronxcc.nki.language as nl",
    )


def parse(source: str, limits: Limits) -> ast.Module:
    """Parse kernel source.

    Raises:
        KernelSyntaxError: for text that is too long, not Python, or nested too deeply.
    """
    if len(source) > limits.source_bytes:
        raise KernelSyntaxError(
            "source_too_long",
            f"the source has {len(source):,} characters, the limit is {limits.source_bytes:,}",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source, KERNEL_FILE)
    except SyntaxError as error:
        raise KernelSyntaxError(
            "syntax_error", error.msg or "invalid syntax", line=error.lineno or 0
        ) from None
    except ValueError as error:
        raise KernelSyntaxError("syntax_error", str(error)) from None
    except (RecursionError, MemoryError):
        raise KernelSyntaxError("syntax_error", "the source is nested too deeply") from None


def _line_of(error: BaseException) -> int:
    line = 0
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == KERNEL_FILE:
            line = frame.lineno or line
    return line


@contextmanager
def _active(session: Session, modules: dict[str, types.ModuleType]) -> Iterator[None]:
    """Make the session current and NKI's stand-ins importable; put everything back."""
    previous = activate(session)
    saved = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in saved.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
        activate(previous)


_lock = threading.RLock()


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No cyclic garbage collection while a program grows: its passes over all that is alive took a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def trace(
    source: str,
    args: Sequence[Any],
    *,
    target: str = "trn1",
    entry: str | None = None,
    grid: tuple[int, ...] | None = None,
    limits: Limits | None = None,
) -> Kernel:
    """Trace a kernel to IR.

    Args:
        source: text of a Python module that defines a function decorated with ``@nki.jit``.
        args: its arguments: arrays or `ArraySpec`s for tensors, numbers (or anything else) as they are.
        target: ``trn1`` or ``trn2``; its limits are checked.
        entry: name of the kernel function; by default the last one decorated.
        grid: launch grid, if the kernel is written for one.
        limits: budget of the trace.

    Raises:
        NKIError: for everything that the compiler would refuse, and for exceeded budgets; never anything else.
    """
    limits = limits or Limits()
    try:
        with _lock, _collector_paused(), deadline(limits.seconds):
            return _Tracing(source, args, architecture(target), entry, grid, limits).run()
    except DeadlinePassed as error:
        raise out_of_time(limits, _line_of(error)) from None


class _Tracing:
    """One call of `trace`: attempts until the assumptions hold."""

    def __init__(
        self,
        source: str,
        args: Sequence[Any],
        machine: Architecture,
        entry: str | None,
        grid: tuple[int, ...] | None,
        limits: Limits,
    ) -> None:
        self.source = source
        self.args = args
        self.machine = machine
        self.limits = limits
        self.entry = entry
        self.grid = grid
        tree = parse(source, limits)
        self.dialect = detect_dialect(tree)
        self.source_map = SourceMap(tree)
        try:
            hooked = ast.fix_missing_locations(Hooks().visit(tree))
            with warnings.catch_warnings():
                # What the text makes Python wonder about is no matter of ours.
                warnings.simplefilter("ignore")
                self.code = compile(hooked, KERNEL_FILE, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise KernelSyntaxError(
                "syntax_error", str(error), line=getattr(error, "lineno", 0) or 0
            ) from None
        except (RecursionError, MemoryError):
            raise KernelSyntaxError("syntax_error", "the source is nested too deeply") from None

    def run(self) -> Kernel:
        """Attempt until done."""
        assumptions = Assumptions()
        deadline = time.monotonic() + self.limits.seconds
        self.modules = neuron_modules(self.dialect)
        # Every attempt runs the same code objects, so that sites found in one hold in the next.
        function = None
        for _ in range(1000):
            session = Session(self.machine, self.source_map, assumptions, self.limits, deadline, self.dialect)
            with _active(session, self.modules):
                if function is None:
                    function = self._load(session)
                try:
                    kernel = self._attempt(session, function)
                except Retrace:
                    continue
                except NeedsInteger as need:
                    self._unroll(session, need)
                    continue
                except NKIError as error:
                    error.line = error.line or _line_of(error)
                    raise
                except RecursionError as error:
                    raise TraceLimitError(
                        "recursion_limit", "the kernel recurses too deeply", line=_line_of(error)
                    ) from None
                except MemoryError as error:
                    raise TraceLimitError(
                        "out_of_memory", "tracing ran out of memory", line=_line_of(error)
                    ) from None
                except Exception as error:  # noqa: BLE001 - whatever the kernel's own Python raises is its author's to read
                    if self._unroll_everything(session):
                        continue
                    raise self._host_error(error) from None
            if session.left_early - assumptions.unrolled:
                assumptions.unrolled |= session.left_early
                continue
            return kernel
        raise TraceLimitError("trace_timeout", "tracing does not settle")

    def _load(self, session: Session) -> JitFunction:
        namespace: dict[str, Any] = {
            "__builtins__": kernel_builtins(self.modules),
            "__name__": "kernel",
            LOOP_HOOK: loops.enter,
            WHILE_HOOK: loops.decided,
            ANNOTATION_HOOK: annotated,
        }
        session.loading = True
        try:
            exec(self.code, namespace)  # noqa: S102 - the caller gates and confines
            session.loading = False
        except NKIError as error:
            if not error.line:
                error.line = _line_of(error)
            raise
        except (Exception, RecursionError) as error:  # noqa: BLE001 - see `run`
            raise self._host_error(error) from None
        kernels = {n: v for n, v in namespace.items() if isinstance(v, JitFunction)}
        if self.entry is not None:
            if self.entry not in kernels:
                raise KernelSyntaxError("no_kernel", f"the source has no @nki.jit function `{self.entry}`")
            chosen = kernels[self.entry]
        elif kernels:
            chosen = list(kernels.values())[-1]
        else:
            raise KernelSyntaxError(
                "no_kernel",
                "the source has no function decorated with @nki.jit",
                remedy="decorate the kernel with @nki.jit",
            )
        self.namespace = namespace
        return chosen

    def _attempt(self, session: Session, kernel: JitFunction) -> Kernel:
        function = kernel.function
        session.entry = function.__code__
        session.flags = kernel.flags
        session.allocation.forced_auto = kernel.forced_auto
        params, bound, scalars, names = self._bind(session, kernel)
        grid = self.grid if self.grid is not None else kernel.grid
        if session.assumptions.grid_unrolled:
            returned = self._every_instance(session, function, bound, grid)
        else:
            returned = self._any_instance(session, function, bound, grid)
        outputs = self._outputs(session, returned, params, kernel)
        settle(session)
        check_dependencies(session.top)
        traced = Kernel(
            name=function.__name__,
            dialect=self.dialect,
            params=params,
            outputs=outputs,
            body=session.top,
            source=self.source,
            target=self.machine.name,
            scalars=scalars,
            signature=names,
        )
        check_allocation(session, traced)
        check_overwritten(session, session.top)
        return traced

    def _any_instance(
        self, session: Session, function: Any, bound: inspect.BoundArguments, grid: tuple[int, ...]
    ) -> Any:
        """Run the kernel once, its program ids symbolic: loops around the whole body."""
        opened = []
        for k, n in enumerate(grid):
            if n == 1:
                session.grid = (*session.grid, (0, 1))
                continue
            var = LoopVar(session.unique(f"program_{k}"), int(n))
            loop = Loop(var, LoopKind.SPMD)
            session.open_loop(loop, None)
            opened.append(loop)
            session.grid = (*session.grid, (IndexExpr(Affine.of(var)), int(n)))
        returned = function(*bound.args, **bound.kwargs)
        for loop in reversed(opened):
            session.close_loop(loop)
        return returned

    def _every_instance(
        self, session: Session, function: Any, bound: inspect.BoundArguments, grid: tuple[int, ...]
    ) -> Any:
        """Run the kernel once for every instance of the grid, one after the other."""
        returned = None
        for k, ids in enumerate(itertools.product(*(range(n) for n in grid))):
            session.grid = tuple(zip(ids, grid, strict=True))
            session.shared.next_instance()
            result = function(*bound.args, **bound.kwargs)
            returned = result if k == 0 else returned
        return returned

    def _bind(
        self, session: Session, kernel: JitFunction
    ) -> tuple[list[Tensor], inspect.BoundArguments, dict[str, Any], list[str]]:
        """Input tensors, what to call the kernel with, its other arguments, and the names of the parameters given."""
        function = kernel.function
        try:
            bound, explicit = _arguments(inspect.signature(function), self.args)
        except TypeError as error:
            raise KernelSyntaxError(
                "wrong_arguments",
                f"the kernel takes {inspect.signature(function)}, but {len(self.args)} arguments are given: {error}",
                line=function.__code__.co_firstlineno,
            ) from None
        params: list[Tensor] = []
        scalars: dict[str, Any] = {}
        names = []
        for name, value in bound.arguments.items():
            parameter = bound.signature.parameters[name]
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                continue
            if name in explicit:
                names.append(name)
            several = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            given = []
            for k, item in enumerate(value if several else (value,)):
                label = name if not several or len(value) == 1 else f"{name}_{k}"
                if not _is_tensor(item):
                    if name in explicit:
                        scalars[label] = item
                    given.append(item)
                    continue
                tensor = Tensor(
                    session.unique(label),
                    tuple(int(n) for n in item.shape),
                    as_dtype(item.dtype),
                    Buffer.HBM,
                    kind=TensorKind.INPUT,
                    mutable="mutable" in str(parameter.annotation) or kernel.by_reference,
                )
                params.append(tensor)
                given.append(Tile(tensor.whole()))
            bound.arguments[name] = tuple(given) if several else given[0]
        return params, bound, scalars, names

    def _outputs(
        self, session: Session, returned: Any, params: list[Tensor], kernel: JitFunction
    ) -> list[Tensor]:
        values = (
            list(returned) if isinstance(returned, tuple | list) else [] if returned is None else [returned]
        )
        if kernel.by_reference and not values:
            values = [Tile(t.whole()) for t in params if t in session.written]
            if not values:
                raise NKIError("err_tensor_output_not_written_to", "no parameter is written")
        outputs = []
        for value in values:
            if not isinstance(value, Tile):
                raise NKIError("invalid_return", f"a kernel returns tensors, not {type(value).__name__}")
            tensor = value.access.tensor
            if tensor.buffer.on_chip:
                raise NKIError(
                    "err_unsupported_memory",
                    f"the kernel returns `{tensor.name}`, which is in {tensor.buffer}",
                    remedy="store it into an nl.ndarray(..., buffer=nl.shared_hbm) and return that",
                )
            if value.access != tensor.whole():
                raise NKIError(
                    "invalid_return",
                    f"the kernel returns a part of `{tensor.name}`",
                    remedy="return the whole tensor",
                )
            if tensor.storage not in session.written:
                raise NKIError(
                    "err_tensor_output_not_written_to",
                    f"output `{tensor.name}` is never written",
                    line=tensor.line,
                )
            if tensor.scope is not None and tensor.scope.kind is LoopKind.SPMD:
                tensor.scope = None  # what is returned outlives the instance that created it
            if tensor.storage.scope is not None and tensor.storage.scope.kind is not LoopKind.SPMD:
                raise NKIError(
                    "err_local_variable_used_out_of_scope",
                    f"the kernel returns `{tensor.name}`, which is created in a loop, anew in every iteration",
                    line=tensor.line,
                    remedy="create it before the loop",
                )
            outputs.append(tensor)
        may_keep = kernel.by_reference or "skip-mutable-return-check" in kernel.flags
        for tensor in [t for t in params if t.mutable and t in session.written and not may_keep]:
            if tensor not in [t.storage for t in outputs]:
                raise NKIError(
                    "err_mutable_parameter_not_returned",
                    f"mutable parameter `{tensor.name}` is written, not returned",
                )
        if not outputs:
            raise NKIError(
                "invalid_return",
                "the kernel returns nothing",
                remedy="create the output with nl.ndarray(..., buffer=nl.shared_hbm), store into it and return it",
            )
        return outputs

    def _unroll(self, session: Session, need: NeedsInteger) -> None:
        if any(session.kinds[v] is LoopKind.SPMD for v in need.loops):
            session.assumptions.grid_unrolled = True
            return
        sites = [session.sites.get(v) for v in need.loops]
        known = {s for s in sites if s is not None} - session.assumptions.unrolled
        if not known:
            raise NKIError(
                "err_dynamic_control_flow_not_supported",
                f"{need.why}; it cannot be unrolled",
                line=_line_of(need),
            )
        session.assumptions.unrolled |= known

    def _unroll_everything(self, session: Session) -> bool:
        """The kernel's Python failed with symbolic loops about; give it integers before blaming it."""
        sites = {
            s
            for v, s in session.sites.items()
            if s is not None and (session.kinds[v] is LoopKind.RANGE or session.unrolls_freely)
        }
        fresh = sites - session.assumptions.unrolled
        session.assumptions.unrolled |= fresh
        return bool(fresh)

    def _host_error(self, error: BaseException) -> NKIError:
        text = str(error) or type(error).__name__
        line = _line_of(error)
        if isinstance(error, TypeError):
            card = signature_of_call(error, self.dialect)
            if card is not None:
                return NKIError("unexpected_argument", text, line=line, remedy=f"the signature is {card}")
        if isinstance(error, AssertionError):
            said = str(error) or _asserted(self.source, line)
            return KernelHostError(
                "python_error",
                f"assertion failed: {said}",
                line=line,
                remedy="give the kernel arguments that it is written for, or change what it asserts",
            )
        message = f"{type(error).__name__}: {text}"
        return KernelHostError("python_error", message, line=line, remedy="fix the Python of the kernel")


def _asserted(source: str, line: int) -> str:
    """The condition of the ``assert`` at a line."""
    found = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Assert) and n.lineno <= line]
    return ast.unparse(max(found, key=lambda n: n.lineno).test) if found else "an assert"


def _arguments(
    signature: inspect.Signature, args: Sequence[Any]
) -> tuple[inspect.BoundArguments, frozenset[str]]:
    """Arguments in order for all parameters, those that take keywords only included, and the names of those given.

    Raises:
        TypeError: if they do not fit.
    """
    keywords = [p.name for p in signature.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    before = len(signature.parameters) - len(keywords)
    named = dict(zip(keywords, args[before:], strict=False)) if keywords else {}
    bound = signature.bind(*args[: len(args) - len(named)], **named)
    explicit = frozenset(bound.arguments)
    bound.apply_defaults()
    return bound, explicit


def _is_tensor(value: Any) -> bool:
    return isinstance(value, ArraySpec) or isinstance(value, np.ndarray) and value.ndim > 0
