"""The experience store: what earlier rounds, problems and runs have learned, found again by similarity.

Every experience lies in two Chroma collections, one of its operator family and one of all. A query over
everything and a query within a family are then both a search of one index without a filter; Chroma filters
by scanning its metadata, which at 100 000 records takes fifty times as long as the search itself. Further
conditions are checked on more neighbours than asked for, and only where that leaves too few does Chroma
filter.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import urlsplit

from filelock import FileLock, Timeout
from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, ConfigDict

from . import chroma_server
from .embedding import Embedder, Vectors, choose_embedder
from .errors import EmbedderMismatch, StoreError
from .experience import Experience, Kind

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from langchain_chroma import Chroma

ALL = "experiences"
"""Name of the collection of everything."""
SCHEMA = 1
_OVERFETCH = 4
_WRITE_TIMEOUT_S = 60.0
_ATTEMPTS = 3

T = TypeVar("T")
Ids = list[str]
Experiences = list[Experience]
Metadata = Mapping[str, Any]


class Where(BaseModel):
    """Conditions on experiences, all of which have to hold; an empty one allows everything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operator: str | None = None
    """Operator family."""
    kind: Kind | None = None
    problem: str | None = None
    target: str | None = None
    bottleneck: str | None = None
    run_id: str | None = None
    """A run that found it, not necessarily first."""

    def allows(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a stored experience meets the conditions."""
        plain = self.model_dump(mode="json", exclude_none=True, exclude={"run_id"})
        if any(metadata.get(name) != value for name, value in plain.items()):
            return False
        return self.run_id is None or self.run_id in metadata.get("run_ids", ())

    def filter(self, *, without_operator: bool = False) -> dict[str, Any] | None:
        """The conditions in Chroma's language; None where there are none."""
        excluded = {"run_id", "operator"} if without_operator else {"run_id"}
        plain = self.model_dump(mode="json", exclude_none=True, exclude=excluded)
        parts: list[dict[str, Any]] = [{name: value} for name, value in plain.items()]
        if self.run_id is not None:
            parts.append({"run_ids": {"$contains": self.run_id}})
        if len(parts) > 1:
            return {"$and": parts}
        return parts[0] if parts else None


class Recalled(BaseModel):
    """An experience and how far it is from what was asked."""

    model_config = ConfigDict(frozen=True)

    experience: Experience
    distance: float
    """Cosine distance: 0 for the same direction, 1 for unrelated, 2 for opposite."""


Recollection = list[Recalled]


class ExperienceStore:
    """Experiences in Chroma. Safe for threads; safe for several processes when opened as shared.

    Methods block, so asynchronous code calls them through `asyncio.to_thread`.
    """

    def __init__(
        self,
        connect: Callable[[], tuple[Client, Callable[[], None]]],
        embedder: Embedder | str,
        *,
        place: str,
        write_lock: Path | None,
        reconnects: bool,
    ) -> None:
        """Use one of the class methods instead; this takes what they have in common.

        Args:
            connect: gives a client and what closes it; called again when the server is lost.
            embedder: an embedder, or a name for `choose_embedder`.
            place: path or address, for messages.
            write_lock: file to lock while a record is read, merged and written back.
            reconnects: whether a lost connection can be had again.
        """
        self._connect = connect
        self.place = place
        self._write_lock = write_lock
        self._reconnects = reconnects
        self._state = threading.RLock()
        self._generation = 0
        self._collections: dict[str, Chroma] = {}
        self._closed = False
        self._client, self._release = connect()
        try:
            with self._writing():
                self.embedder, self._dimension = self._settled(embedder)
                self._reached(lambda: self._made(ALL))
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls,
        path: Path,
        embedder: Embedder | str = "auto",
        *,
        shared: bool = True,
        linger_s: float = chroma_server.LINGER_S,
    ) -> ExperienceStore:
        """The store in a folder, made if it is not there.

        Args:
            path: the folder.
            embedder: an embedder, or its name; `auto` takes what the store was built with.
            shared: go through the store's server, so that other processes can use it too. Otherwise this
                process opens the files itself and keeps everybody else out until `close`.
            linger_s: how long a server started for this outlives its last user.

        Raises:
            EmbedderMismatch: the store was built with another embedder.
            EmbedderError: the embedder cannot be had.
            StoreBusy: another process keeps it for itself.
            StoreError: it cannot be opened; says why.
        """
        path = path.absolute()

        def connect_shared() -> tuple[Client, Callable[[], None]]:
            host, port, lease = chroma_server.connect(path, linger_s=linger_s)
            try:
                client = _http_client(host, port, ssl=False)
            except BaseException:
                lease.release()
                raise

            def close() -> None:
                client.close()
                lease.release()

            return client, close

        def connect_alone() -> tuple[Client, Callable[[], None]]:
            give_back = chroma_server.own(path)
            try:
                client = _file_client(path)
            except BaseException:
                give_back()
                raise

            def close() -> None:
                client.close()
                give_back()

            return client, close

        return cls(
            connect_shared if shared else connect_alone,
            embedder,
            place=str(path),
            write_lock=path.with_name(f"{path.name}.write"),
            reconnects=shared,
        )

    @classmethod
    def connect(cls, url: str, embedder: Embedder | str = "auto") -> ExperienceStore:
        """The store on a Chroma server that somebody else runs, at `http://host:port`.

        Raises:
            EmbedderMismatch: the store was built with another embedder.
            StoreError: the server cannot be reached.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise StoreError(f"not the address of a Chroma server: {url!r}; write http://host:port")
        secure = parts.scheme == "https"
        host, port = parts.hostname, parts.port or (443 if secure else 8000)

        def connect() -> tuple[Client, Callable[[], None]]:
            client = _http_client(host, port, ssl=secure)
            return client, client.close

        return cls(connect, embedder, place=url, write_lock=None, reconnects=True)

    def add(self, experiences: Iterable[Experience], *, run_id: str | None = None) -> Ids:
        """Remember experiences and return their ids; one already known only gains the run.

        Args:
            experiences: in any number.
            run_id: the run they are remembered for; by default each one's own.

        Raises:
            StoreError: it cannot be written.
        """
        new = {found.id: found for found in experiences}
        ids = list(new)
        step = self._batch_size()
        for start in range(0, len(ids), step):
            self._add_batch([new[one] for one in ids[start : start + step]], run_id)
        return ids

    def query(self, text: str, k: int, where: Where | None = None) -> Recollection:
        """The `k` experiences nearest to `text` that meet the conditions, nearest first.

        `text` is best made by `experience.situation`, which has the form of what is stored.

        Raises:
            StoreError: it cannot be read.
        """
        if k <= 0:
            return []
        where = where or Where()
        vector = self._embedded([text])[0].tolist()
        name = ALL if where.operator is None else family_name(where.operator)
        condition = where.filter(without_operator=True)
        wanted = k if condition is None else _OVERFETCH * k

        def search() -> Recollection:
            collection = self._collection(name)
            if collection is None:
                return []
            near = collection.similarity_search_by_vector_with_relevance_scores(vector, wanted)
            fit = [(document, distance) for document, distance in near if where.allows(document.metadata)]
            if len(fit) < k and len(near) == wanted and condition is not None:
                fit = collection.similarity_search_by_vector_with_relevance_scores(vector, k, condition)
            recalled = [
                Recalled(experience=_experience(document.metadata), distance=distance)
                for document, distance in fit
            ]
            return sorted(recalled, key=lambda one: (one.distance, one.experience.id))[:k]

        return self._reached(search)

    def get(self, ids: Sequence[str]) -> Experiences:
        """The experiences with these ids, in this order; unknown ones are left out."""
        found = self._metadata_of(list(dict.fromkeys(ids)))
        return [_experience(found[one]) for one in ids if one in found]

    def list(self, where: Where | None = None, *, limit: int | None = None) -> Experiences:
        """Experiences that meet the conditions, newest first."""
        where = where or Where()
        name = ALL if where.operator is None else family_name(where.operator)

        def read() -> Sequence[Metadata]:
            collection = self._collection(name)
            if collection is None:
                return ()
            condition = where.filter(without_operator=True)
            answer = collection.get(where=condition, include=["metadatas"])
            return tuple(answer["metadatas"])

        found = [_experience(metadata) for metadata in self._reached(read)]
        found.sort(key=lambda one: one.id)
        found.sort(key=lambda one: (one.created_at, one.round), reverse=True)
        return found[:limit]

    def queue(self, problem: str, capacity: int, *, run_id: str | None = None) -> Experiences:
        """The newest experiences of a problem, newest first: the paper's memory, read from the store."""
        return self.list(Where(problem=problem, run_id=run_id), limit=capacity)

    def count(self, where: Where | None = None) -> int:
        """How many experiences meet the conditions."""
        where = where or Where()
        name = ALL if where.operator is None else family_name(where.operator)
        condition = where.filter(without_operator=True)

        def read() -> int:
            collection = self._collection(name)
            if collection is None:
                return 0
            if condition is None:
                return int(collection._collection.count())
            return len(collection.get(where=condition, include=[])["ids"])

        return self._reached(read)

    def delete(self, ids: Sequence[str]) -> int:
        """Forget experiences; returns how many there were."""
        with self._writing():
            found = self._metadata_of(list(dict.fromkeys(ids)))

            def remove() -> None:
                for one, metadata in found.items():
                    for name in (ALL, family_name(str(metadata["operator"]))):
                        collection = self._collection(name)
                        if collection is not None:
                            collection.delete(ids=[one])

            self._reached(remove)
        return len(found)

    def vectorstore(self) -> Chroma:
        """All experiences as a LangChain vector store, for retrievers and tools of your own. To be read."""
        return self._reached(lambda: self._made(ALL))

    def close(self) -> None:
        """Let go of the store; a second time does nothing."""
        with self._state:
            if not self._closed:
                self._closed = True
                self._collections.clear()
                self._release()

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _settled(self, wish: Embedder | str) -> tuple[Embedder, int]:
        """The embedder to use and its dimension: as the store says, or as wished for a new store."""
        stored = self._reached(self._stored_embedder)
        name = None if stored is None else stored[0]
        embedder = choose_embedder(wish, stored=name) if isinstance(wish, str) else wish
        if stored is None:
            return embedder, embedder.dimension
        if embedder.name != name:
            raise EmbedderMismatch(
                f"the vector store {self.place} was built with the embedder {name} and cannot be read with "
                f"{embedder.name}: choose that embedder, or another ACCELOPT_HOME"
            )
        return embedder, stored[1]

    def _stored_embedder(self) -> tuple[str, int] | None:
        """Name and dimension that the store was built with; None for a new store."""
        from chromadb.errors import NotFoundError

        try:
            metadata = self._client.get_collection(ALL, embedding_function=None).metadata or {}
        except NotFoundError:
            return None
        if metadata.get("schema") != SCHEMA:
            raise StoreError(
                f"the vector store {self.place} was written by another version of accelopt; "
                "use that version, or another ACCELOPT_HOME"
            )
        return str(metadata["embedder"]), int(metadata["dimension"])

    def _embedded(self, texts: Sequence[str]) -> Vectors:
        vectors = self.embedder.embed(texts)
        if vectors.shape[1] != self._dimension:
            raise EmbedderMismatch(
                f"the embedder {self.embedder.name} gives {vectors.shape[1]} numbers a text, but the vector "
                f"store {self.place} was built with {self._dimension}: choose another ACCELOPT_HOME"
            )
        return vectors

    def _collection(self, name: str) -> Chroma | None:
        """A collection if it exists. One that does not may be made by another process at any time."""
        from chromadb.errors import NotFoundError

        with self._state:
            if name not in self._collections:
                try:
                    self._client.get_collection(name, embedding_function=None)
                except NotFoundError:
                    return None
                return self._made(name)
            return self._collections[name]

    def _made(self, name: str) -> Chroma:
        from langchain_chroma import Chroma

        with self._state:
            if name not in self._collections:
                self._collections[name] = Chroma(
                    collection_name=name,
                    client=self._client,
                    embedding_function=_Adapter(self._embedded),
                    collection_metadata={
                        "schema": SCHEMA,
                        "embedder": self.embedder.name,
                        "dimension": self._dimension,
                    },
                    collection_configuration={"hnsw": {"space": "cosine"}},
                )
            return self._collections[name]

    def _add_batch(self, experiences: Sequence[Experience], run_id: str | None) -> None:
        with self._writing():
            known = self._metadata_of([one.id for one in experiences])
            families: dict[str, list[tuple[Experience, dict[str, Any]]]] = {}
            for one in experiences:
                metadata = _metadata(one, run_id or one.run_id, known.get(one.id))
                families.setdefault(family_name(one.operator), []).append((one, metadata))

            def write() -> None:
                # Both collections each time: a kill between the two is made good by adding again.
                for name, members in [*families.items(), (ALL, [m for f in families.values() for m in f])]:
                    self._made(name).add_texts(
                        [one.text() for one, _ in members],
                        metadatas=[metadata for _, metadata in members],
                        ids=[one.id for one, _ in members],
                    )

            self._reached(write)

    def _metadata_of(self, ids: Ids) -> dict[str, Metadata]:
        step = self._batch_size()

        def read() -> dict[str, Metadata]:
            collection = self._collection(ALL)
            found: dict[str, Metadata] = {}
            if collection is None:
                return found
            for start in range(0, len(ids), step):
                answer = collection.get(ids=ids[start : start + step], include=["metadatas"])
                found.update(zip(answer["ids"], answer["metadatas"], strict=True))
            return found

        return self._reached(read) if ids else {}

    def _batch_size(self) -> int:
        return min(1000, self._reached(lambda: self._client.get_max_batch_size()))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Held from reading a record to writing it back merged, against other threads and processes."""
        if self._write_lock is None:
            yield
            return
        try:
            with FileLock(self._write_lock, timeout=_WRITE_TIMEOUT_S):
                yield
        except Timeout as error:
            raise StoreError(
                f"the vector store {self.place} is being written for too long; try again"
            ) from error

    def _reached(self, operation: Callable[[], T]) -> T:
        """The operation's answer, on a new connection where the old one is lost. All can be repeated."""
        import chromadb.errors
        import httpx

        for attempt in range(_ATTEMPTS):
            generation = self._generation
            try:
                return operation()
            except httpx.TransportError as error:
                if not self._reconnects or self._closed or attempt == _ATTEMPTS - 1:
                    raise StoreError(f"lost the vector store {self.place}: {error}") from error
                self._connect_again(generation)
            except chromadb.errors.ChromaError as error:
                raise StoreError(f"the vector store {self.place} failed: {_first_line(error)}") from error
        raise AssertionError("every attempt returns or raises")

    def _connect_again(self, generation: int) -> None:
        with self._state:
            if generation == self._generation and not self._closed:
                self._generation += 1
                self._collections.clear()
                # The new lease first: giving back the old one could end a server just started.
                old = self._release
                self._client, self._release = self._connect()
                old()


