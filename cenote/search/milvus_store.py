"""The index in Milvus, for more than one machine: the same store, by its address.

One collection holds an entity an image: its vector (FLAT: exact), its words, what is known of it; the row is the
primary key, 63 bits of the path's digest. A second, NAME_sums, holds the sums of the database's first two moments,
each number as two floats. A writer puts its mark in their place before its first change and them back after its last,
so one that was killed leaves none, and whoever asks then goes through all vectors once. What one writer has put counts
for every reader at once; one that finds another's mark in the place of its own does not trust its sums any more.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data.digests import digest_of
from .composition import Moments
from .filters import Filter
from .milvus_collections import (
    LONGEST,
    NUMBERS,
    PROPERTY,
    connected,
    create_collection,
    create_sums,
    is_missing,
    read_mark,
    sentences,
    shown,
)
from .store import ImageEntry, IndexDamaged, IndexDescription, IndexedImage
from .sums import MomentSums

if TYPE_CHECKING:
    from .milvus_writing import Writing

BATCH = 500  # entities a call: a call takes 64 MB
PAGE = 4000  # entities that are asked for at once
MOST = 16384  # hits that Milvus gives
FIELDS = [*ImageEntry._fields]


class MilvusStore:
    """A collection; `select` gives a view of some of its images. Sees what is written at once."""

    def __init__(self, client: Any, where: str, name: str, description: IndexDescription) -> None:
        self.client, self.where, self.name, self.description = (
            client,
            shown(where),
            name,
            description,
        )
        self.dim, self.expression, self.keep_words = description.dim, "", bool(description.words)

    @classmethod
    def there(cls, address: str) -> MilvusStore | None:
        if is_missing(address):
            return None
        client, name, _ = connected(address)
        with sentences(address):
            if not client.has_collection(name):
                return None
            about = client.describe_collection(name)
            told = (
                about.get("properties", {}).get(PROPERTY) or about["description"]
            )  # Lite forgets the latter
        try:
            description = IndexDescription(**json.loads(told))
        except (ValueError, TypeError):
            raise IndexDamaged(
                f"the collection '{name}' at {shown(address)} is no index of Cenote: name another"
            ) from None
        with sentences(address):
            client.load_collection(name)
        return cls(client, address, name, description)

    @classmethod
    def open(cls, address: str, description: IndexDescription | None = None) -> MilvusStore:
        found = cls.there(address)
        if found is None and description is None:
            raise ValueError(
                f"there is no index at {shown(address)}: `cenote index PHOTOGRAPHS -o` with it makes one"
            )
        if found is not None:
            return found
        assert description is not None
        client, name, kind = connected(address)
        with sentences(address):
            create_collection(client, name, description, kind)
        return cls(client, address, name, description)

    def __len__(self) -> int:
        return int(self._query(self.expression, ["count(*)"])[0]["count(*)"])

    def select(self, filter: Filter) -> MilvusStore:
        view = copy.copy(self)
        view.expression = filter.milvus()
        return view

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Of equals the smaller row: Milvus leaves their order open."""
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise ValueError(
                f"queries are (queries, {self.dim}) as {self.where} is, got {tuple(queries.shape)}"
            )
        scores, rows = list[list[float]](), list[list[int]]()
        for part in queries.float().split(64):
            with sentences(self.where):
                found = self.client.search(
                    self.name, part.tolist(), self.expression, min(k, MOST), ["row"],
                    {"metric_type": "IP", "params": {"ef": max(64, 2 * k)}}, consistency_level="Strong",
                )  # fmt: skip
            ranked = [
                sorted((-hit["distance"], hit["entity"]["row"]) for hit in hits) for hits in found
            ]
            scores += [[-score for score, _ in hits] for hits in ranked]
            rows += [[row for _, row in hits] for hits in ranked]
        shape = (len(queries), len(rows[0]) if rows else 0)
        return torch.tensor(scores).view(shape), torch.tensor(rows, dtype=torch.long).view(shape)

    def scan(self, vectors: Tensor) -> None:
        return None

    def vectors(self, rows: Tensor) -> Tensor:
        found = self.by_row(rows.tolist(), ["vector"])
        return torch.tensor([found[row]["vector"] for row in rows.tolist()]).view(-1, self.dim)

    def words(self, rows: Tensor) -> Tensor | None:
        if not self.keep_words:
            return None
        found = self.by_row(rows.tolist(), ["words"])
        return torch.tensor([list(found[row]["words"]) for row in rows.tolist()], dtype=torch.long)

    def drop_words(self) -> None:
        self.keep_words = False

    def entries(self, rows: Tensor) -> list[ImageEntry]:
        found = self.by_row(rows.tolist(), FIELDS)
        return [_entry(found[row]) for row in rows.tolist()]

    def images(self) -> dict[str, IndexedImage]:
        every = [IndexedImage(found["row"], _entry(found)) for found in self._pages("", FIELDS)]
        return {known.entry.path: known for known in every}

    def find(self, digest: str) -> list[int]:
        return sorted(
            found["row"] for found in self._query(f"digest == {json.dumps(digest)}", ["row"])
        )

    def distinct_values(self, column: str) -> list[str]:
        """Of all images, one after the other: Milvus has no list of values."""
        return sorted({found[column] for found in self._pages("", [column])} - {""})

    def moments(self) -> Moments:
        kept = None if self.expression else self.kept_sums()
        return (kept or self.summed()).moments()

    def summed(self) -> MomentSums:
        """Through all vectors."""
        sums, some = MomentSums(self.dim), list[Any]()
        for found in self._pages(self.expression, ["vector"]):
            some.append(found["vector"])
            if len(some) == PAGE:
                sums.add(torch.tensor(some))
                some = []
        if some:
            sums.add(torch.tensor(some))
        return sums

    def writer(self) -> Writing:
        from .milvus_writing import Writing

        return Writing(self)

    @property
    def sums_name(self) -> str:
        return f"{self.name}_sums"

    def kept_sums(self) -> MomentSums | None:
        """None where there are none, or where they are of another number of images."""
        wanted = 2 * (self.dim + 1)
        with sentences(self.where):
            if not self.client.has_collection(self.sums_name):
                return None
            self.client.load_collection(self.sums_name)
            found = self.client.query(
                self.sums_name, filter="row >= 0", output_fields=["row", "vector", "images"], limit=wanted,
                consistency_level="Strong",
            )  # fmt: skip
        counts = {each["images"] for each in found}
        if len(found) != wanted or counts != {len(self)}:
            return None
        table = torch.tensor(
            [each["vector"] for each in sorted(found, key=lambda each: each["row"])]
        ).double()
        table = table[: self.dim + 1] + table[self.dim + 1 :]  # high and low parts
        sums = MomentSums(self.dim)
        sums.count, sums.first, sums.second = counts.pop(), table[0], table[1:]
        return sums

    def keep_sums(self, sums: MomentSums, mark: int) -> None:
        table = torch.cat([sums.first[None], sums.second])
        high = table.float()
        rows = torch.cat([high, (table - high.double()).float()]).tolist()
        with sentences(self.where):
            create_sums(self.client, self.sums_name, self.dim, mark)
            for start in range(0, len(rows), BATCH):
                part = enumerate(rows[start : start + BATCH], start)
                self.client.insert(
                    self.sums_name,
                    [{"row": i, "vector": values, "images": sums.count} for i, values in part],
                )

    def mark(self) -> int | None:
        with sentences(self.where):
            return read_mark(self.client, self.sums_name)

    def _query(self, expression: str, fields: list[str]) -> list[dict[str, Any]]:
        with sentences(self.where):
            found = self.client.query(
                self.name, filter=expression, output_fields=fields, consistency_level="Strong"
            )
        return list(found)

    def by_row(self, rows: list[int], fields: list[str]) -> dict[int, dict[str, Any]]:
        found = dict[int, dict[str, Any]]()
        for start in range(0, len(rows), PAGE):
            part = list(dict.fromkeys(rows[start : start + PAGE]))
            found |= {each["row"]: each for each in self._query(f"row in {part}", ["row", *fields])}
        return found

    def _pages(self, expression: str, fields: list[str]) -> Iterator[dict[str, Any]]:
        with sentences(self.where):
            pages = self.client.query_iterator(
                self.name, PAGE, filter=expression or "row >= 0", output_fields=["row", *fields],
                consistency_level="Strong",
            )  # fmt: skip
            while page := pages.next():
                yield from page
            pages.close()


def row_of(path: str) -> int:
    """63 bits: Milvus's integers have a sign."""
    return int.from_bytes(digest_of(os.fsencode(path))[:8], "little") >> 1


def entity_of(entry: ImageEntry) -> dict[str, Any]:
    """Milvus 2.3 has no null: nothing is an empty text."""
    texts = {name: _text(getattr(entry, name), longest) for name, longest in LONGEST.items()}
    numbers = {name: int(getattr(entry, name)) for name in NUMBERS}
    others = {"date": float(entry.date), "attributes": dict(entry.attributes)}
    return {"row": row_of(entry.path), **texts, **numbers, **others}


def _text(value: str | None, longest: int) -> str:
    """UTF-8 of at most so many bytes; a file's name need not be text."""
    return os.fsencode(value or "")[:longest].decode("utf-8", "backslashreplace")[:longest]


def _entry(found: dict[str, Any]) -> ImageEntry:
    empty = dict.fromkeys(
        name for name in ("label", "domain", "split", "caption") if not found[name]
    )
    return ImageEntry(**{name: found[name] for name in ImageEntry._fields} | empty)
