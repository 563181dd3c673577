"""Every error of NKI's error guide: a minimal kernel that raises it, and a corrected twin that traces."""

from __future__ import annotations

import dataclasses
import textwrap

import numpy as np
import pytest

from tools.neuroncore import ArraySpec, NKIError, trace
from tools.neuroncore.errors import REMEDIES

HEADER = """\
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.typing as nt
import neuronxcc.nki.compiler as ncc

"""

KERNEL = """\
@nki.jit
def kernel(x, y=None):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    i_p = nl.arange(128)[:, None]
    i_f = nl.arange(512)[None, :]
{body}
    return out
"""

X = ArraySpec((256, 1024))


def source(body: str) -> str:
    """A kernel around a body; a body with a ``def`` is a whole module."""
    text = textwrap.dedent(body).strip("\n")
    if "@nki.jit" in text:
        return HEADER + text + "\n"
    return HEADER + KERNEL.format(body=textwrap.indent(text, "    "))


@dataclasses.dataclass(frozen=True)
class Case:
    """An error, a kernel with the faulty line marked ``# here``, and its corrected twin."""

    name: str
    wrong: str
    right: str
    says: str = ""
    args: tuple[object, ...] = (X,)
    target: str = "trn1"


CASES = [
    Case(
        "err_1d_arange_not_supported",
        "t = nl.load(x[nl.arange(128), i_f])  # here\nnl.store(out[i_p, i_f], t)",
        "t = nl.load(x[nl.arange(128)[:, None], i_f])\nnl.store(out[i_p, i_f], t)",
        "one-dimensional",
    ),
    Case(
        "err_activation_bias_invalid_type",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], nisa.activation(op=nl.exp, data=t, bias=1.0))  # here",
        """
        t = nl.load(x[i_p, i_f])
        one = nisa.memset((128, 1), 1.0, nl.float32)
        nl.store(out[i_p, i_f], nisa.activation(op=nl.exp, data=t, bias=one))
        """,
        "float",
    ),
    Case(
        "err_activation_scale_invalid_type",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], nisa.activation(op=nl.exp, data=t, scale='2'))  # here",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], nisa.activation(op=nl.exp, data=t, scale=2.0))",
        "str",
    ),
    Case(
        "err_activation_scale_scalar_or_vector",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], nisa.activation(op=nl.exp, data=t, scale=t))  # here",
        """
        t = nl.load(x[i_p, i_f])
        s = nl.load(x[i_p, 0])
        nl.store(out[i_p, i_f], nisa.activation(op=nl.exp, data=t, scale=s))
        """,
        "[128, 512]",
    ),
    Case(
        "err_ambiguous_tensor_truth_value",
        "t = nl.load(x[i_p, i_f])\nif t > 0:  # here\n    nl.store(out[i_p, i_f], t)",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], nl.where(t > 0, t, 0.0))",
    ),
    Case(
        "err_annotation_shape_mismatch",
        "t = nl.load(x[i_p, i_f]).assert_shape((128, 256))  # here\nnl.store(out[i_p, i_f], t)",
        "t = nl.load(x[i_p, i_f]).assert_shape((128, 512))\nnl.store(out[i_p, i_f], t)",
    ),
    Case(
        "err_cannot_assign_to_index",
        "i_f[0, 0] = 3  # here\nnl.store(out[i_p, i_f], nl.load(x[i_p, i_f]))",
        "i_g = i_f + 3\nnl.store(out[i_p, i_f], nl.load(x[i_p, i_g]))",
    ),
    Case(
        "err_cannot_update_immutable_parameter",
        "t = nl.load(x[i_p, i_f])\nnl.store(x[i_p, i_f], t)  # here\nnl.store(out[i_p, i_f], t)",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], t)",
        "x",
    ),
    Case(
        "err_control_flow_condition_depending_on_arange",
        "t = nl.load(x[i_p, i_f])\nif i_f < 100:  # here\n    nl.store(out[i_p, i_f], t)",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], t, mask=(i_f < 100))",
    ),
    Case(
        "err_dynamic_control_flow_not_supported",
        """
        t = nl.load(x[0:1, 0:1])
        if t > 0:  # here
            nl.store(out[i_p, i_f], nl.load(x[i_p, i_f]))
        """,
        """
        for i in nl.affine_range(2):
            if i == 0:
                nl.store(out[i_p, i_f], nl.load(x[i_p, i_f]))
        """,
        "only known at run time",
    ),
    Case(
        "err_exceed_max_supported_dimension",
        "t = nl.load(x[0:128, 0:128]).reshape((128, 8, 16))\nnl.store(out[0:128, 0:128], nl.copy(nl.transpose(t)))  # here",
        "t = nl.load(x[0:128, 0:128])\nnl.store(out[0:128, 0:128], nl.copy(nl.transpose(t)))",
    ),
    Case(
        "err_failed_to_infer_tile_from_local_tensor",
        """
        t = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(2):
            t[i] = nl.load(x[i * 128 + i_p, i_f])
        nl.store(out[i_p, i_f], nl.exp(t)[0])  # here
        """,
        """
        t = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(2):
            t[i] = nl.load(x[i * 128 + i_p, i_f])
        nl.store(out[i_p, i_f], nl.exp(t[0]))
        """,
    ),
    Case(
        "err_hbm_tensor_with_init_value_not_supported",
        "z = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.hbm)  # here\nnl.store(out[i_p, i_f], nl.load(x[i_p, i_f]))",
        "z = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)\nnl.store(out[i_p, i_f], z)",
    ),
    Case(
        "err_indirect_indices_are_not_supported_with_nki_api",
        """
        idx = nl.zeros((128, 1), dtype=nl.int32)
        t = nl.load(x[i_p, i_f])
        nl.store(out[i_p, i_f], nl.exp(t[idx[i_p, 0], i_f]))  # here
        """,
        """
        idx = nl.zeros((128, 1), dtype=nl.int32)
        t = nl.load(x[idx[i_p, 0], i_f])
        nl.store(out[i_p, i_f], nl.exp(t))
        """,
    ),
    Case(
        "err_leading_dimension_of_tensor_must_be_partition",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[0, i_f], nl.exp(t[0, nl.arange(128)[:, None]]))  # here",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[0, nl.arange(128)[None, :]], nl.exp(t[0, nl.arange(128)[None, :]]))",
    ),
    Case(
        "err_local_variable_used_out_of_scope",
        """
        for i in nl.affine_range(2):
            t = nl.load(x[i * 128 + i_p, i_f])
        nl.store(out[i_p, i_f], t)  # here
        """,
        """
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.sequential_range(2):
            t[...] = nl.load(x[i * 128 + i_p, i_f])
        nl.store(out[i_p, i_f], t)
        """,
        "referenced outside of its parent scope",
    ),
    Case(
        "err_local_variable_used_out_of_scope",
        """
        acc = nl.zeros((128, 512), dtype=nl.float32)
        for i in nl.affine_range(2):  # here
            acc = nl.add(acc, nl.load(x[i * 128 + i_p, i_f]))
        nl.store(out[i_p, i_f], acc)
        """,
        """
        acc = nl.zeros((128, 512), dtype=nl.float32)
        for i in nl.affine_range(2):
            acc += nl.load(x[i * 128 + i_p, i_f])
        nl.store(out[i_p, i_f], acc)
        """,
        "acc",
    ),
    Case(
        "err_mutable_parameter_not_returned",
        """
        @nki.jit
        def kernel(x: nt.mutable_tensor):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            t = nl.load(x[0:128, 0:512])
            nl.store(x[0:128, 0:512], t)
            nl.store(out, t)
            return out
        """,
        """
        @nki.jit
        def kernel(x: nt.mutable_tensor):
            t = nl.load(x[0:128, 0:512])
            nl.store(x[0:128, 0:512], nl.exp(t))
            return x
        """,
    ),
    Case(
        "err_num_partition_exceed_arch_limit",
        "t = nl.load(x[nl.arange(256)[:, None], i_f])  # here\nnl.store(out[i_p, i_f], t)",
        "t = nl.load(x[nl.arange(128)[:, None], i_f])\nnl.store(out[i_p, i_f], t)",
        "Size of partition dimension 256 exceeds architecture limitation of 128",
    ),
    Case(
        "err_num_partition_mismatch",
        """
        a = nl.load(x[i_p, i_f])
        b = nl.load(x[nl.arange(64)[:, None], i_f])
        nl.store(out[i_p, i_f], nisa.tensor_tensor(a, b, op=nl.add))  # here
        """,
        """
        a = nl.load(x[i_p, i_f])
        b = nl.load(x[128 + i_p, i_f])
        nl.store(out[i_p, i_f], nisa.tensor_tensor(a, b, op=nl.add))
        """,
        "data2 has 64",
    ),
    Case(
        "err_shared_hbm_must_in_kernel_level",
        """
        for i in nl.affine_range(2):
            y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)  # here
            nl.store(y, nl.load(x[i * 128 + i_p, i_f]))
        nl.store(out[i_p, i_f], nl.load(x[i_p, i_f]))
        """,
        """
        for i in nl.affine_range(2):
            y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.private_hbm)
            nl.store(y, nl.load(x[i * 128 + i_p, i_f]))
        nl.store(out[i_p, i_f], nl.load(x[i_p, i_f]))
        """,
    ),
    Case(
        "err_size_of_dimension_exceed_arch_limit",
        """
        a = nl.load(x[i_p, nl.arange(128)[None, :]])
        b = nl.load(x[i_p, nl.arange(1024)[None, :]])
        c = nisa.nc_matmul(a, b)  # here
        nl.store(out[i_p, i_f], nl.copy(c))
        """,
        """
        a = nl.load(x[i_p, nl.arange(128)[None, :]])
        b = nl.load(x[i_p, i_f])
        c = nisa.nc_matmul(a, b)
        nl.store(out[i_p, i_f], nl.copy(c))
        """,
        "1024",
    ),
    Case(
        "err_size_of_dimension_exceed_arch_limit",
        "t = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.psum)  # here\nnl.store(out[i_p, i_f], nl.load(x[i_p, i_f]))",
        "t = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)\nnl.store(out[i_p, i_f], nl.copy(t))",
        "bank",
    ),
    Case(
        "err_store_dst_shape_smaller_than_other_shape",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, nl.arange(256)[None, :]], t)  # here",
        "t = nl.load(x[i_p, nl.arange(256)[None, :]])\nnl.store(out[i_p, nl.arange(256)[None, :]], t)",
    ),
    Case(
        "err_tensor_access_out_of_bound",
        "for i in nl.affine_range(3):\n    nl.store(out[i_p, i_f], nl.load(x[i * 128 + i_p, i_f]))  # here",
        """
        acc = nl.zeros((128, 512), dtype=nl.float32)
        for i in nl.affine_range(3):
            t = nl.zeros((128, 512), dtype=nl.float32)
            t[i_p, i_f] = nl.load(x[i * 128 + i_p, i_f], mask=(i * 128 + i_p < 256))
            acc += t
        nl.store(out[i_p, i_f], acc)
        """,
        "index range [0, 383] exceed dimension size of 256",
    ),
    Case(
        "err_tensor_output_not_written_to",
        "t = nl.load(x[i_p, i_f])",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], t)",
        "out",
    ),
    Case(
        "err_unexpected_output_dependencies",
        "for i in nl.affine_range(2):\n    nl.store(out[i_p, i_f], nl.load(x[i * 128 + i_p, i_f]))  # here",
        "for i in nl.sequential_range(2):\n    nl.store(out[i_p, i_f], nl.load(x[i * 128 + i_p, i_f]))",
        "affine_range",
    ),
    Case(
        "err_unsupported_expression_in_mask",
        "t = nl.load(x[i_p, i_f], mask=((i_p < 10) | (i_f < 10)))  # here\nnl.store(out[i_p, i_f], t)",
        "t = nl.load(x[i_p, i_f], mask=((i_p < 100) & (i_f < 100)))\nnl.store(out[i_p, i_f], t)",
    ),
    Case(
        "err_unsupported_memory",
        "a = nl.load(x[i_p, i_f])\nb = nl.load(a[i_p, i_f])  # here\nnl.store(out[i_p, i_f], b)",
        "a = nl.load(x[i_p, i_f])\nb = nl.copy(a[i_p, i_f])\nnl.store(out[i_p, i_f], b)",
        "Expected operand 'src' of 'load' to be in address space 'hbm'",
    ),
    Case(
        "err_unsupported_mixing_basic_advanced_tensor_indexing",
        "t = nl.load(x[0:128, i_f])  # here\nnl.store(out[i_p, i_f], t)",
        "t = nl.load(x[0:128, 0:512])\nnl.store(out[i_p, i_f], t)",
    ),
    Case(
        "err_annotation_shape_mismatch",
        "t: nt.tensor[128, 256] = nl.load(x[i_p, i_f])  # here\nnl.store(out[i_p, i_f], t)",
        "t: nt.tensor[128, 512] = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], t)",
        "[128, 256]",
    ),
    Case(
        "err_bias_tensor_must_be_specified_in_allocation",
        """
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        t[i_p, i_f] = nl.load(x[i_p, i_f])
        t[i_p, i_f] = nisa.activation(op=nl.exp, data=t[i_p, i_f])  # here
        nl.store(out[i_p, i_f], t)
        """,
        """
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        b = nl.ndarray((128, 1), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=2048))
        b[...] = nisa.memset((128, 1), 0.0, dtype=nl.float32)
        t[i_p, i_f] = nl.load(x[i_p, i_f])
        t[i_p, i_f] = nisa.activation(op=nl.exp, data=t[i_p, i_f], bias=b)
        nl.store(out[i_p, i_f], t)
        """,
    ),
    Case(
        "err_copy_dynamic_indirect_indices_not_natively_supported",
        """
        idx = nl.load(y)
        t = nl.load(x[i_p, nl.arange(1024)[None, :]])
        nl.store(out[i_p, i_f], nl.copy(t[i_p, idx[0, 0] + i_f]))  # here
        """,
        """
        idx = nl.load(y)
        t = nl.load(x[i_p, nl.arange(1024)[None, :]])
        nl.store(out[i_p, i_f], nisa.tensor_copy_dynamic_src(t[i_p, idx[0, 0] + i_f]))
        """,
        args=(X, ArraySpec((128, 1), np.int32)),
    ),
    Case(
        "err_copy_dynamic_indirect_indices_not_natively_supported",
        """
        idx = nl.load(y)
        t = nl.load(x[i_p, i_f])
        nl.store(out[i_p, i_f], nisa.tensor_copy_dynamic_src(t[idx[nl.arange(128)[:, None], 0], i_f]))  # here
        """,
        """
        idx = nl.load(y)
        t = nl.load(x[i_p, nl.arange(1024)[None, :]])
        nl.store(out[i_p, i_f], nisa.tensor_copy_dynamic_src(t[i_p, idx[0, 0] + i_f]))
        """,
        args=(X, ArraySpec((128, 1), np.int32)),
    ),
    Case(
        "err_control_flow_condition_depending_on_arange",
        "t = nl.load(x[i_p, i_f])\nwhile i_f < 100:  # here\n    nl.store(out[i_p, i_f], t)",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], t, mask=(i_f < 100))",
    ),
    Case(
        "err_indirect_indices_free_dim",
        """
        idx = nl.load(y)
        nl.store(out[i_p, i_f], nl.load(x[i_p, idx[i_p, 0]]))  # here
        """,
        """
        idx = nl.load(y)
        nl.store(out[i_p, i_f], nl.load(x[idx[i_p, 0], i_f]))
        """,
        args=(X, ArraySpec((128, 1), np.int32)),
    ),
    Case(
        "err_indirect_indices_free_dim",
        """
        idx = nl.load(y)
        p, f = nl.mgrid[0:128, 0:512]
        nl.store(out[p, f], nl.load(x[idx[p, 0], f]))  # here
        """,
        """
        idx = nl.load(y)
        nl.store(out[i_p, i_f], nl.load(x[idx[i_p, 0], i_f]))
        """,
        "free axis",
        args=(X, ArraySpec((128, 1), np.int32)),
    ),
    Case(
        "err_local_variable_used_out_of_scope",
        """
        if x.shape[0] == 256:
            for k in nl.affine_range(2):
                t = nl.load(x[i_p, i_f])
        nl.store(out[i_p, i_f], nl.exp(t))  # here
        """,
        """
        if x.shape[0] == 256:
            t = nl.load(x[i_p, i_f])
        nl.store(out[i_p, i_f], nl.exp(t))
        """,
    ),
    Case(
        "err_nested_kernel_with_spmd_grid",
        """
        @nki.jit
        def inner(t):
            return nl.exp(t)

        @nki.jit
        def kernel(x):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            nl.store(out, inner[4](nl.load(x[0:128, 0:512])))  # here
            return out
        """,
        """
        @nki.jit
        def inner(t):
            return nl.exp(t)

        @nki.jit
        def kernel(x):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            nl.store(out, inner(nl.load(x[0:128, 0:512])))
            return out
        """,
        "[4]",
    ),
    Case(
        "err_nki_api_outside_of_nki_kernel",
        """
        one = nl.ones((128, 1), dtype=nl.float32)  # here

        @nki.jit
        def kernel(x):
            return x
        """,
        """
        @nki.jit
        def kernel(x):
            out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
            nl.store(out, nl.ones((128, 1), dtype=nl.float32))
            return out
        """,
    ),
    Case(
        "err_num_partition_mismatch",
        """
        a = nl.load(x[i_p, i_f])
        row = nl.load(x[0:1, 0:512])
        nl.store(out[i_p, i_f], a * row)  # here
        """,
        """
        a = nl.load(x[i_p, i_f])
        row = nl.load(x[0:1, 0:512])
        nl.store(out[i_p, i_f], nl.multiply(a, row))
        """,
        "does not broadcast partitions",
    ),
    Case(
        "err_shared_hbm_must_in_kernel_level",
        """
        def make():
            return nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)  # here

        @nki.jit
        def kernel(x):
            out = make()
            nl.store(out, nl.load(x[0:128, 0:512]))
            return out
        """,
        """
        def fill(out, x):
            nl.store(out, nl.load(x[0:128, 0:512]))

        @nki.jit
        def kernel(x):
            out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
            fill(out, x)
            return out
        """,
        "not in the kernel itself",
    ),
    Case(
        "err_tensor_creation_on_scratchpad_with_init_value_not_supported",
        """
        t = nl.zeros((128, 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))  # here
        nl.store(out[i_p, i_f], t)
        """,
        """
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        t[...] = nisa.memset((128, 512), 0.0, dtype=nl.float32)
        nl.store(out[i_p, i_f], t)
        """,
    ),
    Case(
        "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
        """
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        u = nl.ndarray((128, 128), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
        t[i_p, i_f] = nl.load(x[i_p, i_f])
        u[...] = nisa.nc_transpose(t[0:128, 0:128])  # here
        nl.store(out[i_p, i_f], t)
        """,
        """
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        u = nl.ndarray((32, 32), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=2048))
        t[i_p, i_f] = nl.load(x[i_p, i_f])
        u[...] = nisa.nc_transpose(t[0:32, 0:32], engine=nisa.vector_engine)
        nl.store(out[i_p, i_f], t)
        """,
    ),
    Case(
        "err_unsupported_expression_in_mask",
        "t = nl.load(x[i_p, i_f], mask=(i_f % 2 < 1))  # here\nnl.store(out[i_p, i_f], t)",
        "t = nl.load(x[i_p, i_f], mask=(i_f - 2 * i_p < 1))\nnl.store(out[i_p, i_f], t)",
    ),
    Case(
        "err_while_loop_requires_unconditional_entry",
        """
        t = nl.load(x[0:1, 0:1])
        while t > 0:  # here
            t = nl.subtract(t, 1.0)
        nl.store(out[i_p, i_f], nl.load(x[i_p, i_f]))
        """,
        """
        k = 3
        while k > 0:
            k -= 1
        nl.store(out[i_p, i_f], nl.load(x[i_p, i_f]))
        """,
    ),
    Case(
        "unknown_api",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], nisa.activate(op=nl.exp, data=t))  # here",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], nisa.activation(op=nl.exp, data=t))",
        "activate",
    ),
    Case(
        "unsupported_axis",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, 0], nl.sum(t, axis=0))  # here",
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, 0], nl.sum(t, axis=1))",
        "partition",
    ),
    Case(
        "unsupported_on_target",
        """
        t = nl.load(x[i_p, i_f])
        b = nl.zeros((128, 1), dtype=nl.float32)
        s = nisa.range_select(on_true_tile=t, comp_op0=np.less, comp_op1=np.less, bound0=b, bound1=b)  # here
        nl.store(out[i_p, i_f], s)
        """,
        "t = nl.load(x[i_p, i_f])\nnl.store(out[i_p, i_f], nisa.affine_select(i_f < 3, t, 0.0))",
        "trn2",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{c.name}" for k, c in enumerate(CASES)])
def test_the_wrong_kernel_is_refused_by_name_at_its_line_and_the_corrected_one_traces(case: Case) -> None:
    text = source(case.wrong)
    with pytest.raises(NKIError) as caught:
        trace(text, case.args, target=case.target)
    error = caught.value
    assert error.name == case.name, error
    marked = [k for k, line in enumerate(text.splitlines(), 1) if "# here" in line]
    if marked:
        assert error.line == marked[0], error
    assert case.says in error.message
    assert error.remedy, "an error must say how to fix it"
    assert "\n" not in str(error)
    trace(source(case.right), case.args, target=case.target)


def test_every_error_has_a_remedy_in_one_line() -> None:
    assert all(text and "\n" not in text for text in REMEDIES.values())


def test_every_error_of_the_guide_has_a_kernel_that_raises_it() -> None:
    assert {name for name in REMEDIES} <= {case.name for case in CASES}


def test_an_unknown_api_names_the_nearest_real_ones() -> None:
    body = "nl.store(out[i_p, i_f], nl.relu6(nl.load(x[i_p, i_f])))"
    with pytest.raises(NKIError) as caught:
        trace(source(body), [X])
    assert "nl.relu" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def kernel(x):\n    return x\n", "no_kernel"),
        ("@nki.jit\ndef kernel(x:\n", "syntax_error"),
        ("@nki.jit\ndef kernel(x, y):\n    return x\n", "wrong_arguments"),
        ("@nki.jit\ndef kernel(x):\n    return None\n", "invalid_return"),
        ("@nki.jit\ndef kernel(x):\n    return nl.load(x[0:128, 0:512])\n", "err_unsupported_memory"),
        ("@nki.jit\ndef kernel(x):\n    import os\n", "forbidden_import"),
        ("@nki.jit\ndef kernel(x):\n    return 1 / 0\n", "python_error"),
        ("@nki.jit\ndef kernel(x):\n    assert x.shape == (1,), 'wrong shape'\n", "python_error"),
        ("@nki.jit\ndef kernel(x):\n    return kernel(x)\n", "recursion_limit"),
    ],
)
def test_a_source_that_is_no_kernel_is_refused_with_a_name(text: str, name: str) -> None:
    with pytest.raises(NKIError) as caught:
        trace(HEADER + text, [X])
    assert caught.value.name == name


def test_arguments_may_be_arrays_or_their_specs() -> None:
    body = "nl.store(out[i_p, i_f], nl.load(x[i_p, i_f]))"
    by_spec = trace(source(body), [X])
    by_array = trace(source(body), [np.zeros((256, 1024), np.float32)])
    assert by_spec.params[0].shape == by_array.params[0].shape
