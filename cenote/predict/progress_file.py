"""Files in which a killed run finds what it has already computed."""

from __future__ import annotations

import json
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from torch import nn

from ..data import Dataset
from ..data.digests import digest_of
from ..data.files import write_text
from ..data.loading import UnreadableImage
from ..data.video import split_frame
from ..metrics.arrays import Array
from .cache_folder import weights_digest

FORMAT = 5  # of the lines of a ProgressFile
T = TypeVar("T", bound=Any)  # a named tuple with a position and at least two more fields


class ProgressFile(Generic[T]):
    """One JSON line per image, in the order of the data set, after a line with the run's digest.

    A result is a named tuple of JSON values and arrays; `from_json` makes it from a list of them.
    """

    def __init__(self, path: Path, digest: str, from_json: Callable[[list[Any]], T]) -> None:
        self.path, self.digest, self.from_json = path, digest, from_json
        self.done = self._check() if path.is_file() else 0

    def _check(self) -> int:
        """Count the complete lines of a run with this digest, and cut off what follows them.

        Unreadable images at the end are cut off, too: a drive may have been disconnected.
        """
        valid = count = end = 0
        with self.path.open("r+b") as file:
            for number, line in enumerate(file):
                stale = number == 0 and line.decode().strip() != self.digest
                if stale or not line.endswith(b"\n"):
                    break
                end += len(line)
                if number == 0 or not isinstance(self._parse(line), UnreadableImage):
                    valid, count = end, number
            file.truncate(valid)
        return count

    def resume(
        self, dataset: Dataset, predict: Callable[[Dataset], Iterator[T | UnreadableImage]]
    ) -> Iterator[T | UnreadableImage]:
        """Yield the saved results, then those of `predict` for the other images, saving each."""
        if self.done:
            with self.path.open("rb") as file:
                for line in islice(file, 1, 1 + self.done):
                    yield self._parse(line)
        for result in predict(dataset.select(range(self.done, len(dataset)))):
            moved = result._replace(position=result.position + self.done)
            # The file is created with the first result: an error before it leaves nothing behind.
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                if not file.tell():
                    file.write(f"{self.digest}\n")
                file.write(json.dumps(moved, default=_encode_array) + "\n")
            yield moved

    def _parse(self, line: bytes) -> T | UnreadableImage:
        entry = json.loads(line, object_hook=_decode_array)
        return UnreadableImage(*entry) if len(entry) == 2 else self.from_json(entry)


def _encode_array(array: Array) -> dict[str, Any]:
    content = b64encode(zlib.compress(array.tobytes(), 1)).decode()
    return {"dtype": array.dtype.str, "shape": array.shape, "content": content}


def _decode_array(entry: dict[str, Any]) -> Any:
    if "dtype" not in entry:
        return entry
    values = np.frombuffer(zlib.decompress(b64decode(entry["content"])), entry["dtype"])
    return values.reshape(entry["shape"]).copy()  # writable


class FinishedPasses:
    """Results of finished passes over a data set, by name, in one JSON file.

    Without a path nothing is saved. `identity` is what invalidates saved results if it changes.
    """

    def __init__(self, path: Path | None = None, identity: Any = None) -> None:
        self.path, self.identity = path, identity
        self.results: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        try:
            saved = json.loads(path.read_text())
            if saved["of"] == identity:
                self.results = dict(saved["done"])
        except (OSError, ValueError, KeyError, TypeError):  # no file, or a damaged one
            return

    def save(self, name: str, result: dict[str, Any]) -> None:
        self.results[name] = result
        if self.path is not None:
            write_text(self.path, json.dumps({"of": self.identity, "done": self.results}))


def run_digest(model: nn.Module, dataset: Dataset, **options: Any) -> str:
    """Return a digest of everything that invalidates saved results: model, images, options."""
    settings = json.dumps({"format": FORMAT, **options}, sort_keys=True)
    parts = (settings, weights_digest(model), files_digest(dataset))
    return digest_of(*(part.encode() for part in parts)).hex()


def files_digest(dataset: Dataset, masks: bool = False) -> str:
    """Return a digest of paths, sizes and modification times of the images (and masks)."""
    lines = []
    for i in range(len(dataset)):
        mask_files = dataset[i].masks if masks else ()
        for path in (dataset.path(i), *(dataset.root / mask for mask in mask_files)):
            try:
                state = os.stat(split_frame(path)[0])
                text = f"{state.st_size} {state.st_mtime_ns}"
            except OSError:  # missing, generated, or in an archive
                text = "-"
            lines.append(f"{path} {text}\n".encode(errors="surrogateescape"))
    return digest_of(*lines).hex()
