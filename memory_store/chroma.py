"""The experience store: what earlier rounds, problems and runs have learned, found again by similarity.

Every experience lies in two Chroma collections: one of all, with its record, and one of its operator family,
with its vector and what can be filtered by. A query over everything and a query within a family are then
both a search of one index without a filter; Chroma filters by scanning its metadata, which at 100 000 records
takes fifty times as long as the search itself. Reading metadata is what costs next, so a query asks for the
ids of more neighbours than it needs, looks at the records from the nearest on until it has enough, and lets
Chroma filter only where those neighbours were too few.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import urlsplit

import numpy as np
from filelock import FileLock, Timeout
from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, ConfigDict

from . import chroma_server
from .embedding import Embedder, Vectors, choose_embedder
from .errors import EmbedderMismatch, StoreError
from .experience import Experience, Kind

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from chromadb.api.models.Collection import Collection
    from langchain_core.vectorstores import VectorStore

ALL = "experiences"
"""Name of the collection of everything."""
SCHEMA = 1
_WIDER = 4
"""How many times more neighbours are looked at than wanted, and again where that was too few."""
_BATCH = 500
"""Records in one request; Chroma takes a few thousand."""
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

    def filter(self) -> dict[str, Any] | None:
        """The conditions in Chroma's language; None where there are none."""
        plain = self.model_dump(mode="json", exclude_none=True, exclude={"run_id"})
        parts: list[dict[str, Any]] = [{name: value} for name, value in plain.items()]
        if self.run_id is not None:
            parts.append({"run_ids": {"$contains": self.run_id}})
        if len(parts) > 1:
            return {"$and": parts}
        return parts[0] if parts else None


@dataclass(frozen=True)
class Recalled:
    """An experience and how far it is from what was asked."""

    experience: Experience
    distance: float
    """Cosine distance: 0 for the same direction, 1 for unrelated, 2 for opposite."""


Recollection = list[Recalled]
Neighbours = list[tuple[str, float]]


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
        self._collections: dict[str, Collection] = {}
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
        for start in range(0, len(ids), _BATCH):
            self._add_batch([new[one] for one in ids[start : start + _BATCH]], run_id)
        return ids

    def query(self, text: str, k: int, where: Where | None = None, *, distinct: bool = True) -> Recollection:
        """The `k` experiences nearest to `text` that meet the conditions, nearest first.

        Args:
            text: best made by `experience.situation`, which has the form of what is stored.
            k: how many at most.
            where: conditions.
            distinct: of several that say the same, found on different kernels, give only one. A prompt
                gains nothing from reading a sentence twice.

        Raises:
            StoreError: it cannot be read.
        """
        if k <= 0:
            return []
        where = where or Where()
        vector = self._embedded([text])
        # Within a family's own index its operator is no condition any more.
        name = ALL if where.operator is None else family_name(where.operator)
        condition = where.model_copy(update={"operator": None}).filter()

        def search() -> Recollection:
            collection = self._collection(name)
            if collection is None:
                return []
            wanted = _WIDER * k
            # What few experiences meet is not to be hoped for among the nearest.
            rare = where.problem is not None or where.run_id is not None
            near = _neighbours(collection, vector, wanted, condition if rare else None)
            found = self._first(near, k, where, distinct)
            if len(found) < k and len(near) == wanted:
                near = _neighbours(collection, vector, _WIDER * wanted, condition)
                found = self._first(near, k, where, distinct)
            return found

        return self._reached(search)

    def get(self, ids: Sequence[str]) -> Experiences:
        """The experiences with these ids, in this order; unknown ones are left out."""
        found = self._reached(lambda: self._records(list(dict.fromkeys(ids))))
        return [_experience(found[one]) for one in ids if one in found]

    def list(self, where: Where | None = None, *, limit: int | None = None) -> Experiences:
        """Experiences that meet the conditions, newest first."""
        condition = (where or Where()).filter()
        answer = self._reached(lambda: self._made(ALL).get(where=condition, include=["metadatas"]))
        found = [_experience(metadata) for metadata in answer["metadatas"] or ()]
        found.sort(key=lambda one: one.id)
        found.sort(key=lambda one: (one.created_at, one.round), reverse=True)
        return found[:limit]

    def queue(self, problem: str, capacity: int, *, run_id: str | None = None) -> Experiences:
        """The newest experiences of a problem, newest first: the paper's memory, read from the store."""
        return self.list(Where(problem=problem, run_id=run_id), limit=capacity)

    def count(self, where: Where | None = None) -> int:
        """How many experiences meet the conditions."""
        condition = (where or Where()).filter()
        if condition is None:
            return self._reached(lambda: self._made(ALL).count())
        answer = self._reached(lambda: self._made(ALL).get(where=condition, include=[]))
        return len(answer["ids"])

    def delete(self, ids: Sequence[str]) -> int:
        """Forget experiences; returns how many there were."""

        def remove() -> int:
            found = self._records(list(dict.fromkeys(ids)))
            families: dict[str, Ids] = {}
            for one, metadata in found.items():
                families.setdefault(family_name(str(metadata["operator"])), []).append(one)
            # The record last: while it is there, forgetting can be taken up again after a kill.
            for name, members in [*families.items(), (ALL, list(found))]:
                if members:
                    self._made(name).delete(ids=members)
            return len(found)

        with self._writing():
            return self._reached(remove)

    def vectorstore(self) -> VectorStore:
        """All experiences as a LangChain vector store, for retrievers and tools of your own; to be read."""
        from langchain_chroma import Chroma

        return Chroma(collection_name=ALL, client=self._client, embedding_function=_Adapter(self._embedded))

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

    def _collection(self, name: str) -> Collection | None:
        """A collection if it exists. One that does not may be made by another process at any time."""
        from chromadb.errors import NotFoundError

        with self._state:
            if name not in self._collections:
                try:
                    self._collections[name] = self._client.get_collection(name, embedding_function=None)
                except NotFoundError:
                    return None
            return self._collections[name]

    def _made(self, name: str) -> Collection:
        """A collection, made if it does not exist."""
        with self._state:
            if name not in self._collections:
                self._collections[name] = self._client.get_or_create_collection(
                    name,
                    embedding_function=None,
                    metadata={"schema": SCHEMA, "embedder": self.embedder.name, "dimension": self._dimension},
                    configuration={"hnsw": {"space": "cosine"}},
                )
            return self._collections[name]

    def _first(self, near: Neighbours, k: int, where: Where, distinct: bool) -> Recollection:
        """The first `k` neighbours that meet the conditions, reading no more records than that takes."""
        found: dict[object, Recalled] = {}
        step = 2 * k if where.kind or where.target or where.bottleneck else k
        for start in range(0, len(near), step):
            part = near[start : start + step]
            records = self._records([one for one, _ in part])
            for one, distance in part:
                # One being forgotten may still be in a family's index.
                if one in records and where.allows(records[one]):
                    recalled = Recalled(experience=_experience(records[one]), distance=distance)
                    says = (recalled.experience.kind, recalled.experience.text()) if distinct else one
                    found.setdefault(says, recalled)
            if len(found) >= k:
                break
        return list(found.values())[:k]

    def _add_batch(self, experiences: Experiences, run_id: str | None) -> None:
        vectors = self._embedded([one.text() for one in experiences])

        def write() -> None:
            known = self._records([one.id for one in experiences])
            metadata = [_metadata(one, run_id or one.run_id, known.get(one.id)) for one in experiences]
            # Both collections each time: a kill between the two is made good by adding again. The record
            # first, so that whatever a family finds can be looked up.
            self._made(ALL).upsert(
                ids=[one.id for one in experiences],
                embeddings=vectors,
                documents=[one.text() for one in experiences],
                metadatas=[
                    {**plain, "record": _record(one, known.get(one.id))}
                    for one, plain in zip(experiences, metadata, strict=True)
                ],
            )
            families: dict[str, list[int]] = {}
            for index, one in enumerate(experiences):
                families.setdefault(family_name(one.operator), []).append(index)
            for name, members in families.items():
                self._made(name).upsert(
                    ids=[experiences[index].id for index in members],
                    embeddings=vectors[members],
                    metadatas=[metadata[index] for index in members],
                )

        with self._writing():
            self._reached(write)

    def _records(self, ids: Ids) -> dict[str, Metadata]:
        """Metadata with the record, by id, of those that are known."""
        found: dict[str, Metadata] = {}
        for start in range(0, len(ids), _BATCH):
            answer = self._made(ALL).get(ids=ids[start : start + _BATCH], include=["metadatas"])
            found.update(zip(answer["ids"], answer["metadatas"] or (), strict=True))
        return found

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


