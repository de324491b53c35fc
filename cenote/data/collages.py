"""The collage study [GSP Sec. 2.2 of the supplement]: an image of a class beside three nuisance images.

Only a quarter of a collage identifies the class. The nuisance classes occur in all collages of a
split, so a pool that takes everything takes the nuisance, too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from .dataset import Dataset, pack
from .images import BadImage
from .record import Box, Record

SPLITS = ("train", "val", "test")  # two, one and two fifths of the classes
NUISANCE_EVERY = 5  # one class of five is a nuisance class
MIN_CLASSES = 2  # in each split
MAX_TRIES = 12  # nuisance images to try when some cannot be read


class ClassRoles(NamedTuple):
    """Names of classes by split; no class has two roles."""

    targets: dict[str, list[str]]  # the labels of collages
    nuisances: dict[str, list[str]]  # what fills the other three tiles


def assign_roles(dataset: Dataset, seed: int = 0) -> ClassRoles:
    """Make a fifth of the classes nuisance classes; split both kinds 2 : 1 : 2.

    With an attribute `superclass` (CIFAR-100) whole superclasses are nuisance classes, and each
    superclass is split on its own.
    """
    groups = list(_group_classes(dataset).values())
    rng = random.Random(f"{seed}/collage")
    if len(groups) == 1:
        names = rng.sample(groups[0], len(groups[0]))
        count = max(round(len(names) / NUISANCE_EVERY), len(SPLITS))
        nuisances, targets = [names[:count]], [names[count:]]
    else:
        count = max(round(len(groups) / NUISANCE_EVERY), 1)
        drawn = set(rng.sample(range(len(groups)), count))
        nuisances = [group for i, group in enumerate(groups) if i in drawn]
        targets = [group for i, group in enumerate(groups) if i not in drawn]
    minimum = MIN_CLASSES if len(targets) == 1 else 1
    roles = ClassRoles(_split_classes(targets, minimum), _split_classes(nuisances, 1))
    if any(len(roles.targets[s]) < MIN_CLASSES or not roles.nuisances[s] for s in SPLITS):
        raise ValueError(
            f"{dataset.name} has {sum(map(len, groups))} classes, too few for collages: "
            "it needs 9, or superclasses of 5"
        )
    return roles


def make_collages(
    dataset: Dataset, side: int = 112, seed: int = 0, distilled: bool = False
) -> Dataset:
    """Return 2 x 2 collages with tiles of `side` pixels, one for each image of a target class.

    The nuisance images and the tile of the class depend on the seed and the image only. The tile
    is the box and the mask; the attribute `tile` is its number from the top left. `distilled`
    returns the images of the target classes alone, in the same splits [GSP Fig. 3b].
    """
    if side < 1:
        raise ValueError(f"a tile has at least 1 pixel, got {side}")
    roles, labels = assign_roles(dataset, seed), dataset.labels
    split_of = {name: split for split, names in roles.targets.items() for name in names}
    code_of = {name: code for code, name in enumerate(dataset.classes)}
    nuisances = {
        split: np.flatnonzero(np.isin(labels, [code_of[name] for name in names])).tolist()
        for split, names in roles.nuisances.items()
    }
    rows, tiles, records = [], [], []
    for i, code in enumerate(labels):
        label = dataset.classes[code]
        if code < 0 or label not in split_of:
            continue
        tile = random.Random(f"{seed}/tile/{i}").randrange(4)
        x, y = tile % 2 * side, tile // 2 * side
        box = Box(x, y, x + side, y + side)
        record = Record(dataset[i].image, label, split_of[label])
        if not distilled:
            record = record._replace(boxes=(box,), attributes={"tile": str(tile)})
        records.append(record)
        rows.append(i)
        tiles.append(tile)
    classes = [name for name in dataset.classes if name in split_of]
    collages = pack(records, dataset.root, f"{dataset.name} (collages)", classes)
    if distilled:
        collages.name, collages.pixels = f"{dataset.name} (distilled)", TargetPixels(dataset, rows)
        return collages
    fillers = [nuisances[record.split or ""] for record in records]
    collages.pixels = CollagePixels(dataset, rows, tiles, fillers, side, seed)
    return collages


class TargetPixels:
    """Images of the target classes."""

    def __init__(self, dataset: Dataset, rows: list[int]) -> None:
        self.dataset, self.rows = dataset, rows

    def image(self, row: int) -> Image.Image:
        return self.dataset.image(self.rows[row])

    def mask(self, row: int) -> npt.NDArray[np.uint8] | None:
        return self.dataset.mask(self.rows[row])


class CollagePixels:
    """Images and masks of collages, drawn on demand."""

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
        pictures = self._nuisance_images(row)
        pictures.insert(self.tiles[row], self.dataset.image(self.rows[row]))
        collage = Image.new("RGB", (2 * self.side, 2 * self.side))
        for i, picture in enumerate(pictures):
            tile = ImageOps.fit(picture, (self.side, self.side), Image.Resampling.BICUBIC)
            collage.paste(tile, (i % 2 * self.side, i // 2 * self.side))
        return collage

    def mask(self, row: int) -> npt.NDArray[np.uint8]:
        mask = np.zeros((2, self.side, 2, self.side), np.uint8)
        mask[self.tiles[row] // 2, :, self.tiles[row] % 2] = 1
        return mask.reshape(2 * self.side, 2 * self.side)

    def _nuisance_images(self, row: int) -> list[Image.Image]:
        """Return three readable images of the nuisance classes of the split."""
        candidates, pictures = self.fillers[row], list[Image.Image]()
        rng = random.Random(f"{self.seed}/others/{self.rows[row]}")
        if len(candidates) > 2:
            order = rng.sample(candidates, min(len(candidates), MAX_TRIES))
        else:
            order = rng.choices(candidates, k=MAX_TRIES)
        for i in order:
            try:
                pictures.append(self.dataset.image(i))
            except BadImage:
                continue
            if len(pictures) == 3:
                return pictures
        path = self.dataset.path(self.rows[row])
        raise BadImage(path, "fewer than three nuisance images for its collage can be read")


def _group_classes(dataset: Dataset) -> dict[str, list[str]]:
    """Group the classes that have images by superclass; without superclasses there is one group."""
    labels = dataset.labels
    codes, first = np.unique(labels[labels >= 0], return_index=True)
    names = [dataset.classes[code] for code in codes]
    if "superclass" not in dataset.table.attributes:
        return {"": names}
    superclasses, rows = dataset.attribute("superclass"), np.flatnonzero(labels >= 0)[first]
    groups: dict[str, list[str]] = {}
    for name, row in zip(names, rows, strict=True):
        groups.setdefault(superclasses[row] or "", []).append(name)
    return groups


def _split_classes(groups: Sequence[Sequence[str]], minimum: int) -> dict[str, list[str]]:
    """Split each group 2 : 1 : 2, with at least `minimum` classes in the first two splits."""
    splits: dict[str, list[str]] = {split: [] for split in SPLITS}
    for group in groups:
        train = max(round(len(group) * 2 / 5), minimum)
        val = max(round(len(group) / 5), minimum)
        splits["train"] += group[:train]
        splits["val"] += group[train : train + val]
        splits["test"] += group[train + val :]
    return splits
