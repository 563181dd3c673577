"""The verdict on a kernel's results, computed outside the process that made them.

Errors are relative L2 norms in float64, of the whole output and of its worst tile: a kernel that gets one tile in a
thousand wrong can hide in the norm of the whole, not in its own. Arrays may be a gigabyte; they are read a tile at a
time, in place.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from nkibench.problem import Work
from nkibench.roofline import peak_ms

from .backends import ArrayType, Narrowing
from .channel import ArrayLayout
from .profile import Profile

TILE_ROWS, TILE_COLUMNS = 128, 512
"""A tile of an output: as many rows as partitions, as many columns as a PSUM bank holds in fp32."""

# A worst tile lies above the mean of all tiles even when errors are uniform; the paper bounds the mean only.
_TILE_FACTOR = 2.0
# Errors of a nearly empty tile are judged against this share of what an average tile holds.
_EMPTY_TILE_SHARE = 0.1
# Below this size threads cost more than they give.
_PARALLEL_ELEMENTS = 1 << 22


class Check(StrEnum):
    """What a verification looks at."""

    number = "output_count"
    shape = "output_shape"
    written = "output_written"
    """Every element is written: memory is NaN before."""
    norm = "relative_l2"
    tile = "tile_relative_l2"
    """The error of the worst tile, not only that of the whole."""
    reproducible = "reproducible"
    inputs = "inputs_unchanged"
    precision = "precision"
    """Nothing below the precision of the baseline anywhere in the compiled kernel."""
    latency = "latency_above_roofline"
    traffic = "traffic_above_minimum"
    flops = "flops_above_minimum"


class Finding(NamedTuple):
    """What is wrong with an output, and where it is worst."""

    check: Check
    output: int
    place: tuple[int, ...] | None
    expected: float | None
    got: float | None
    message: str


class Comparison(NamedTuple):
    """Errors of one run against its reference, and the first thing wrong with it."""

    relative_l2: float
    tile_relative_l2: float
    finding: Finding | None


@dataclass(frozen=True)
class Expected:
    """The right outputs, with the sum of squares of each of their tiles."""

    arrays: list[np.ndarray]
    tile_squares: list[np.ndarray]

    @classmethod
    def of(cls, arrays: Sequence[np.ndarray], threads: int = 1) -> "Expected":
        """Computes the sums."""
        return cls(list(arrays), [tile_squares(array, None, threads) for array in arrays])


def compare(
    outputs: Sequence[np.ndarray], expected: Expected, tolerance: float, threads: int = 1
) -> Comparison:
    """Holds a kernel's outputs against the right ones.

    Args:
        outputs: arrays in the shapes of the reference.
        expected: the right outputs.
        tolerance: largest relative L2 error of an output; a tile may have twice that.
        threads: cores to use.
    """
    if len(outputs) != len(expected.arrays):
        message = f"the kernel returns {len(outputs)} outputs, the reference {len(expected.arrays)}"
        return Comparison(math.inf, math.inf, Finding(Check.number, 0, None, None, None, message))
    worst = worst_tile = 0.0
    found: Finding | None = None
    for number, (output, right, right_squares) in enumerate(
        zip(outputs, expected.arrays, expected.tile_squares, strict=True)
    ):
        if output.shape != right.shape:
            message = f"output {number} has shape {list(output.shape)}, the reference {list(right.shape)}"
            return Comparison(math.inf, math.inf, Finding(Check.shape, number, None, None, None, message))
        error, tile_errors = _errors(output, right, right_squares, threads)
        worst, worst_tile = (
            _larger(worst, error),
            _larger(worst_tile, float(np.max(tile_errors, initial=0.0))),
        )
        if found is None:
            found = _judge(number, output, right, error, tile_errors, tolerance)
    return Comparison(worst, worst_tile, found)


def _larger(a: float, b: float) -> float:
    """The maximum, with NaN above everything."""
    return b if math.isnan(b) or b > a else a


def _errors(
    output: np.ndarray, right: np.ndarray, right_squares: np.ndarray, threads: int
) -> tuple[float, np.ndarray]:
    """Relative L2 error of the whole, and of each tile."""
    squares = tile_squares(output, right, threads)
    total, right_total = float(squares.sum()), float(right_squares.sum())
    scale = np.maximum(right_squares, _EMPTY_TILE_SHARE**2 * right_total / max(right_squares.size, 1))
    with np.errstate(all="ignore"):
        tiles = np.sqrt(np.where(squares == 0, 0.0, squares / scale))
        whole = 0.0 if total == 0 else float(np.sqrt(np.float64(total) / right_total))
    return whole, tiles


def _judge(
    number: int,
    output: np.ndarray,
    right: np.ndarray,
    error: float,
    tile_errors: np.ndarray,
    tolerance: float,
) -> Finding | None:
    worst_tile = float(np.max(tile_errors, initial=0.0))
    if error < tolerance and worst_tile < _TILE_FACTOR * tolerance:
        return None
    if error == 0 and worst_tile == 0:
        return None
    tile = int(np.argmax(np.where(np.isnan(tile_errors), np.inf, tile_errors)))
    index, want, got = _worst_element(output, right, tile)
    where = f"output {number} at {list(index)}: expected {want:.9g}, got {got:.9g}"
    if math.isnan(got) and not math.isnan(want):
        return Finding(
            Check.written,
            number,
            index,
            want,
            got,
            f"{where}; the element was never written, or computed from memory that was not",
        )
    if error < tolerance:
        return Finding(
            Check.tile,
            number,
            index,
            want,
            got,
            f"the worst tile of output {number} has relative L2 error {worst_tile:.3g}, "
            f"allowed is {_TILE_FACTOR * tolerance:.3g}; {where}",
        )
    return Finding(
        Check.norm,
        number,
        index,
        want,
        got,
        f"relative L2 error {error:.3g}, allowed is {tolerance:.3g}; {where}",
    )


def tile_squares(array: np.ndarray, subtract: np.ndarray | None = None, threads: int = 1) -> np.ndarray:
    """Sum of squares over each tile of `array` (minus `subtract`), in float64; tiles in row-major order.

    An array counts as a matrix of its last axis by all others.
    """
    matrix = _matrix(array)
    other = None if subtract is None else _matrix(subtract)
    rows = range(0, matrix.shape[0], TILE_ROWS)
    columns = range(0, matrix.shape[1], TILE_COLUMNS)
    result = np.zeros((len(rows), len(columns)))

    # Two nearby fp32 numbers subtract without rounding, so the difference loses nothing by its type.
    narrow = np.float32 if other is not None and matrix.dtype == other.dtype == np.float32 else np.float64

    def fill(numbers: range) -> None:
        wide = np.empty((TILE_ROWS, TILE_COLUMNS))
        difference = np.empty((TILE_ROWS, TILE_COLUMNS), narrow)
        for i in numbers:
            for j, column in enumerate(columns):
                place = np.s_[rows[i] : rows[i] + TILE_ROWS, column : column + TILE_COLUMNS]
                tile = matrix[place]
                values = wide[: tile.shape[0], : tile.shape[1]]
                if other is None:
                    np.copyto(values, tile, casting="unsafe")
                else:
                    part = difference[: tile.shape[0], : tile.shape[1]]
                    np.subtract(tile, other[place], out=part, dtype=narrow)
                    np.copyto(values, part)
                # Not np.dot: BLAS would start threads for every tile, and spend its time in waking them.
                result[i, j] = np.einsum("ij,ij->", values, values)

    with np.errstate(all="ignore"):
        if threads > 1 and array.size >= _PARALLEL_ELEMENTS:
            parts = [range(len(rows))[start::threads] for start in range(threads)]
            with ThreadPoolExecutor(threads) as executor:
                list(executor.map(fill, parts))
        else:
            fill(range(len(rows)))
    return result.reshape(-1)


def _matrix(array: np.ndarray) -> np.ndarray:
    if array.ndim < 2:
        return array.reshape(1, -1)
    return array.reshape(-1, array.shape[-1])


def _worst_element(output: np.ndarray, right: np.ndarray, tile: int) -> tuple[tuple[int, ...], float, float]:
    """The element of a tile that is furthest off: its index in the output, its right value and its value."""
    matrix, right_matrix = _matrix(output), _matrix(right)
    per_row = -(-matrix.shape[1] // TILE_COLUMNS)
    row, column = tile // per_row * TILE_ROWS, tile % per_row * TILE_COLUMNS
    place = np.s_[row : row + TILE_ROWS, column : column + TILE_COLUMNS]
    with np.errstate(all="ignore"):
        off = np.abs(matrix[place].astype(np.float64) - right_matrix[place].astype(np.float64))
    i, j = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape)
    flat = (row + int(i)) * matrix.shape[1] + column + int(j)
    index = tuple(int(n) for n in np.unravel_index(flat, output.shape)) if output.ndim else ()
    return index, float(right_matrix[row + i, column + j]), float(matrix[row + i, column + j])


def first_difference(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> Finding | None:
    """The first element in which two runs on the same inputs differ; None if they agree to the last bit."""
    for number, (one, two) in enumerate(zip(first, second, strict=True)):
        for start, a, b in _pieces(one, two):
            if np.array_equal(a.view(np.uint8), b.view(np.uint8)):
                continue
            differing = np.flatnonzero((a != b) & ~((a != a) & (b != b)))
            if not differing.size:
                continue
            flat = start + int(differing[0])
            index = tuple(int(n) for n in np.unravel_index(flat, one.shape))
            was, now = float(a[differing[0]]), float(b[differing[0]])
            message = f"output {number} at {list(index)} was {was:.9g} in one run and {now:.9g} in the next"
            return Finding(Check.reproducible, number, index, was, now, message)
    return None


def _pieces(one: np.ndarray, two: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    flat_one, flat_two = one.reshape(-1), two.reshape(-1)
    step = 1 << 20
    for start in range(0, flat_one.size, step):
        yield start, flat_one[start : start + step], flat_two[start : start + step]


def precision_finding(narrowings: Sequence[Narrowing]) -> Finding | None:
    """Refuses anything below fp32 in a compiled kernel, for runs that are strict about it."""
    if not narrowings:
        return None
    first = narrowings[0]
    where = f" (line {first.line})" if first.line else ""
    message = f"{first.tensor} holds {first.dtype}{where}; the baseline computes in float32 throughout"
    return Finding(Check.precision, 0, None, None, None, message)


def inputs_finding(written: Sequence[str]) -> Finding | None:
    """Refuses kernels that change their arguments, even where NKI lets them."""
    if not written:
        return None
    message = f"the kernel writes into its argument {written[0]}; arguments must be left as they are"
    return Finding(Check.inputs, 0, None, None, None, message)


def size_finding(outputs: Sequence[ArrayType], expected: Expected) -> Finding | None:
    """Refuses outputs that no reshaping can bring to the reference's shapes."""
    if len(outputs) != len(expected.arrays):
        message = f"the kernel returns {len(outputs)} outputs, the reference {len(expected.arrays)}"
        return Finding(Check.number, 0, None, None, None, message)
    for number, (output, right) in enumerate(zip(outputs, expected.arrays, strict=True)):
        if math.prod(output.shape) != right.size:
            message = f"output {number} has shape {list(output.shape)}, the reference {list(right.shape)}"
            return Finding(Check.shape, number, None, None, None, message)
    return None


