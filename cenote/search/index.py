"""Fill an index from images and keep it up to date: only new and changed images are embedded."""

from __future__ import annotations

import html
import math
import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, IptcImagePlugin
from torch import Tensor

from ..data import BadImage, Dataset, LayoutError, Record, open_dataset, read_image
from ..data.dataset import images_are_files
from ..data.digests import digest_of, digests
from ..data.images import full_size
from ..data.loading import load
from ..data.sources import open_photographs
from ..data.video import split_frame
from ..offline import offline
from ..predict.embedding import Loading, predict_batches
from ..predict.inference import Inference
from ..predict.openvino_engine import embed_images
from .load import image_text_device
from .maxsim import embed_with_local, local_network
from .store import ImageEntry, IndexDescription, IndexedImage, Store

if TYPE_CHECKING:
    from ..backbones.preprocessing import Transform
    from ..models.image_text import ImageText
    from .words import WordMemory

CHUNK = 2000  # images whose contents are compared with the index at a time
# EXIF tags; DateTimeOriginal is in the block EXIF_IFD.
DATE_TIME_ORIGINAL, DATE_TIME, EXIF_IFD = 36867, 306, 0x8769
# ImageDescription, and XPTitle, XPComment, XPKeywords, XPSubject, which are UTF-16.
EXIF_TEXTS = (270, 40091, 40092, 40094, 40095)
IPTC_TEXTS = ((2, 5), (2, 25), (2, 120))  # title, keywords, caption
XMP_TEXTS = re.compile(r"<dc:(title|subject|description)\b.*?</dc:\1>", re.DOTALL)
XMP_ITEM = re.compile(r"<rdf:li\b[^>]*>([^<]*)</rdf:li>")
CAMERA_DEFAULT = re.compile(r"(\w+ )?digital camera|dcim.*", re.IGNORECASE)
MAX_KEYWORDS = 2000  # characters
RECORD_FIELDS = ("label", "domain", "split", "caption", "attributes")  # from the data set
Progress = Callable[[int, int], None]  # images done, of how many
LoadModel = Callable[[], "tuple[ImageText, WordMemory | None]"]  # called if images are embedded


@dataclass
class IndexReport:
    """Number of images by what happened to them."""

    embedded: int = 0
    moved: int = 0  # or copied: their contents were in the index
    noted: int = 0  # labels or modification time changed
    same: int = 0
    removed: int = 0
    failed: list[str] = field(default_factory=list)  # a message for each


def open_images(
    data: Sequence[str], skip: Sequence[Path] = (), on_missing: Callable[[str], None] | None = None
) -> Dataset:
    """Open one data set with its labels, or photographs: files, folders, globs."""
    if len(data) != 1 or not Path(data[0]).is_dir():
        return open_photographs(data, skip, on_missing)
    try:
        dataset = open_dataset(data[0])
    except LayoutError:
        return open_photographs(data, skip, on_missing)
    skipped = tuple(os.path.join(os.path.abspath(folder), "") for folder in skip)
    paths = (os.path.abspath(dataset.path(i)) for i in range(len(dataset)))
    positions = [i for i, path in enumerate(paths) if not path.startswith(skipped)]
    return dataset.select(positions) if len(positions) < len(dataset) else dataset


def source_of(data: Sequence[str]) -> str:
    """Return the text by which an index remembers the DATA that images came with."""
    paths = [os.path.abspath(name) if os.path.exists(name) else name for name in data]
    return "\n".join(sorted(paths))


def update_index(
    store: Store,
    dataset: Dataset,
    model: ImageText,
    words: WordMemory | None = None,
    **options: Any,
) -> IndexReport:
    """Bring an index up to date with a data set; options are those of `Indexer`."""
    store.description.check_model(model, store.where)
    return Indexer(store, dataset, lambda: (model, words), **options).run()


