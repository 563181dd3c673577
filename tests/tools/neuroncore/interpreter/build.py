"""Kernels built by hand in IR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.neuroncore.ir import Access, Affine, Buffer, Kernel, Loop, Node, Tensor, TensorKind

F32 = np.dtype(np.float32)


def tensor(
    name: str,
    shape: Sequence[int],
    buffer: Buffer = Buffer.SBUF,
    *,
    dtype: Any = F32,
    scope: Loop | None = None,
    kind: TensorKind = TensorKind.LOCAL,
    **more: Any,
) -> Tensor:
    return Tensor(name, tuple(shape), np.dtype(dtype), buffer, scope=scope, kind=kind, **more)


def parameter(name: str, shape: Sequence[int], dtype: Any = F32, *, mutable: bool = False) -> Tensor:
    return tensor(name, shape, Buffer.HBM, dtype=dtype, kind=TensorKind.INPUT, mutable=mutable)


def result(name: str, shape: Sequence[int], dtype: Any = F32) -> Tensor:
    return tensor(name, shape, Buffer.SHARED_HBM, dtype=dtype)


def constant(name: str, value: np.ndarray[Any, Any]) -> Tensor:
    return tensor(name, value.shape, Buffer.HBM, dtype=value.dtype, kind=TensorKind.CONSTANT, value=value)


def at(t: Tensor, index: Sequence[Any], shape: Sequence[int]) -> Access:
    return Access(t, tuple(e if not isinstance(e, int) else Affine(e) for e in index), tuple(shape))


def axis(k: int, step: int = 1, offset: Any = 0) -> Affine:
    e = Affine.of(k, step)
    return e + offset


def kernel(params: Sequence[Tensor], outputs: Sequence[Tensor], body: Sequence[Node]) -> Kernel:
    return Kernel(
        "kernel", "neuronxcc.nki", list(params), list(outputs), list(body), signature=[t.name for t in params]
    )