def impossible(profile: Profile, work: Work, narrow: bool = False) -> Finding | None:
    """What no correct kernel can do: beat the roofline, move less than inputs and outputs, compute less than needed.

    Args:
        profile: what was measured.
        work: the least that any kernel has to do.
        narrow: whether it computes in less than fp32 somewhere, which a run has to allow.
    """
    least_ms = peak_ms(work, profile.target, narrow)
    if profile.latency_ms < least_ms:
        message = f"{profile.latency_ms:.4g} ms is less than the {least_ms:.4g} ms that {profile.target} needs at its peak"
        return Finding(Check.latency, 0, None, least_ms, profile.latency_ms, message)
    if profile.hbm_bytes < work.min_traffic_bytes:
        message = (
            f"{profile.hbm_bytes:,} bytes moved, but inputs and outputs alone have {work.min_traffic_bytes:,}"
        )
        return Finding(
            Check.traffic, 0, None, float(work.min_traffic_bytes), float(profile.hbm_bytes), message
        )
    # The counter never has less than was done, and twice as much in fp32.
    done = profile.hardware_flops - profile.transpose_flops
    if done < work.matmul_flops:
        message = f"{done:,} matmul FLOPs counted, but {work.matmul_flops:,} are needed"
        return Finding(Check.flops, 0, None, float(work.matmul_flops), float(done), message)
    return None


def traffic_of(arguments: Sequence[ArrayType | float], outputs: Sequence[ArrayType]) -> int:
    """Bytes of a kernel's tensors: the least it must move, where a problem does not say."""
    arrays = [value for value in (*arguments, *outputs) if isinstance(value, ArrayType)]
    return sum(ArrayLayout(array.dtype, array.shape, 0).nbytes for array in arrays)