class Indexer:
    """One pass over a data set. Results are written at once: the next pass resumes a killed one.

    Memory is that of a chunk and 32 bytes per listed image, however many the index has.
    """

    def __init__(
        self,
        store: Store,
        dataset: Dataset,
        load_model: LoadModel,
        source: str = "",
        batch: int = 32,
        workers: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.store, self.dataset, self.load_model = store, dataset, load_model
        self.sources, self.batch, self.workers = IndexSources(source), batch, workers
        self.progress, self.report = progress, IndexReport()
        self.are_files = images_are_files(dataset.pixels)
        self.file_states = np.zeros((len(dataset), 2), np.int64)  # size and time
        self.done = self.total = 0

    def run(self) -> IndexReport:
        positions, keys = self._list_images()
        report, missing = self.report, len(self.report.failed)
        with self.store.writer() as self.writer:  # nobody else changes the index meanwhile
            changed = array("q")
            for start in range(0, len(positions), CHUNK):
                changed.extend(self._compare(positions[start : start + CHUNK].tolist()))
            self.total = len(changed)
            for start in range(0, len(changed), CHUNK):
                self._index_chunk(changed[start : start + CHUNK].tolist())
            lost = [
                path
                for path, source in self.store.sources()
                if not _contains(keys, _key(path)) and self.sources.is_lost(path, source)
            ]
            self._remove(lost)
            self.writer.compact()
        failed = len(report.failed) - missing
        report.same = len(positions) - report.embedded - report.moved - report.noted - failed
        return report

    def _compare(self, positions: list[int]) -> list[int]:
        """Return the positions of new and changed images; store new labels of the others."""
        changed, relabelled = list[int](), list[ImageEntry]()
        paths = [self._path(i) for i in positions]
        stored = self.store.find_paths(paths)
        for path, i in zip(paths, positions, strict=True):
            entry = stored[path].entry if path in stored else None
            # Only files have a size and a time: other images are compared by their contents.
            if (
                entry is None
                or not self.are_files
                or self._file_state(i) != (entry.size, entry.time)
            ):
                changed.append(i)
            elif (new := self._with_keywords(entry._replace(**self._record(i)))) != entry:
                relabelled.append(new)
        self._update(relabelled, stored)
        return changed

    def _list_images(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Return positions of images with different paths, and the keys of the paths, ascending.

        Files that do not exist have failed.
        """
        positions, keys = array("q"), array("Q")
        for i in range(len(self.dataset)):
            path = self._path(i)
            if self.are_files:
                try:
                    state = os.stat(split_frame(path)[0])
                except OSError:
                    self.report.failed.append(f"{path}: no such file")
                    continue
                self.file_states[i] = state.st_size, state.st_mtime_ns
            positions.append(i)
            keys.append(_key(path))
            self.sources.add_listed(path)
        different, first = np.unique(np.array(keys, np.uint64), return_index=True)
        return np.array(positions, np.int64)[np.sort(first)], different

    def _path(self, i: int) -> str:
        if self.are_files:
            return os.path.abspath(self.dataset.path(i))
        return f"{self.dataset.name}:{self.dataset[i].image}"

    def _file_state(self, i: int) -> tuple[int, int]:
        """Return size and time of a file, zeros if the image is not a file."""
        size, time = self.file_states[i].tolist()
        return size, time

    def _record(self, i: int) -> dict[str, Any]:
        return record_fields(self.dataset[i])

    def _with_keywords(self, entry: ImageEntry) -> ImageEntry:
        """Read the keywords unless they are stored already."""
        if entry.keywords is not None:
            return entry
        return entry._replace(keywords=read_keywords(entry.path) if self.are_files else "")

    def _update(self, entries: list[ImageEntry], stored: Mapping[str, IndexedImage]) -> None:
        """Store new labels or times of images whose contents are the same."""
        if entries:
            self.writer.update(entries)
            for entry in entries:  # an index of an earlier version has no keywords yet
                old = stored[entry.path].entry
                self.report.noted += old._replace(keywords=entry.keywords) != entry

    def _index_chunk(self, positions: list[int]) -> None:
        """Read these images and treat each by its contents: known, a copy, or new."""
        self.writer.flush()
        new, copies = dict[str, tuple[int, ImageEntry]](), list[ImageEntry]()
        touched, unreadable = list[ImageEntry](), list[str]()
        contents = digests(self.dataset.select(positions))
        names = [digest.hex() for digest in contents if digest is not None]
        stored = self.store.find_paths([self._path(i) for i in positions])
        known = self.store.rows_with_digests(names)
        for i, digest in zip(positions, contents, strict=True):
            path = self._path(i)
            if digest is None:
                self.report.failed.append(f"{path}: cannot be read")
                unreadable.append(path)
                continue
            size, time = self._file_state(i)
            source = self.sources.of(path)
            entry = ImageEntry(path, digest.hex(), size, time, source=source, **self._record(i))
            entry = self._with_keywords(entry)
            if path in stored and stored[path].entry.digest == entry.digest:
                touched.append(_with_image_info(entry, stored[path].entry))
            elif entry.digest in known or entry.digest in new:
                copies.append(entry)
            else:
                new[entry.digest] = i, entry
        self._update(touched, stored)
        self._advance(len(touched) + len(unreadable))
        # Before other images are embedded: they may replace the originals.
        self._copy([entry for entry in copies if entry.digest in known])
        if new:
            unreadable += self._embed(list(new.values()))
        self._copy([entry for entry in copies if entry.digest in new])
        self._remove(path for path in unreadable if path in stored)

    def _copy(self, entries: list[ImageEntry]) -> None:
        """Add images whose contents are in the index under another path."""
        if not entries:
            return
        self.writer.flush()
        store = self.store
        known = store.rows_with_digests([entry.digest for entry in entries])
        entries = [entry for entry in entries if entry.digest in known]
        if entries:
            store.refresh()
            rows = torch.tensor([known[entry.digest][0] for entry in entries])
            copies = list(map(_with_image_info, entries, store.entries(rows)))
            self.writer.put(copies, store.vectors(rows), store.words(rows), store.local(rows))
            self._advance(len(copies))
            self.report.moved += len(copies)

    def _embed(self, images: list[tuple[int, ImageEntry]]) -> list[str]:
        """Embed new images; return the paths of those that cannot be read."""
        model, words = self.load_model()
        dataset = self.dataset.select([i for i, _ in images])
        batches = embed_entries(
            model,
            words,
            self.store.description,
            dataset,
            [entry for _, entry in images],
            Loading(self.batch, self.workers, self._advance),
            self.report.failed,
        )
        embedded = set[str]()
        for batch in batches:
            self.writer.put(*batch)
            self.report.embedded += len(batch.entries)
            embedded.update(entry.path for entry in batch.entries)
        return [entry.path for _, entry in images if entry.path not in embedded]

    def _remove(self, paths: Iterable[str]) -> None:
        if paths := list(paths):
            self.report.removed += self.writer.remove(paths)

    def _advance(self, images: int) -> None:
        self.done += images
        if self.progress:
            self.progress(self.done, self.total)


def record_fields(record: Record) -> dict[str, Any]:
    """Return the fields of an entry that come from the data set."""
    return {name: getattr(record, name) for name in RECORD_FIELDS}


def _key(path: str) -> int:
    """Return 64 bits of the digest: two of ten million paths have the same by a chance of 3e-6."""
    return int.from_bytes(digest_of(os.fsencode(path))[:8], "little")


def _contains(keys: npt.NDArray[np.uint64], key: int) -> bool:
    place = bisect_left(keys, key)
    return place < len(keys) and int(keys[place]) == key


class EntryBatch(NamedTuple):
    """Images as `StoreWriter.put` takes them."""

    entries: list[ImageEntry]
    vectors: Tensor  # (B, D)
    words: Tensor | None  # (B, n) ids of the nearest words
    local: Tensor | None  # (B, k x D) local vectors


@torch.inference_mode()
def embed_entries(
    model: ImageText,
    words: WordMemory | None,
    description: IndexDescription,
    dataset: Dataset,
    entries: Sequence[ImageEntry],
    loading: Loading,
    failed: list[str],
) -> Iterator[EntryBatch]:
    """Embed the images of a data set, whose entries are completed with size, date and hash.

    A message for each image that cannot be read is appended to `failed`.
    """
    n, k = description.words_per_image, description.local_vectors
    transform = ImageInfoTransform(model.transform(description.scaled_decoding))
    loader = load(dataset, transform, loading.batch, loading.workers)
    embed: Callable[[Tensor], Tensor] = partial(embed_images, model)
    if k:
        embed = partial(embed_with_local, local_network(model), k)
    run = Inference(embed, image_text_device(model))
    batches = predict_batches(
        loader, lambda batch: run(batch.images["pixels"]).float().cpu(), failed, loading.progress
    )
    for batch, output in batches:
        vectors, local = output[:, : description.dim], output[:, description.dim :]
        ids = words.nearest(vectors, n) if words is not None and n else None
        indices, info = batch.indices.tolist(), batch.images
        sizes, dates, looks = (info[name].tolist() for name in ("size", "date", "look"))
        complete = []
        for i, (width, height), date, look in zip(indices, sizes, dates, looks, strict=True):
            entry = entries[i]._replace(width=width, height=height, look=look, date=date)
            if math.isnan(date):
                entry = entry._replace(date=entry.time / 1e9)
            complete.append(entry)
        yield EntryBatch(complete, vectors, ids, local)


def _with_image_info(entry: ImageEntry, stored: ImageEntry) -> ImageEntry:
    """Take size, hash and date of the same picture; a date of the file is this file's own."""
    is_file_date = stored.date == stored.time / 1e9
    date = entry.time / 1e9 if is_file_date else stored.date
    return entry._replace(width=stored.width, height=stored.height, look=stored.look, date=date)


class IndexSources:
    """Which DATA argument an image came with, and which images leave if they are not found.

    An image is itself a DATA argument, or below one, or matched by one, or in a list.
    """

    def __init__(self, source: str) -> None:
        names = [name for name in source.split("\n") if name]
        self.names = {os.path.abspath(os.path.expanduser(name)): name for name in names}
        self.globs = [path for path in self.names if has_magic(path) and not os.path.exists(path)]
        # For images of a list or of a named data set. Many names would be long: their digest.
        self.default = source if len(names) <= 1 else digest_of(os.fsencode(source)).hex()
        # A folder without images may be a disk that is not mounted.
        self.arguments_with_images = set[str | None]()
        self.folders_of_files = set[str]()

    def of(self, path: str) -> str:
        """Return what is stored with the image."""
        argument = self._argument(path)
        return self.default if argument is None else self.names[argument]

    def add_listed(self, path: str) -> None:
        """Note an image that exists."""
        argument = self._argument(path)
        self.arguments_with_images.add(argument)
        if argument == path:
            self.folders_of_files.add(os.path.dirname(path))

    def is_lost(self, path: str, source: str) -> bool:
        """Return whether an image that is not listed leaves; images of other DATA stay."""
        return self._came_from_here(path, source) and not _is_unreadable(os.path.dirname(path))

    def _came_from_here(self, path: str, source: str) -> bool:
        argument = self._argument(path)
        if argument is not None:
            return argument in self.arguments_with_images
        if source == path:  # named itself, as a shell expands p/*.jpg
            folder = os.path.dirname(path)
            return folder in self.folders_of_files and not os.path.exists(path)
        return source == self.default and None in self.arguments_with_images

    def _argument(self, path: str) -> str | None:
        """Return the file itself, the deepest folder, or a glob; None if no argument matches."""
        parent = path
        while parent not in self.names:
            child, parent = parent, os.path.dirname(parent)
            if parent in (child, ""):
                # fnmatch's star matches several folders, as ** does.
                patterns = {pattern: pattern.replace("**/", "*") for pattern in self.globs}
                return next((p for p, star in patterns.items() if fnmatchcase(path, star)), None)
        return parent


def _is_unreadable(folder: str) -> bool:
    """Return whether permission to list the folder is missing."""
    try:
        os.scandir(folder).close()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


class ImageInfoTransform:
    """Apply a transform and keep what it discards; a class, so that workers can receive it."""

    def __init__(self, transform: Transform) -> None:
        self.transform, self.min_side = transform, transform.min_side

    def __call__(self, image: Image.Image) -> dict[str, object]:
        return {
            "pixels": self.transform(image),
            "size": torch.tensor(full_size(image)),
            "date": torch.tensor(date_taken(image), dtype=torch.double),
            "look": difference_hash(image),
        }


def date_taken(image: Image.Image) -> float:
    """Return seconds since 1970 by the camera's clock, read as local time; NaN if unknown."""
    try:
        exif = image.getexif()
        text = exif.get_ifd(EXIF_IFD).get(DATE_TIME_ORIGINAL) or exif.get(DATE_TIME)
        return datetime.strptime(str(text).strip("\0 ")[:19], "%Y:%m:%d %H:%M:%S").timestamp()
    except Exception:  # Pillow raises anything for a malformed block
        return float("nan")


def read_keywords(path: str) -> str:
    """Return the titles, keywords and captions in EXIF, IPTC and XMP, one a line."""
    texts = list[str]()
    try:
        with Image.open(path) as image:
            exif = image.getexif()
            texts += [_decode(exif[tag], "utf-16-le") for tag in EXIF_TEXTS if tag in exif]
            iptc: Mapping[tuple[int, int], Any] = IptcImagePlugin.getiptcinfo(image) or {}
            for tag in IPTC_TEXTS:
                values = iptc.get(tag, [])
                values = values if isinstance(values, list) else [values]
                texts += [_decode(value, "utf-8") for value in values]
            xmp = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
            for block in XMP_TEXTS.finditer(_decode(xmp, "utf-8")):
                texts += [html.unescape(item) for item in XMP_ITEM.findall(block[0])]
    except Exception:  # Pillow raises anything for a malformed block
        pass
    lines = [
        " ".join(line.replace("\0", " ").split()) for text in texts for line in text.split(";")
    ]
    different = dict.fromkeys(line for line in lines if line and not CAMERA_DEFAULT.fullmatch(line))
    return "\n".join(different)[:MAX_KEYWORDS]


def _decode(value: Any, encoding: str) -> str:
    return value.decode(encoding, "ignore") if isinstance(value, bytes) else str(value)


def difference_hash(image: Image.Image) -> int:
    """Return 64 bits: whether a cell is lighter than its left neighbour, by more than 2 of 255.

    Scaling and JPEG change few bits; the threshold keeps the noise of a plain sky out.
    """
    small = image.convert("L").resize((9, 8), Image.Resampling.BOX, reducing_gap=3.0)
    grey = np.asarray(small, np.int16)
    bits = np.packbits(grey[:, 1:] > grey[:, :-1] + 2)
    return int(bits.view(np.int64)[0])


class EntryImages:
    """Load the pictures of entries: files, or images of a data set, which is opened once."""

    def __init__(self) -> None:
        self.datasets: dict[str, tuple[Dataset, dict[str, int]]] = {}

    def file(self, path: str | Path, min_side: int | None = None) -> Image.Image | None:
        """Return None if the file does not exist or is not an image."""
        try:
            return read_image(path, min_side=min_side)
        except BadImage:
            return None

    def __call__(self, entry: ImageEntry, min_side: int | None = None) -> Image.Image | None:
        if entry.time:
            return self.file(entry.path, min_side)
        if entry.source not in self.datasets:
            is_remote = "hf:" in entry.source or "://" in entry.source
            with offline(entry.source) if is_remote else nullcontext():
                dataset = open_dataset(entry.source)
            positions = {dataset[i].image: i for i in range(len(dataset))}
            self.datasets[entry.source] = dataset, positions
        dataset, positions = self.datasets[entry.source]
        position = positions.get(entry.path.partition(":")[2])
        return None if position is None else dataset.image(position)
