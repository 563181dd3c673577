"""A kernel as the search sees it: its source text, named by what it says."""

import hashlib
import re
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

_ID_LENGTH = 16
_OLD_DIALECT_IMPORT = re.compile(r"^\s*(?:from|import)\s+neuronxcc\b", re.MULTILINE)
_NEW_DIALECT_IMPORT = re.compile(r"^\s*(?:from|import)\s+nki\b", re.MULTILINE)


class Dialect(StrEnum):
    """Which NKI package a kernel imports."""

    neuronxcc = "neuronxcc.nki"
    """Calls return tiles; the dialect of NKIBench, for Trn1 and early Trn2 releases."""
    nki = "nki"
    """Calls take a destination; the package of the later Neuron releases."""


class Kernel(BaseModel):
    """One version of a kernel. Two kernels with the same text are the same kernel."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="First 16 hexadecimal digits of the SHA-256 of the source")
    source: str = Field(description="Python text with one function under @nki.jit")
    dialect: Dialect = Field(description="The NKI package that it imports")

    @classmethod
    def from_source(cls, source: str) -> "Kernel":
        """Names `source` by its content and reads the dialect off its imports.

        Line ends are normalised first, so that a file keeps its identity across platforms. A text that imports no NKI
        package counts as the older dialect; the gate says what is wrong with it.
        """
        text = source.replace("\r\n", "\n").replace("\r", "\n")
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        later = _NEW_DIALECT_IMPORT.search(text) and not _OLD_DIALECT_IMPORT.search(text)
        return cls(id=digest[:_ID_LENGTH], source=text, dialect=Dialect.nki if later else Dialect.neuronxcc)