def _neighbours(
    collection: Collection, vector: Vectors, wanted: int, condition: dict[str, Any] | None
) -> Neighbours:
    """Ids and distances of the nearest, in an order that does not depend on chance."""
    answer = collection.query(
        query_embeddings=vector, n_results=wanted, where=condition, include=["distances"]
    )
    ids, distances = answer["ids"][0], (answer["distances"] or [[]])[0]
    if len(ids) < wanted:
        # There are so few that every one was asked for; the index, which is approximate, may still have missed some.
        ids, distances = _all(collection, vector, condition)
    # Beyond the sixth digit a distance depends on the order of summation.
    near = [(one, round(float(far), 6)) for one, far in zip(ids, distances, strict=True)]
    return sorted(near, key=lambda hit: (hit[1], hit[0]))


def _all(
    collection: Collection, vector: Vectors, condition: dict[str, Any] | None
) -> tuple[Ids, list[float]]:
    """Ids and cosine distances of all that meet the condition, computed here."""
    answer = collection.get(where=condition, include=["embeddings"])
    if not answer["ids"]:
        return [], []
    stored = np.asarray(answer["embeddings"], np.float32)
    asked = np.asarray(vector[0], np.float32)
    norms = np.linalg.norm(stored, axis=1) * np.linalg.norm(asked)
    distances = 1.0 - stored @ asked / np.maximum(norms, np.finfo(np.float32).tiny)
    return answer["ids"], distances.tolist()


def _metadata(experience: Experience, run_id: str, known: Metadata | None) -> dict[str, Any]:
    """What can be filtered by, see `Where`; of a known experience the runs are kept."""
    run_ids = [*(known.get("run_ids", ()) if known else ()), experience.run_id, run_id]
    metadata: dict[str, Any] = {
        "kind": experience.kind.value,
        "problem": experience.problem,
        "operator": experience.operator,
        "target": experience.target,
        "bottleneck": experience.bottleneck,
    }
    distinct = [one for one in dict.fromkeys(run_ids) if one]
    # Chroma refuses empty lists.
    return {**metadata, "run_ids": distinct} if distinct else metadata


def _record(experience: Experience, known: Metadata | None) -> str:
    """The whole experience as JSON; a known one stays as it was first found."""
    return str(known["record"]) if known else experience.model_dump_json()


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
