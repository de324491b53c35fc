"""Where pools look in collages (002 Figure 3b): the tile of the class framed, maps of all pools beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from ..data import Dataset
from .maps import draw_box, overlay
from .sheet import Entry, contact_sheet


def collage_sheet(
    dataset: Dataset,
    places: Sequence[int],
    maps: Mapping[str, Sequence[np.ndarray]],
    heading: str = "",
    side: int = 200,
) -> Image.Image:
    """Collages at `places`, and for each pool by name the maps (H, W) of those places, in their order.

    The note tells which share of each map lies on the tile of the class: a quarter is what looking anywhere gives.
    """
    for name, own in maps.items():
        if len(own) != len(places):
            raise ValueError(f"{len(places)} collages, but {len(own)} maps of {name}")
    entries = []
    for k, place in enumerate(places):
        record, photo = dataset[place], dataset.image(place)
        corners = _tile_of(dataset, place, photo.size)
        pictures = [draw_box(photo, corners)]
        pictures += [draw_box(overlay(photo, own[k]), corners) for own in maps.values()]
        shares = [
            f"{name} {100 * inside(own[k], corners, photo.size):.0f}%" for name, own in maps.items()
        ]
        entries.append(
            Entry(pictures, f"{record.label} · {record.split}", "on its tile: " + ", ".join(shares))
        )
    return contact_sheet(
        entries, heading or f"collage, then {', '.join(maps)}", columns=2, side=side
    )


def share_on_tile(dataset: Dataset, place: int, a: np.ndarray) -> float:
    """Of a map (H, W) of the collage at `place`, what lies on the tile of its class."""
    size = dataset.image(place).size
    return inside(a, _tile_of(dataset, place, size), size)


def _tile_of(dataset: Dataset, place: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
    boxes = dataset[place].boxes
    if not boxes:
        raise ValueError(
            f"{dataset.path(place)}: it has no box in the tile of its class: is it a collage?"
        )
    return tile((boxes[0].x1 + boxes[0].x2) / 2, (boxes[0].y1 + boxes[0].y2) / 2, size)


def tile(x: float, y: float, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The one of 2 x 2 tiles that holds a point: a box may be that of the tile, or of what is seen in it."""
    half = size[0] // 2, size[1] // 2
    left, top = (at if point >= at else 0 for point, at in zip((x, y), half, strict=True))
    return left, top, left + half[0], top + half[1]


def inside(a: np.ndarray, box: tuple[int, int, int, int], size: tuple[int, int]) -> float:
    """The share of a map (H, W) over a picture of `size` (width, height) that lies in a box of its pixels."""
    x0, y0, x1, y1 = box
    mass = (
        _covered(a.shape[0], y0 / size[1], y1 / size[1])
        @ a
        @ _covered(a.shape[1], x0 / size[0], x1 / size[0])
    )
    return float(mass / max(float(a.sum()), 1e-12))


def _covered(cells: int, low: float, high: float) -> np.ndarray:
    """How much of each of so many equal cells of [0, 1] lies between two points."""
    edges = np.clip(np.linspace(0, 1, cells + 1), low, high)
    return np.diff(edges) * cells
