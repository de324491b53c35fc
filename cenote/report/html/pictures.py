"""Photographs and maps as data URIs."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

WATER = (3, 20, 30)  # where nothing is looked at, it is dark


def picture_of(image: Image.Image, side: int = 320, quality: int = 82) -> str:
    """A JPEG whose longer side is at most `side` pixels."""
    small = image.convert("RGB")
    if max(small.size) > side:
        scale = side / max(small.size)
        size = (max(1, round(small.width * scale)), max(1, round(small.height * scale)))
        small = small.resize(size, Image.Resampling.LANCZOS)
    return _uri(small, "jpeg", quality=quality, optimize=True, progressive=False)


def map_values(a: Any, side: int = 28) -> tuple[tuple[float, ...], ...]:
    """A map of any scale as rows of 0 to 1, at most `side` cells wide and high; empty where it says nothing.

    Below the zero of a class activation map it speaks against the class; without one, its lowest is dark.
    """
    a = np.nan_to_num(np.asarray(a, np.float32), posinf=0, neginf=0)
    a = np.clip(a, 0, None) if a.min() < 0 < a.max() else a - a.min()
    # One spike, as some transformers have, would leave the rest in the dark.
    peak = max(float(np.quantile(a, 0.99)), float(a.max()) / 3)
    return rows_of(np.clip(a / peak, 0, 1), side) if peak > 0 else ()


def rows_of(a: Any, side: int = 28) -> tuple[tuple[float, ...], ...]:
    """Values that are 0 to 1 already, of cells that are areas: the mean of those that fall together."""
    a = np.asarray(a, np.float32)
    rows, columns = (min(side, n) for n in a.shape)
    if (rows, columns) != a.shape:
        a = np.asarray(Image.fromarray(a).resize((columns, rows), Image.Resampling.BOX))
    return tuple(tuple(round(float(v), 3) for v in row) for row in a)


def veil_of(values: Sequence[Sequence[float]]) -> str:
    """A map (rows of 0 to 1) as dark water over a photograph, a pixel for a cell: clear where the map is 1.

    The browser scales it smoothly, and what it holds is in its alpha alone, which a filter of the page can threshold
    or colour.
    """
    alpha = np.rint(
        255 * (1 - np.clip(np.nan_to_num(np.asarray(values, np.float64)), 0, 1))
    ).astype(np.uint8)
    pixels = np.empty((*alpha.shape, 4), np.uint8)
    pixels[..., :3], pixels[..., 3] = WATER, alpha
    return _uri(Image.fromarray(pixels), "png", optimize=True)


def _uri(image: Image.Image, kind: str, **options: object) -> str:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind};base64,{b64encode(buffer.getvalue()).decode()}"
