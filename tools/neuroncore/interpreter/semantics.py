"""What each operation computes, once for one tile and for any number of tiles at a time.

Arrays carry leading batch dimensions; the axes of the tile come last. Element-wise operations are *chains*: a first
operand and a list of ufunc-like steps applied to it, which the executor can run straight into a destination.
Everything else has a function in `EVALUATORS` that returns new arrays. Floating-point arithmetic is float32 whatever the
storage type; operations on integers alone are exact; the caller casts what comes out to the destination's type.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import BrokenClaimError
from .functions import (
    BINARY,
    BITWISE,
    EXACT_ON_INTEGERS,
    REDUCTIONS,
    UNARY,
    Array,
    Binary,
    Unary,
)
from .scan import scan

F32 = np.dtype(np.float32)

MOVES = frozenset(
    ["nl.load", "nl.store", "nl.copy", "nisa.tensor_copy", "nisa.dma_copy", "nisa.tensor_copy_dynamic_src",
     "nisa.tensor_copy_dynamic_dst"]
)  # fmt: skip
"""Operations that only move (and cast) elements, axis by axis."""

FILLS = frozenset(["nisa.memset", "nl.zeros", "nl.ones", "nl.full", "nl.zeros_like", "nl.ones_like"])
"""Operations that write one constant."""

MATMULS = frozenset(["nisa.nc_matmul", "nl.matmul"])

RANDOM = frozenset(["nl.rand", "nisa.dropout", "nl.dropout"])
"""Operations that must not be computed once for several iterations."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One function of a chain: ``f(acc)``, ``f(acc, operand)`` or, reversed, ``f(operand, acc)``."""

    name: str
    function: Unary | Binary
    operand: str | float | int | None = None
    reverse: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """An element-wise operation: steps applied to the operand called `first`."""

    first: str
    steps: tuple[Step, ...]

    def operands(self) -> list[str]:
        """Names of the tile operands, the first one first."""
        return [self.first, *(s.operand for s in self.steps if isinstance(s.operand, str))]


def _is_tile(value: Any) -> bool:
    return value is not None and not isinstance(value, int | float | np.generic)


def chain_of(op: str, attrs: Mapping[str, Any], args: Mapping[str, Any]) -> Chain | None:
    """The chain that an operation stands for, or None if it is not element-wise.

    Args:
        op: canonical API name.
        attrs: of the instruction.
        args: of the instruction; tiles may be of any class, scalars are Python or NumPy numbers.
    """
    if op in MOVES:
        return Chain("value" if op == "nl.store" else "src", ())
    if op in ("nisa.activation", "nisa.activation_reduce"):
        return _activation(attrs, args)
    if op in ("nisa.tensor_scalar", "nisa.tensor_scalar_reduce"):
        steps = [_step(attrs["op0"], "operand0", args, attrs.get("reverse0", False))]
        if attrs.get("op1") is not None:
            steps.append(_step(attrs["op1"], "operand1", args, attrs.get("reverse1", False)))
        return Chain("data", tuple(steps))
    if op == "nisa.scalar_tensor_tensor":
        return Chain(
            "data",
            (
                _step(attrs["op0"], "operand0", args, attrs.get("reverse0", False)),
                _step(attrs["op1"], "operand1", args, attrs.get("reverse1", False)),
            ),
        )
    if op == "nisa.tensor_tensor":
        return _binary(attrs["op"], "data1", "data2", args)
    if op == "nisa.reciprocal":
        return Chain("data", (Step("reciprocal", UNARY["reciprocal"]),))
    package, _, name = op.partition(".")
    if package == "nl":
        if name in BINARY and "y" in args:
            return _binary(name, "x", "y", args)
        if name in UNARY:
            return Chain("x", (Step(name, UNARY[name]),) if name not in ("copy", "identity") else ())
    if package == "nisa" and name in ("exponential",):
        return Chain("data", (Step("exp", UNARY["exp"]),))
    return None


