"""One problem of the benchmark: what to compute, at which size, how exactly, and how much work that is."""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from .errors import InvalidFormula, InvalidProblem, WorkUnknown
from .formula import evaluate
from .reference import Reference
from .regime import Regime
from .roofline import Bound

_ELEMENT_BYTES = 4

Shape = dict[str, Annotated[int, Field(gt=0)]]
Source = Literal["accelopt", "upstream", "user"]


def _sorted_out(name: str) -> str:
    if not name or not all(character.isalnum() or character in "_.-" for character in name):
        raise ValueError(f"a problem's name consists of letters, digits and _ . -, not {name!r}")
    return name


class Work(BaseModel):
    """What any kernel has to do at least, for one problem at one shape."""

    model_config = ConfigDict(frozen=True)

    vector_flops: int = Field(ge=0)
    """Elementwise and reduction operations, on the vector and scalar engines."""
    matmul_flops: int = Field(ge=0)
    """Multiplications and additions of the matmuls; transposes are not work."""
    min_traffic_bytes: int = Field(ge=0)
    """Bytes of every input and output of the problem, each moved once."""


class Argument(BaseModel):
    """One argument that the kernel takes: a tensor in HBM, or a constant."""

    model_config = ConfigDict(frozen=True)

    name: str
    """For people; arguments are passed by position."""
    shape: tuple[str, ...] = ()
    """Formulas over the problem's sizes, one a dimension; empty for a constant."""
    value: float | None = None
    """The constant's value; None for a tensor."""

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> "Argument":
        if bool(self.shape) == (self.value is not None):
            raise ValueError(f"argument {self.name} needs either a shape or a value")
        return self


class ArraySize(BaseModel):
    """Shape and type of a tensor, without its data."""

    model_config = ConfigDict(frozen=True)

    shape: tuple[int, ...]
    """Elements a dimension."""
    dtype: str = "float32"
    """NumPy's name of the element type."""


class SourceFile(BaseModel):
    """A Python file, on disk or handed over as text."""

    model_config = ConfigDict(frozen=True)

    path: Path | None = None
    """Where it lies; None for a text that came without a file."""
    text: str | None = None
    """Its text, where it is not read from `path` each time."""

    @model_validator(mode="after")
    def _has_one(self) -> "SourceFile":
        if self.path is None and self.text is None:
            raise ValueError("a source file needs a path or a text")
        return self

    @classmethod
    def of(cls, source: str | Path) -> "SourceFile":
        """From a path, or from a text."""
        return cls(path=source) if isinstance(source, Path) else cls(text=source)

    def read(self) -> str:
        """The text.

        Raises:
            InvalidProblem: it cannot be read.
        """
        if self.text is not None:
            return self.text
        assert self.path is not None
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidProblem(f"cannot read {self.path}: {error}") from error


