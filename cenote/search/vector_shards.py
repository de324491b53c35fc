"""Vectors in shards: embed a large collection in pieces, and make an index of them.

A folder has a Parquet file of entries and vectors for each shard of images, the sums of its
vectors beside it, and `shards.json`, the description of the model. A file gets its name when it is
complete: a killed run loses the shards that it was working on, and the next one skips the others.
What could not be read, such as a file behind a broken connection, is tried again by the next one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset, LayoutError
from ..data.digests import digest_of, digests
from ..data.files import write_atomically, write_text
from ..data.shards import find_shards, is_sharded
from ..extras import require
from ..predict.embedding import Loading
from .database import MomentSums
from .index import EntryBatch, embed_entries, open_images, read_keywords, record_fields, source_of
from .load import IndexSetup
from .store import ImageEntry, IndexDescription, Store, StoreWriter

SHARD_IMAGES = 10_000  # of a shard, if the images are not in shards already
ROWS = 20_000  # images that an index takes at a time
DESCRIPTION = "shards.json"
STATE = b"cenote_state"  # key in the metadata of a Parquet file
Progress = Callable[[int], object]  # receives the number of images since the last call


@dataclass(frozen=True)
class ShardTask:
    """Images that are embedded together: a file of shards, or a block of other images."""

    data: tuple[str, ...]
    start: int  # of the images of the data
    stop: int | None
    name: str  # of the file of vectors, without suffix
    state: str  # changes with the images; empty if it is not known


class ShardResult(NamedTuple):
    images: int
    failed: list[str]  # a message for each image, or for the shard


def plan_shards(data: Sequence[str], size: int = SHARD_IMAGES) -> list[ShardTask]:
    """List the tasks of DATA, as for `cenote index`; shards have one for each file."""
    tasks = list[ShardTask]()
    if len(data) == 1 and is_sharded(data[0]):
        for file in find_shards(data[0]):
            one = f"{data[0].partition(':')[0]}:{file.name}"
            name = f"{Path(file.name).stem}-{_digest(file.name)[:8]}"
            state = ""
            with suppress(OSError):  # reading it names the reason
                state = _digest(file.state())
            tasks.append(ShardTask((one,), 0, None, name, state))
        return tasks
    dataset, source = _open(tuple(data)), _digest(source_of(data))[:8]
    for number, start in enumerate(range(0, len(dataset), size)):
        stop = min(start + size, len(dataset))
        paths = [dataset.path(i) for i in range(start, stop)]
        states = "\n".join(f"{path} {_file_state(path)}" for path in paths)
        name = f"images-{number:05d}-{source}"
        tasks.append(ShardTask(tuple(data), start, stop, name, _digest(states)))
    return tasks


def pending(tasks: Sequence[ShardTask], folder: Path) -> list[ShardTask]:
    """Return the tasks whose vectors are missing, or are of other images."""
    parquet, missing = require("pyarrow.parquet", extra="parquet"), list[ShardTask]()
    for task in tasks:
        state = None
        with suppress(OSError, ValueError, KeyError):  # missing or damaged
            schema = parquet.read_schema(folder / f"{task.name}.parquet")
            state = schema.metadata[STATE].decode()
        if not state or state != task.state:
            missing.append(task)
    return missing


class ShardEmbedder:
    """Embeds shards with a model that is loaded once."""

    def __init__(
        self,
        folder: Path,
        model: str | None = None,
        words: str | None = None,
        batch: int = 32,
        workers: int = 0,
    ) -> None:
        self.folder, self.batch, self.workers = folder, batch, workers
        setup = IndexSetup(str(folder), model, words)
        self.model, self.words = setup.load()
        self.description = IndexDescription.create(
            setup.model_name, self.model, self.words, setup.word_list or "", "float16"
        )

    def describe(self) -> None:
        """Write the description of the folder, or check that it is the same."""
        if not (self.folder / DESCRIPTION).exists():
            write_text(self.folder / DESCRIPTION, self.description.to_json())
            return
        stored = read_description(self.folder)
        if (stored.identity, stored.words) != (self.description.identity, self.description.words):
            raise ValueError(
                f"{self.folder} has vectors of the model '{stored.model}', or with other words: "
                "name another folder"
            )

    def __call__(self, task: ShardTask, progress: Progress | None = None) -> ShardResult:
        """Embed the images of a task and write its shard, unless none can be read."""
        try:
            dataset = _open(task.data)
        except LayoutError as error:
            return ShardResult(0, [str(error)])
        failed = list(dataset.problems) if task.start == 0 else []
        dataset = dataset.select(range(task.start, task.stop or len(dataset)))
        entries = list(_entries(task, dataset, failed))
        unread = [i for i, entry in enumerate(entries) if entry is None]
        is_complete = not unread
        if is_sharded(task.data[0]):  # a row without an image will not have one next time
            pixels: Any = dataset.pixels
            is_absent = (pixels.content(int(dataset.rows[i])) == b"" for i in unread)
            is_complete = all(is_absent) and not dataset.problems
        positions = [i for i, entry in enumerate(entries) if entry is not None]
        batches = list(
            embed_entries(
                self.model,
                self.words,
                self.description,
                dataset.select(positions),
                [entry for entry in entries if entry is not None],
                Loading(self.batch, self.workers, progress),
                failed,
            )
        )
        if batches:
            state = task.state if is_complete else ""
            write_shard(self.folder / f"{task.name}.parquet", state, batches)
        return ShardResult(sum(len(batch.entries) for batch in batches), failed)


@lru_cache(1)
def _open(data: tuple[str, ...]) -> Dataset:
    return open_images(data)


def _entries(task: ShardTask, dataset: Dataset, failed: list[str]) -> Iterator[ImageEntry | None]:
    """Yield what is known of each image before it is decoded; None if it cannot be read."""
    kind = task.data[0].partition(":")[0]
    source = task.data[0] if is_sharded(task.data[0]) else source_of(task.data)
    for record, digest, i in zip(dataset, digests(dataset), range(len(dataset)), strict=True):
        if is_sharded(task.data[0]):
            entry = ImageEntry(f"{kind}:{record.image}", "", keywords="")
        else:
            path = os.path.abspath(dataset.path(i))
            entry = ImageEntry(path, "", *_file_state(Path(path)), keywords=read_keywords(path))
        if digest is None:
            failed.append(f"{entry.path}: cannot be read")
            yield None
        elif not _is_text(entry.path):
            failed.append(f"{entry.path!r}: the name is not UTF-8")
            yield None
        else:
            yield entry._replace(digest=digest.hex(), source=source, **record_fields(record))


def write_shard(path: Path, state: str, batches: Sequence[EntryBatch]) -> None:
    """Write entries, vectors and words as a Parquet file, and the sums of the vectors."""
    arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
    entries = [entry for batch in batches for entry in batch.entries]
    vectors = _join([batch.vectors for batch in batches]).half()
    words = _join([batch.words for batch in batches if batch.words is not None]).int()
    columns = {name: [getattr(entry, name) for entry in entries] for name in ImageEntry._fields}
    columns["attributes"] = [json.dumps(dict(entry.attributes)) for entry in entries]
    table = arrow.table(columns, schema=_schema(arrow))
    for name, values in (("vector", vectors), ("words", words)):
        if values.shape[1]:  # there may be no words
            kind = arrow.list_(arrow.from_numpy_dtype(values.numpy().dtype), values.shape[1])
            array = arrow.FixedSizeListArray.from_arrays(values.numpy().ravel(), type=kind)
            table = table.append_column(name, array)
    sums = MomentSums.zeros(vectors.shape[1])
    sums.add(vectors)
    path.unlink(missing_ok=True)  # no vectors beside the sums of others
    with write_atomically(path.with_suffix(".npz")) as temporary:
        temporary.write_bytes(sums.to_bytes())
    with write_atomically(path) as temporary:
        parquet.write_table(table.replace_schema_metadata({STATE: state}), temporary)


def _join(tensors: Sequence[Tensor]) -> Tensor:
    """Join the rows of tensors; there are none for images without words."""
    return torch.cat(list(tensors)) if tensors else torch.empty(0, 0)


def _schema(arrow: Any) -> Any:
    """Return the columns of entries, by the types of their fields."""
    kinds = {"size": "int64", "time": "int64", "width": "int64", "height": "int64"}
    kinds |= {"look": "int64", "date": "float64"}
    return arrow.schema([(name, kinds.get(name, "string")) for name in ImageEntry._fields])


def read_description(folder: Path) -> IndexDescription:
    """Return how the vectors of a folder were made."""
    try:
        return IndexDescription.from_json((folder / DESCRIPTION).read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"{folder} has no {DESCRIPTION}: `cenote embed DATA -o {folder}/` makes vectors"
        ) from None


@dataclass
class ShardReport:
    """Number of images by what happened to them."""

    added: int = 0
    same: int = 0
    failed: list[str] = field(default_factory=list)  # a message for each damaged shard


class DamagedShard(ValueError):
    """A file of vectors, or that of their sums, cannot be read."""


def index_shards(store: Store, folder: Path, progress: Progress | None = None) -> ShardReport:
    """Add the images of all shards of a folder that are new or have other contents."""
    report, total = ShardReport(), MomentSums.zeros(store.dim)
    with store.writer() as writer:
        for path in sorted(folder.glob("*.parquet")):
            try:
                for batch in _read_shard(path, total):
                    _add_new(store, writer, batch, report)
                    if progress:
                        progress(len(batch.entries))
            except DamagedShard as error:
                report.failed.append(f"{error}: delete it and embed its images again")
        writer.compact()
        if not report.failed:
            writer.set_sums(total)
    return report


def _read_shard(path: Path, total: MomentSums) -> Iterator[EntryBatch]:
    """Yield the images of a file, after its sums have been added to the total."""
    parquet = require("pyarrow.parquet", extra="parquet")
    try:
        total.merge(MomentSums.from_bytes(path.with_suffix(".npz").read_bytes()))
        batches = map(_read_batch, parquet.ParquetFile(path).iter_batches(ROWS))
        while (batch := next(batches, None)) is not None:
            yield batch
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DamagedShard(f"{path}: {reason}") from error


def _add_new(store: Store, writer: StoreWriter, batch: EntryBatch, report: ShardReport) -> None:
    stored = store.find_paths([entry.path for entry in batch.entries])
    new = [
        i
        for i, entry in enumerate(batch.entries)
        if entry.path not in stored or stored[entry.path].entry.digest != entry.digest
    ]
    report.added += len(new)
    report.same += len(batch.entries) - len(new)
    if new:
        words = None if batch.words is None else batch.words[new]
        writer.put([batch.entries[i] for i in new], batch.vectors[new], words)


def count_images(folder: Path) -> int:
    """Return the number of vectors of a folder, without those of damaged files."""
    parquet, images = require("pyarrow.parquet", extra="parquet"), 0
    for path in folder.glob("*.parquet"):
        with suppress(OSError, ValueError):
            images += parquet.read_metadata(path).num_rows
    return images


def _read_batch(batch: Any) -> EntryBatch:
    columns = {name: batch.column(name).to_pylist() for name in ImageEntry._fields}
    columns["attributes"] = [json.loads(text) for text in columns["attributes"]]
    entries = [ImageEntry(*values) for values in zip(*columns.values(), strict=True)]
    vectors = _read_lists(batch, "vector").float()
    words = _read_lists(batch, "words").long() if "words" in batch.schema.names else None
    return EntryBatch(entries, vectors, words, None)


def _read_lists(batch: Any, name: str) -> Tensor:
    values = np.array(batch.column(name).flatten())
    return torch.from_numpy(values.reshape(len(batch), -1))


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:  # bytes of a file name that are not UTF-8
        return False
    return True


def _digest(text: str) -> str:
    return digest_of(os.fsencode(text)).hex()


def _file_state(path: Path) -> tuple[int, int]:
    """Return size and modification time, zeros if the file does not exist."""
    try:
        state = path.stat()
    except OSError:
        return 0, 0
    return state.st_size, state.st_mtime_ns
