"""Views: the same elements under other axes."""

from __future__ import annotations

import math

from ..errors import NKIError
from ..ir import Access, Affine, Indirect, LoopVar, Tensor, identity_index
from .session import Retrace, current


def substitute_index(
    access: Access, replacement: dict[LoopVar | int, Affine | int], shape: tuple[int, ...]
) -> tuple[Affine | Indirect, ...]:
    """The index of `access` with its axes replaced by expressions of the axes of a tile of shape `shape`."""
    out: list[Affine | Indirect] = []
    for e in access.index:
        if isinstance(e, Affine):
            out.append(e.substitute(replacement))
            continue
        tile = e.tile.substitute(replacement)
        out.append(
            Indirect(Access(tile.tensor, tile.index, shape), e.offset.substitute(replacement), e.scale)
        )
    return tuple(out)


def broadcast_access(access: Access, shape: tuple[int, ...]) -> Access:
    """`access` seen with a larger shape: axes of extent 1 (or missing leading axes) repeat."""
    old = access.shape
    shift = len(shape) - len(old)
    if shift < 0 or any(o not in (1, n) for o, n in zip(old, shape[shift:], strict=True)):
        raise NKIError(
            "shape_mismatch",
            f"{access.tensor.name} of shape {list(old)} does not broadcast to {list(shape)}",
            line=current().line(),
        )
    index = substitute_index(
        access, {k: Affine.of(k + shift) if n > 1 else 0 for k, n in enumerate(old)}, shape
    )
    return Access(access.tensor, index, shape)