class Problem(BaseModel):
    """A kernel to write and to make fast."""

    model_config = ConfigDict(frozen=True)

    name: Annotated[str, AfterValidator(_sorted_out)]
    """What people type; unique among the problems at hand."""
    operation: str | None = None
    """Name of the operation, where that is not the problem's own: imported problems differ in sizes only."""
    title: str
    """The operation in a few words."""
    operator: str
    """Family of the operation, by which experiences are recalled for related problems."""
    description: str
    """The operation in a sentence or two, with its formula."""
    shape: Shape
    """Sizes by name, as the paper has them."""
    small_shape: Shape
    """Sizes for quick tests: more than one tile in each dimension that has many at full size."""
    tolerance: float = Field(gt=0, lt=1)
    """Largest relative L2 error of an output that counts as correct."""
    dtype: Literal["float32"] = "float32"
    """Element type of every input and output."""
    vector_flops: str | None = None
    """Formula over the sizes' names; None where the work is not known."""
    matmul_flops: str | None = None
    """Formula over the sizes' names; None where the work is not known."""
    min_traffic_elements: str | None = None
    """Formula over the sizes' names: elements of every input and output. None where only bytes are known."""
    min_traffic_bytes: int | None = Field(default=None, ge=0)
    """Bytes of every input and output, measured on the reference; used where there is no formula."""
    bound: Bound
    """Resource that limits the problem at its full shape on trn1."""
    regimes: tuple[Regime, ...] = (Regime.normal,)
    """Input distributions under which fp32 can compute the result within the tolerance."""
    arguments: tuple[Argument, ...] | None = None
    """The kernel's arguments, in order; None where only running the reference tells them."""
    source: Source
    """Whose problem it is: ours, an upstream checkout's, or a user's own."""
    reference_file: SourceFile
    """The definition of the result."""
    baseline_file: SourceFile
    """The kernel to start from."""

    @model_validator(mode="after")
    def _is_consistent(self) -> "Problem":
        if set(self.small_shape) != set(self.shape):
            raise ValueError(f"small_shape has {sorted(self.small_shape)}, shape has {sorted(self.shape)}")
        if Regime.normal not in self.regimes:
            raise ValueError("regimes must contain normal, the benchmark's own distribution")
        formulas = [self.vector_flops, self.matmul_flops, self.min_traffic_elements]
        formulas += [size for argument in self.arguments or () for size in argument.shape]
        for formula in filter(None, formulas):
            for shape in (self.shape, self.small_shape):
                try:
                    value = evaluate(formula, shape)
                except InvalidFormula as error:
                    raise ValueError(str(error)) from error
                if value < 0:
                    raise ValueError(f"the formula {formula!r} is negative at {shape}")
        return self

    @cached_property
    def folder(self) -> Path | None:
        """Where the reference lies; None for one that came as text."""
        return self.reference_file.path.parent if self.reference_file.path else None

    def sizes(self, small: bool = False) -> dict[str, int]:
        """The full shape, or the small one."""
        return dict(self.small_shape if small else self.shape)

    def work(self, small: bool = False) -> Work:
        """The least work of any kernel for this problem.

        Raises:
            WorkUnknown: nothing has been said or measured about it; `with_measured_traffic` does that.
        """
        sizes = self.sizes(small)
        if self.min_traffic_elements is not None:
            traffic = evaluate(self.min_traffic_elements, sizes) * _ELEMENT_BYTES
        elif self.min_traffic_bytes is not None:
            traffic = self.min_traffic_bytes
        else:
            raise WorkUnknown(f"{self.name}: its traffic is known only after its reference has run once")
        return Work(
            vector_flops=evaluate(self.vector_flops or "0", sizes),
            matmul_flops=evaluate(self.matmul_flops or "0", sizes),
            min_traffic_bytes=traffic,
        )

    def with_measured_traffic(self, inputs: list[Any], outputs: list[np.ndarray]) -> "Problem":
        """This problem, its least traffic counted from what its reference takes and returns."""
        arrays = [value for value in [*inputs, *outputs] if isinstance(value, np.ndarray)]
        return self.with_traffic(sum(array.nbytes for array in arrays))

    def with_traffic(self, nbytes: int) -> "Problem":
        """This problem, its least traffic being known to be so many bytes."""
        return self.model_copy(update={"min_traffic_bytes": nbytes})

    def reference(self, small: bool = False) -> Reference:
        """The reference, loaded at the full or the small shape. This runs its file.

        Raises:
            InvalidReference: see `Reference.load`.
        """
        source = self.reference_file
        # Only our own files are known to read their constants when called; others run as they are written.
        constants = self.sizes(small) if self.source == "accelopt" else None
        name = str(source.path) if source.path else f"reference of {self.name}"
        return Reference.load(source.read(), constants, name)

    def argument_values(self, small: bool = False) -> list[ArraySize | float]:
        """The kernel's arguments without data: sizes of tensors, values of constants.

        Where the problem does not state them, its reference draws inputs once to find out.
        """
        sizes = self.sizes(small)
        if self.arguments is None:
            reference = self.reference(small)
            return [
                ArraySize(shape=value.shape, dtype=value.dtype.name)
                if isinstance(value, np.ndarray)
                else value
                for value in reference.to_nki(reference.inputs(0))
            ]
        return [
            argument.value
            if argument.value is not None
            else ArraySize(shape=tuple(evaluate(size, sizes) for size in argument.shape), dtype=self.dtype)
            for argument in self.arguments
        ]

    def reference_source(self) -> str:
        """The text of the reference file."""
        return self.reference_file.read()

    def baseline_source(self) -> str:
        """The text of the kernel to start from."""
        return self.baseline_file.read()
