"""The worker's side of a reference: draw inputs, compute what is right, translate a kernel's outputs.

A reference may be a stranger's file, so it runs confined like a kernel, in a process that no kernel shares.
"""

from typing import Any

import numpy as np

from nkibench.errors import InvalidReference
from nkibench.reference import Reference
from nkibench.regime import change

from .channel import SharedArrays
from .worker import Answer, Fault, Operation


def preload() -> None:
    """Has the nursery import everything that a worker needs."""


def operations() -> dict[str, Operation]:
    """The operations of one worker that keeps one loaded reference."""
    worker = _ReferenceWorker()
    return {
        name: _typed(operation)
        for name, operation in (
            ("load", worker.load),
            ("draw", worker.draw),
            ("copy_arguments", worker.copy_arguments),
            ("forward", worker.forward),
            ("copy_outputs", worker.copy_outputs),
            ("from_nki", worker.from_nki),
            ("copy_translated", worker.copy_translated),
        )
    }


def _typed(operation: Operation) -> Operation:
    def guarded(fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        try:
            with np.errstate(all="ignore"):
                return operation(fields, tail, arrays)
        except InvalidReference as error:
            raise Fault("runtime_error", "invalid_reference", str(error)) from error

    return guarded


class _ReferenceWorker:
    def __init__(self) -> None:
        self._reference: Reference | None = None
        self._seed: int | None = None
        self._as_drawn: list[Any] = []
        """The inputs for `_seed` before any regime; drawing them is the slow part."""
        self._inputs: list[Any] = []
        self._arguments: list[np.ndarray] = []
        self._outputs: list[np.ndarray] = []
        self._translated: list[np.ndarray] = []

    def load(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Runs the file in the tail, with the constants that replace its own."""
        self._reference = Reference.load(tail.decode(), fields["constants"], fields["name"])
        return Answer()

    def draw(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Draws inputs for a seed under a regime; answers with the kernel's arguments, tensors without data."""
        assert self._reference is not None
        if self._seed != fields["seed"]:
            self._seed, self._as_drawn = None, []
            self._as_drawn = self._reference.inputs(fields["seed"])
            self._seed = fields["seed"]
        self._inputs = change(self._as_drawn, fields["regime"], fields["seed"])
        described: list[Any] = []
        self._arguments = []
        for number, value in enumerate(self._reference.to_nki(self._inputs)):
            if isinstance(value, np.ndarray):
                self._arguments.append(value)
                described.append(_described(value))
            elif isinstance(value, bool | int | float | np.generic):
                described.append(value.item() if isinstance(value, np.generic) else value)
            else:
                raise InvalidReference(
                    f"argument {number} of the kernel is {type(value).__name__}, not an array or a number; "
                    "give the kernel a constant for it, or its numbers one by one"
                )
        return Answer({"arguments": described})

    def copy_arguments(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Copies the drawn tensors into shared memory."""
        _copy(self._arguments, arrays[0])
        return Answer()

    def forward(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Computes the right outputs for the drawn inputs; answers with their shapes."""
        assert self._reference is not None
        # Those of the inputs before would else lie beside these, and they may have a gigabyte each.
        self._outputs = []
        self._outputs = [np.ascontiguousarray(output) for output in self._reference.forward(self._inputs)]
        return Answer({"outputs": [_described(output) for output in self._outputs]})

    def copy_outputs(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Copies them into shared memory."""
        _copy(self._outputs, arrays[0])
        return Answer()

    def from_nki(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Translates a kernel's outputs (first shared arrays) into the shapes of the reference's (second).

        An output that comes out as a part of the memory that came in is described by its place there, and need not be
        copied.
        """
        assert self._reference is not None
        returned, expected = arrays
        # As a rule a translation only reshapes, and touches neither.
        outputs = returned.arrays(whole=False)
        try:
            translated = self._reference.from_nki(outputs, expected.arrays(whole=False))
        except InvalidReference as error:
            raise Fault("incorrect", "output_shape", str(error)) from error
        described: list[dict[str, Any]] = []
        self._translated = []
        for value in translated:
            if not isinstance(value, np.ndarray):
                raise InvalidReference(
                    f"transform_nki_outputs() returned {type(value).__name__}, not an array"
                )
            place = _place(value, outputs, returned)
            if place is None:
                self._translated.append(np.ascontiguousarray(value))
            described.append({**_described(value), "offset": place})
        return Answer({"outputs": described})

    def copy_translated(self, fields: dict[str, Any], tail: bytes, arrays: list[SharedArrays]) -> Answer:
        """Copies those that had no place into shared memory."""
        _copy(self._translated, arrays[0])
        return Answer()


def _described(array: np.ndarray) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": array.dtype.name}


def _copy(values: list[np.ndarray], shared: SharedArrays) -> None:
    for target, value in zip(shared.arrays(writable=True), values, strict=True):
        np.copyto(target, value)


def _place(value: np.ndarray, outputs: list[np.ndarray], shared: SharedArrays) -> int | None:
    """Offset in shared memory of an array that is a contiguous piece of one of `outputs`."""
    if not value.flags.c_contiguous:
        return None
    address = value.__array_interface__["data"][0]
    for output, layout in zip(outputs, shared.layouts, strict=True):
        start = output.__array_interface__["data"][0]
        if start <= address and address + value.nbytes <= start + output.nbytes:
            return layout.offset + address - start
    return None