def reshape_access(access: Access, shape: tuple[int, ...]) -> Access:
    """`access` with its axes split or merged.

    Raises:
        NKIError: where the new axes are not affine in the old ones (that would be a copy).
    """
    session = current()
    size = math.prod(access.shape)
    if -1 in shape:
        known = math.prod(d for d in shape if d != -1)
        shape = tuple(size // known if d == -1 else d for d in shape)
    if math.prod(shape) != size:
        raise NKIError(
            "shape_mismatch",
            f"cannot reshape {access.tensor.name}{list(access.shape)} to {list(shape)}",
            line=session.line(),
        )
    if shape == access.shape:
        return access
    if not access.tensor.buffer.on_chip:
        view = _contiguous(access, shape)
        if view is not None:
            return view
    replacement = _regroup(access.shape, shape)
    if replacement is None:
        access = _merged(access) or _flattened(access, shape)
        replacement = _regroup(access.shape, shape)
    if replacement is None:
        raise _not_a_view(access, shape)
    return Access(access.tensor, substitute_index(access, replacement, shape), shape)


def _not_a_view(access: Access, shape: tuple[int, ...]) -> NKIError:
    return NKIError(
        "unsupported_reshape",
        f"reshape of {access.tensor.name}{list(access.shape)} to {list(shape)} is not a view",
        line=current().line(),
        remedy="reshape the whole tensor, keep the partition axis as it is, or index it with nl.arange expressions",
    )


def _flattened(access: Access, shape: tuple[int, ...]) -> Access:
    """Have an on-chip tensor created with a single free dimension, over which its axes can be regrouped; trace again.

    Raises:
        Retrace: to do so.
        NKIError: where that does not help.
    """
    session = current()
    site = session.created.get(access.tensor)
    if site is None or site in session.assumptions.flattened or access.shape[:1] != shape[:1]:
        raise _not_a_view(access, shape)
    session.assumptions.flattened.add(site)
    raise Retrace(f"{access.tensor.name} is reshaped")


def _contiguous(access: Access, shape: tuple[int, ...]) -> Access | None:
    """A new shape for a block of an HBM tensor: leading dimensions at scalar positions, the others whole.

    HBM is linear memory, so that this is a reshape of the tensor itself.
    """
    tensor = access.tensor
    scalars = 0
    while scalars < len(access.index):
        e = access.index[scalars]
        if not isinstance(e, Affine) or e.axes():
            break
        scalars += 1
    for k in range(scalars, -1, -1):
        rest = tensor.shape[k:]
        if access.shape == rest and access.index[k:] == identity_index(rest):
            lead = access.index[:k]
            view = _linear(tensor, (*tensor.shape[:k], *shape))
            return Access(view, (*lead, *identity_index(shape)), shape) if lead else view.whole()
    return _rows(access, scalars, shape)


def _rows(access: Access, scalars: int, shape: tuple[int, ...]) -> Access | None:
    """A new shape for whole rows of an HBM tensor that follow each other: scalar positions, a range, the others whole."""
    tensor = access.tensor
    rest = tensor.shape[scalars + 1 :]
    if scalars >= len(tensor.shape) or access.shape[1:] != rest:
        return None
    index = access.affine
    ordered = [e.substitute({0: 0}) if k == scalars else e for k, e in enumerate(index[: scalars + 1])]
    if (
        index[scalars] - ordered[scalars] != Affine.of(0)
        or index[scalars + 1 :] != identity_index((1, *rest))[1:]
    ):
        return None
    start = Affine(0)
    for e, extent in zip(ordered, tensor.shape, strict=False):
        start = start * extent + e
    start = start * math.prod(rest)
    inner = math.prod(shape[1:])
    if math.prod(tensor.shape) % inner or any(c % inner for c in (start.const, *start.terms.values())):
        return None
    view = _linear(tensor, (math.prod(tensor.shape) // inner, *shape[1:]))
    first = Affine(start.const // inner, {s: c // inner for s, c in start.terms.items()})
    if shape[0] > 1:
        first = first + Affine.of(0)
    return Access(view, (first, *identity_index(shape)[1:]), shape)


def _linear(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same elements of HBM under another shape."""
    session = current()
    return Tensor(
        session.unique(session.hint() or tensor.name),
        shape,
        tensor.dtype,
        tensor.buffer,
        kind=tensor.kind,
        scope=tensor.scope,
        view_of=tensor,
        declared=True,
        mutable=tensor.mutable,
        line=session.line(),
    )


def _regroup(old: tuple[int, ...], new: tuple[int, ...]) -> dict[LoopVar | int, Affine | int] | None:
    """Old axes as affine expressions of new ones, when every new axis lies within one old axis."""
    replacement: dict[LoopVar | int, Affine | int] = {}
    j = 0
    for k, extent in enumerate(old):
        parts: list[int] = []
        product = 1
        while product < extent and j < len(new):
            parts.append(j)
            product *= new[j]
            j += 1
        if product != extent:
            return None
        expression = Affine(0)
        stride = extent
        for p in parts:
            stride //= new[p]
            if new[p] > 1:
                expression = expression + Affine(0, {p: stride})
        replacement[k] = expression
        while j < len(new) and new[j] == 1:
            j += 1
    return replacement if all(n == 1 for n in new[j:]) else None


def _merged(access: Access) -> Access | None:
    """All free axes merged into one, if together they run over one dimension without gaps."""
    old = access.shape
    if any(not isinstance(e, Affine) for e in access.index):
        return None
    used = [a for a in range(1, len(old)) if old[a] > 1]
    along = {a: [d for d, e in enumerate(access.affine) if a in e.terms] for a in used}
    dims = {d for found in along.values() for d in found}
    if not used or len(dims) != 1 or any(len(found) != 1 for found in along.values()):
        return None
    dim = dims.pop()
    e = access.affine[dim]
    stride = inner = e.coefficient(used[-1])
    for a in reversed(used):
        if e.coefficient(a) != stride:
            return None
        stride *= old[a]
    index = list(access.index)
    index[dim] = e.substitute({a: 0 for a in used}) + Affine.of(1, inner)
    return Access(access.tensor, tuple(index), (old[0], math.prod(old[1:])))
