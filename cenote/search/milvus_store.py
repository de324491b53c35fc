"""An index in Milvus, for more than one machine: the same store, by its address.

One collection holds an entity per image: its vector (FLAT: exact), its words and its entry; the
row is the primary key, 63 bits of the path's digest. A second one, NAME_sums, holds the sums of
the database's first two moments, each number as two floats, the id of the last change that they
include, and the id of the last change of all. If these differ, a writer is at work or was killed:
readers then read all vectors, once. A writer that was alone adds its changes to the sums; of
several, the last one computes them again. Readers see changes at once.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

import torch
from torch import Tensor

from ..data.digests import digest_of
from ..extras import require
from .database import Moments, MomentSums
from .inputs import is_milvus
from .store import (
    Filter,
    ImageEntry,
    IndexDamaged,
    IndexDescription,
    IndexedImage,
    Store,
    StoreWriter,
    TextHits,
    without_password,
)
from .text_index import TextIndex, entry_texts, stems_of

COLLECTION = "cenote"  # name of the collection, unless the address has one
PROPERTY = "cenote"  # property of the collection that holds the description
TEXT_LENGTHS = {"path": 4096, "source": 8192, "digest": 64, "label": 1024, "domain": 1024}
TEXT_LENGTHS |= {"split": 256, "caption": 16384, "keywords": 8192}
STEMS_LENGTH = 16384  # bytes of the stems of an image's texts, which `like` finds
NULLABLE = ("label", "domain", "split", "caption", "keywords")
NO_KEYWORDS = "\n"  # they were read, and there are none
NUMBERS = ("size", "time", "width", "height", "look")
TIMEOUT = 30.0  # seconds per call
WRITE_BATCH = 500  # entities per call, which takes 64 MB
QUERY_BATCH = 64
PAGE = 4000  # entities per query
MAX_HITS = 16384  # of a Milvus search
LAST_CHANGE, CHANGE_OF_SUMS = -1, -2  # rows of the sums whose `images` is the id of a change
COMPUTED_MOMENTS = 8  # of filters, that a reader keeps
Entity = dict[str, Any]  # the fields of an image
Item = TypeVar("Item")


class VectorIndex(NamedTuple):
    """A type of index of Milvus, with the parameters that build it and those of a search for k."""

    parameters: Mapping[str, Any]
    search: Callable[[int], Mapping[str, Any]]


INDEXES = {
    "FLAT": VectorIndex({}, lambda k: {}),
    "HNSW": VectorIndex({"M": 32, "efConstruction": 200}, lambda k: {"ef": max(64, 2 * k)}),
    # On the disk of the servers; what it needs to build is part of their configuration.
    "DISKANN": VectorIndex({}, lambda k: {"search_list": max(100, 2 * k)}),
    # One bit per dimension, then the nearest again in 8 bits.
    "IVF_RABITQ": VectorIndex(
        {"nlist": 2048, "refine": True, "refine_type": "SQ8"},
        lambda k: {"nprobe": 64, "refine_k": 4},
    ),
}
LITE_INDEXES = ("FLAT", "HNSW")


class MilvusAddress(NamedTuple):
    """`http://[user:password@]host:19530[/NAME]`, or a `.db` file of Milvus Lite.

    Both may end in `?index=hnsw`, or another type of index, for a collection that is created.
    """

    uri: str
    name: str = COLLECTION
    index_type: str = "FLAT"
    token: str = ""

    @classmethod
    def parse(cls, address: str) -> MilvusAddress:
        file, _, query = address.partition("?")
        is_lite = "://" not in address
        index_type = parse_qs(query).get("index", ["flat"])[0].upper()
        known_types = LITE_INDEXES if is_lite else tuple(INDEXES)
        if index_type not in known_types:
            known = " or ".join(known_types).lower()
            system = "Milvus Lite" if is_lite else "Milvus"
            raise ValueError(f"no index '{index_type.lower()}' of {system}: use {known}")
        if is_lite:
            return cls(str(Path(file).expanduser()), index_type=index_type)
        url = urlsplit(address)
        name = url.path.strip("/") or COLLECTION
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,200}", name) or not url.hostname:
            raise ValueError(
                f"'{without_password(address)}' is not an address of an index: "
                "use http://HOST:19530/NAME, where NAME has letters, digits and _"
            )
        token = f"{url.username}:{url.password}" if url.username else ""
        uri = f"{url.scheme}://{url.hostname}:{url.port or 19530}"
        return cls(uri, name, index_type, token)

    def connect(self) -> MilvusConnection:
        """Connect; a file is created if it does not exist."""
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before the import: no messages on stderr
        milvus = require("pymilvus", extra="milvus")
        for logger in ("pymilvus", "milvus_lite"):  # they also print what they raise
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        options: dict[str, Any] = {"token": self.token, "timeout": TIMEOUT}
        if "://" not in self.uri:
            require("milvus_lite", extra="milvus")
            Path(self.uri).parent.mkdir(parents=True, exist_ok=True)
            options = {}
        with milvus_errors(self.uri):
            return MilvusConnection(milvus.MilvusClient(uri=self.uri, **options), self.uri)


class MilvusConnection:
    """A `MilvusClient` whose errors are messages with the address."""

    def __init__(self, client: Any, where: str) -> None:
        self.client, self.where = client, where
        self.types = require("pymilvus", extra="milvus").DataType

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)

        def call(*args: Any, **options: Any) -> Any:
            with milvus_errors(self.where):
                return method(*args, **options)

        return call


@contextmanager
def milvus_errors(where: str) -> Iterator[None]:
    try:
        yield
    except require("pymilvus", extra="milvus").MilvusException as error:
        message = " ".join(str(error.message or error).split())[:200]
        is_locked = "lock" in message.lower() or "local milvus" in message.lower()
        if where.endswith(".db") and is_locked:
            message = "another process may have it open: Milvus Lite allows one at a time"
        raise OSError(f"Milvus at {where}: {message}") from error


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


class MilvusStore(Store):
    """A collection of Milvus; readers see changes at once."""

    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    fixed_description: ClassVar[bool] = True

    def __init__(
        self, client: MilvusConnection, where: str, name: str, description: IndexDescription
    ) -> None:
        self.client, self.where, self.name = client, without_password(where), name
        self.description = description
        self.expression = ""
        columns = {field["name"] for field in client.describe_collection(name)["fields"]}
        self.has_texts = "stems" in columns  # False in a collection of an earlier version
        self.columns = [field for field in ImageEntry._fields if field in columns]
        kind = client.describe_index(name, "vector")["index_type"]
        self.index = INDEXES.get(kind, INDEXES["FLAT"])  # others search with their defaults
        self.computed: dict[object, Moments] = {}  # shared by the views

    @classmethod
    def accepts(cls, address: str) -> bool:
        return is_milvus(address)

    @classmethod
    def find(cls, address: str) -> Self | None:
        parsed = MilvusAddress.parse(address)
        if "://" not in address and not Path(parsed.uri).exists():  # connecting would create it
            return None
        client, name = parsed.connect(), parsed.name
        if not client.has_collection(name):
            return None
        collection = client.describe_collection(name)
        # Milvus Lite does not keep the description of a schema.
        stored = collection.get("properties", {}).get(PROPERTY) or collection["description"]
        try:
            description = IndexDescription.from_json(stored)
        except (ValueError, TypeError):
            raise IndexDamaged(
                f"the collection '{name}' at {parsed.uri} is not an index of Cenote: name another"
            ) from None
        client.load_collection(name)
        return cls(client, address, name, description)

    @classmethod
    def create(cls, address: str, description: IndexDescription) -> Self:
        parsed = MilvusAddress.parse(address)
        client = parsed.connect()
        _create_collection(client, parsed.name, description, parsed.index_type)
        return cls(client, address, parsed.name, description)

    def __len__(self) -> int:
        return int(self._query(self.name, self.expression, ["count(*)"])[0]["count(*)"])

    def select(self, filter: Filter) -> Self:
        view = copy.copy(self)
        view.expression = filter.milvus()
        return view

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Search Milvus, which leaves the order of ties open: here they keep the lower row."""
        k = min(k, MAX_HITS)
        parameters = {"metric_type": "IP", "params": self.index.search(k)}
        scores, rows = list[list[float]](), list[list[int]]()
        for group in queries.float().split(QUERY_BATCH):
            results = self.client.search(
                self.name,
                group.tolist(),
                self.expression,
                k,
                ["row"],
                parameters,
                consistency_level="Strong",
            )
            for hits in results:
                ranked = sorted((-hit["distance"], hit["entity"]["row"]) for hit in hits)
                scores.append([-distance for distance, _ in ranked])
                rows.append([row for _, row in ranked])
        shape = (len(queries), max(map(len, rows), default=0))
        return torch.tensor(scores).view(shape), torch.tensor(rows, dtype=torch.long).view(shape)

    def vectors(self, rows: Tensor) -> Tensor:
        entities = self.by_row(rows.tolist(), ["vector"])
        return torch.tensor([entities[row]["vector"] for row in rows.tolist()]).view(-1, self.dim)

    def words(self, rows: Tensor) -> Tensor | None:
        if not self.use_words or not self.description.words:
            return None
        entities = self.by_row(rows.tolist(), ["words"])
        ids = [list(entities[row]["words"]) for row in rows.tolist()]
        return torch.tensor(ids, dtype=torch.long)

    def find_texts(self, words: Sequence[str]) -> TextHits | None:
        """Ask Milvus for images with one of the stems, at most MAX_HITS, and index their texts."""
        if not self.has_texts:
            return None
        (stems,) = stems_of([" ".join(words)])
        conditions = [
            f"stems like {json.dumps(f'% {stem} %', ensure_ascii=False)}" for stem in stems
        ]
        expression = f"({' or '.join(conditions)})"
        if self.expression:
            expression += f" and ({self.expression})"
        entities = list[Entity]()
        if conditions:
            columns = ["row", *self.columns]
            entities = self._query(self.name, expression, columns, limit=MAX_HITS)
        index = TextIndex.in_memory()
        index.add([entity["row"] for entity in entities], map(_entry_of, entities))
        return index.find(words)

    def entries(self, rows: Tensor) -> list[ImageEntry]:
        entities = self.by_row(rows.tolist(), self.columns)
        return [_entry_of(entities[row]) for row in rows.tolist()]

    def images(self) -> dict[str, IndexedImage]:
        entities = self._pages("", self.columns)
        images = [IndexedImage(entity["row"], _entry_of(entity)) for entity in entities]
        return {image.entry.path: image for image in images}

    def sample(self, count: int) -> list[IndexedImage]:
        """Return all images of a small index: Milvus cannot jump to a row."""
        return [] if len(self) > 10 * count else list(self.images().values())

    def find_paths(self, paths: Sequence[str]) -> dict[str, IndexedImage]:
        stored = self.by_row([row_of(path) for path in paths], self.columns)
        images = [IndexedImage(row, _entry_of(entity)) for row, entity in stored.items()]
        return {image.entry.path: image for image in images}

    def sources(self) -> Iterator[tuple[str, str]]:
        for entity in self._pages("", ["path", "source"]):
            yield entity["path"], entity["source"]

    def rows_with_digests(self, digests: Sequence[str]) -> dict[str, list[int]]:
        rows = dict[str, list[int]]()
        for page in _batches(dict.fromkeys(digests), PAGE):
            expression = f"digest in {json.dumps(page)}"
            for entity in self._query(self.name, expression, ["row", "digest"]):
                rows.setdefault(entity["digest"], []).append(entity["row"])
        return {digest: sorted(group) for digest, group in rows.items()}

    def distinct_values(self, column: str) -> list[str]:
        """Read all images: Milvus has no list of values."""
        return sorted({entity[column] for entity in self._pages("", [column])} - {""})

    def moments(self) -> Moments:
        sums = None if self.expression else self.stored_sums()
        if sums is not None:
            return sums.moments()
        key = self.expression, len(self), tuple(sorted(self.changes().items()))
        if key not in self.computed:
            while len(self.computed) >= COMPUTED_MOMENTS:
                del self.computed[next(iter(self.computed))]
            self.computed[key] = self.compute_sums().moments()
        return self.computed[key]

    def compute_sums(self) -> MomentSums:
        """Read all vectors."""
        sums = MomentSums.zeros(self.dim)
        for entities in _batches(self._pages(self.expression, ["vector"]), PAGE):
            sums.add(torch.tensor([entity["vector"] for entity in entities]))
        return sums

    def writer(self) -> MilvusWriter:
        return MilvusWriter(self)

    @property
    def sums_name(self) -> str:
        return f"{self.name}_sums"

    def stored_sums(self) -> MomentSums | None:
        """Return None unless they are complete and include the last change."""
        changes, rows = self.changes(), 2 * (self.dim + 1)
        if changes.get(LAST_CHANGE) != changes.get(CHANGE_OF_SUMS):
            return None
        entities = self._query_sums("row >= 0", ["vector", "images"])
        counts = {entity["images"] for entity in entities}
        if len(entities) != rows or counts != {len(self)}:
            return None
        entities.sort(key=lambda entity: int(entity["row"]))
        table = torch.tensor([entity["vector"] for entity in entities]).double()
        table = table[: self.dim + 1] + table[self.dim + 1 :]  # high and low halves
        return MomentSums(counts.pop(), table[0], table[1:])

    def store_sums(self, sums: MomentSums, change: int) -> None:
        """Store the sums as they are after a change, unless there was another one."""
        if self.changes().get(LAST_CHANGE) != change:
            return
        table = torch.cat([sums.first[None], sums.second])
        high = table.float()
        rows = torch.cat([high, (table - high.double()).float()]).tolist()
        entities = [{"row": i, "vector": v, "images": sums.count} for i, v in enumerate(rows)]
        self.client.delete(self.sums_name, ids=[CHANGE_OF_SUMS])
        for batch in _batches(entities, WRITE_BATCH):
            self.client.upsert(self.sums_name, batch)
        self.set_change(CHANGE_OF_SUMS, change)

    def changes(self) -> dict[int, int]:
        """Return the ids of the last change and of the last one that the sums include."""
        entities = self._query_sums(f"row in {[LAST_CHANGE, CHANGE_OF_SUMS]}", ["images"])
        return {entity["row"]: entity["images"] for entity in entities}

    def set_change(self, row: int, change: int) -> None:
        if not self.client.has_collection(self.sums_name):
            fields = {"images": {"datatype": self.client.types.INT64}}
            _create(self.client, self.sums_name, self.dim, fields)
        entity = {"row": row, "vector": [0.0] * self.dim, "images": change}
        self.client.upsert(self.sums_name, [entity])

    def _query_sums(self, expression: str, fields: list[str]) -> list[Entity]:
        if not self.client.has_collection(self.sums_name):
            return []
        self.client.load_collection(self.sums_name)
        limit = 2 * (self.dim + 1)
        return self._query(self.sums_name, expression, ["row", *fields], limit=limit)

    def by_row(self, rows: Sequence[int], fields: list[str]) -> dict[int, Entity]:
        """Return the entities of those rows that exist."""
        entities = dict[int, Entity]()
        for page in _batches(dict.fromkeys(rows), PAGE):
            for entity in self._query(self.name, f"row in {page}", ["row", *fields]):
                entities[entity["row"]] = entity
        return entities

    def _query(self, name: str, expression: str, fields: list[str], **options: int) -> list[Entity]:
        entities = self.client.query(
            name, filter=expression, output_fields=fields, consistency_level="Strong", **options
        )
        return list(entities)

    def _pages(self, expression: str, fields: list[str]) -> Iterator[Entity]:
        pages = self.client.query_iterator(
            self.name,
            PAGE,
            filter=expression or "row >= 0",
            output_fields=["row", *fields],
            consistency_level="Strong",
        )
        with milvus_errors(self.where):
            while page := pages.next():
                yield from page
            pages.close()


