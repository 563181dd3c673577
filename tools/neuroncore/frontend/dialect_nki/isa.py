"""`nki.isa`: destination-passing instructions. Each is the Beta 1 instruction of the same name, written into ``dst``."""

from __future__ import annotations

import enum
import math
from typing import Any

from ...errors import NKIError
from ...ir import Access, Affine, Buffer
from .. import emit
from ..accumulation import accumulates
from ..emit import HBM_BUFFERS, ON_CHIP, destination, emit_into
from ..isa import dma, enumerations, gpsimd, scalar, statistics, tensor, vector
from ..isa.checks import engine_name, number, tile_operand, unsupported_on_target
from ..isa.enums import engine, nc_version, oob_mode, reduce_cmd
from ..language.gather import gather_flattened
from ..operand import operand
from ..opnames import op_name
from ..registry import CATALOGUE, api
from ..session import current
from ..tile import Tile
from ..views import reshape_access
from .signatures import no_beta1, signature, under


class matmul_perf_mode(enum.Enum):  # noqa: N801 - NKI's name
    """TensorE's FP8 modes."""

    none = 0
    double_row = 1
    double_column = 2
    double_pixel = 3


VECTOR = engine.vector
reduce_commands = reduce_cmd


class dma_engine(enum.Enum):  # noqa: N801 - NKI's name
    """Who moves data between cores."""

    dma = 1
    gpsimd_dma = 2


def into(dst: Any, value: Tile, op: str, *, buffers: tuple[Buffer, ...] = ON_CHIP) -> None:
    """Write the result just computed into `dst`.

    Raises:
        NKIError: if `dst` is no tile, in the wrong memory, or of another size.
    """
    line = current().line()
    if not isinstance(dst, Tile):
        raise NKIError(
            "invalid_operand", f"dst of '{op}' must be a tensor, got {type(dst).__name__}", line=line
        )
    target = destination(dst, name="dst", op=op, buffers=buffers)
    made = value.access
    if target.shape[0] != made.shape[0] or target.free_size != made.free_size:
        raise NKIError(
            "shape_mismatch",
            f"dst of '{op}' has shape {list(target.shape)}, the result has {list(made.shape)}",
            line=line,
        )
    if target.shape != made.shape:
        target = _regrouped(target, made.shape) or target
    emit.assign(target, value)


def _regrouped(target: Access, shape: tuple[int, ...]) -> Access | None:
    try:
        return reshape_access(target, shape)
    except NKIError:
        return None


def _register(name: str, where: str, cost: str = "") -> Any:
    return api(f"nisa.{name}", engine=where, cost=cost, dialect="nki")


def _wrapped(
    original: Any, where: str, parameters: str, doc: str, *, buffers: tuple[Buffer, ...] = ON_CHIP
) -> Any:
    """An instruction that computes what Beta 1's does, into ``dst``."""
    name = original.__name__

    def body(given: dict[str, Any]) -> None:
        given.pop("name", None)
        dst = given.pop("dst")
        into(dst, original(**given), name, buffers=buffers)

    form = signature(f"dst {parameters} name=")
    return _register(name, where)(under(name, form, body, doc))


activation_reduce = _wrapped(
    scalar.activation_reduce,
    "scalar",
    "op data reduce_op reduce_res bias= scale=1.0",
    "dst = op(data*scale+bias); its free-axis sum into reduce_res.",
)
bn_stats = _wrapped(
    statistics.bn_stats,
    "vector",
    "data",
    "Per partition (count, mean, variance*count) of even and odd elements: 6 values.",
)
bn_aggr = _wrapped(statistics.bn_aggr, "vector", "data", "Combine bn_stats triples into (mean, variance).")
dropout = _wrapped(vector.dropout, "vector", "data prob", "Each element becomes zero with probability prob.")
reciprocal = _wrapped(vector.reciprocal, "vector", "data", "dst = 1 / data.")
tensor_tensor_scan = _wrapped(
    vector.tensor_tensor_scan,
    "vector",
    "data0 data1 initial op0 op1 reverse0=False reverse1=False",
    "r[i] = (data0[i] op0 r[i-1]) op1 data1[i] along the free axis, r[-1] = initial.",
)
tensor_partition_reduce = _wrapped(
    gpsimd.tensor_partition_reduce, "gpsimd", "op data", "Reduce over the partition axis."
)
local_gather = _wrapped(
    gpsimd.local_gather,
    "gpsimd",
    "src_buffer index num_elem_per_idx=1 num_valid_indices=",
    "Per 16-partition core, gather by the core's indices.",
    buffers=(Buffer.SBUF,),
)
max8 = _wrapped(statistics.max8, "vector", "src", "The eight largest values of each partition, descending.")
sequence_bounds = _wrapped(
    gpsimd.sequence_bounds, "gpsimd", "segment_ids", "[start, end) of each element's segment."
)
nc_find_index8 = _wrapped(
    statistics.nc_find_index8, "vector", "data vals", "Index of the first occurrence of eight values."
)
nc_match_replace8 = _wrapped(
    statistics.nc_match_replace8,
    "vector",
    "data vals imm dst_idx=",
    "Replace first occurrences of eight values by imm.",
)
scalar_tensor_tensor = _wrapped(
    vector.scalar_tensor_tensor,
    "vector",
    "data op0 operand0 op1 operand1 reverse0=False reverse1=False",
    "(data op0 operand0) op1 operand1, operand0 a number or [P, 1] tile, operand1 a full tile.",
)