class _Adapter(Embeddings):
    """An embedder as LangChain knows them."""

    def __init__(self, embed: Callable[[Sequence[str]], Vectors]) -> None:
        self._embed = embed

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [vector.tolist() for vector in self._embed(texts)]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def family_name(operator: str) -> str:
    """Name of the collection of an operator family, which may be called anything."""
    readable = re.sub(r"[^a-z0-9]+", "-", operator.lower()).strip("-")[:40] or "operator"
    return f"family-{readable}-{blake2b(operator.encode(), digest_size=4).hexdigest()}"


def _metadata(experience: Experience, run_id: str, known: Metadata | None) -> dict[str, Any]:
    """What Chroma keeps beside the vector: the conditions of `Where`, and the whole record as JSON."""
    if known is not None:
        experience = _experience(known)
    run_ids = list(known.get("run_ids", ())) if known is not None else []
    run_ids += [one for one in (experience.run_id, run_id) if one and one not in run_ids]
    metadata: dict[str, Any] = {
        "kind": experience.kind.value,
        "problem": experience.problem,
        "operator": experience.operator,
        "target": experience.target,
        "bottleneck": experience.bottleneck,
        "record": experience.model_dump_json(),
    }
    if run_ids:
        # Chroma refuses empty lists.
        metadata["run_ids"] = list(dict.fromkeys(run_ids))
    return metadata


def _experience(metadata: Metadata) -> Experience:
    return Experience.model_validate_json(metadata["record"])


def _settings() -> Any:
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False)


def _http_client(host: str, port: int, *, ssl: bool) -> Client:
    import chromadb

    if host in ("127.0.0.1", "localhost"):
        # Where a proxy is set for the network at large, this machine is not part of it.
        for variable in ("NO_PROXY", "no_proxy"):
            known = [one for one in os.environ.get(variable, "").split(",") if one]
            if host not in known:
                os.environ[variable] = ",".join([*known, host])
    try:
        client = chromadb.HttpClient(host=host, port=port, ssl=ssl, settings=_settings())
    except ValueError as error:
        raise StoreError(f"no Chroma server answers at {host}:{port}: {_first_line(error)}") from error
    return cast("Client", client)


def _file_client(path: Path) -> Client:
    import chromadb

    try:
        return cast("Client", chromadb.PersistentClient(path=str(path), settings=_settings()))
    except Exception as error:
        raise StoreError(f"cannot open the vector store {path}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
