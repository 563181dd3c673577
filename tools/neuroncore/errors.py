"""What the NKI compiler refuses, under the names of its error guide.

A model that writes kernels learns from these, so each carries what was found, what is allowed, the line, and how to
fix it. The names are those of the Beta 1 error guide (SDK 2.26); conditions that the guide does not name have a name
of their own without the ``err_`` prefix.
"""

from __future__ import annotations

REMEDIES: dict[str, str] = {
    "err_1d_arange_not_supported": "give the arange a second axis: nl.arange(n)[:, None] or nl.arange(n)[None, :]",
    "err_activation_bias_invalid_type": "pass bias as a [P, 1] tile of float32, float16 or bfloat16 (nisa.memset makes one)",
    "err_activation_scale_invalid_type": "pass scale as a float or as a float32 [P, 1] tile",
    "err_activation_scale_scalar_or_vector": "pass scale as a float or as a [P, 1] tile, one value per partition",
    "err_ambiguous_tensor_truth_value": "a tile has no truth value while tracing; use nl.where or a mask",
    "err_annotation_shape_mismatch": "make the annotated shape equal the tile's shape",
    "err_bias_tensor_must_be_specified_in_allocation": "pass an explicit bias tile in a directly allocated kernel",
    "err_cannot_assign_to_index": "index expressions are immutable; build a new one",
    "err_cannot_update_immutable_parameter": "write to a new nl.ndarray(..., buffer=nl.shared_hbm) and return it",
    "err_control_flow_condition_depending_on_arange": "use mask= on the operation instead of an if",
    "err_copy_dynamic_indirect_indices_not_natively_supported": "load through nl.load with the index tile instead",
    "err_dynamic_control_flow_not_supported": "decide at trace time (Python values), or use masks or nl.where",
    "err_exceed_max_supported_dimension": "reduce the tile to two dimensions first",
    "err_failed_to_infer_tile_from_local_tensor": "index every dimension before the partition dimension with a scalar",
    "err_hbm_tensor_with_init_value_not_supported": "create it with nl.ndarray and store the value into it",
    "err_indirect_indices_are_not_supported_with_nki_api": "only nl.load, nl.store and nisa.dma_copy take index tiles",
    "err_indirect_indices_free_dim": "put the index tile on the partition or a block dimension",
    "err_leading_dimension_of_tensor_must_be_partition": "mark the partition dimension with nl.par_dim, or put it first",
    "err_local_variable_used_out_of_scope": (
        "create the tensor before the loop and write into it with tensor[...] = value; what a loop body creates ends with it"
    ),
    "err_mutable_parameter_not_returned": "return the mutable parameter from the kernel",
    "err_nested_kernel_with_spmd_grid": "call an inner kernel without a grid",
    "err_nki_api_outside_of_nki_kernel": "call it inside a function decorated with @nki.jit",
    "err_num_partition_exceed_arch_limit": "tile the partition dimension to at most 128 (nl.tile_size.pmax)",
    "err_num_partition_mismatch": "give all operands the same number of partitions",
    "err_shared_hbm_must_in_kernel_level": "create shared_hbm tensors at the kernel's top level, outside loops",
    "err_size_of_dimension_exceed_arch_limit": "use a smaller tile",
    "err_store_dst_shape_smaller_than_other_shape": "make the destination at least as large as the value",
    "err_tensor_access_out_of_bound": "shorten the index range, or guard it with mask=",
    "err_tensor_creation_on_scratchpad_with_init_value_not_supported": "use nl.ndarray and fill it with nisa.memset",
    "err_tensor_output_not_written_to": "store every part of each returned tensor with nl.store",
    "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel": "use nisa.nc_transpose with an explicit engine",
    "err_unexpected_output_dependencies": (
        "index the destination with the loop variable, accumulate with +=, or use nl.sequential_range"
    ),
    "err_unsupported_expression_in_mask": "use comparisons of affine expressions of loop variables and nl.arange, joined by &",
    "err_unsupported_memory": "move the tile with nl.load, nl.store or nl.copy first",
    "err_unsupported_mixing_basic_advanced_tensor_indexing": "use slices only, or nl.arange indices only, in one subscript",
    "err_while_loop_requires_unconditional_entry": "use for loops over nl.affine_range or nl.sequential_range",
}
"""How the documentation says to fix each error, in our words."""

_ADVICE: dict[str, str] = {
    "empty_index": "give nl.arange a positive length",
    "empty_slice": "give it a positive length",
    "invalid_loop_bound": "use integers known while tracing, such as shapes",
    "invalid_operand": "pass a tile or a number, as the signature says",
    "invalid_predicate": "compare nl.arange expressions, for example nl.arange(128)[:, None] >= nl.arange(512)[None, :]",
    "invalid_return": "return nl.ndarray(..., buffer=nl.shared_hbm) tensors, alone or in a tuple",
    "invalid_shape": "use positive integers known while tracing",
    "module_is_read_only": "define a name of your own",
    "no_kernel": "decorate the kernel with @nki.jit",
    "out_of_memory": "make fewer or smaller constants, and keep loops symbolic with nl.affine_range",
    "recursion_limit": "use loops instead of recursion",
    "shape_mismatch": "index the operands so that their shapes agree, or make extents of 1 explicit, which repeat",
    "source_too_long": "submit the kernel alone",
    "syntax_error": "submit valid Python",
    "too_many_indices": "give at most one index per dimension",
    "trace_timeout": "use nl.affine_range or nl.sequential_range for long loops, not Python's range",
    "unsupported_dtype": "use nl.float32, nl.bfloat16, nl.int32 or another type of nki.language",
    "unsupported_index": "index with integers, loop indices, slices or nl.arange expressions",
    "unsupported_index_expression": "use sums of nl.arange and loop indices with integer factors",
    "unsupported_op": "use an operation that the instruction supports",
    "unsupported_slice": "use slices of constant length with a positive step",
    "unsupported_view": "copy the tile with nl.copy first",
    "wrong_arguments": "match the signature",
}
"""How to fix conditions that the guide does not name, where the place that finds them does not know better."""


class NKIError(Exception):
    """A condition under which the NKI compiler refuses a kernel.

    Attributes:
        name: the error guide's name.
        message: what was found and what is allowed.
        line: line of the kernel's source, 0 if unknown.
        remedy: how to fix it, or None.
    """

    def __init__(self, name: str, message: str, *, line: int = 0, remedy: str | None = None) -> None:
        """`remedy` defaults to the general advice for `name`."""
        super().__init__(message)
        self.name = name
        self.message = message
        self.line = line
        self.remedy = remedy or REMEDIES.get(name) or _ADVICE.get(name)

    def __str__(self) -> str:
        """One line: ``line 12: err_name: message (fix: remedy)``."""
        where = f"line {self.line}: " if self.line else ""
        fix = f" (fix: {self.remedy})" if self.remedy else ""
        return f"{where}{self.name}: {self.message}{fix}"


class KernelSyntaxError(NKIError):
    """The source is not a loadable kernel: a Python syntax error, no ``@nki.jit``, a wrong signature."""


class KernelHostError(NKIError):
    """Host-side Python of the kernel raised (a failed assert, a type error)."""


class UnknownApiError(NKIError):
    """A name that NKI does not have."""


class TraceLimitError(NKIError):
    """Tracing used up its budget of instructions, time or memory."""


class RuntimeAccessError(NKIError):
    """An index read at run time lies outside its tensor."""


class BrokenClaimError(NKIError):
    """Data are not what the kernel says of them."""
