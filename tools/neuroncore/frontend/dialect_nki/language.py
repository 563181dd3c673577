"""`nki.language` of the later package: tensors without block dimensions, no masks, the wrappers of 0.3 and on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...dtypes import as_dtype
from ...errors import NKIError
from ...ir import Buffer
from .. import emit, loops
from .. import language as beta1
from ..allocation import remember
from ..index import DynamicSlice, arange
from ..language import creation, elementwise, grid, memory, reductions
from ..language.limits import TileSize
from ..markers import TensorMarker
from ..registry import CATALOGUE, api
from ..session import current
from ..tile import Tile
from . import isa
from .signatures import signature, under


def _register(name: str, engine: str) -> Any:
    return api(f"nl.{name}", engine=engine, dialect="nki")


@_register("ndarray", "none")
def ndarray(shape: Any, dtype: Any, buffer: Any = None, name: str = "", address: Any = None) -> Tile:
    """A new tensor with undefined contents; the first dimension is the partition dimension on chip."""
    if any(isinstance(d, creation.ParDim) for d in shape if not isinstance(shape, int)):
        raise NKIError(
            "unexpected_argument",
            "nl.par_dim and block dimensions are Beta 1's",
            line=current().line(),
            remedy="put the partition dimension first and keep tiles in a Python list",
        )
    made = creation.ndarray(shape, dtype, buffer=buffer, name=name)
    pair = address if isinstance(address, tuple) else ()
    if made.buffer.on_chip and len(pair) == 2 and all(type(n) is int and n >= 0 for n in pair):
        remember(made.access.tensor, *pair)
    return made


@_register("zeros", "vector or gpsimd")
def zeros(shape: Any, dtype: Any, buffer: Any = None, name: str = "") -> Tile:
    """A new on-chip tensor filled with zeros."""
    return creation.filled("nl.zeros", shape, 0.0, dtype, buffer, name)


@_register("ones", "vector or gpsimd")
def ones(shape: Any, dtype: Any, buffer: Any = None, name: str = "") -> Tile:
    """A new on-chip tensor filled with ones."""
    return creation.filled("nl.ones", shape, 1.0, dtype, buffer, name)


@_register("full", "vector or gpsimd")
def full(shape: Any, fill_value: Any, dtype: Any, buffer: Any = None, name: str = "") -> Tile:
    """A new on-chip tensor filled with a constant."""
    return creation.filled("nl.full", shape, fill_value, dtype, buffer, name)


@_register("rand", "gpsimd or vector")
def rand(shape: Any, dtype: Any, buffer: Any = None, name: str = "") -> Tile:
    """Uniform random values in [0, 1)."""
    return creation.rand(shape, dtype)


@_register("load", "dma")
def load(src: Any, dtype: Any = None) -> Tile:
    """HBM to a new SBUF tile."""
    return memory.load(src, dtype=dtype)


@_register("store", "dma")
def store(dst: Any, value: Any) -> None:
    """A tile to HBM."""
    memory.store(dst, value)


@_register("shared_identity_matrix", "dma")
def shared_identity_matrix(n: Any, dtype: Any = np.uint8, dst: Any = None) -> Tile | None:
    """The n x n identity in SBUF: a new tile, or dst."""
    constant = creation.shared_identity_matrix(int(n), dtype)
    if dst is None:
        return memory.load(constant)
    isa.dma_copy(dst=dst, src=constant)
    return None


@_register("broadcast_to", "none (a matmul along the partition axis)")
def broadcast_to(x: Any, shape: Any, dtype: Any = None) -> Tile:
    """A view that repeats axes of extent 1; a copy if dtype differs."""
    view = x.broadcast_to(shape)
    return view if dtype is None or as_dtype(dtype) == x.dtype else emit.copy(view, dtype)


@_register("fori_loop", "none")
def fori_loop(lower: Any, upper: Any, body_fun: Any, step: int = 1) -> None:
    """body_fun(i) for every i from lower to upper; the bounds must be numbers here."""
    for i in loops.static_range(lower, upper, step):
        body_fun(i)


@_register("program_id", "none")
def program_id(axis: Any = 0) -> Any:
    """This instance's index along a grid axis."""
    return grid.program_id(axis)


@_register("num_programs", "none")
def num_programs(axes: Any = 0) -> Any:
    """Number of instances along a grid axis."""
    return grid.num_programs(axes)


@_register("device_print", "none")
def device_print(print_prefix: Any, tensor: Any = None) -> None:
    """Accepted and ignored."""


@_register("no_reorder", "none")
@contextlib.contextmanager
def no_reorder() -> Iterator[None]:
    """Accepted: results do not depend on the compiler's order."""
    yield


