"""The reduction registers of the Scalar and Vector engines, kept as tiles.

An instruction adds to the registers of its engine, starts them anew, or copies them out, as its ``reduce_cmd`` says. In
IR each such instruction reduces into a tile: the ``reduce_res`` it is given, or one made here where it is given none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...dtypes import FLOAT32
from ...errors import NKIError
from ...ir import Access, Buffer, Tensor, TensorKind
from ..emit import emit_into
from ..session import current
from .checks import reduction_target

INITIAL = {"scalar": 0.0, "vector": float("-inf")}
"""What a reset leaves in the registers: the scalar engine adds, the vector engine takes maxima."""


class Reduction:
    """What an instruction does with the registers of its engine.

    Attributes:
        attrs: of the instruction.
        extra: its further destinations.
    """

    def __init__(self) -> None:
        """Nothing."""
        self.attrs: dict[str, Any] = {}
        self.extra: tuple[Access, ...] = ()


@contextmanager
def reduction(
    engine: str, op: str, name: str, command: Any, target: Any, data: Access
) -> Iterator[Reduction]:
    """The part of an instruction that reduces; emits what goes before and after it.

    Args:
        engine: ``scalar`` or ``vector``.
        op: the instruction.
        name: the reduction.
        command: ``reduce_cmd``.
        target: ``reduce_res``, or None.
        data: what is reduced.

    Raises:
        NKIError: for a target of another shape, or registers that nothing has started.
    """
    what = Reduction()
    registers = current().registers
    wanted = getattr(command, "name", "idle")
    into = reduction_target(target, data, op) if target is not None else None
    if wanted == "reset":
        registers[engine] = _hidden(data, engine)
        emit_into("nisa.memset", (registers[engine],), {}, {"value": INITIAL[engine], "engine": "unknown"})
    elif into is not None and (wanted != "reduce" or registers.get(engine) in (None, into)):
        what.attrs = {"reduce_op": name, "reduce_cmd": "reset_reduce" if wanted == "idle" else wanted}
        what.extra = (into,)
        registers[engine] = into
    elif wanted in ("reduce", "reset_reduce"):
        if wanted == "reset_reduce":
            registers[engine] = _hidden(data, engine)
        elif engine not in registers:
            raise NKIError(
                "invalid_operand",
                f"'{op}' adds to reduction registers that nothing has started",
                line=current().line(),
                remedy="begin with reduce_cmd=nisa.reduce_cmd.reset_reduce",
            )
        what.attrs = {"reduce_op": name, "reduce_cmd": wanted}
        what.extra = (registers[engine],)
    yield what
    if into is not None and what.extra and what.extra[0] != into:
        emit_into("nisa.tensor_copy", (into,), {"src": what.extra[0]}, {"engine": engine})


def _hidden(data: Access, engine: str) -> Access:
    session = current()
    tensor = Tensor(
        session.unique(f"{engine}_registers"),
        (data.shape[0], 1),
        FLOAT32,
        Buffer.SBUF,
        kind=TensorKind.LOCAL,
        scope=session.scope,
        declared=True,
        line=session.line(),
    )
    return tensor.whole()
