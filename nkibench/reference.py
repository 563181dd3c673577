"""The definition of a problem's result: a Python file in upstream NKIBench's form.

Such a file has module constants for the sizes (`M = 4096`) and up to four functions that read them when
called:

- `get_inputs()`: the inputs, drawn from NumPy's global random state; arrays, and scalars where the kernel
  takes some.
- `forward(*inputs)`: the right output, or a tuple of outputs.
- `transform_to_nki_inputs(inputs)`: the arguments of the kernel. Absent, the inputs are passed as they are.
- `transform_nki_outputs(outputs, reference)`: what the kernel returned (one array, or a tuple) in the shapes
  of `forward`'s result. Absent, each output is reshaped to its reference.

Loading runs the file. A reference from somebody else's hands belongs in a confined process, like a kernel.
"""

import ast
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from .errors import InvalidFormula, InvalidReference
from .formula import evaluate
from .regime import Regime
from .syntax import parse

REQUIRED_FUNCTIONS = ("get_inputs", "forward")

# get_inputs() draws from NumPy's one global generator; two threads must not interleave there.
_GLOBAL_RANDOM_STATE = threading.Lock()


def integer_constants(source: str, name: str = "reference") -> dict[str, int]:
    """The module-level integer constants of a reference, read without running it: its shape.

    Raises:
        InvalidReference: a syntax error, or a required function that is not defined.
    """
    tree = _parse(source, name)
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    _check_functions(defined, name)
    return {
        target: value.value
        for target, value in _assignments(tree)
        if isinstance(value, ast.Constant) and type(value.value) is int and target not in _DEMANDS
    }


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names that the module binds at its top level, those of `M, N = 128, 512` one by one."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                yield target, value
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(
                targets
            ) == len(values):
                for name, value in zip(targets, values, strict=True):
                    if isinstance(name, ast.Name):
                        yield name.id, value


class Demands(NamedTuple):
    """What a reference says of its kernels beside their result, all of it optional."""

    tolerance: float | None
    """`TOLERANCE`: the largest relative L2 error."""
    regimes: tuple[Regime, ...]
    """`REGIMES`: harder inputs to check on; always with `normal`."""
    matmul_flops: int | None
    """`MATMUL_FLOPS`: multiplications and additions of the matmuls, a formula over the file's integers."""
    vector_flops: int | None
    """`VECTOR_FLOPS`: elementwise and reduction operations, likewise."""


_DEMANDS = ("TOLERANCE", "REGIMES", "MATMUL_FLOPS", "VECTOR_FLOPS")


def demands(source: str, name: str = "reference") -> Demands:
    """What a reference asks of kernels beside its result, read without running it.

    Raises:
        InvalidReference: a syntax error, or a value that makes no sense.
    """
    given: dict[str, Any] = {}
    integers: dict[str, int] = {}
    for target, value in _assignments(_parse(source, name)):
        if target in ("TOLERANCE", "REGIMES"):
            try:
                given[target] = ast.literal_eval(value)
            except ValueError as error:
                raise InvalidReference(f"{name}: {target} must be written out as a constant") from error
            continue
        try:
            integers[target] = evaluate(ast.unparse(value), integers)
        except InvalidFormula as error:
            if target in _DEMANDS:
                raise InvalidReference(f"{name}: {target}: {error}") from error
        if target in _DEMANDS and integers[target] < 0:
            raise InvalidReference(f"{name}: {target} is {integers[target]}, less than nothing")
    tolerance = given.get("TOLERANCE")
    if tolerance is not None and not (isinstance(tolerance, float) and 0 < tolerance < 1):
        raise InvalidReference(f"{name}: TOLERANCE must be a number between 0 and 1, not {tolerance!r}")
    wanted = given.get("REGIMES", ())
    known = [regime.value for regime in Regime]
    if not isinstance(wanted, list | tuple) or any(one not in known for one in wanted):
        raise InvalidReference(f"{name}: REGIMES must be a list of these, not {wanted!r}: {', '.join(known)}")
    regimes = tuple(dict.fromkeys((Regime.normal, *map(Regime, wanted))))
    return Demands(tolerance, regimes, integers.get("MATMUL_FLOPS"), integers.get("VECTOR_FLOPS"))