class MilvusWriter(StoreWriter):
    """Changes a collection without a lock: Milvus orders the changes of several writers.

    A thread writes WRITE_BATCH images while the next ones are embedded.
    """

    def __init__(self, store: MilvusStore) -> None:
        self.store, self.client = store, store.client
        self.id = 0  # of the last change
        self.waiting: dict[int, Entity] = {}  # by row
        self.thread, self.under_way = ThreadPoolExecutor(1), Future[None]()
        self.under_way.set_result(None)
        self.has_written = False
        self.sums: MomentSums | None = None  # before the changes; None if they are not known
        self.difference = MomentSums.zeros(store.dim)
        self.sums_of_shards: MomentSums | None = None

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self.thread:
            if kind is not None:
                with suppress(OSError):  # what was embedded before an error or an interrupt
                    self.flush()
                return
            self.flush()
            if self.has_written:
                self.store.store_sums(self._new_sums(), self.id)

    def set_sums(self, sums: MomentSums) -> None:
        self.sums_of_shards = sums

    def put(
        self,
        entries: Sequence[ImageEntry],
        vectors: Tensor,
        words: Tensor | None = None,
        local: Tensor | None = None,  # there are none: `stores_local` is False
    ) -> None:
        ids = torch.empty(len(entries), 0) if words is None else words
        for entry, vector, word_ids in zip(entries, vectors, ids.int(), strict=True):
            entity = entity_of(entry) | {"vector": vector.tolist(), "words": word_ids.tolist()}
            self.waiting[entity["row"]] = entity  # of equal paths the last
            if len(self.waiting) == WRITE_BATCH:
                self._send()

    def flush(self) -> None:
        if self.waiting:
            self._send()
        self.under_way.result()

    def update(self, entries: Sequence[ImageEntry]) -> None:
        self.flush()
        rows = [row_of(entry.path) for entry in entries]
        stored = self.store.by_row(rows, ["vector", "words"])
        pairs = zip(rows, entries, strict=True)
        entities = [stored[row] | entity_of(entry) for row, entry in pairs if row in stored]
        for batch in _batches(entities, WRITE_BATCH):
            self._upsert(batch)

    def remove(self, paths: Iterable[str]) -> int:
        self.flush()
        rows = self.store.by_row([row_of(path) for path in paths], [])
        for page in _batches(rows, WRITE_BATCH):
            self._begin_change(page)
            self.client.delete(self.store.name, ids=page)
        return len(rows)

    def _send(self) -> None:
        """Write what is waiting in the thread, after the batch before."""
        self.under_way.result()
        batch, self.waiting = list(self.waiting.values()), {}
        self.under_way = self.thread.submit(self._put, batch)

    def _put(self, batch: list[Entity]) -> None:
        self._begin_change([entity["row"] for entity in batch])
        if self.sums is not None:
            self.difference.add(torch.tensor([entity["vector"] for entity in batch]))
        self._upsert(batch)

    def _begin_change(self, rows: list[int]) -> None:
        """Tell readers that the sums change, and subtract the vectors of these rows."""
        if not self.has_written:
            self.sums = self.store.stored_sums()
            if self.sums is None and not len(self.store):
                self.sums = MomentSums.zeros(self.store.dim)
        elif self.store.changes().get(LAST_CHANGE) != self.id:
            self.sums = None  # there are changes of another writer
        self.has_written, self.id = True, secrets.randbits(62)  # a new one for each change
        self.store.set_change(LAST_CHANGE, self.id)
        if self.sums is not None:
            replaced = self.store.by_row(rows, ["vector"]).values()
            vectors = [entity["vector"] for entity in replaced]
            self.difference.add(torch.tensor(vectors).view(-1, self.store.dim), -1)

    def _new_sums(self) -> MomentSums:
        count = len(self.store)
        if self.sums_of_shards is not None and self.sums_of_shards.count == count:
            return self.sums_of_shards
        if self.sums is not None:
            self.sums.merge(self.difference)
            if self.sums.count == count:
                return self.sums
        return self.store.compute_sums()

    def _upsert(self, batch: list[Entity]) -> None:
        if self.store.has_texts:
            _add_stems(batch)
        else:
            for entity in batch:
                del entity["keywords"]
        self.client.upsert(self.store.name, batch)


