"""Text to vectors, without a download: three embedders behind one small protocol."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import math
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import EmbedderError

Vectors = NDArray[np.float32]

_WORDLLAMA_MISSING = "the embedder wordllama is not installed; pip install wordllama, or choose hashing"


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def name(self) -> str:
        """Names the function, not the object: equal names give equal vectors. Stored with the vectors."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Float32 unit vectors, shape (len(texts), dimension)."""


class WordLlamaEmbedder:
    """The default: static token embeddings whose weights come inside the `wordllama` wheel.

    About 0.1 ms a short text on one core, 0.3 s to load, no network.
    """

    dimension = 256
    name = "wordllama:l2_supercat:256"

    def __init__(self) -> None:
        """Loads nothing yet; the first text does."""
        self._model: Any = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed; an empty text gives the zero vector.

        Raises:
            EmbedderError: the package is not installed.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        # The tokenizer keeps padding state between calls, so one call at a time.
        with self._lock:
            vectors = self._loaded().embed(list(texts), norm=False)
        return _unit(np.asarray(vectors, dtype=np.float32))

    def _loaded(self) -> Any:
        if self._model is None:
            wordllama = _import_wordllama()
            # The loader looks for its tokenizer in a `tokenizers/` folder of the cache only, and the wheel
            # has one: naming the package's own folder as the cache makes it load from there.
            self._model = wordllama.WordLlama.load(
                config="l2_supercat",
                cache_dir=Path(wordllama.__file__).parent,
                dim=self.dimension,
                disable_download=True,
            )
        return self._model


class HashingEmbedder:
    """Feature hashing of words, word pairs and letter trigrams: lexical only, but needs nothing but NumPy.

    Each feature is hashed with BLAKE2b, so that vectors are the same on every machine and in every
    process (Python's own `hash` is salted); weights grow with the logarithm of the count.
    """

    def __init__(self, dimension: int = 256) -> None:
        """An embedder into `dimension` numbers, which become part of its name."""
        self.dimension = dimension
        self.name = f"hashing:1:{dimension}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed; an empty text gives the zero vector."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            counts: dict[str, int] = {}
            for feature in _features(text):
                counts[feature] = counts.get(feature, 0) + 1
            for feature, count in counts.items():
                digest = hashlib.blake2b(feature.encode(), digest_size=8).digest()
                number = int.from_bytes(digest, "little")
                sign = 1.0 if number & 1 else -1.0
                vectors[row, (number >> 1) % self.dimension] += sign * (1.0 + math.log(count))
        return _unit(vectors)


class OpenAIEmbedder:
    """An OpenAI-compatible `/embeddings` endpoint.

    The dimension is asked of the endpoint once. The last texts are remembered, because the same text is
    embedded for more than one index and again when a run resumes.
    """

    _REMEMBERED = 4096
    _BATCH = 256

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """Asks nothing of the endpoint yet; the key is by default that of the environment."""
        self.name = f"openai:{model}"
        self._model = model
        self._base_url = base_url
        self._api_key = api_key or os.environ.get("OPENAI_API_KEY") or "EMPTY"
        self._timeout_s = timeout_s
        self._client: Any = None
        self._dimension: int | None = None
        self._recent: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def dimension(self) -> int:
        """Length of a vector; the first use asks the endpoint.

        Raises:
            EmbedderError: the endpoint cannot be reached or refuses.
        """
        if self._dimension is None:
            self._dimension = int(self._request(["dimension"]).shape[1])
        return self._dimension

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed, in batches, what is not remembered.

        Raises:
            EmbedderError: the endpoint cannot be reached or refuses.
        """
        found: dict[str, NDArray[np.float32]] = {}
        with self._lock:
            for text in texts:
                if text in self._recent:
                    self._recent.move_to_end(text)
                    found[text] = self._recent[text]
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        for start in range(0, len(missing), self._BATCH):
            batch = missing[start : start + self._BATCH]
            found.update(zip(batch, self._request(batch), strict=True))
        with self._lock:
            for text in missing:
                self._recent[text] = found[text]
            while len(self._recent) > self._REMEMBERED:
                self._recent.popitem(last=False)
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return np.stack([found[text] for text in texts])

    def _request(self, texts: list[str]) -> Vectors:
        import openai

        if self._client is None:
            self._client = openai.OpenAI(
                base_url=self._base_url, api_key=self._api_key, timeout=self._timeout_s
            )
        # An empty string is refused by several servers; a space is not.
        asked = [text or " " for text in texts]
        try:
            answer = self._client.embeddings.create(model=self._model, input=asked, encoding_format="float")
        except openai.OpenAIError as error:
            where = self._base_url or "the OpenAI API"
            raise EmbedderError(f"embedding with {self._model} at {where} failed: {error}") from error
        rows = sorted(answer.data, key=lambda row: row.index)
        if len(rows) != len(texts):
            raise EmbedderError(f"{self._model} answered {len(rows)} embeddings to {len(texts)} texts")
        return _unit(np.asarray([row.embedding for row in rows], dtype=np.float32))


def choose_embedder(
    name: str = "auto",
    *,
    stored: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> Embedder:
    """The embedder by name.

    Args:
        name: `wordllama`, `hashing`, `openai:<model>`, or `auto`: what the store was built with where that
            can be had, else wordllama where it is installed, else hashing.
        stored: name of the embedder that an existing store was built with, if any.
        base_url: endpoint for `openai:`; None for OpenAI's own.
        api_key: key for `openai:`; by default from the environment.

    Raises:
        EmbedderError: unknown name, or wordllama asked for by name but not installed.
    """
    if name == "auto" and stored is not None and _available(stored):
        name = stored
    if name == "auto":
        name = "wordllama" if _available("wordllama") else "hashing"
    kind, _, rest = name.partition(":")
    if name in ("wordllama", WordLlamaEmbedder.name):
        if not _available(kind):
            raise EmbedderError(_WORDLLAMA_MISSING)
        return WordLlamaEmbedder()
    if name == "hashing":
        return HashingEmbedder()
    if (sized := re.fullmatch(r"hashing:1:([1-9]\d{0,4})", name)) is not None:
        return HashingEmbedder(int(sized[1]))
    if kind == "openai" and rest:
        return OpenAIEmbedder(rest, base_url=base_url, api_key=api_key)
    raise EmbedderError(f"unknown embedder {name!r}; choose auto, wordllama, hashing or openai:<model>")


def _import_wordllama() -> Any:
    # At import it turns on logging at level INFO for the whole program, unless somebody has set a handler.
    root, quiet = logging.getLogger(), logging.NullHandler()
    # Its tokenizer complains on standard error about every later fork if it ever ran on several threads.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    root.addHandler(quiet)
    try:
        import wordllama
    except ImportError as error:
        raise EmbedderError(_WORDLLAMA_MISSING) from error
    finally:
        root.removeHandler(quiet)
    return wordllama


def _available(name: str) -> bool:
    kind = name.partition(":")[0]
    if kind == "wordllama":
        return importlib.util.find_spec("wordllama") is not None
    return kind in ("hashing", "openai")


_WORD = re.compile(r"[A-Za-z]+|\d+")


def _features(text: str) -> Iterator[str]:
    words = [word.lower() for word in _WORD.findall(text)]
    for word in words:
        yield f"w:{word}"
        padded = f"<{word}>"
        for start in range(len(padded) - 2):
            yield f"t:{padded[start : start + 3]}"
    for first, second in zip(words, words[1:], strict=False):
        yield f"b:{first} {second}"


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
