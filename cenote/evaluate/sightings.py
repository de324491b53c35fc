"""What was found, line by line in a file, so that a run that was killed goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ..data import Dataset
from ..data.loading import Bad
from ..metrics.arrays import Array


class Discovered(NamedTuple):
    """What one method found in one image."""

    boxes: Array  # (k, 4) in pixels of the image
    masks: list[Array]  # k of (H, W), in patches


class Sighting(NamedTuple):
    position: int  # in the data set
    size: tuple[int, int]  # (w, h)
    found: dict[str, Discovered]  # by method


class Journal:
    """One line an image, in the data set's order; the first line says of which run."""

    def __init__(self, path: Path, run: str) -> None:
        self.path, self.run = path, run
        path.parent.mkdir(parents=True, exist_ok=True)
        self.done = self._check()

    def _check(self) -> int:
        """How many whole lines of this very run there are; what comes after them is cut off.

        So is a tail of photographs that could not be read: a drive may have been away, and they are tried again.
        """
        whole = count = end = 0
        if self.path.is_file():
            with self.path.open("rb") as file:
                for number, line in enumerate(file):
                    if not line.endswith(b"\n") or (number == 0 and line.decode().strip() != self.run):
                        break
                    end += len(line)
                    if number == 0 or not isinstance(_read(json.loads(line)), Bad):
                        whole, count = end, number
        with self.path.open("r+b" if whole else "wb") as file:
            file.truncate(whole)
            if not whole:
                file.write(f"{self.run}\n".encode())
        return count

    def replay(self) -> Iterator[Sighting | Bad]:
        with self.path.open(encoding="utf-8") as file:
            next(file)
            for _, line in zip(range(self.done), file, strict=False):
                yield _read(json.loads(line))

    def record(self, sightings: Iterator[Sighting | Bad]) -> Iterator[Sighting | Bad]:
        """The same, each written before it is passed on; images are counted from those that were done."""
        with self.path.open("a", encoding="utf-8") as file:
            for one in sightings:
                moved: Sighting | Bad = one._replace(position=one.position + self.done)
                file.write(json.dumps(_written(moved)) + "\n")
                file.flush()
                yield moved


def rows_of(mask: Array) -> list[str]:
    """A mask of patches, a letter each."""
    return ["".join("01"[cell] for cell in row) for row in mask.astype(int)]


def mask_of(rows: list[str]) -> Array:
    return np.array([[cell == "1" for cell in row] for row in rows], bool)


def _written(one: Sighting | Bad) -> Any:
    if isinstance(one, Bad):
        return [one.position, one.sentence]
    found = {m: [d.boxes.tolist(), [rows_of(mask) for mask in d.masks]] for m, d in one.found.items()}
    return [one.position, *one.size, found]


def _read(line: Any) -> Sighting | Bad:
    if len(line) == 2:
        return Bad(*line)
    found = {
        m: Discovered(np.array(boxes, np.float64).reshape(-1, 4), [mask_of(rows) for rows in masks])
        for m, (boxes, masks) in line[3].items()
    }
    return Sighting(line[0], (line[1], line[2]), found)


def name_of_run(model: nn.Module, dataset: Dataset, **options: Any) -> str:
    """Whatever a change of which changes what is found."""
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
        for path in (dataset.path(i), *(dataset.root / mask for mask in (dataset[i].masks if masks else ()))):
            try:
                found = path.stat()
                state = f"{found.st_size} {found.st_mtime_ns}"
            except OSError:  # not there, or drawn, or in an archive
                state = "-"
            digest.update(f"{path} {state}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