def _step(name: str, operand: str, args: Mapping[str, Any], reverse: bool) -> Step:
    if name in UNARY and name not in BINARY:
        return Step(name, UNARY[name])
    value = args[operand]
    return Step(name, BINARY[name], operand if _is_tile(value) else value, reverse)


def _binary(name: str, x: str, y: str, args: Mapping[str, Any]) -> Chain:
    if not _is_tile(args[x]):
        return Chain(y, (Step(name, BINARY[name], args[x], True),))
    return Chain(x, (_step(name, y, args, False),))


def _activation(attrs: Mapping[str, Any], args: Mapping[str, Any]) -> Chain:
    steps = []
    scale, bias = args.get("scale", 1.0), args.get("bias")
    if _is_tile(scale) or scale not in (None, 1):
        steps.append(Step("multiply", np.multiply, "scale" if _is_tile(scale) else scale))
    if _is_tile(bias) or bias not in (None, 0):
        steps.append(Step("add", np.add, "bias" if _is_tile(bias) else bias))
    name = attrs["op"]
    if name not in ("copy", "identity"):
        steps.append(Step(name, UNARY[name]))
    return Chain("data", tuple(steps))


def compute_type(chain: Chain, dtypes: Mapping[str, np.dtype[Any]], dst: np.dtype[Any]) -> np.dtype[Any]:
    """The type a chain computes in: the operands' own bits, exact integers (int64), or float32."""
    kinds = [dtypes[name] for name in chain.operands()]
    if any(s.name in BITWISE for s in chain.steps) and all(d.kind in "iu" for d in kinds):
        return max(kinds, key=lambda d: d.itemsize)
    whole = all(d.kind in "iu" for d in kinds) and all(
        isinstance(s.operand, str | int | np.integer | None) for s in chain.steps
    )
    if whole and all(s.name in EXACT_ON_INTEGERS for s in chain.steps):
        return np.dtype(np.int64)
    return F32


def run_chain(
    chain: Chain, values: Mapping[str, Array], dtype: np.dtype[Any], out: Array | None = None
) -> Array:
    """Apply a chain to operands that already have the type `dtype`.

    Args:
        chain: what to do.
        values: tile operands by name.
        dtype: type to compute in.
        out: where to put the result; may be the first operand but must not overlap the others.
    """
    acc = values[chain.first]
    if not chain.steps:
        if out is None:
            return acc
        np.copyto(out, acc)
        return out
    for step in chain.steps:
        if step.operand is None:
            acc = step.function(acc, out=out)
        else:
            other = values[step.operand] if isinstance(step.operand, str) else _scalar(step.operand, dtype)
            acc = step.function(other, acc, out=out) if step.reverse else step.function(acc, other, out=out)
        if out is None and acc.dtype.kind == "b":
            acc = acc.astype(dtype)
    return acc


def _scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return np.float32(value)
    if dtype.kind == "i":
        return dtype.type(value)
    return dtype.type(int(value) % (1 << (8 * dtype.itemsize)))


class Call:
    """One evaluation: operand arrays with their batch dimensions, attributes, shapes.

    Attributes:
        op: canonical API name.
        attrs: attributes; affine expressions are replaced by their values.
        values: operands by name: arrays (native type, batch dimensions first), numbers or None.
        ranks: number of tile axes of each array operand.
        shapes: tile shape of each destination.
        old: what the destinations hold before, for operations that keep part of it.
        rng: random numbers.
    """

    __slots__ = ("op", "attrs", "values", "ranks", "shapes", "old", "rng")

    def __init__(
        self,
        op: str,
        attrs: Mapping[str, Any],
        values: Mapping[str, Any],
        ranks: Mapping[str, int],
        shapes: tuple[tuple[int, ...], ...],
        old: tuple[Array | None, ...] = (),
        rng: np.random.Generator | None = None,
    ) -> None:
        """See the class attributes."""
        self.op = op
        self.attrs = attrs
        self.values = values
        self.ranks = ranks
        self.shapes = shapes
        self.old = old
        self.rng = rng

    def native(self, name: str) -> Array:
        """A tile operand in its own type."""
        return self.values[name]

    def f32(self, name: str) -> Any:
        """An operand in float32: an array, or a number as it is."""
        value = self.values.get(name)
        return value.astype(np.float32, copy=False) if isinstance(value, np.ndarray) else value

    def flat(self, name: str) -> Array:
        """A tile operand in float32 with its free axes merged: batch + (P, N)."""
        return self.merged(self.f32(name), self.ranks[name])

    @staticmethod
    def merged(value: Array, rank: int) -> Array:
        """Merge the free axes of an array with `rank` tile axes."""
        lead = value.ndim - rank + 1
        return value.reshape(*value.shape[:lead], math.prod(value.shape[lead:]))

    def column(self, name: str) -> Any:
        """A scalar operand: a number, or a [P, 1] tile as batch + (P, 1)."""
        value = self.f32(name)
        return self.merged(value, self.ranks[name]) if isinstance(value, np.ndarray) else value


