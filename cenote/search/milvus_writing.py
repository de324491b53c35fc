"""Changing an index in Milvus: no lock, but each writer's mark, so that nobody's sums are kept that are not true."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from .milvus_collections import create_sums, sentences
from .milvus_store import BATCH, PAGE, MilvusStore, entity_of, row_of
from .store import ImageEntry
from .sums import MomentSums


class Writing:
    """Whoever changes a collection; no lock, Milvus orders the changes."""

    def __init__(self, store: MilvusStore) -> None:
        self.store, self.client, self.touched = store, store.client, False
        self.mark = secrets.randbits(63)

    def __enter__(self) -> Writing:
        self.seen = (
            self.store.mark()
        )  # before the sums are read: whoever writes in between is noticed
        self.sums = self.store.kept_sums() or (
            None if len(self.store) else MomentSums(self.store.dim)
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None and self.touched:
            sums = self.sums or self.store.summed()
            alone = self.store.mark() == self.mark
            if alone and sums.count and sums.count == len(self.store):
                self.store.keep_sums(sums, self.mark)
            elif not alone:  # what another has kept meanwhile may lack what was put here
                self._take_place()

    def put(
        self, entries: Sequence[ImageEntry], vectors: Tensor, words: Tensor | None = None
    ) -> None:
        last = {entry.path: i for i, entry in enumerate(entries)}
        ids = words if words is not None else torch.empty(len(entries), 0)
        entities = [
            entity_of(entries[i]) | {"vector": vectors[i].tolist(), "words": ids[i].int().tolist()}
            for i in last.values()
        ]
        rows = [entity["row"] for entity in entities]
        self._leave(self.store.by_row(rows, ["vector"]))
        self._upsert(entities)
        if self.sums is not None:
            self.sums.add(vectors[list(last.values())].float().cpu())

    def update(self, entries: Sequence[ImageEntry]) -> None:
        kept = self.store.by_row([row_of(entry.path) for entry in entries], ["vector", "words"])
        self._upsert(
            [
                kept[row_of(entry.path)] | entity_of(entry)
                for entry in entries
                if row_of(entry.path) in kept
            ]
        )

    def remove(self, paths: Iterable[str]) -> int:
        found = self.store.by_row([row_of(path) for path in paths], ["vector"])
        self._leave(found)
        with sentences(self.store.where):
            for start in range(0, len(found), PAGE):
                self.client.delete(self.store.name, ids=list(found)[start : start + PAGE])
        return len(found)

    def _leave(self, found: dict[int, dict[str, Any]]) -> None:
        """Before anything changes: the kept sums are no more true."""
        found_mark = self.store.mark()
        if found_mark != self.seen:  # another has written since
            self.sums = None
        if not self.touched or found_mark != self.seen:
            self._take_place()
        self.touched, self.seen = True, self.mark
        if self.sums is not None and found:
            self.sums.add(torch.tensor([list(each["vector"]) for each in found.values()]), -1)

    def _take_place(self) -> None:
        with sentences(self.store.where):
            create_sums(self.client, self.store.sums_name, self.store.dim, self.mark)

    def _upsert(self, entities: list[dict[str, Any]]) -> None:
        with sentences(self.store.where):
            for start in range(0, len(entities), BATCH):
                self.client.upsert(self.store.name, entities[start : start + BATCH])
