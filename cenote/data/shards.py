"""Images in shards: tar files of webdataset and Parquet tables, in any place that fsspec reaches."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import fsspec
import numpy as np
import numpy.typing as npt
from PIL import Image

from ..extras import require
from .checks import LayoutError
from .dataset import Dataset, pack
from .huggingface import CAPTIONS, LABELS
from .images import BadImage, is_image_name, read_image
from .record import SPLITS, Problem, Record

SUFFIXES = {"wds": ".tar", "parquet": ".parquet"}
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
IMAGE_COLUMNS = ("image", "img", "jpg", "jpeg", "png", "webp", "bytes", "content")
PATH_COLUMNS = ("path", "file", "file_name", "filename", "image_path", "image")


class ShardFile(NamedTuple):
    """A file of a file system of fsspec."""

    system: Any
    path: str

    @property
    def name(self) -> str:
        """The address that opens it again."""
        return str(self.system.unstrip_protocol(self.path)).removeprefix("file://")

    @property
    def split(self) -> str | None:
        """The split that the name of the file says, as `train-00000-of-00005`, or its folder."""
        path = PurePosixPath(self.path.lower())
        words = [*re.split(r"[\W_]+", path.stem), path.parent.name]
        return next((SPLITS[word] for word in words if word in SPLITS), None)

    def state(self) -> str:
        """Return a text that changes with the contents: size and modification time or ETag."""
        info = self.system.info(self.path)
        marks = [info.get(key) for key in ("size", "mtime", "ETag", "LastModified", "commit_hash")]
        return repr([str(mark) for mark in marks if mark is not None])


def is_sharded(data: str) -> bool:
    """Return whether DATA names shards: `wds:` or `parquet:`."""
    return data.partition(":")[0] in SUFFIXES and ":" in data


def find_shards(data: str) -> list[ShardFile]:
    """Find the files of `wds:PATTERN` or `parquet:PATTERN`.

    PATTERN is a folder, a file, a glob, or has a range of numbers, as in `train-{000..099}.tar`,
    whose missing files are problems when they are read.
    """
    kind, _, pattern = data.partition(":")
    files, is_there = list[ShardFile](), False
    for name in _expand_ranges(pattern):
        try:
            system, path = fsspec.core.url_to_fs(os.path.expanduser(name))
            if system.isdir(path):
                path = f"{path.rstrip('/')}/**/*{SUFFIXES[kind]}"
            paths = sorted(system.glob(path)) if "*" in path or "?" in path else [path]
            files += [ShardFile(system, path) for path in paths]
            is_there = is_there or any(map(system.exists, paths))
        except Exception as error:  # of any file system: network, permission, missing package
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise LayoutError(f"{name} cannot be reached: {reason}") from error
    if not is_there:
        raise LayoutError(f"{data}: there is no such file, and no *{SUFFIXES[kind]} file below it")
    return files


def _expand_ranges(pattern: str) -> list[str]:
    match = RANGE.search(pattern)
    if match is None:
        return [pattern]
    first, last = match.groups()
    numbers = [f"{i:0{len(first)}d}" for i in range(int(first), int(last) + 1)]
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [name for number in numbers for name in _expand_ranges(before + number + after)]


def read_shards(data: str, files: Sequence[ShardFile] | None = None) -> Dataset:
    """Read all shards of DATA, or some of them, as one data set; broken ones are its problems."""
    kind = data.partition(":")[0]
    read = {"wds": _tar_records, "parquet": _parquet_records}[kind]
    places = list[_Place]()

    def records() -> Iterator[Record | Problem]:
        for file in find_shards(data) if files is None else files:
            try:
                for place, record in read(file):
                    places.append(place)
                    yield record
            except Exception as error:  # a damaged file, an unreachable host, ...
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                yield Problem(f"{file.name}: {reason}")

    dataset = pack(records(), Path(), data)
    if not len(dataset) and files is None:
        reason = dataset.problems[0] if dataset.problems else "it is empty"
        raise LayoutError(f"{data} contains no images: {reason}")
    dataset.pixels = _ShardPixels(places)
    return dataset


@dataclass(frozen=True)
class _Place:
    """Where the bytes of an image are: a range of a tar file, a row of a table, or a file."""

    file: ShardFile
    start: int  # offset in bytes, or row
    size: int = 0  # bytes
    column: str = ""  # of a table
    group: int = 0  # row group of a table

    def read(self) -> bytes:
        if not self.column:
            content: bytes = self.file.system.cat_file(
                self.file.path, start=self.start, end=self.start + self.size
            )
            return content
        value = _column(self.file, self.group, self.column)[self.start].as_py()
        if isinstance(value, dict):  # of Hugging Face: bytes, or a path
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes):
            return value
        if not isinstance(value, str):
            return b""  # a row without an image
        path = value if "://" in value else str(PurePosixPath(self.file.path).parent / value)
        return bytes(self.file.system.cat_file(path))


class _ShardPixels:
    """Images of shards, read one by one."""

    def __init__(self, places: list[_Place]) -> None:
        self.places = places

    def content(self, row: int) -> bytes | None:
        """Return the bytes of an image file, none for a row without one, None if unreadable."""
        try:
            return self.places[row].read()
        except Exception:  # of any file system or a damaged table
            return None

    def image(self, row: int) -> Image.Image:
        place = self.places[row]
        name = f"{place.file.name}, {'row' if place.column else 'byte'} {place.start}"
        content = self.content(row)
        if not content:
            raise BadImage(name, "cannot be read")
        return read_image(name, content=content)

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None:
        return None


def _tar_records(file: ShardFile) -> Iterator[tuple[_Place, Record]]:
    """Yield the images of a tar file; members with the same name up to the first dot are a sample.

    A class is in .cls, a caption in .txt, both in .json.
    """
    with (
        file.system.open(file.path, "rb") as stream,
        tarfile.open(fileobj=stream, mode="r:") as tar,
    ):
        for _, members in groupby(_members(tar), lambda member: _sample_key(member.name)):
            image, fields = None, dict[str, bytes]()
            for member in members:
                suffix = PurePosixPath(member.name).name.partition(".")[2]
                if is_image_name(member.name):
                    image = image or member
                elif suffix in ("cls", "txt", "json") and (content := tar.extractfile(member)):
                    fields[suffix] = content.read()
            if image is not None:
                yield _tar_sample(file, image, fields)
        # An archive ends with blocks of zeros.
        stream.seek(tar.offset)
        block = stream.read(tarfile.BLOCKSIZE)
        if len(block) < tarfile.BLOCKSIZE or block.strip(b"\0"):
            raise ValueError(f"damaged at byte {tar.offset}, what follows is not read")


def _sample_key(name: str) -> str:
    """Return the name of a member up to the first dot after its folder."""
    folder, _, base = name.rpartition("/")
    return f"{folder}/{base.partition('.')[0]}"


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files of an archive; a damaged one ends early."""
    with suppress(tarfile.TarError):
        while (member := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined]  # it remembers all headers
            if member.isfile():
                yield member


