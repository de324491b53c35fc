"""What was seen, line by line in a file, so that a run that was killed goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from ..data import Dataset
from ..data.loading import UnreadableImage

T = TypeVar("T", bound=Any)  # a named tuple with a position


class Journal(Generic[T]):
    """One line an image, in the data set's order; the first line says of which run."""

    def __init__(
        self, path: Path, run: str, write: Callable[[T], list[Any]], read: Callable[[list[Any]], T]
    ) -> None:
        """`write` makes a line of what was seen, of more than two entries, the position first; `read` the reverse."""
        self.path, self.run, self.write, self.read = path, run, write, read
        self.done = self._check() if path.is_file() else 0

    def _check(self) -> int:
        """How many whole lines of this very run there are; what comes after them is cut off.

        So is a tail of photographs that could not be read: a drive may have been away, and they are tried again.
        """
        whole = count = end = 0
        with self.path.open("r+b") as file:
            for number, line in enumerate(file):
                if not line.endswith(b"\n") or (number == 0 and line.decode().strip() != self.run):
                    break
                end += len(line)
                if number == 0 or not isinstance(self._read(line), UnreadableImage):
                    whole, count = end, number
            file.truncate(whole)
        return count

    def over(
        self, dataset: Dataset, look: Callable[[Dataset], Iterator[T | UnreadableImage]]
    ) -> Iterator[T | UnreadableImage]:
        """What was done, then what `look` sees in the rest, each written before it is passed on."""
        if self.done:
            with self.path.open("rb") as file:
                for line in islice(file, 1, 1 + self.done):
                    yield self._read(line)
        for one in look(dataset.select(range(self.done, len(dataset)))):
            moved = one._replace(position=one.position + self.done)
            self._append(list(moved) if isinstance(moved, UnreadableImage) else self.write(moved))
            yield moved

    def _append(self, entry: list[Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open(
            "a", encoding="utf-8"
        ) as file:  # only now: what goes wrong before leaves nothing behind
            if not file.tell():
                file.write(f"{self.run}\n")
            file.write(json.dumps(entry) + "\n")

    def _read(self, line: bytes) -> T | UnreadableImage:
        entry = json.loads(line)
        return UnreadableImage(*entry) if len(entry) == 2 else self.read(entry)


def name_of_run(model: nn.Module, dataset: Dataset, **options: Any) -> str:
    """Whatever a change of which changes what is seen."""
    digest = hashlib.blake2b(json.dumps(options, sort_keys=True).encode(), digest_size=16)
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    digest.update(files_digest(dataset).encode())
    return digest.hexdigest()


def files_digest(dataset: Dataset, masks: bool = False) -> str:
    """Of paths, sizes and times of the images (and masks): what was repaired or replaced is another file."""
    digest = hashlib.blake2b(digest_size=16)
    for i in range(len(dataset)):
        for path in (
            dataset.path(i),
            *(dataset.root / mask for mask in (dataset[i].masks if masks else ())),
        ):
            try:
                found = path.stat()
                state = f"{found.st_size} {found.st_mtime_ns}"
            except OSError:  # not there, or drawn, or in an archive
                state = "-"
            digest.update(f"{path} {state}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
