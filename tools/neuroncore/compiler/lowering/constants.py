"""Fills, index patterns, and the instructions that only VectorE or GpSimd has."""

from __future__ import annotations

from ...ir import Access, Instr
from ..program import Engine, Kind
from .emitter import ENGINES, free_elements, tiles_of
from .tensor_engine import TensorEngine


class Constants(TensorEngine):
    """Lowerings of what is left."""

    def op_memset(self, instr: Instr) -> None:
        """A constant tile. Matmul results in PSUM need no zeros: the first matmul overwrites."""
        if instr.dst.tensor in self.matmul_results and not instr.attrs.get("value", "ones" in instr.op):
            return
        if not instr.dst.tensor.buffer.on_chip:
            return
        engine = ENGINES.get(str(instr.attrs.get("engine")), Engine.VECTOR)
        if engine not in (Engine.VECTOR, Engine.GPSIMD):
            engine = Engine.VECTOR
        self.emit(Kind.MEMSET, engine, instr.dst, [])

    op_zeros = op_memset
    op_ones = op_memset
    op_full = op_memset
    op_zeros_like = op_memset

    def gpsimd(self, instr: Instr) -> None:
        """GpSimd instructions of the cost table: 150 + N."""
        reads = [self.spread(a, a.shape[0]) for a in instr.args.values() if isinstance(a, Access)]
        self.emit(Kind.GPSIMD_MISC, Engine.GPSIMD, instr.dst, reads)

    op_iota = gpsimd
    op_affine_select = gpsimd
    op_rand = gpsimd
    op_rng = gpsimd
    op_sequence_bounds = gpsimd
    op_nonzero_with_count = gpsimd
    op_builtin_custom_op = gpsimd

    def op_gather_flattened(self, instr: Instr) -> None:
        """As `local_gather` of as many indices: sixteen partitions share a core, so that an element takes two cycles."""
        reads = [self.spread(a, a.shape[0]) for a in instr.args.values() if isinstance(a, Access)]
        self.emit(
            Kind.GPSIMD_MISC,
            Engine.GPSIMD,
            instr.dst,
            reads,
            elements=free_elements(instr.dst),
            per_element=2.0,
        )

    op_nc_n_gather = op_gather_flattened

    def op_local_gather(self, instr: Instr) -> None:
        """150 + indices x elements / C cycles (`nki.isa` cost table)."""
        src = self.tile(instr, "src_buffer")
        each = int(instr.attrs.get("num_elem_per_idx", 1))
        valid = instr.attrs.get("num_valid_indices") or 16 * free_elements(self.tile(instr, "index"))
        size = 4
        divisor = ((28 + size * each) / (size * each)) / min(4 / src.dtype.itemsize, each)
        self.emit(
            Kind.GPSIMD_MISC, Engine.GPSIMD, instr.dst, [src], side_reads=tiles_of(instr, "index"),
            elements=max(1, int(valid * each / max(divisor, 1e-9))),
        )  # fmt: skip

    def op_topk(self, instr: Instr) -> None:
        """`topk`."""
        src = self.tile(instr, "data", "src")
        self.emit(Kind.GPSIMD_MISC, Engine.GPSIMD, instr.dst, [src], per_element=4.0)

    def vector_misc(self, instr: Instr) -> None:
        """VectorE instructions of the cost table that take N cycles."""
        reads = [self.spread(a, a.shape[0]) for a in instr.args.values() if isinstance(a, Access)]
        elements = max([free_elements(instr.dst), *(free_elements(r) for r in reads)])
        self.emit(
            Kind.VECTOR_MISC, Engine.VECTOR, instr.dst, reads, elements=elements, per_element=1.0,
            more_writes=instr.dsts[1:],
        )  # fmt: skip

    op_bn_stats = vector_misc
    op_max8 = vector_misc
    op_nc_find_index8 = vector_misc
    op_nc_match_replace8 = vector_misc
    op_nc_stream_shuffle = vector_misc
    op_range_select = vector_misc
    op_dropout = vector_misc
    op_quantize_mx = vector_misc

    def op_bn_aggr(self, instr: Instr) -> None:
        """13 cycles per (count, mean, variance) triple (`nki.isa` cost table)."""
        data = self.tile(instr, "data")
        self.emit(Kind.VECTOR_MISC, Engine.VECTOR, instr.dst, [data], per_element=13 / 3)
