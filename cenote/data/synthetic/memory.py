"""A world in memory, as a data set like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..dataset import Dataset
from ..packing import pack
from ..record import Record
from .drawing import Picture, World
from .settings import Settings
from .workers import over


class Drawings:
    """All images (N, H, W, 3) and masks (N, H, W) of a world; the masks number the objects from 1."""

    def __init__(self, images: npt.NDArray[np.uint8], masks: npt.NDArray[np.uint8]) -> None:
        self.images, self.masks = images, masks

    def image(self, row: int) -> Image.Image:
        return Image.fromarray(self.images[row])

    def mask(self, row: int) -> npt.NDArray[np.uint8]:
        return np.asarray(self.masks[row] > 0, np.uint8)


def world(
    what: str | World | Settings, jobs: int | None = None, progress: bool = True, **changes: Any
) -> Dataset:
    """`world("world/small")`, `world("tiny", seed=1)` or `world(World(...))`, drawn into memory."""
    if isinstance(what, str):
        plan, name = World.preset(what, **changes), f"world/{what.removeprefix('world/')}"
    elif changes:
        raise ValueError(
            f"only a preset takes other settings ({', '.join(changes)}): a World has its own"
        )
    else:
        plan, name = what if isinstance(what, World) else World.of(what), "world"
    size = plan.settings.size
    images = np.empty((len(plan), size, size, 3), np.uint8)
    masks = np.empty((len(plan), size, size), np.uint8)
    records = []
    for i, (pixels, mask, record) in enumerate(over(_draw, plan, jobs=jobs, progress=progress)):
        images[i], masks[i] = pixels, mask
        records.append(record)
    dataset = pack(records, Path(), name)
    dataset.pixels = Drawings(images, masks)
    return dataset


def _draw(plan: World, i: int) -> tuple[Picture, Picture, Record]:
    drawn = plan.draw(i)
    return drawn.pixels, drawn.mask, drawn.record
