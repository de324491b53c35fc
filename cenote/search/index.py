"""Fill an index from images and keep it up to date: only new and changed images are embedded."""

from __future__ import annotations

import html
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, IptcImagePlugin
from torch import Tensor

from ..data import BadImage, Dataset, LayoutError, open_dataset, read_image
from ..data.dataset import images_are_files
from ..data.digests import digest_of, digests
from ..data.images import full_size
from ..data.loading import load
from ..data.sources import open_photographs
from ..data.video import split_frame
from ..predict.embedding import predict_batches
from ..predict.inference import Inference
from ..predict.openvino_engine import embed_images
from .load import image_text_device
from .maxsim import embed_with_local, local_network
from .store import ImageEntry, Store

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
    """One pass over a data set. Results are written at once: the next pass resumes a killed one."""

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
        self.file_states: dict[str, tuple[int, int]] = {}  # size and time by path
        self.done = self.total = 0

    def run(self) -> IndexReport:
        positions = self._list_images()
        self.sources.set_listed(positions)
        report, missing = self.report, len(self.report.failed)
        with self.store.writer() as self.writer:
            self.stored = self.store.images()  # inside the writer: nobody else changes it
            # A row for each digest: the vector of images with the same contents.
            self.rows = {image.entry.digest: image.row for image in self.stored.values()}
            changed, relabelled = list[int](), list[ImageEntry]()
            for path, i in positions.items():
                entry = self.stored[path].entry if path in self.stored else None
                if entry is None or self.file_states.get(path) != (entry.size, entry.time):
                    changed.append(i)
                elif (new := self._with_keywords(entry._replace(**self._record(i)))) != entry:
                    relabelled.append(new)
            self._update(relabelled)
            self.total = len(changed)
            for start in range(0, len(changed), CHUNK):
                self._index_chunk(changed[start : start + CHUNK])
            self._remove(
                path
                for path, image in self.stored.items()
                if path not in positions and self.sources.is_lost(image.entry)
            )
            self.writer.compact()
        failed = len(report.failed) - missing
        report.same = len(positions) - report.embedded - report.moved - report.noted - failed
        return report

    def _list_images(self) -> dict[str, int]:
        """Return positions in the data set by path; files that do not exist have failed."""
        positions = dict[str, int]()
        for i in range(len(self.dataset)):
            path = self._path(i)
            if self.are_files:
                try:
                    state = os.stat(split_frame(path)[0])
                except OSError:
                    self.report.failed.append(f"{path}: no such file")
                    continue
                self.file_states[path] = state.st_size, state.st_mtime_ns
            positions.setdefault(path, i)
        return positions

    def _path(self, i: int) -> str:
        if self.are_files:
            return os.path.abspath(self.dataset.path(i))
        return f"{self.dataset.name}:{self.dataset[i].image}"

    def _record(self, i: int) -> dict[str, Any]:
        record = self.dataset[i]
        fields = {name: getattr(record, name) for name in RECORD_FIELDS}
        if record.label is not None:  # a folder name need not be text
            fields["label"] = os.fsencode(record.label).decode("utf-8", "backslashreplace")
        return fields

    def _with_keywords(self, entry: ImageEntry) -> ImageEntry:
        """Read the keywords unless they are stored already."""
        if entry.keywords is not None:
            return entry
        return entry._replace(keywords=read_keywords(entry.path) if self.are_files else "")

    def _update(self, entries: list[ImageEntry]) -> None:
        """Store new labels or times of images whose contents are the same."""
        if entries:
            self.writer.update(entries)
            for entry in entries:  # an index of an earlier version has no keywords yet
                stored = self.stored[entry.path].entry
                self.report.noted += stored._replace(keywords=entry.keywords) != entry

    def _index_chunk(self, positions: list[int]) -> None:
        """Read these images and treat each by its contents: known, a copy, or new."""
        new, copies = dict[str, tuple[int, ImageEntry]](), list[ImageEntry]()
        touched, unreadable = list[ImageEntry](), list[str]()
        for i, digest in zip(positions, digests(self.dataset.select(positions)), strict=True):
            path = self._path(i)
            if digest is None:
                self.report.failed.append(f"{path}: cannot be read")
                unreadable.append(path)
                continue
            size, time = self.file_states.get(path, (0, 0))
            source = self.sources.of(path)
            entry = ImageEntry(path, digest.hex(), size, time, source=source, **self._record(i))
            entry = self._with_keywords(entry)
            if path in self.stored and self.stored[path].entry.digest == entry.digest:
                touched.append(_with_image_info(entry, self.stored[path].entry))
            elif entry.digest in self.rows or entry.digest in new:
                copies.append(entry)
            else:
                new[entry.digest] = i, entry
        self._update(touched)
        self._advance(len(touched) + len(unreadable))
        self._copy([entry for entry in copies if entry.digest in self.rows])
        if new:
            unreadable += self._embed(list(new.values()))
        twins = [entry for entry in copies if entry.digest in new]
        if twins:  # of images that have just been embedded
            self.store.refresh()
        for entry in twins:
            if rows := self.store.rows_with_digest(entry.digest):
                self.rows[entry.digest] = rows[0]
        self._copy([entry for entry in twins if entry.digest in self.rows])
        removed = [path for path in unreadable if path in self.stored]
        self._remove(removed)
        self._forget_rows(removed)

    def _copy(self, entries: list[ImageEntry]) -> None:
        """Add images whose contents are in the index under another path."""
        if entries:
            rows = torch.tensor([self.rows[entry.digest] for entry in entries])
            store, originals = self.store, self.store.entries(rows)
            copies = list(map(_with_image_info, entries, originals))
            self.writer.put(copies, store.vectors(rows), store.words(rows), store.local(rows))
            self._forget_rows(entry.path for entry in copies)
            self._advance(len(copies))
            self.report.moved += len(copies)

    @torch.inference_mode()
    def _embed(self, images: list[tuple[int, ImageEntry]]) -> list[str]:
        """Embed new images; return the paths of those that cannot be read."""
        model, words = self.load_model()
        description, embedded = self.store.description, set[int]()
        n, k = description.words_per_image, description.local_vectors
        dataset = self.dataset.select([i for i, _ in images])
        transform = model.transform(description.scaled_decoding)
        loader = load(dataset, ImageInfoTransform(transform), self.batch, self.workers)
        embed: Callable[[Tensor], Tensor] = partial(embed_images, model)
        if k:
            embed = partial(embed_with_local, local_network(model), k)
        run = Inference(embed, image_text_device(model))
        batches = predict_batches(
            loader,
            lambda batch: run(batch.images["pixels"]).float().cpu(),
            self.report.failed,
            self._advance,
        )
        for batch, output in batches:
            vectors, local = output[:, : description.dim], output[:, description.dim :]
            ids = words.nearest(vectors, n) if words is not None and n else None
            indices, info = batch.indices.tolist(), batch.images
            sizes, dates, looks = (info[name].tolist() for name in ("size", "date", "look"))
            entries = []
            for i, (width, height), date, look in zip(indices, sizes, dates, looks, strict=True):
                entry = images[i][1]._replace(width=width, height=height, look=look, date=date)
                if math.isnan(date):
                    entry = entry._replace(date=entry.time / 1e9)
                entries.append(entry)
            self.writer.put(entries, vectors, ids, local)
            self._forget_rows(entry.path for entry in entries)
            self.report.embedded += len(entries)
            embedded.update(indices)
        return [entry.path for i, (_, entry) in enumerate(images) if i not in embedded]

    def _remove(self, paths: Iterable[str]) -> None:
        if paths := list(paths):
            self.report.removed += self.writer.remove(paths)

    def _forget_rows(self, paths: Iterable[str]) -> None:
        """Do not copy from rows that were stored under these paths: they were replaced."""
        for path in paths:
            image = self.stored.get(path)
            if image is not None and self.rows.get(image.entry.digest) == image.row:
                del self.rows[image.entry.digest]

    def _advance(self, images: int) -> None:
        self.done += images
        if self.progress:
            self.progress(self.done, self.total)


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

    def of(self, path: str) -> str:
        """Return what is stored with the image."""
        argument = self._argument(path)
        return self.default if argument is None else self.names[argument]

    def set_listed(self, paths: Iterable[str]) -> None:
        """Set the images that exist."""
        arguments = {path: self._argument(path) for path in paths}
        # A folder without images may be a disk that is not mounted.
        self.arguments_with_images = set(arguments.values())
        self.folders_of_files = {
            os.path.dirname(path) for path, argument in arguments.items() if argument == path
        }

    def is_lost(self, entry: ImageEntry) -> bool:
        """Return whether an image that is not listed leaves; images of other DATA stay."""
        return self._came_from_here(entry) and not _is_unreadable(os.path.dirname(entry.path))

    def _came_from_here(self, entry: ImageEntry) -> bool:
        argument = self._argument(entry.path)
        if argument is not None:
            return argument in self.arguments_with_images
        if entry.source == entry.path:  # named itself, as a shell expands p/*.jpg
            folder = os.path.dirname(entry.path)
            return folder in self.folders_of_files and not os.path.exists(entry.path)
        return entry.source == self.default and None in self.arguments_with_images

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
            dataset = open_dataset(entry.source)
            positions = {dataset[i].image: i for i in range(len(dataset))}
            self.datasets[entry.source] = dataset, positions
        dataset, positions = self.datasets[entry.source]
        position = positions.get(entry.path.partition(":")[2])
        return None if position is None else dataset.image(position)
