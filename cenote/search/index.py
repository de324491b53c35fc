"""Fill an index from images, and keep it up to date: only what is new or changed is embedded."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..data import Dataset, LayoutError, open_dataset
from ..data.dataset import images_are_files
from ..data.digests import digests
from ..data.loading import load
from ..data.sources import open_photographs
from .images import ImageInfoTransform
from .sources import Sources
from .store import ImageEntry, IndexedImage, Store, Writer

if TYPE_CHECKING:
    from ..models.image_text import ImageText
    from .words import WordMemory

CHUNK = 2000  # images between two looks at what was written
TOLD = ("label", "domain", "split", "caption", "attributes")  # by the data set, not by the image
Progress = Callable[[int, int], None]  # images done, of how many
Ready = Callable[
    [], "tuple[ImageText, WordMemory | None]"
]  # asked for only when there is something to embed


@dataclass
class IndexReport:
    """What became of every image."""

    embedded: int = 0
    moved: int = 0  # or copied: its contents were known
    noted: int = 0  # its labels, or its time alone, have changed
    same: int = 0
    removed: int = 0
    failed: list[str] = field(default_factory=list)


def open_images(
    data: Sequence[str], skip: Sequence[Path] = (), on_missing: Callable[[str], None] | None = None
) -> Dataset:
    """One data set with its labels, or photographs: files, folders, globs."""
    if len(data) == 1 and Path(data[0]).is_dir():
        try:
            dataset = open_dataset(data[0])
        except LayoutError:
            return open_photographs(data, skip, on_missing)
        hidden = [os.path.join(os.path.abspath(folder), "") for folder in skip]
        kept = [
            i
            for i in range(len(dataset))
            if not os.path.abspath(dataset.path(i)).startswith(tuple(hidden))
        ]
        return dataset.select(kept) if len(kept) < len(dataset) else dataset
    return open_photographs(data, skip, on_missing)


def source_of(data: Sequence[str]) -> str:
    """How an index remembers where images came from."""
    return "\n".join(
        sorted(os.path.abspath(part) if os.path.exists(part) else part for part in data)
    )


class Indexer:
    """One pass over a data set. What is done is written at once: a pass that was killed is taken up by the next."""

    def __init__(
        self,
        store: Store,
        dataset: Dataset,
        ready: Ready,
        source: str = "",
        batch: int = 32,
        workers: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.store, self.dataset, self.ready = store, dataset, ready
        self.sources, self.batch, self.workers = Sources(source), batch, workers
        self.progress, self.report = progress, IndexReport()
        self.files = images_are_files(dataset.pixels)
        self.done = self.total = 0

    def run(self) -> IndexReport:
        listed = self._listed()
        self.sources.see(listed)
        missing = len(self.report.failed)
        with self.store.writer() as writer:
            known = self.store.images()  # only now nobody else changes it
            # Who stands for a content: looked up when the same bytes come under another name.
            self.rows = {old.entry.digest: old.row for old in known.values()}
            changed = [place for path, place in listed.items() if not self._is_same(path, known)]
            self._note(writer, known, listed, set(changed))
            self.total = len(changed)
            for start in range(0, len(changed), CHUNK):
                self._chunk(writer, known, changed[start : start + CHUNK])
            left = [
                path
                for path, old in known.items()
                if path not in listed and self.sources.lost(old.entry)
            ]
            self.report.removed += writer.remove(left) if left else 0
            if compact := getattr(writer, "compact", None):
                compact()
        done = (
            self.report.embedded
            + self.report.moved
            + self.report.noted
            + len(self.report.failed)
            - missing
        )
        self.report.same = len(listed) - done
        return self.report

    def _listed(self) -> dict[str, int]:
        """Positions in the data set by path; what is listed but not there has failed."""
        listed = dict[str, int]()
        self.states = dict[str, tuple[int, int]]()
        for i in range(len(self.dataset)):
            path = self._path(i)
            if self.files:
                try:
                    found = os.stat(path)
                except OSError:
                    self.report.failed.append(f"{path}: no such file")
                    continue
                self.states[path] = found.st_size, found.st_mtime_ns
            listed.setdefault(path, i)
        return listed

    def _path(self, i: int) -> str:
        return (
            os.path.abspath(self.dataset.path(i))
            if self.files
            else f"{self.dataset.name}:{self.dataset[i].image}"
        )

    def _is_same(self, path: str, known: dict[str, IndexedImage]) -> bool:
        old = known.get(path)
        return old is not None and self.states.get(path) == (old.entry.size, old.entry.time)

    def _told(self, i: int) -> dict[str, object]:
        record = self.dataset[i]
        return {name: getattr(record, name) for name in TOLD}

    def _note(
        self,
        writer: Writer,
        known: dict[str, IndexedImage],
        listed: dict[str, int],
        changed: set[int],
    ) -> None:
        """Labels that are no more what they were."""
        noted = []
        for path, i in listed.items():
            if i not in changed:
                old, told = known[path].entry, self._told(i)
                if any(getattr(old, name) != value for name, value in told.items()):
                    noted.append(old._replace(**told))  # type: ignore[arg-type]
        if noted:
            writer.update(noted)
        self.report.noted += len(noted)

    def _chunk(self, writer: Writer, known: dict[str, IndexedImage], places: list[int]) -> None:
        """Read these images and do with each what its contents ask for."""
        new, copies, noted, broken = (
            dict[str, tuple[int, ImageEntry]](),
            list[ImageEntry](),
            list[ImageEntry](),
            list[str](),
        )
        for i, name in zip(places, digests(self.dataset.select(places)), strict=True):
            path = self._path(i)
            size, time = self.states.get(path, (0, 0))
            source = self.sources.of(path)
            entry = ImageEntry(
                path,
                (name or b"").hex(),
                size,
                time,
                source=source,
                **self._told(i),  # type: ignore[arg-type]
            )
            if name is None:
                self.report.failed.append(f"{path}: cannot be read")
                broken.append(path)
            elif path in known and known[path].entry.digest == entry.digest:
                noted.append(_as_seen(entry, known[path].entry))
            elif entry.digest in self.rows or entry.digest in new:
                copies.append(entry)
            else:
                new[entry.digest] = i, entry
        if noted:
            writer.update(noted)
            self.report.noted += sum(known[entry.path].entry != entry for entry in noted)
        self._step(len(noted) + len(broken))
        self._copy(writer, [entry for entry in copies if entry.digest in self.rows], known)
        if new:
            self._embed(
                writer,
                [i for i, _ in new.values()],
                [entry for _, entry in new.values()],
                known,
                broken,
            )
        self._copy(writer, self._twins(entry for entry in copies if entry.digest in new), known)
        left = [path for path in broken if path in known]
        self.report.removed += writer.remove(left) if left else 0
        self._replaced(left, known)

    def _twins(self, entries: Iterable[ImageEntry]) -> list[ImageEntry]:
        """Those that have become known in this chunk; the same bytes twice among what is broken is told once."""
        twins = list(entries)
        if twins and (refresh := getattr(self.store, "refresh", None)):
            refresh()
        for entry in twins:
            if rows := self.store.find(entry.digest):
                self.rows[entry.digest] = rows[0]
        return [entry for entry in twins if entry.digest in self.rows]

    def _copy(
        self, writer: Writer, entries: list[ImageEntry], known: dict[str, IndexedImage]
    ) -> None:
        """The same bytes under another name: nothing is embedded."""
        if entries:
            rows = torch.tensor([self.rows[entry.digest] for entry in entries])
            same = [
                _as_seen(entry, old)
                for entry, old in zip(entries, self.store.entries(rows), strict=True)
            ]
            writer.put(same, self.store.vectors(rows), self.store.words(rows))
            self._put(same, known)
            self.report.moved += len(same)

    @torch.inference_mode()
    def _embed(
        self,
        writer: Writer,
        places: list[int],
        entries: list[ImageEntry],
        known: dict[str, IndexedImage],
        broken: list[str],
    ) -> None:
        n, (model, words) = int(self.store.description.words.get("n", 0)), self.ready()
        loader = load(
            self.dataset.select(places),
            ImageInfoTransform(model.transform()),
            self.batch,
            self.workers,
        )
        for images, _, indices, bad, _ in loader:
            self.report.failed += [sentence for _, sentence in bad]
            broken += [entries[position].path for position, _ in bad]
            self._step(len(bad))
            if len(indices):
                vectors = model.embed_images(images["pixels"]).float().cpu()
                ids = words.nearest(vectors, n) if words is not None and n else None
                facts = zip(
                    *(images[name].tolist() for name in ("size", "date", "look")), strict=True
                )
                done = [
                    _with(entries[i], *fact)
                    for i, fact in zip(indices.tolist(), facts, strict=True)
                ]
                writer.put(done, vectors, ids)
                self._put(done, known)
                self.report.embedded += len(done)

    def _put(self, entries: list[ImageEntry], known: dict[str, IndexedImage]) -> None:
        self._replaced([entry.path for entry in entries], known)
        self._step(len(entries))

    def _replaced(self, paths: Iterable[str], known: dict[str, IndexedImage]) -> None:
        """What stood under these paths is no more to be copied from: its row is gone, or another's."""
        for path in paths:
            old = known.get(path)
            if old is not None and self.rows.get(old.entry.digest) == old.row:
                del self.rows[old.entry.digest]

    def _step(self, images: int) -> None:
        self.done += images
        if self.progress and images:
            self.progress(self.done, self.total)


def update_index(
    store: Store,
    dataset: Dataset,
    model: ImageText,
    words: WordMemory | None = None,
    **options: Any,
) -> IndexReport:
    """Bring an index up to date with a data set; options are those of `Filling`."""
    store.description.refuse_other(model, store.where)
    return Indexer(store, dataset, lambda: (model, words), **options).run()


def _as_seen(entry: ImageEntry, old: ImageEntry) -> ImageEntry:
    """The same picture: a date that was the camera's stays, one of the file is this file's own."""
    date = entry.time / 1e9 if old.date == old.time / 1e9 else old.date
    return entry._replace(width=old.width, height=old.height, look=old.look, date=date)


def _with(entry: ImageEntry, size: Sequence[int], date: float, look: int) -> ImageEntry:
    date = entry.time / 1e9 if math.isnan(date) else date
    return entry._replace(width=size[0], height=size[1], date=date, look=look)
