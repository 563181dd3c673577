"""The catalogue of NKI's API as this simulator implements it: the source of signature cards and of "did you mean"."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import inspect
import re
import traceback
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import UnknownApiError
from .source import KERNEL_FILE
from .unsimulated import kernel_line, refusal, refusing


class _Default:
    """A default as a kernel would write it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, value: Any) -> Any:
        """What shows as the default's source text."""
        if isinstance(value, enum.Enum):
            return cls(f"nisa.{type(value).__name__}.{value.name}")
        if isinstance(value, float) and np.float32(value) == np.finfo(np.float32).min:
            return cls("nl.fp32.min")
        name = getattr(value, "__name__", "")
        if callable(value) and getattr(np, name, None) is value and not isinstance(value, type):
            return cls(f"np.{name}")
        if isinstance(value, np.dtype | type) and value is not inspect.Parameter.empty:
            return cls(f"nl.{np.dtype(value).name}")
        return value


@dataclasses.dataclass(frozen=True)
class ApiEntry:
    """One API function.

    Attributes:
        name: canonical name, ``nl.load`` or ``nisa.activation``.
        dialect: ``neuronxcc.nki`` or ``nki``.
        engine: which engine runs it.
        cost: documented cost in engine cycles, N elements per partition; empty where none is documented.
        function: the implementation, whose signature and docstring are the card.
    """

    name: str
    dialect: str
    engine: str
    cost: str
    function: Callable[..., Any]

    @property
    def signature(self) -> str:
        """``nisa.activation(op, data, *, bias=None, ...)`` without annotations."""
        parameters = [
            p.replace(annotation=inspect.Parameter.empty, default=_Default.of(p.default))
            for p in inspect.signature(self.function).parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        return f"{self.name}{inspect.Signature(parameters)}"

    @property
    def description(self) -> str:
        """What it does and its limits; a sentence that begins with a parameter's name spells it as the parameter."""
        doc = inspect.getdoc(self.function) or ""
        word = re.match(r"\w+", doc)
        if word and word[0].lower() in inspect.signature(self.function).parameters:
            return word[0].lower() + doc[word.end() :]
        return doc

    def card(self) -> str:
        """Signature, what it does and its limits, engine and cost, in a few lines."""
        doc = self.description
        cost = f"; cost {self.cost}" if self.cost else ""
        return f"{self.signature}\n    {doc.replace(chr(10), chr(10) + '    ')}\n    [{self.engine}{cost}]"


CATALOGUE: dict[tuple[str, str], ApiEntry] = {}
"""Every API by (dialect, name)."""


def api(name: str, *, engine: str, cost: str = "", dialect: str = "neuronxcc.nki") -> Callable[[Any], Any]:
    """Register an API implementation under its canonical name."""

    def register(function: Any) -> Any:
        CATALOGUE[dialect, name] = ApiEntry(name, dialect, engine, cost, _nameable(function))
        return function

    return register


def _nameable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a call carry ``name="..."``, as any instruction may; names of instructions are for profiles and dropped here."""
    if "name" in inspect.signature(function).parameters:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "name" in kwargs:
            del kwargs["name"]
        return function(*args, **kwargs)

    return call


def _fill(dialect: str) -> None:
    """Have the catalogue hold a dialect: its functions register themselves when their modules are made."""
    from .modules import neuron_modules

    neuron_modules(dialect)


def entries(dialect: str) -> list[ApiEntry]:
    """All APIs of a dialect, by name."""
    _fill(dialect)
    return sorted((e for (d, _), e in CATALOGUE.items() if d == dialect), key=lambda e: e.name)


def lookup(name: str, dialect: str = "neuronxcc.nki") -> ApiEntry:
    """The entry of an API, also by its short name (``activation``) or full path.

    Raises:
        UnknownApiError: with the nearest real names.
    """
    _fill(dialect)
    short = (
        name.replace("neuronxcc.nki.", "")
        .replace("nki.", "")
        .replace("language.", "nl.")
        .replace("isa.", "nisa.")
    )
    short = short.replace("nnisa.", "nisa.")
    for candidate in (short, f"nisa.{short}", f"nl.{short}"):
        if (dialect, candidate) in CATALOGUE:
            return CATALOGUE[dialect, candidate]
    raise UnknownApiError("unknown_api", f"NKI has no `{name}`", remedy=nearest(name, dialect))


def signature_of_call(error: TypeError, dialect: str) -> str | None:
    """The signature of the API that a kernel called with wrong arguments, if that is what the error says.

    Args:
        error: as Python raised it: ``activation() got an unexpected keyword argument 'axis'``.
        dialect: whose API it is.
    """
    found = re.match(r"(?:\w+\.)*(\w+)\(\) (?:got|missing|takes)", str(error))
    if found is None:
        return None
    frames = [f.filename for f in traceback.extract_tb(error.__traceback__)]
    if frames[-1:] == [__file__]:
        frames.pop()  # the call was made by `_nameable`, on the kernel's behalf
    if frames[-1:] != [KERNEL_FILE]:
        return None
    for candidate in (f"nisa.{found[1]}", f"nl.{found[1]}"):
        entry = CATALOGUE.get((dialect, candidate))
        if entry is not None:
            return entry.signature
    return None


def nearest(name: str, dialect: str) -> str:
    """A "did you mean ..." sentence, from the catalogue."""
    names = [n for d, n in CATALOGUE if d == dialect]
    leaf = name.rsplit(".", 1)[-1]
    by_leaf = {n.rsplit(".", 1)[-1]: n for n in names}
    close = [by_leaf[m] for m in difflib.get_close_matches(leaf, list(by_leaf), n=4, cutoff=0.5)]
    return f"did you mean {', '.join(close)}?" if close else "see the API list"


class ApiModule(types.ModuleType):
    """A stand-in for one of NKI's modules; unknown names fail with the nearest real ones, unsimulated ones as such."""

    def __init__(self, name: str, dialect: str, contents: dict[str, Any]) -> None:
        """`contents` become the module's attributes."""
        super().__init__(name)
        self.__dict__["_dialect"] = dialect
        self.__dict__["__path__"] = []
        self.__dict__.update({**refusing(name), **contents})

    def __getattr__(self, attribute: str) -> Any:
        """Only reached for names that do not exist."""
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        name = f"{self.__name__}.{attribute}"
        known = refusal(self.__name__, attribute)
        if known is not None:
            raise known
        raise UnknownApiError(
            "unknown_api", f"NKI has no `{name}`", line=kernel_line(), remedy=nearest(name, self._dialect)
        )

    def __setattr__(self, attribute: str, value: Any) -> None:
        """Refused: kernels must not patch NKI; the import system may bind submodules."""
        if attribute.startswith("__"):
            super().__setattr__(attribute, value)
            return
        if attribute in self.__dict__ and self.__dict__[attribute] is value:
            return
        raise UnknownApiError(
            "module_is_read_only", f"`{self.__name__}.{attribute}` cannot be assigned", line=kernel_line()
        )
