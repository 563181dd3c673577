"""Masks of single operands, ``tile[i_f < 64]``, which the matmuls of Beta 1 take.

The three axes of a product, rows contracted and the columns of either operand, have no tile of their own for ``mask=`` to
speak of. A condition on an operand's columns is one on the product's; a condition on the rows shortens both operands.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import NKIError
from ..ir import Access, Affine
from .index import Condition
from .operand import mask_parts
from .session import NeedsInteger, current
from .tile import MaskedTile, Tile


class Product(NamedTuple):
    """The operands of a matmul with their masks taken off.

    Attributes:
        x: the first operand, as the call takes it.
        y: the second.
        mask: conditions over the axes of the product, those of ``mask=`` among them; None without any.
    """

    x: Any
    y: Any
    mask: Any


def unmasked(x: Any, y: Any, mask: Any, *, x_rows: bool) -> Product:
    """Take the masks off the operands of a matmul.

    Args:
        x: first operand, [rows, columns] where `x_rows`, else [columns, rows].
        y: second operand, [rows, columns...].
        mask: the call's own ``mask=``.
        x_rows: whether the first operand's partitions are contracted, as the second's are.

    Raises:
        NKIError: for conditions that mix axes of which the product keeps only one.
        NeedsInteger: where the number of rows depends on a loop.
    """
    if not isinstance(x, MaskedTile) and not isinstance(y, MaskedTile):
        return Product(x, y, mask)
    x_tile, x_parts = _apart(x)
    y_tile, y_parts = _apart(y)
    if x_tile is None or y_tile is None:
        return Product(x, y, mask)
    contracted = [*range(1, len(x_tile.shape))] if not x_rows else [0]
    low, high = 0, y_tile.shape[0]
    conditions: list[Affine] = []
    for tile, parts, rows, moved in (
        (x_tile, x_parts, contracted, _columns_of_x(x_tile, x_rows)),
        (y_tile, y_parts, [0], {k: k for k in range(1, len(y_tile.shape))}),
    ):
        for part in parts:
            if any(axis in rows for axis in part.axes()):
                low, high = _narrowed(part, low, high, tile)
            elif all(axis in moved for axis in part.axes()):
                conditions.append(part.substitute({axis: Affine.of(moved[axis]) for axis in part.axes()}))
            else:
                raise _mixed(tile)
    if low >= high:
        conditions.append(Affine(-1))  # no rows: the instruction never runs
    elif (low, high) != (0, y_tile.shape[0]):
        x_tile = x_tile[low:high] if x_rows else x_tile[:, low:high]
        y_tile = y_tile[low:high]
    own = mask_parts(mask, 1 + len(y_tile.shape[1:]))
    return Product(x_tile, y_tile, (*own, *conditions))


def _apart(operand: Any) -> tuple[Tile | None, list[Affine]]:
    """A tile and the conditions on it, over its axes."""
    if isinstance(operand, MaskedTile):
        parts = [part for c in operand.conditions for part in mask_parts(c, len(operand.tile.shape))]
        return operand.tile, parts
    return (operand if isinstance(operand, Tile) else None), []


def _columns_of_x(x: Tile, x_rows: bool) -> dict[int, int]:
    """The axes of the first operand that are the first axis of the product."""
    if not x_rows:
        return {0: 0}
    wide = [k for k, n in enumerate(x.shape) if k > 0 and n > 1] or [1]
    return {wide[0]: 0} if len(wide) == 1 else {}


def _narrowed(part: Affine, low: int, high: int, tile: Tile) -> tuple[int, int]:
    """The rows between `low` and `high` for which a condition on rows holds."""
    if part.loops():
        raise NeedsInteger(list(part.loops()), "the rows of a matmul depend on a loop index")
    (axis, coefficient), *others = part.terms.items()
    assert isinstance(axis, int)
    if others:
        raise _mixed(tile)
    if coefficient > 0:
        return max(low, -(part.const // coefficient)), high
    return low, min(high, part.const // -coefficient + 1)


def _mixed(tile: Tile) -> NKIError:
    return NKIError(
        "err_unsupported_expression_in_mask",
        f"a mask of {tile!r} as an operand compares several of its axes",
        line=current().line(),
        remedy="mask each axis by itself: tile[i_p < rows][i_f < columns]",
    )


def masked(access: Access, condition: Condition) -> MaskedTile:
    """``tile[condition]``.

    Raises:
        NKIError: in a dialect whose matmuls take no masks.
    """
    if current().dialect != "neuronxcc.nki":
        raise NKIError(
            "unsupported_index",
            f"{access.tensor.name} is indexed with a comparison",
            line=current().line(),
            remedy="slice the tile to the part that is meant; the nki package has no masks",
        )
    return MaskedTile(Tile(access), (condition,))