def aligned(value: Array, rank: int, target: tuple[int, ...]) -> Array:
    """An operand with its tile axes brought to those of `target` (a shape): unit axes added, or free axes regrouped.

    Args:
        value: batch dimensions, then `rank` tile axes.
        rank: tile axes of `value`.
        target: tile shape of the operation.
    """
    if rank == len(target):
        return value
    batch, tile = value.shape[: value.ndim - rank], value.shape[value.ndim - rank :]
    if math.prod(tile[1:]) == 1:
        return value.reshape(*batch, tile[0], *(1,) * (len(target) - 1))
    if math.prod(tile[1:]) == math.prod(target[1:]):
        return value.reshape(*batch, tile[0], *target[1:])
    return value.reshape(*batch, *(1,) * (len(target) - rank), *tile)


def element_wise(call: Call, chain: Chain, dst: np.dtype[Any]) -> Array:
    """Evaluate a chain on arrays of any types; the result is float32, or exact integers."""
    names = chain.operands()
    dtypes = {n: call.values[n].dtype for n in names}
    dtype = compute_type(chain, dtypes, dst)
    target = call.shapes[0]
    if not chain.steps:
        return aligned(call.values[chain.first], call.ranks[chain.first], target)
    values = {n: aligned(call.values[n].astype(dtype, copy=False), call.ranks[n], target) for n in names}
    return run_chain(chain, values, dtype)


# -- reductions ----------------------------------------------------------------------------------------------------------
def _axes(call: Call, name: str) -> tuple[int, ...]:
    axis = call.attrs["axis"]
    rank = call.ranks[name]
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    return tuple(int(a) % rank - rank for a in axes)