class Reference:
    """A loaded reference file, at one choice of its constants."""

    def __init__(self, module: ModuleType, name: str) -> None:
        """Wraps an executed module; use `load`."""
        _check_functions({key for key, value in vars(module).items() if callable(value)}, name)
        self._module = module
        self.name = name

    @classmethod
    def load(
        cls, source: str | Path, constants: Mapping[str, int] | None = None, name: str | None = None
    ) -> "Reference":
        """Runs a reference file, given as its path or its text, and replaces its `constants`.

        Constants that the file computes from others at import are not recomputed.

        Raises:
            InvalidReference: unreadable, a syntax or run-time error, a function missing, an unknown constant.
        """
        if isinstance(source, Path):
            name = name or str(source)
            try:
                text = source.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidReference(f"cannot read the reference {source}: {error}") from error
        else:
            name, text = name or "reference", source
        module = ModuleType("reference")
        module.__file__ = name
        code = compile(_parse(text, name), name, "exec")
        _guarded(lambda: exec(code, module.__dict__), name, "the file")
        for constant, value in (constants or {}).items():
            if not isinstance(vars(module).get(constant), int):
                raise InvalidReference(f"{name}: no integer constant {constant} to set to {value}")
            setattr(module, constant, value)
        return cls(module, name)

    def inputs(self, seed: int) -> list[Any]:
        """The inputs for `seed`: arrays, and scalars where the reference has some.

        The global random state is put back afterwards.
        """
        with _GLOBAL_RANDOM_STATE:
            state = np.random.get_state()
            np.random.seed(seed)
            try:
                inputs = self._call("get_inputs")
            finally:
                np.random.set_state(state)
        if not isinstance(inputs, list | tuple) or not any(isinstance(value, np.ndarray) for value in inputs):
            raise InvalidReference(
                f"{self.name}: get_inputs() must return a list with at least one NumPy array"
            )
        return list(inputs)

    def forward(self, inputs: Sequence[Any], dtype: DTypeLike | None = None) -> list[np.ndarray]:
        """The right outputs for `inputs`; with `dtype`, computed from inputs cast to it (float64, say)."""
        if dtype is not None:
            inputs = [
                value.astype(dtype) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
                for value in inputs
            ]
        result = self._call("forward", *inputs)
        outputs = list(result) if isinstance(result, list | tuple) else [result]
        for index, output in enumerate(outputs):
            if not isinstance(output, np.ndarray):
                kind = type(output).__name__
                raise InvalidReference(
                    f"{self.name}: forward() returned {kind} as output {index}, not an array"
                )
        return outputs

    def to_nki(self, inputs: Sequence[Any]) -> list[Any]:
        """The kernel's arguments for `inputs`: arrays and Python scalars."""
        if not hasattr(self._module, "transform_to_nki_inputs"):
            return list(inputs)
        arguments = self._call("transform_to_nki_inputs", list(inputs))
        if not isinstance(arguments, list | tuple):
            raise InvalidReference(f"{self.name}: transform_to_nki_inputs() must return a list of arguments")
        return list(arguments)

    def from_nki(self, outputs: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> list[np.ndarray]:
        """A kernel's `outputs` in the shapes of `reference`, which is what `forward` returned.

        Raises:
            InvalidReference: the number of outputs differs, or they cannot be brought to that shape. The
                kernel may be the one to blame.
        """
        if len(outputs) != len(reference):
            raise InvalidReference(
                f"the kernel returned {len(outputs)} outputs, the reference {len(reference)}"
            )
        if not hasattr(self._module, "transform_nki_outputs"):
            result: Any = [
                _guarded(partial(np.reshape, array, expected.shape), self.name, "the kernel's output")
                for array, expected in zip(outputs, reference, strict=True)
            ]
        else:
            # Upstream's functions expect a bare array where there is one output.
            result = self._call("transform_nki_outputs", _bare(outputs), _bare(reference))
        return list(result) if isinstance(result, list | tuple) else [result]

    def _call(self, function: str, *arguments: Any) -> Any:
        return _guarded(lambda: getattr(self._module, function)(*arguments), self.name, f"{function}()")


def _bare(arrays: Sequence[np.ndarray]) -> Any:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _parse(source: str, name: str) -> ast.Module:
    try:
        return parse(source, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InvalidReference(f"{name}{line}: {getattr(error, 'msg', error)}") from error


def _check_functions(defined: set[str], name: str) -> None:
    for function in REQUIRED_FUNCTIONS:
        if function not in defined:
            needed = " and ".join(f"{one}()" for one in REQUIRED_FUNCTIONS)
            raise InvalidReference(f"{name}: defines no function {function}(); a reference has {needed}")


def _guarded(call: Callable[[], Any], name: str, what: str) -> Any:
    """Runs code of the file, and turns whatever it raises into one line that says where."""
    try:
        return call()
    except InvalidReference:
        raise
    except (Exception, SystemExit) as error:
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name
        ]
        where = f", line {lines[-1]}" if lines else ""
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InvalidReference(f"{name}{where}: {what} failed with {message}") from error
