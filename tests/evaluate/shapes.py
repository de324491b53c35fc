"""Images of one bright rectangle each, whose class, box and mask are known, and what is wrong with some of them."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cenote.data import BadImage, Box, Dataset, Record, pack
from cenote.models import PooledModel, create_model


class Rectangles:
    """Image i is i % 3 in colour, 48 + i pixels wide and 40 high."""

    def __init__(self, bad: tuple[int, ...] = (), wrong_mask: tuple[int, ...] = ()) -> None:
        self.bad, self.wrong_mask = bad, wrong_mask

    def image(self, row: int) -> Image.Image:
        if row in self.bad:
            raise BadImage(f"rectangles/{row}.png", "damaged")
        pixels = np.random.default_rng(row).integers(0, 90, (40, 48 + row, 3), np.uint8)
        x0, y0, x1, y1 = corners(row)
        pixels[y0:y1, x0:x1, row % 3] = 255
        return Image.fromarray(pixels)

    def mask(self, row: int) -> Any:
        x0, y0, x1, y1 = corners(row)
        mask = np.zeros((40, 48 + row + (row in self.wrong_mask)), np.uint8)
        mask[y0:y1, x0:x1] = 1
        mask[:2] = 255
        return mask


class NoMasks(Rectangles):
    def mask(self, row: int) -> Any:
        return None


def corners(row: int) -> tuple[int, int, int, int]:
    draw = np.random.default_rng(100 + row)
    x0, y0 = (int(v) for v in draw.integers(0, 20, 2))
    return x0, y0, x0 + int(draw.integers(8, 24)), y0 + int(draw.integers(8, 20))


def rectangles(
    images: int = 15,
    boxes: dict[int, tuple[Box, ...]] | None = None,
    labels: str = "abc",
    pixels: Any = None,
) -> Dataset:
    own = {i: (Box(*corners(i)),) for i in range(images)} | (boxes or {})
    records = [Record(f"{i}.png", labels[i % 3], boxes=own[i]) for i in range(images)]
    dataset = pack(records, Path("rectangles"), "rectangles", classes=sorted(set(labels)))
    dataset.pixels = pixels or Rectangles()
    return dataset


def small_model(pool: str = "gap", classes: int = 3) -> PooledModel:
    """Random weights, 64 pixels, a map of 2 x 2 made finer: stride 4."""
    import dataclasses

    import torch

    torch.manual_seed(0)
    model = create_model("resnet10t", pool, classes, stride=4).eval()
    model.class_names = ["a", "b", "c"][:classes]
    model.backbone.preprocessing = dataclasses.replace(model.backbone.preprocessing, size=64)
    return model