def reduce_over(ufunc: np.ufunc, values: Array, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    """Reduce axes with an operation, left to right for a subtraction.

    Args:
        ufunc: one of `REDUCTIONS`.
        values: any array.
        axes: negative axis numbers.
        keepdims: as in NumPy.
    """
    if ufunc is np.subtract:
        moved = np.moveaxis(values, axes, tuple(range(-len(axes), 0)))
        flat = moved.reshape(*moved.shape[: moved.ndim - len(axes)], -1)
        result = flat[..., 0] - flat[..., 1:].sum(axis=-1, dtype=flat.dtype)
        return np.expand_dims(result, tuple(sorted(axes))) if keepdims else result
    if values.dtype.kind in "iu":
        values = values.astype(np.int64) if ufunc in (np.add, np.multiply) else values
    result = ufunc.reduce(values, axis=axes if len(axes) > 1 else axes[0], keepdims=keepdims)
    return result.astype(np.float32) if result.dtype.kind == "b" else result


def _exact_or_f32(call: Call, name: str) -> Array:
    value = call.native(name)
    return value if value.dtype.kind in "iu" else value.astype(np.float32, copy=False)


def _tensor_reduce(call: Call) -> tuple[Array, ...]:
    values = reduce_over(REDUCTIONS[call.attrs["op"]], _exact_or_f32(call, "data"), _axes(call, "data"))
    return (np.negative(values) if call.attrs.get("negate") else values,)


def _nl_reduce(name: str) -> Callable[[Call], tuple[Array, ...]]:
    def evaluate(call: Call) -> tuple[Array, ...]:
        return (reduce_over(REDUCTIONS[name], _exact_or_f32(call, "x"), _axes(call, "x")),)

    return evaluate


def _mean(call: Call) -> tuple[Array, ...]:
    return (np.mean(call.f32("x"), axis=_axes(call, "x"), keepdims=True),)


def _var(call: Call) -> tuple[Array, ...]:
    return (np.var(call.f32("x"), axis=_axes(call, "x"), keepdims=True),)


def _all(call: Call) -> tuple[Array, ...]:
    return (np.all(call.native("x") != 0, axis=_axes(call, "x"), keepdims=True).astype(np.float32),)


def _partition_reduce(call: Call) -> tuple[Array, ...]:
    rank = call.ranks["data"]
    return (reduce_over(REDUCTIONS[call.attrs["op"]], _exact_or_f32(call, "data"), (-rank,)),)


def free_axes(rank: int) -> tuple[int, ...]:
    """All axes of a tile but the partition, as negative numbers."""
    return tuple(range(1 - rank, 0))


def _with_reduction(call: Call, values: Array) -> tuple[Array, ...]:
    """The second destination of an operation that also reduces along all free axes."""
    if len(call.shapes) < 2:
        return (values,)
    ufunc = REDUCTIONS[call.attrs.get("reduce_op", "add")]
    reduced = reduce_over(ufunc, values, free_axes(len(call.shapes[0])))
    reduced = reduced.reshape(*reduced.shape[: reduced.ndim - len(call.shapes[0])], *call.shapes[1])
    if call.attrs.get("reduce_cmd") == "reduce":
        previous = call.old[1]
        assert previous is not None
        reduced = ufunc(previous.astype(np.float32, copy=False), reduced)
    return values, reduced


def _chain_with_reduction(call: Call) -> tuple[Array, ...]:
    chain = chain_of(call.op, call.attrs, call.values)
    assert chain is not None
    values = element_wise(call, chain, F32)
    return _with_reduction(call, np.broadcast_to(values, np.broadcast_shapes(values.shape, call.shapes[0])))


# -- matrices ------------------------------------------------------------------------------------------------------------
_ONES_AND_ZEROS = "ones and zeros"


def _check_claims(call: Call) -> None:
    """Hold what a matmul says of its operands against the data; elements that nobody wrote spoil the product anyway.

    Raises:
        BrokenClaimError: if an operand is not what it is said to be.
    """
    for claim in call.attrs.get("claims", ()):
        name = "stationary" if claim == "is_stationary_onezero" else "moving"
        data = call.flat(name)
        said = "the identity" if claim == "is_transpose" else _ONES_AND_ZEROS
        if said is _ONES_AND_ZEROS:
            right = (data == 0) | (data == 1)
        else:
            right = data == np.eye(*data.shape[-2:], dtype=np.float32)
        wrong = ~(right | np.isnan(data))
        if wrong.any():
            row, column = (int(n) for n in np.argwhere(wrong)[0][-2:])
            raise BrokenClaimError(
                "broken_claim",
                f"{claim}=True says that {name} holds {said}; at [{row}, {column}] it holds {data[wrong][0]:.6g}",
                remedy=f"leave {claim} out: on other data the hardware computes something else",
            )


def _nc_matmul(call: Call) -> tuple[Array, ...]:
    _check_claims(call)
    if call.attrs.get("perf_mode"):
        return (_double_row(call.f32("stationary"), call.f32("moving")),)
    stationary, moving = call.flat("stationary"), call.flat("moving")
    product = np.matmul(np.swapaxes(stationary, -1, -2), moving)
    return (product.reshape(*product.shape[:-2], *call.shapes[0]),)


def _double_row(stationary: Array, moving: Array) -> Array:
    """[K, 2, M] and [K, 2, N]: both rows of a pair are contracted along with the partitions."""
    left = stationary.reshape(*stationary.shape[:-3], -1, stationary.shape[-1])
    right = moving.reshape(*moving.shape[:-3], -1, moving.shape[-1])
    return np.matmul(np.swapaxes(left, -1, -2), right)


def _nl_matmul(call: Call) -> tuple[Array, ...]:
    x, y = call.flat("x"), call.flat("y")
    if call.attrs.get("transpose_x"):
        x = np.swapaxes(x, -1, -2)
    product = np.matmul(x, y)
    return (product.reshape(*product.shape[:-2], *call.shapes[0]),)


def _transpose(name: str) -> Callable[[Call], tuple[Array, ...]]:
    def evaluate(call: Call) -> tuple[Array, ...]:
        value = call.native(name)
        turned = np.swapaxes(call.merged(value, call.ranks[name]), -1, -2)
        return (turned.reshape(*turned.shape[:-2], *call.shapes[0]),)

    return evaluate


def _dma_transpose(call: Call) -> tuple[Array, ...]:
    value, rank = call.native("src"), call.ranks["src"]
    order = call.attrs.get("axes") or tuple(reversed(range(rank)))
    lead = value.ndim - rank
    return (value.transpose(*range(lead), *(lead + a for a in order)),)


# -- selection -----------------------------------------------------------------------------------------------------------
def _where(call: Call) -> tuple[Array, ...]:
    shape = call.shapes[0]

    def operand(name: str) -> Any:
        value = call.values[name]
        return aligned(value, call.ranks[name], shape) if isinstance(value, np.ndarray) else value

    x, y = operand("x"), operand("y")
    tiles = [v for v in (x, y) if isinstance(v, np.ndarray)]
    if not all(t.dtype.kind in "iu" for t in tiles) or any(isinstance(v, float) for v in (x, y)):
        x, y = (
            v.astype(np.float32, copy=False) if isinstance(v, np.ndarray) else np.float32(v) for v in (x, y)
        )
    return (np.where(operand("cond") != 0, x, y),)


def _affine_select(call: Call) -> tuple[Array, ...]:
    value = _exact_or_f32(call, "on_true_tile")
    fill = call.attrs["on_false_value"]
    return (
        np.where(
            call.attrs["pred"],
            value,
            value.dtype.type(fill) if value.dtype.kind in "iu" else np.float32(fill),
        ),
    )


def _iota(call: Call) -> tuple[Array, ...]:
    return (call.attrs["expr"],)


def _copy_predicated(call: Call) -> tuple[Array, ...]:
    source, previous = call.values["src"], call.native("dst")
    chosen = call.native("predicate") != 0
    if call.attrs.get("reverse_pred"):
        chosen = ~chosen
    if not isinstance(source, np.ndarray):
        source = previous.dtype.type(source)
    return (np.where(chosen, source.astype(previous.dtype, copy=False), previous),)


def _select_reduce(call: Call) -> tuple[Array, ...]:
    chosen = call.native("predicate") != 0
    if call.attrs.get("reverse_pred"):
        chosen = ~chosen
    false = call.column("on_false")
    if isinstance(false, np.ndarray):
        false = aligned(false, 2, call.shapes[0])
    return _with_reduction(call, np.where(chosen, call.f32("on_true"), np.asarray(false, np.float32)))


def _range_select(call: Call) -> tuple[Array, ...]:
    values = call.flat("on_true_tile")
    position = np.arange(values.shape[-1], dtype=np.float32) + np.float32(call.attrs.get("range_start", 0))
    keep = BINARY[call.attrs["comp_op0"]](position, call.column("bound0"))
    keep = keep & BINARY[call.attrs["comp_op1"]](position, call.column("bound1"))
    chosen = np.where(keep, values, np.float32(call.attrs["on_false_value"]))
    return _with_reduction(call, chosen.reshape(*chosen.shape[:-2], *call.shapes[0]))


# -- statistics ----------------------------------------------------------------------------------------------------------
def _bn_stats(call: Call) -> tuple[Array, ...]:
    data = call.flat("data")
    columns = []
    for part in (data[..., 0::2], data[..., 1::2]):
        count = part.shape[-1]
        mean = part.mean(axis=-1) if count else np.zeros(part.shape[:-1], np.float32)
        spread = np.square(part - mean[..., None]).sum(axis=-1)
        columns += [np.full_like(mean, count), mean, spread]
    return (np.stack(columns, axis=-1).astype(np.float32),)


def _bn_aggr(call: Call) -> tuple[Array, ...]:
    data = call.flat("data")
    counts, means, spreads = (data[..., k::3].astype(np.float64) for k in range(3))
    total = counts.sum(axis=-1)
    mean = (counts * means).sum(axis=-1) / total
    variance = (spreads + counts * np.square(means - mean[..., None])).sum(axis=-1) / total
    return (np.stack([mean, variance], axis=-1).astype(np.float32),)


# -- top 8 ---------------------------------------------------------------------------------------------------------------
def _max8(call: Call) -> tuple[Array, ...]:
    data = call.flat("src")
    top = np.sort(np.partition(data, data.shape[-1] - 8, axis=-1)[..., -8:], axis=-1)
    return (top[..., ::-1],)


def _occurrences(data: Array, vals: Array, order: range) -> Array:
    """Index in each row of `data` for each of eight values; values that repeat take successive occurrences.

    -1 where there is none. `order`: in which sequence the values are served.
    """
    rows = data.reshape(-1, data.shape[-1])
    wanted = vals.reshape(-1, vals.shape[-1])
    taken = np.zeros(rows.shape, bool)
    found = np.full(wanted.shape, -1, np.int64)
    line = np.arange(rows.shape[0])
    for k in order:
        hits = (rows == wanted[:, k : k + 1]) & ~taken
        where = hits.argmax(axis=-1)
        present = hits[line, where]
        found[:, k] = np.where(present, where, -1)
        taken[line[present], where[present]] = True
    return found.reshape(vals.shape)


def _find_index8(call: Call) -> tuple[Array, ...]:
    found = _occurrences(call.flat("data"), call.flat("vals"), range(8))
    return (np.where(found < 0, np.int64(0xFFFFFFFF), found),)


def _match_replace8(call: Call) -> tuple[Array, ...]:
    data = call.flat("data").copy()
    found = _occurrences(data, call.flat("vals"), range(7, -1, -1))
    rows, where = data.reshape(-1, data.shape[-1]), found.reshape(-1, 8)
    for k in range(8):
        line = np.flatnonzero(where[:, k] >= 0)
        rows[line, where[line, k]] = np.float32(call.values["imm"])
    replaced = data.reshape(*data.shape[:-2], *call.shapes[0])
    if len(call.shapes) < 2:
        return (replaced,)
    indices = np.where(found < 0, np.int64(0xFFFFFFFF), found)
    return replaced, indices.reshape(*indices.shape[:-2], *call.shapes[1])


# -- partitions and gathers ----------------------------------------------------------------------------------------------
def _stream_shuffle(call: Call) -> tuple[Array, ...]:
    source, previous = call.native("src"), call.old[0]
    rank = call.ranks["src"]
    axis = source.ndim - rank
    lanes = np.arange(call.shapes[0][0])
    mask = np.asarray(call.attrs["shuffle_mask"])[lanes % 32]
    origin = np.where(mask == 255, lanes, lanes // 32 * 32 + mask)
    moved = np.take(source, np.minimum(origin, source.shape[axis] - 1), axis=axis)
    if previous is None:
        return (moved,)
    kept = (mask == 255).reshape(-1, *(1,) * (rank - 1))
    return (np.where(kept, previous, moved.astype(previous.dtype, copy=False)),)


def _local_gather(call: Call) -> tuple[Array, ...]:
    index = call.merged(call.native("index"), call.ranks["index"])
    source = call.merged(call.native("src_buffer"), call.ranks["src_buffer"])
    width = call.attrs.get("num_elem_per_idx", 1)
    batch, partitions = index.shape[:-2], index.shape[-2]
    cores = partitions // 16
    # Per core of 16 partitions the indices are read partition first.
    order = index.reshape(*batch, cores, 16, -1).swapaxes(-1, -2).reshape(*batch, cores, -1)
    order = np.repeat(order.astype(np.int64), 16, axis=-2)
    rows = np.broadcast_to(source, (*batch, *source.shape[-2:]))
    # An index counts elements; `width` of them are read from there on.
    places = order[..., None] + np.arange(width)
    if places.size and (places.min() < 0 or places.max() >= rows.shape[-1]):
        raise IndexError(f"local_gather reads element {int(places.max())} of {rows.shape[-1]}")
    gathered = np.take_along_axis(rows, places.reshape(*places.shape[:-2], -1), axis=-1)
    return (gathered.reshape(*batch, *call.shapes[0]),)


def _gather_flattened(call: Call) -> tuple[Array, ...]:
    data = call.merged(call.native("data"), call.ranks["data"])
    index = call.merged(call.native("indices"), call.ranks["indices"]).astype(np.int64)
    if index.size and (index.min() < 0 or index.max() >= data.shape[-1]):
        raise IndexError(f"gather_flattened reads index {int(index.max())} of {data.shape[-1]}")
    batch = np.broadcast_shapes(data.shape[:-1], index.shape[:-1])
    gathered = np.take_along_axis(
        np.broadcast_to(data, (*batch, data.shape[-1])),
        np.broadcast_to(index, (*batch, index.shape[-1])),
        axis=-1,
    )
    return (gathered.reshape(*batch[:-1], *call.shapes[0]),)


def _sequence_bounds(call: Call) -> tuple[Array, ...]:
    ids = call.flat("segment_ids")
    n = ids.shape[-1]
    position = np.arange(n)
    change = np.ones(ids.shape, bool)
    change[..., 1:] = ids[..., 1:] != ids[..., :-1]
    start = np.maximum.accumulate(np.where(change, position, 0), axis=-1)
    last = np.ones(ids.shape, bool)
    last[..., :-1] = change[..., 1:]
    end = np.minimum.accumulate(np.where(last, position + 1, n)[..., ::-1], axis=-1)[..., ::-1]
    padding = ids == 0
    bounds = np.stack([np.where(padding, n, start), np.where(padding, -1, end)], axis=-2)
    return (bounds.astype(np.float32),)


# -- the rest ------------------------------------------------------------------------------------------------------------
def _scan(call: Call) -> tuple[Array, ...]:
    data0, data1 = call.flat("data0"), call.flat("data1")
    shape = np.broadcast_shapes(data0.shape, data1.shape)
    out = np.empty(shape, np.float32)
    attrs = call.attrs
    scan(
        np.broadcast_to(data0, shape), np.broadcast_to(data1, shape), call.column("initial"), attrs["op0"], attrs["op1"],
        attrs.get("reverse0", False), attrs.get("reverse1", False), out,
    )  # fmt: skip
    return (out.reshape(*shape[:-2], *call.shapes[0]),)


def _softmax(call: Call) -> tuple[Array, ...]:
    x, axes = call.f32("x"), _axes(call, "x")
    powers = np.exp(x - x.max(axis=axes, keepdims=True))
    return (powers / powers.sum(axis=axes, keepdims=True),)


def _rms_norm(call: Call) -> tuple[Array, ...]:
    x, axes = call.f32("x"), _axes(call, "x")
    n = call.attrs.get("n") or math.prod(x.shape[a] for a in axes)
    mean = np.square(x).sum(axis=axes, keepdims=True) / np.float32(n)
    eps = call.attrs.get("epsilon", call.attrs.get("eps", 1e-6))
    normal = x / np.sqrt(mean + np.float32(eps))
    weight = call.f32("w")
    return (normal * weight if weight is not None else normal,)


def _random(call: Call) -> tuple[Array, ...]:
    assert call.rng is not None
    return (call.rng.random(call.attrs["batch"] + call.shapes[0], dtype=np.float32),)


def _dropout(name: str, probability: str) -> Callable[[Call], tuple[Array, ...]]:
    def evaluate(call: Call) -> tuple[Array, ...]:
        assert call.rng is not None
        data = call.f32(name)
        p = call.column(probability)
        if isinstance(p, np.ndarray):
            p = aligned(p, 2, call.shapes[0])
        return (np.where(call.rng.random(data.shape, dtype=np.float32) < p, np.float32(0), data),)

    return evaluate


EVALUATORS: dict[str, Callable[[Call], tuple[Array, ...]]] = {
    "nisa.activation": _chain_with_reduction,
    "nisa.activation_reduce": _chain_with_reduction,
    "nisa.tensor_scalar_reduce": _chain_with_reduction,
    "nisa.tensor_reduce": _tensor_reduce,
    "nisa.tensor_partition_reduce": _partition_reduce,
    "nl.sum": _nl_reduce("add"),
    "nl.max": _nl_reduce("maximum"),
    "nl.min": _nl_reduce("minimum"),
    "nl.prod": _nl_reduce("multiply"),
    "nl.mean": _mean,
    "nl.var": _var,
    "nl.all": _all,
    "nl.softmax": _softmax,
    "nl.rms_norm": _rms_norm,
    "nisa.nc_matmul": _nc_matmul,
    "nl.matmul": _nl_matmul,
    "nl.transpose": _transpose("x"),
    "nisa.nc_transpose": _transpose("data"),
    "nl.load_transpose2d": _transpose("src"),
    "nisa.dma_transpose": _dma_transpose,
    "nl.where": _where,
    "nisa.affine_select": _affine_select,
    "nisa.iota": _iota,
    "nisa.tensor_copy_predicated": _copy_predicated,
    "nisa.select_reduce": _select_reduce,
    "nisa.range_select": _range_select,
    "nisa.bn_stats": _bn_stats,
    "nisa.bn_aggr": _bn_aggr,
    "nisa.max8": _max8,
    "nisa.nc_find_index8": _find_index8,
    "nisa.nc_match_replace8": _match_replace8,
    "nisa.nc_stream_shuffle": _stream_shuffle,
    "nisa.local_gather": _local_gather,
    "nl.gather_flattened": _gather_flattened,
    "nisa.sequence_bounds": _sequence_bounds,
    "nisa.tensor_tensor_scan": _scan,
    "nl.rand": _random,
    "nisa.dropout": _dropout("data", "prob"),
    "nl.dropout": _dropout("x", "rate"),
}
"""Operations that are not chains, or chains with a second result."""


def reads_destination(op: str, attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """Numbers of the destinations whose previous contents the operation needs."""
    if op == "nisa.nc_stream_shuffle" and 255 in attrs.get("shuffle_mask", ()):
        return (0,)
    if attrs.get("reduce_cmd") == "reduce":
        return (1,)
    return ()


def evaluate(call: Call, dst: np.dtype[Any]) -> tuple[Array, ...]:
    """Evaluate any operation.

    Args:
        call: operands and attributes.
        dst: element type of the first destination.

    Returns:
        one array for each destination, batch dimensions first, in the type it was computed in; shapes broadcast to
        those of the destinations.

    Raises:
        NotImplementedError: for an operation without semantics.
    """
    if call.op in FILLS:
        return (np.full(call.shapes[0], call.attrs.get("value", 0), np.float64),)
    chain = chain_of(call.op, call.attrs, call.values)
    if chain is not None and len(call.shapes) == 1:
        return (element_wise(call, chain, dst),)
    function = EVALUATORS.get(call.op)
    if function is None:
        raise NotImplementedError(f"no semantics for {call.op}")
    return function(call)