def _tar_sample(
    file: ShardFile, member: tarfile.TarInfo, fields: Mapping[str, bytes]
) -> tuple[_Place, Record]:
    values = dict[str, Any]()
    with suppress(KeyError, ValueError):
        loaded = json.loads(fields["json"])
        values = loaded if isinstance(loaded, dict) else {}
    texts = {name: fields[name].decode("utf-8", "replace").strip() for name in fields}
    label = texts.get("cls", _first_text(values, ("cls", *LABELS)))
    caption = texts.get("txt", _first_text(values, CAPTIONS))
    name = f"{file.name}/{member.name}"
    record = Record(name, label or None, file.split, caption=caption or None)
    return _Place(file, member.offset_data, member.size), record


def _first_text(values: Mapping[str, Any], names: Sequence[str]) -> str | None:
    found = (values[name] for name in names if values.get(name) is not None)
    return next((str(value) for value in found), None)


def _parquet_records(file: ShardFile) -> Iterator[tuple[_Place, Record]]:
    """Yield the rows of a table whose images are bytes, Hugging Face's images, or paths."""
    table = _open_parquet(file)
    schema, types = table.schema_arrow, require("pyarrow.types", extra="parquet")
    kinds = {field.name: field.type for field in schema}
    column = _image_column(kinds, types)
    if column is None:
        raise ValueError(f"no column of images among {', '.join(kinds)}")
    label = next((name for name in LABELS if name in kinds and name != column), None)
    caption = next(
        (name for name in CAPTIONS if name in kinds and name not in (column, label)), None
    )
    names = _class_names(schema.metadata or {}, label)
    columns, row = [name for name in (label, caption) if name], 0
    for group in range(table.num_row_groups):
        count = table.metadata.row_group(group).num_rows
        texts = (
            table.read_row_group(group, columns=columns).to_pylist() if columns else [{}] * count
        )
        for i, values in enumerate(texts):
            value, text = values.get(label), values.get(caption)
            if names and value is not None:
                value = names[value] if 0 <= value < len(names) else None
            record = Record(
                f"{file.name}/{row}",
                None if value is None else str(value),
                file.split,
                caption=None if text is None else str(text),
            )
            yield _Place(file, i, column=column, group=group), record
            row += 1


def _image_column(kinds: Mapping[str, Any], types: Any) -> str | None:
    def is_image(name: str) -> bool:
        kind = kinds[name]
        if types.is_struct(kind):
            return "bytes" in {field.name for field in kind}
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    images = [name for name in (*IMAGE_COLUMNS, *kinds) if name in kinds and is_image(name)]
    paths = [name for name in PATH_COLUMNS if name in kinds and types.is_string(kinds[name])]
    return next(iter([*images, *paths]), None)


def _class_names(metadata: Mapping[bytes, bytes], label: str | None) -> list[str] | None:
    """Return the names of the classes that Hugging Face writes into the file."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        names: list[str] | None = features[label].get("names")
        return names
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _open_parquet(file: ShardFile) -> Any:
    return _parquet_file(file, os.getpid())


@lru_cache(4)
def _parquet_file(file: ShardFile, process: int) -> Any:
    """Open a table; processes that are forked must not share the position in the file."""
    stream = file.system.open(file.path, "rb")
    return require("pyarrow.parquet", extra="parquet").ParquetFile(stream)


@lru_cache(4)
def _column(file: ShardFile, group: int, name: str) -> Any:
    return _open_parquet(file).read_row_group(group, columns=[name]).column(0)