def _create_collection(
    client: MilvusConnection, name: str, description: IndexDescription, index_type: str
) -> None:
    types = client.types
    fields: dict[str, Entity] = {
        "words": {"datatype": types.ARRAY, "element_type": types.INT32, "max_capacity": 64},
        "date": {"datatype": types.DOUBLE},
        "attributes": {"datatype": types.JSON},
    }
    for text, length in (*TEXT_LENGTHS.items(), ("stems", STEMS_LENGTH)):
        fields[text] = {"datatype": types.VARCHAR, "max_length": length}
    fields |= {number: {"datatype": types.INT64} for number in NUMBERS}
    _create(client, name, description.dim, fields, index_type, description.to_json())


def _create(
    client: MilvusConnection,
    name: str,
    dim: int,
    fields: dict[str, Entity],
    index_type: str = "FLAT",
    description: str = "",
) -> None:
    """Create a collection of rows and vectors with more fields, and load it."""
    schema = client.create_schema(description=description)
    schema.add_field("row", client.types.INT64, is_primary=True)
    schema.add_field("vector", client.types.FLOAT_VECTOR, dim=dim)
    for field, options in fields.items():
        schema.add_field(field, **options)
    properties = {PROPERTY: description} if description else {}
    client.create_collection(name, schema=schema, consistency_level="Strong", properties=properties)
    index = client.prepare_index_params()
    parameters = dict(INDEXES[index_type].parameters)
    index.add_index("vector", index_type=index_type, metric_type="IP", params=parameters)
    try:
        client.create_index(name, index)
    except OSError:
        # Milvus Lite reports that an index "already exists" that it has just created.
        if "vector" not in client.list_indexes(name):
            raise
    client.load_collection(name)


