"""Photographs and maps as data URIs."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

Rows = tuple[tuple[float, ...], ...]
DATA_URI = re.compile(r"data:image/(?:jpeg|png|webp);base64,[A-Za-z0-9+/]+={0,2}")
VEIL_COLOUR = (3, 20, 30)  # dark water
VERTICAL, HORIZONTAL = ("top", "middle", "bottom"), ("left", "centre", "right")


def picture_of(image: Image.Image, side: int = 320, quality: int = 82) -> str:
    """Return a JPEG data URI; the longer side has at most `side` pixels."""
    small = image.convert("RGB")
    if max(small.size) > side:
        scale = side / max(small.size)
        size = (max(1, round(small.width * scale)), max(1, round(small.height * scale)))
        small = small.resize(size, Image.Resampling.LANCZOS)
    return _data_uri(small, "jpeg", quality=quality, optimize=True, progressive=False)


@lru_cache(512)
def picture_size(uri: str) -> tuple[int, int]:
    """Return width and height of a data URI; anything else is refused: a page makes no requests."""
    if not DATA_URI.fullmatch(uri):
        raise ValueError(f"a picture of a report is a data URI (see picture_of), not '{uri[:40]}'")
    try:
        with Image.open(BytesIO(b64decode(uri.partition(",")[2]))) as image:
            return image.size
    except OSError as error:
        raise ValueError(f"a picture of a report is damaged: {error}") from error


def map_values(a: Any, side: int = 28) -> Rows:
    """Scale a map of any range to rows of 0 to 1, at most `side` cells wide and high.

    Negative values of a class activation map count against the class and become 0; a map without
    them starts at its minimum. A constant map gives no rows.
    """
    a = np.nan_to_num(np.asarray(a, np.float32), posinf=0, neginf=0)
    a = np.clip(a, 0, None) if a.min() < 0 < a.max() else a - a.min()
    # A single spike, as some transformers have, must not leave everything else dark.
    peak = max(float(np.quantile(a, 0.99)), float(a.max()) / 3)
    return shrink_map(np.clip(a / peak, 0, 1), side) if peak > 0 else ()


def shrink_map(a: Any, side: int = 28) -> Rows:
    """Average a map with values from 0 to 1 to at most `side` cells wide and high."""
    a = np.asarray(a, np.float32)
    rows, columns = (min(side, n) for n in a.shape)
    if (rows, columns) != a.shape:
        a = np.asarray(Image.fromarray(a).resize((columns, rows), Image.Resampling.BOX))
    return tuple(tuple(round(float(v), 3) for v in row) for row in a)


def veil_of(values: Sequence[Sequence[float]]) -> str:
    """Return a map as a dark PNG, one pixel for each cell, transparent where the map is 1.

    The browser scales it smoothly; the alpha channel alone carries the map, so that a filter of
    the page can threshold or colour it.
    """
    visible = np.clip(np.nan_to_num(np.asarray(values, np.float64)), 0, 1)
    pixels = np.empty((*visible.shape, 4), np.uint8)
    pixels[..., :3], pixels[..., 3] = VEIL_COLOUR, np.rint(255 * (1 - visible))
    return _data_uri(Image.fromarray(pixels), "png", optimize=True)


def brightest(values: Sequence[Sequence[float]]) -> str:
    """Describe where a map has its maximum, for the alternative text: "the top left"."""
    a = np.asarray(values)
    row, column = np.unravel_index(a.argmax(), a.shape)
    vertical = VERTICAL[(2 * row + 1) * 3 // (2 * a.shape[0])]
    horizontal = HORIZONTAL[(2 * column + 1) * 3 // (2 * a.shape[1])]
    return f"the {vertical} {horizontal}".replace("middle ", "")


def _data_uri(image: Image.Image, format: str, **options: object) -> str:
    buffer = BytesIO()
    image.save(buffer, format, **options)
    return f"data:image/{format};base64,{b64encode(buffer.getvalue()).decode()}"
