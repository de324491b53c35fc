"""The collage study (002, 2.2): an image of a class among three of classes that stand in every collage.

What tells classes apart is in a quarter of the picture; a pool that takes all of it takes the nuisance too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from .dataset import Dataset
from .images import BadImage
from .packing import pack
from .record import Box, Record

SPLITS = ("train", "val", "test")  # two, one and two classes of five
SHARED = 5  # one class of so many is shared
LEAST = 2  # classes to tell apart in each split


class Roles(NamedTuple):
    """Names of classes, by split. No name stands twice."""

    told: dict[str, list[str]]  # what a collage is labelled with
    shared: dict[str, list[str]]  # what fills its other three tiles


def roles(dataset: Dataset, seed: int = 0) -> Roles:
    """A fifth of the classes is shared; of those and of the others, two fifths train, one chooses, two judge.

    With an attribute `superclass` (CIFAR-100) whole superclasses are shared, and each is cut on its own.
    """
    groups = list(_groups(dataset).values())
    draw = random.Random(f"{seed}/collage")
    if len(groups) == 1:
        names = draw.sample(groups[0], len(groups[0]))
        cut = max(round(len(names) / SHARED), len(SPLITS))
        shared, told = [names[:cut]], [names[cut:]]
    else:
        chosen = set(draw.sample(range(len(groups)), max(round(len(groups) / SHARED), 1)))
        shared = [group for i, group in enumerate(groups) if i in chosen]
        told = [group for i, group in enumerate(groups) if i not in chosen]
    found = Roles(_cut(told, LEAST if len(told) == 1 else 1), _cut(shared, 1))
    if any(len(found.told[split]) < LEAST or not found.shared[split] for split in SPLITS):
        classes = sum(map(len, groups))
        raise ValueError(
            f"{dataset.name} has {classes} classes, too few for collages: 9 do, or superclasses of 5"
        )
    return found


def collages(dataset: Dataset, side: int = 112, seed: int = 0) -> Dataset:
    """A data set of 2 x 2 collages, tiles of `side` pixels: one for each image of a class that is not shared.

    Which images fill it, and which tile is the class's own, depend on the seed and the image alone. The tile is its
    box and its mask; the attribute `tile` numbers it from the top left.
    """
    if side < 1:
        raise ValueError(f"a tile has at least 1 pixel, got {side}")
    found, labels = roles(dataset, seed), dataset.labels
    where = {name: split for split, names in found.told.items() for name in names}
    rows = [
        i for i in range(len(dataset)) if labels[i] >= 0 and dataset.classes[labels[i]] in where
    ]
    place = {name: code for code, name in enumerate(dataset.classes)}
    fillers = {
        split: np.flatnonzero(np.isin(labels, [place[name] for name in names])).tolist()
        for split, names in found.shared.items()
    }
    tiles, records = [], []
    for i in rows:
        label = dataset.classes[labels[i]]
        tile = random.Random(f"{seed}/tile/{i}").randrange(4)
        x, y = tile % 2 * side, tile // 2 * side
        box = Box(x, y, x + side, y + side)
        tiles.append(tile)
        records.append(
            Record(dataset[i].image, label, where[label], (box,), attributes={"tile": str(tile)})
        )
    made = pack(
        records,
        dataset.root,
        f"{dataset.name} (collages)",
        [name for name in dataset.classes if name in where],
    )
    made.pixels = _Collages(
        dataset, rows, tiles, [fillers[record.split or ""] for record in records], side, seed
    )
    return made


class _Collages:
    def __init__(
        self,
        dataset: Dataset,
        rows: list[int],
        tiles: list[int],
        fillers: list[list[int]],
        side: int,
        seed: int,
    ) -> None:
        self.dataset, self.rows, self.tiles, self.fillers = dataset, rows, tiles, fillers
        self.side, self.seed = side, seed

    def image(self, row: int) -> Image.Image:
        pictures = self._others(row)
        pictures.insert(self.tiles[row], self.dataset.image(self.rows[row]))
        page = Image.new("RGB", (2 * self.side, 2 * self.side))
        for i, picture in enumerate(pictures):
            fitted = ImageOps.fit(picture, (self.side, self.side), Image.Resampling.BICUBIC)
            page.paste(fitted, (i % 2 * self.side, i // 2 * self.side))
        return page

    def mask(self, row: int) -> npt.NDArray[np.uint8]:
        mask = np.zeros((2, self.side, 2, self.side), np.uint8)
        mask[self.tiles[row] // 2, :, self.tiles[row] % 2] = 1
        return mask.reshape(2 * self.side, 2 * self.side)

    def _others(self, row: int) -> list[Image.Image]:
        """Three that can be read, of the shared classes of the split."""
        known, pictures = self.fillers[row], list[Image.Image]()
        draw = random.Random(f"{self.seed}/others/{self.rows[row]}")
        for i in (
            draw.sample(known, min(len(known), 12)) if len(known) > 2 else draw.choices(known, k=12)
        ):
            try:
                pictures.append(self.dataset.image(i))
            except BadImage:
                continue
            if len(pictures) == 3:
                return pictures
        raise BadImage(
            self.dataset.path(self.rows[row]),
            "no three images of shared classes for its collage are good",
        )


def _groups(dataset: Dataset) -> dict[str, list[str]]:
    """Classes that have images, by superclass; all in one group where there is none."""
    labels = dataset.labels
    present, first = np.unique(labels[labels >= 0], return_index=True)
    names = [dataset.classes[code] for code in present]
    if "superclass" not in dataset.columns["attributes"]:
        return {"": names}
    column, rows = dataset.attribute("superclass"), np.flatnonzero(labels >= 0)[first]
    groups: dict[str, list[str]] = {}
    for name, row in zip(names, rows, strict=True):
        groups.setdefault(column[row] or "", []).append(name)
    return groups


def _cut(groups: Sequence[Sequence[str]], least: int) -> dict[str, list[str]]:
    """Each group into two, one and two fifths, the first two of them at least `least`."""
    cut: dict[str, list[str]] = {split: [] for split in SPLITS}
    for group in groups:
        train, val = max(round(len(group) * 2 / 5), least), max(round(len(group) / 5), least)
        cut["train"] += group[:train]
        cut["val"] += group[train : train + val]
        cut["test"] += group[train + val :]
    return cut