def _add_stems(entities: list[Entity]) -> None:
    """Store the stems of the words of each entity's texts."""
    texts = [" ".join(text for _, text in entry_texts(_entry_of(entity))) for entity in entities]
    for entity, stems in zip(entities, stems_of(texts), strict=True):
        encoded = f" {' '.join(stems)} ".encode()[:STEMS_LENGTH]
        entity["stems"] = encoded.decode("utf-8", "ignore")


def row_of(path: str) -> int:
    """Return 63 bits of the path's digest: integers of Milvus are signed."""
    return int.from_bytes(digest_of(os.fsencode(path))[:8], "little") >> 1


def entity_of(entry: ImageEntry) -> Entity:
    """Convert an entry; Milvus 2.3 has no null: None becomes an empty text."""
    entity: Entity = {"row": row_of(entry.path)}
    for name, length in TEXT_LENGTHS.items():
        # UTF-8 of at most `length` bytes; a file name need not be text.
        encoded = os.fsencode(getattr(entry, name) or "")[:length]
        entity[name] = encoded.decode("utf-8", "backslashreplace")[:length]
    entity |= {name: int(getattr(entry, name)) for name in NUMBERS}
    if entry.keywords == "":
        entity["keywords"] = NO_KEYWORDS
    return entity | {"date": float(entry.date), "attributes": dict(entry.attributes)}


def _entry_of(entity: Entity) -> ImageEntry:
    fields = {name: entity[name] for name in ImageEntry._fields if name in entity}
    empty = [name for name in NULLABLE if not fields.get(name, NO_KEYWORDS)]
    entry = ImageEntry(**fields | dict.fromkeys(empty))
    # A collection of an earlier version cannot store keywords: they are not read again and again.
    if fields.get("keywords", NO_KEYWORDS) == NO_KEYWORDS:
        return entry._replace(keywords="")
    return entry