class Regions:
    """``nl.MemoryRegion``: the memories by name."""

    sbuf = Buffer.SBUF
    psum = Buffer.PSUM
    private_hbm = Buffer.HBM
    shared_hbm = Buffer.SHARED_HBM


class NkiTileSize(TileSize):
    """``nl.tile_size`` with this dialect's additions."""

    @property
    def psum_num_banks(self) -> int:
        """Banks of PSUM."""
        return current().machine.psum_banks

    @property
    def sbuf_size_bytes(self) -> int:
        """All of SBUF."""
        return current().machine.sbuf_bytes_per_partition * current().machine.partitions

    @property
    def sbuf_fmax_bytes(self) -> int:
        """SBUF bytes per partition."""
        return current().machine.sbuf_usable_bytes_per_partition

    @property
    def sbuf_fmax(self) -> int:
        """fp32 elements of SBUF per partition."""
        return self.sbuf_fmax_bytes // 4


@_register("gelu_apprx_sigmoid_dx", "scalar")
def gelu_apprx_sigmoid_dx(x: Any, dtype: Any = None) -> Tile:
    """Derivative of gelu_apprx_sigmoid."""
    return emit.unary("gelu_apprx_sigmoid_dx", x, dtype)


_RENAMED = {"copy": "src", "zeros_like": "a", "empty_like": "a", "expand_dims": "data"}
"""Functions whose first parameter Beta 1 calls something else than `x`."""

_SIGNATURES = {
    "copy": "x dtype=",
    "matmul": "x y transpose_x=False",
    "transpose": "x dtype=",
    "softmax": "x axis=-1 dtype=",
    "rms_norm": "x w axis n epsilon=1e-06 dtype= compute_dtype=",
    "dropout": "x rate dtype=",
    "where": "condition x y dtype=",
    "gather_flattened": "data indices axis= dtype=",
    "expand_dims": "x axis",
    "load_transpose2d": "src dtype=",
    "zeros_like": "x dtype= buffer= name=",
    "empty_like": "x dtype= buffer= name=",
    "random_seed": "seed",
    "shared_constant": "constant dtype=",
    "program_ndim": "",
    **{name: "x y dtype=" for name in elementwise.BINARY},
    **{name: "x dtype=" for name in elementwise.UNARY},
    **{name: "x axis dtype= keepdims=False" for name in reductions.REDUCTIONS},
}
"""Parameters of the functions that both dialects have, in this one's order; ``=`` marks those that may be left out."""


def _adapted(name: str, parameters: str) -> Any:
    """One of Beta 1's functions under this dialect's signature, which has no masks."""
    entry = CATALOGUE["neuronxcc.nki", f"nl.{name}"]
    form = signature(parameters)

    def body(given: dict[str, Any]) -> Any:
        if name == "softmax":
            given.setdefault("axis", -1)
        values = {k: v for k, v in given.items() if v is not None}
        if name in _RENAMED:
            values[_RENAMED[name]] = values.pop("x")
        if name == "gather_flattened":
            values.pop("axis", None)
        return entry.function(**values)

    function = under(name, form, body, entry.function.__doc__)
    function.nki_op = getattr(entry.function, "nki_op", name)  # type: ignore[attr-defined]
    return _register(name, entry.engine)(function)


ADAPTED = {name: _adapted(name, parameters) for name, parameters in _SIGNATURES.items()}

_GONE = (
    "par_dim",
    "mgrid",
    "loop_reduce",
    "all_reduce",
    "static_cast",
    "nc",
    "spmd_dim",
    "atomic_rmw",
    "constants",
)
"""What only Beta 1 has."""


def contents() -> dict[str, Any]:
    """The attributes of the module `nki.language`."""
    table = {name: value for name, value in beta1.contents().items() if name not in _GONE}
    functions = {
        name.removeprefix("nl."): entry.function
        for (dialect, name), entry in CATALOGUE.items()
        if dialect == "nki" and name.startswith("nl.")
    }
    return {
        **table,
        **functions,
        "arange": arange,
        "ds": DynamicSlice,
        "affine_range": loops.affine_range,
        "sequential_range": loops.sequential_range,
        "static_range": loops.static_range,
        "dynamic_range": loops.sequential_range,
        "tile_size": NkiTileSize(),
        "NkiTensor": TensorMarker("tensor"),
        "MemoryRegion": Regions,
        "DType": str,
        "is_hbm": lambda b: not Buffer(b).on_chip,
        "is_on_chip": lambda b: Buffer(b).on_chip,
        "is_psum": lambda b: b == Buffer.PSUM,
        "is_sbuf": lambda b: b == Buffer.SBUF,
    }