@_register("tensor_scalar_reduce", "vector")
def tensor_scalar_reduce(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any = None,
    reverse0: bool = False,
    reduce_cmd: Any = None,
    reduce_init: Any = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> None:
    """Dst = data op0 operand0, and its reduction over the free axes into reduce_res."""
    wanted = getattr(reduce_cmd, "name", "reset_reduce")
    if wanted not in ("reset_reduce", "reduce") or reduce_init is not None or reduce_res_negate or reverse0:
        raise NKIError(
            "unsupported_api",
            "tensor_scalar_reduce is simulated with reduce_cmd reset_reduce and reduce only, without reduce_init, "
            "reduce_res_negate and reverse0",
            line=current().line(),
            remedy="use nisa.tensor_scalar and nisa.tensor_reduce",
        )
    value = vector.reduced_tensor_scalar(
        data, op0, operand0, reduce_op, reduce_res, reduce_cmd or reduce_commands.reset_reduce, None, None
    )
    into(dst, value, "tensor_scalar_reduce")


@_register("activation", "scalar", "max(MIN_II, N)")
def activation(
    dst: Any,
    op: Any,
    data: Any,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
    name: str | None = None,
    **beta1_only: Any,
) -> None:
    """Dst = op(data * scale + bias); bias a number or [P, 1] tile; optional free-axis sum into reduce_res."""
    no_beta1("activation", beta1_only)
    if isinstance(bias, int | float) and bias != 0 and current().machine.generation < 3:
        raise NKIError(
            "err_activation_bias_invalid_type",
            f"bias is the number {bias}; NeuronCore-v2 takes a tile only",
            line=current().line(),
        )
    if isinstance(bias, int | float):
        partitions = data.shape[0] if isinstance(data, Tile) else 128
        bias = None if bias == 0 else vector.memset((partitions, 1), float(bias), "float32")
    value = scalar.activation(
        op, data, bias=bias, scale=scale, reduce_op=reduce_op, reduce_res=reduce_res, reduce_cmd=reduce_cmd
    )
    into(dst, value, "activation")


@_register("tensor_tensor", "vector or gpsimd", "max(MIN_II, 2N)")
def tensor_tensor(
    dst: Any,
    data1: Any,
    data2: Any,
    op: Any,
    engine: Any = engine.unknown,
    name: str | None = None,
    **beta1_only: Any,
) -> None:
    """Dst = data1 op data2, element by element; not both in PSUM."""
    no_beta1("tensor_tensor", beta1_only)
    into(dst, vector.tensor_tensor(data1, data2, op, engine=engine), "tensor_tensor")


@_register("tensor_scalar", "vector, scalar or gpsimd", "max(MIN_II, N)")
def tensor_scalar(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: Any = engine.unknown,
    name: str | None = None,
    **beta1_only: Any,
) -> None:
    """Dst = (data op0 operand0) op1 operand1; operands are numbers or [P, 1] tiles."""
    no_beta1("tensor_scalar", beta1_only)
    into(
        dst,
        vector.tensor_scalar(data, op0, operand0, reverse0, op1, operand1, reverse1, engine=engine),
        "tensor_scalar",
    )


@_register("tensor_reduce", "vector", "N")
def tensor_reduce(
    dst: Any,
    op: Any,
    data: Any,
    axis: Any,
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
    **beta1_only: Any,
) -> None:
    """Dst = data reduced over trailing free axes."""
    no_beta1("tensor_reduce", beta1_only)
    into(dst, vector.tensor_reduce(op, data, axis, negate=negate, keepdims=keepdims), "tensor_reduce")


@_register("tensor_copy", "vector, scalar or gpsimd", "max(MIN_II, N)")
def tensor_copy(
    dst: Any, src: Any, engine: Any = engine.unknown, name: str | None = None, dtype: Any = None
) -> None:
    """Dst = src, cast to dst's element type; the way out of PSUM."""
    if getattr(engine, "name", "") == "scalar":
        unsupported_on_target("tensor_copy on the scalar engine", 3, "use nisa.activation with op=nl.copy")
    into(dst, vector.tensor_copy(src, engine=engine), "tensor_copy")


@_register("tensor_copy_predicated", "vector", "max(MIN_II, 2N)")
def tensor_copy_predicated(
    dst: Any, src: Any, predicate: Any, reverse_pred: bool = False, name: str | None = None
) -> None:
    """dst[...] = src where predicate is non-zero."""
    vector.tensor_copy_predicated(src=src, dst=dst, predicate=predicate, reverse_pred=reverse_pred)


@_register("memset", "vector or gpsimd", "max(MIN_II, N)")
def memset(dst: Any, value: Any, engine: Any = engine.unknown, name: str | None = None) -> None:
    """Fill dst with a constant."""
    if not isinstance(dst, Tile):
        raise NKIError("invalid_operand", "dst of 'memset' must be a tensor", line=current().line())
    target = destination(dst, name="dst", op="memset", buffers=ON_CHIP)
    number = emit.scalar_operand(value, "value", "memset")
    where = engine_name(engine, "memset", ("vector", "gpsimd"))
    emit_into("nisa.memset", (target,), {}, {"value": number, "engine": where})


@_register("nc_matmul", "tensor", "max(min(64, S_free), M_free), x4 for fp32")
def nc_matmul(
    dst: Any,
    stationary: Any,
    moving: Any,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: Any = (),
    tile_size: Any = (),
    perf_mode: Any = matmul_perf_mode.none,
    name: str | None = None,
    **beta1_only: Any,
) -> None:
    """Dst (PSUM) = stationary.T @ moving, [K, M] x [K, N] -> [M, N]; K, M <= 128, N <= 512.

    The first matmul into a PSUM tile overwrites it, later ones accumulate; accumulate=True/False says it explicitly.
    """
    no_beta1("nc_matmul", beta1_only)
    value = tensor.nc_matmul(
        stationary,
        moving,
        is_stationary_onezero=is_stationary_onezero,
        is_moving_onezero=is_moving_onezero,
        is_transpose=is_transpose,
        tile_position=tile_position,
        tile_size=tile_size,
        perf_mode=perf_mode,
    )
    if not isinstance(dst, Tile):
        raise NKIError("invalid_operand", "dst of 'nc_matmul' must be a tensor", line=current().line())
    target = destination(dst, name="dst", op="nc_matmul", buffers=(Buffer.PSUM,))
    session = current()
    if target.dtype != value.dtype and not is_transpose:
        raise NKIError(
            "invalid_operand_dtype",
            f"dst of 'nc_matmul' has element type {target.dtype}, it must be float32",
            line=session.line(),
            remedy="accumulate in a float32 PSUM tile and cast when copying it out",
        )
    adds = not is_transpose and accumulates(session, target, None if accumulate is None else bool(accumulate))
    if adds:
        if target.shape != value.shape:
            target = _regrouped(target, value.shape) or target
        emit.update("add", Tile(target), value)
    else:
        into(dst, value, "nc_matmul", buffers=(Buffer.PSUM,))


@_register("nc_transpose", "tensor or vector", "vector max(MIN_II, N); tensor max(P, min(64, F))")
def nc_transpose(dst: Any, data: Any, engine: Any = engine.unknown, name: str | None = None) -> None:
    """Dst = data transposed; into PSUM on TensorE (up to 128x128), up to 32x32 on VectorE."""
    chosen = engine
    if (
        getattr(engine, "name", "unknown") == "unknown"
        and isinstance(dst, Tile)
        and dst.buffer is Buffer.SBUF
    ):
        chosen = VECTOR
    into(dst, tensor.nc_transpose(data, engine=chosen), "nc_transpose")


def _affine_of(
    pattern: Any, offset: Any, channel_multiplier: Any, target: Access, op: str
) -> tuple[Affine, Access]:
    """The value of a pattern at every element of a tile, and the tile with the pattern's axes."""
    counts = tuple(int(n) for _, n in pattern)
    if math.prod(counts) != target.free_size:
        raise NKIError(
            "shape_mismatch",
            f"the pattern of '{op}' has counts {list(counts)}, the tile {list(target.shape[1:])}",
            line=current().line(),
            remedy="give the pattern as many elements as dst has per partition",
        )
    kept = [(int(step), int(n)) for step, n in pattern if int(n) != 1]
    if [n for _, n in kept] != [n for n in target.shape[1:] if n != 1]:
        target = reshape_access(target, (target.shape[0], *counts))
    axes = [k for k, n in enumerate(target.shape) if n != 1 and k > 0]
    expr = getattr(offset, "affine", None)
    expr = expr if isinstance(expr, Affine) else Affine(int(offset))
    if target.shape[0] > 1:
        expr = expr + Affine.of(0, int(channel_multiplier))
    for (step, _), axis in zip(kept, axes, strict=True):
        expr = expr + Affine.of(axis, step)
    return expr, target


@_register("iota", "gpsimd", "150 + N")
def iota(
    dst: Any, pattern: Any, offset: Any = 0, channel_multiplier: int = 0, name: str | None = None
) -> None:
    """dst[p, w, z, y, x] = offset + p*channel_multiplier + w*step_w + ...; pattern is [[step, count], ...]."""
    target = destination(dst, name="dst", op="iota", buffers=(Buffer.SBUF,))
    value, target = _affine_of(pattern, offset, channel_multiplier, target, "iota")
    emit_into("nisa.iota", (target,), {}, {"expr": value})


@_register("affine_select", "gpsimd", "150 + N")
def affine_select(
    dst: Any,
    pattern: Any,
    channel_multiplier: int,
    on_true_tile: Any,
    on_false_value: Any,
    cmp_op: Any = "equal",
    offset: Any = 0,
    name: str | None = None,
) -> None:
    """Dst = on_true_tile where cmp_op(offset + p*channel_multiplier + pattern, 0) holds, else on_false_value."""
    target = destination(dst, name="dst", op="affine_select", buffers=(Buffer.SBUF,))
    source = tile_operand(on_true_tile, "on_true_tile", "affine_select", (Buffer.SBUF,))
    value, target = _affine_of(pattern, offset, channel_multiplier, target, "affine_select")
    if source.shape != target.shape:
        source = reshape_access(source, target.shape)
    comparisons = ("equal", "greater_equal", "greater", "less_equal", "less")
    chosen = op_name(cmp_op, comparisons, "affine_select")
    parts = {
        "equal": (value, -value),
        "greater_equal": (value,),
        "greater": (value - 1,),
        "less_equal": (-value,),
        "less": (-value - 1,),
    }[chosen]
    emit_into(
        "nisa.affine_select",
        (target,),
        {"on_true_tile": source},
        {"pred": parts, "on_false_value": number(on_false_value, "on_false_value", "affine_select")},
    )


@_register("nc_stream_shuffle", "vector", "max(MIN_II, N)")
def nc_stream_shuffle(dst: Any, src: Any, shuffle_mask: Any, name: str | None = None) -> None:
    """Within each quadrant of 32 partitions, output i takes input shuffle_mask[i] (255 keeps)."""
    vector.nc_stream_shuffle(src, dst, shuffle_mask)


@_register("nc_n_gather", "gpsimd")
def nc_n_gather(dst: Any, data: Any, indices: Any, name: str | None = None) -> None:
    """Per partition, elements of data's flattened free axes at the given indices."""
    into(dst, gather_flattened(data, indices), "nc_n_gather", buffers=(Buffer.SBUF,))


@_register("select_reduce", "vector")
def select_reduce(
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
    reduce_op: Any = None,
    reverse_pred: bool = False,
    name: str | None = None,
) -> None:
    """Dst = on_true where predicate, else on_false; optional max-reduction."""
    vector.select_reduce(
        dst=dst,
        predicate=predicate,
        on_true=on_true,
        on_false=on_false,
        reduce_res=reduce_res,
        reduce_cmd=reduce_cmd,
        reduce_op=reduce_op,
        reverse_pred=reverse_pred,
    )


@_register("range_select", "vector (trn2 and later)", "max(MIN_II, N)")
def range_select(
    dst: Any,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: Any = reduce_cmd.reset_reduce,
    reduce_res: Any = None,
    reduce_op: Any = None,
    range_start: Any = 0,
    on_false_value: Any = -3.4028235e38,
    name: str | None = None,
) -> None:
    """Keep element i where both comparisons of range_start+i with the bounds hold."""
    value = vector.range_select(
        on_true_tile=on_true_tile,
        comp_op0=comp_op0,
        comp_op1=comp_op1,
        bound0=bound0,
        bound1=bound1,
        reduce_cmd=reduce_cmd,
        reduce_res=reduce_res,
        range_start=range_start,
        on_false_value=on_false_value,
    )
    into(dst, value, "range_select")


@_register("dma_copy", "dma")
def dma_copy(
    dst: Any,
    src: Any,
    priority: Any = None,
    oob_mode: Any = oob_mode.error,
    dge_mode: Any = None,
    engine: Any = None,
    name: str | None = None,
    dst_rmw_op: Any = None,
    **beta1_only: Any,
) -> None:
    """Move between HBM and SBUF in any direction, casting to dst's element type."""
    no_beta1("dma_copy", beta1_only)
    if isinstance(dst, Tile) and isinstance(src, Tile) and dst_rmw_op is None:
        plain = getattr(oob_mode, "name", "error") == "error"
        if plain and src.buffer in HBM_BUFFERS and dst.buffer is Buffer.SBUF:
            _load(dst, src)
            return
        if plain and src.buffer is Buffer.SBUF and dst.buffer in HBM_BUFFERS:
            emit.store(dst, src)
            return
    dma.copy_over_dma(dst, src, None, dst_rmw_op, oob_mode)


def _load(dst: Tile, src: Tile) -> None:
    target = destination(dst, name="dst", op="dma_copy", buffers=(Buffer.SBUF,))
    source = operand(src, name="src", op="dma_copy", buffers=HBM_BUFFERS)
    if source.shape != target.shape:
        source = emit.fit(source, target.shape, target.tensor.name)
    emit_into("nl.load", (target,), {"src": source})


@_register("dma_transpose", "dma (slow on trn1)")
def dma_transpose(
    dst: Any,
    src: Any,
    axes: Any = None,
    priority: Any = None,
    dge_mode: Any = None,
    oob_mode: Any = oob_mode.error,
    name: str | None = None,
) -> None:
    """Dst = src with its axes permuted, while moving."""
    into(dst, dma.dma_transpose(src, axes=axes), "dma_transpose", buffers=(Buffer.SBUF,))


@_register("dma_compute", "dma")
def dma_compute(
    dst: Any,
    srcs: Any,
    reduce_op: Any,
    scales: Any = None,
    unique_indices: bool = True,
    oob_mode: Any = oob_mode.error,
    name: str | None = None,
) -> None:
    """Dst += src inside the DMA engines: one of two sources must be dst itself."""
    if scales is not None and any(float(scale) != 1.0 for scale in scales):
        raise NKIError(
            "unsupported_api",
            f"dma_compute has scales {list(scales)}",
            line=current().line(),
            remedy="leave scales out: all must be 1.0",
        )
    others = [
        s for s in srcs if not (isinstance(s, Tile) and isinstance(dst, Tile) and s.access == dst.access)
    ]
    if len(srcs) != 2 or len(others) != 1:
        raise NKIError(
            "unsupported_api",
            "dma_compute is simulated for two sources of which one is dst",
            line=current().line(),
            remedy="use nisa.tensor_tensor on tiles in SBUF",
        )
    dma.copy_over_dma(dst, others[0], None, reduce_op, oob_mode)


@_register("get_nc_version", "host")
def get_nc_version() -> nc_version:
    """The target's NeuronCore generation."""
    return nc_version(current().machine.generation)


@_register("get_nc_sub_version", "host")
def get_nc_sub_version() -> int:
    """The revision of the target's silicon: the first."""
    return 0


def contents() -> dict[str, Any]:
    """The attributes of the module `nki.isa`."""
    instructions = {
        name.removeprefix("nisa."): entry.function
        for (dialect, name), entry in CATALOGUE.items()
        if dialect == "nki" and name.startswith("nisa.")
    }
    kinds = {"matmul_perf_mode": matmul_perf_mode, "dma_engine": dma_engine}
    return {**enumerations(), **kinds, **instructions}
