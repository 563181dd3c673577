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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .errors import InvalidReference
from .regime import Regime

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
    constants: dict[str, int] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Constant(value=int(value))) if (
                not isinstance(value, bool)
            ):
                constants[target] = value
    return constants


def demands(source: str, name: str = "reference") -> tuple[float | None, tuple[Regime, ...]]:
    """What a reference asks of kernels beside its result, read without running it: `TOLERANCE` and `REGIMES`.

    Returns:
        The largest relative L2 error, None where the file does not say, and the input regimes, always with `normal`.

    Raises:
        InvalidReference: a syntax error, or a value that makes no sense.
    """
    given: dict[str, Any] = {}
    for node in _parse(source, name).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="TOLERANCE" | "REGIMES" as target)], value=value):
                try:
                    given[target] = ast.literal_eval(value)
                except ValueError as error:
                    raise InvalidReference(f"{name}: {target} must be written out as a constant") from error
    tolerance = given.get("TOLERANCE")
    if tolerance is not None and not (isinstance(tolerance, float) and 0 < tolerance < 1):
        raise InvalidReference(f"{name}: TOLERANCE must be a number between 0 and 1, not {tolerance!r}")
    wanted = given.get("REGIMES", ())
    known = [regime.value for regime in Regime]
    if not isinstance(wanted, list | tuple) or any(one not in known for one in wanted):
        raise InvalidReference(f"{name}: REGIMES must be a list of these, not {wanted!r}: {', '.join(known)}")
    return tolerance, tuple(dict.fromkeys((Regime.normal, *map(Regime, wanted))))


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
        return ast.parse(source, filename=name)
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
