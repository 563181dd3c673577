"""`nki.language` of the later package: tensors without block dimensions, no masks, the wrappers of 0.3 and on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import NKIError
from ...ir import Buffer
from .. import language as beta1
from .. import loops
from ..index import DynamicSlice, arange
from ..language import creation, elementwise, memory, reductions
from ..language.limits import TileSize
from ..registry import CATALOGUE, api
from ..session import current
from ..tile import Tile
from . import isa


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
    return creation.ndarray(shape, dtype, buffer=buffer, name=name)


def _filled(op: str, value: float | None) -> Any:
    def function(shape: Any, *args: Any, buffer: Any = None, name: str = "", **kwargs: Any) -> Tile:
        fill, rest = (value, args) if value is not None else (kwargs.pop("fill_value", None), args)
        if fill is None:
            fill, rest = rest[0], rest[1:]
        dtype = rest[0] if rest else kwargs.pop("dtype")
        where = buffer if buffer is not None else rest[1] if len(rest) > 1 else None
        return creation.filled(f"nl.{op}", shape, fill, dtype, where, name)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"A new on-chip tensor filled with {'a constant' if value is None else f'{value:g}'}."
    return _register(op, "vector or gpsimd")(function)


zeros, ones, full = _filled("zeros", 0.0), _filled("ones", 1.0), _filled("full", None)


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
    """The n x n identity: in HBM, or loaded into dst."""
    constant = creation.shared_identity_matrix(int(n), dtype)
    if dst is None:
        return constant
    isa.dma_copy(dst=dst, src=constant)
    return None


@_register("no_reorder", "none")
@contextlib.contextmanager
def no_reorder() -> Iterator[None]:
    """Accepted: results do not depend on the compiler's order."""
    yield


def _not_here(name: str, advice: str) -> Any:
    def function(*_: Any, **__: Any) -> None:
        raise NKIError("unsupported_api", f"nl.{name} is not simulated", line=current().line(), remedy=advice)

    function.__name__ = function.__qualname__ = name
    return function


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


def _without_mask(name: str, original: Any, engine: str) -> Any:
    """One of Beta 1's functions under this dialect's rules: no ``mask``."""

    def function(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("mask") is not None:
            isa._no_beta1(name, {"mask": True})
        return original(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = original.__doc__
    function.nki_op = getattr(original, "nki_op", name)  # type: ignore[attr-defined]
    return _register(name, engine)(function)


_SHARED = (
    "copy matmul transpose softmax rms_norm dropout where gather_flattened broadcast_to expand_dims load_transpose2d "
    "zeros_like empty_like rand random_seed shared_constant program_id num_programs program_ndim device_print"
).split()


def contents() -> dict[str, Any]:
    """The attributes of the module `nki.language`."""
    table = dict(beta1.contents())
    for gone in ("par_dim", "mgrid", "loop_reduce", "all_reduce", "static_cast", "nc", "spmd_dim", "invert"):
        table.pop(gone, None)
    for name in (*_SHARED, *elementwise.BINARY, *elementwise.UNARY, *reductions.REDUCTIONS):
        entry = CATALOGUE["neuronxcc.nki", f"nl.{name}"]
        table[name] = _without_mask(name, entry.function, entry.engine)
    table |= {
        "ndarray": ndarray,
        "zeros": zeros,
        "ones": ones,
        "full": full,
        "load": load,
        "store": store,
        "shared_identity_matrix": shared_identity_matrix,
        "no_reorder": no_reorder,
        "arange": arange,
        "ds": DynamicSlice,
        "affine_range": loops.affine_range,
        "sequential_range": loops.sequential_range,
        "static_range": loops.static_range,
        "dynamic_range": _not_here(
            "dynamic_range", "use nl.affine_range or nl.sequential_range with constant bounds"
        ),
        "fori_loop": _not_here("fori_loop", "use nl.sequential_range"),
        "while_loop": _not_here("while_loop", "use nl.sequential_range with a constant bound"),
        "tile_size": NkiTileSize(),
        "is_hbm": lambda b: not Buffer(b).on_chip,
        "is_on_chip": lambda b: Buffer(b).on_chip,
        "is_psum": lambda b: b == Buffer.PSUM,
        "is_sbuf": lambda b: b == Buffer.SBUF,
    }
    return table
