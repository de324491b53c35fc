"""Where every contender looks in the same photographs: one column each, the best first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ..data import BadImage, Dataset
from .maps import overlay
from .sheet import FADED, GAP, INK, MARGIN, PAPER, fitted, font

SIDE, COLUMNS = 132, 12
HEAD, TITLE = 40, 40
KINDS = {"pool": "own map", "cam": "CAM", "cls": "CLS attention"}
Seen = tuple[str, np.ndarray[Any, Any]]  # the kind of map, and (n, H, W)


def picture_page(
    report: Mapping[str, Any], photos: Dataset, maps: Mapping[str, Seen]
) -> Image.Image | None:
    """Bands of at most twelve contenders, each band beginning with the photographs; None where nothing can be shown."""
    rows = [row for row in report["standings"] if row["mean"] is not None]
    shown = [(i, picture) for i in range(len(photos)) if (picture := _open(photos, i)) is not None]
    if not rows or not shown or not any(row["name"] in maps for row in rows):
        return None
    bands = [rows[i : i + COLUMNS] for i in range(0, len(rows), COLUMNS)]
    step = SIDE + GAP
    width = 2 * MARGIN + step * (1 + max(len(band) for band in bands)) - GAP
    height = HEAD + step * len(shown)
    page = Image.new("RGB", (width, MARGIN + TITLE + len(bands) * (height + MARGIN)), PAPER)
    draw = ImageDraw.Draw(page)
    title = f"{report['data']} · {report['backbone']}, frozen · where each looks for the true class, the best first"
    draw.text((MARGIN, MARGIN - 6), fitted(title, width - 2 * MARGIN, 18, draw), INK, font(18))
    for number, band in enumerate(bands):
        top = MARGIN + TITLE + number * (height + MARGIN)
        for line, (_, picture) in enumerate(shown):
            page.paste(picture, (MARGIN, top + HEAD + line * step))
        for column, row in enumerate(band, 1):
            left = MARGIN + column * step
            kind, found = maps.get(row["name"], ("", None))
            note = f"{row['mean']:.1f}% · {KINDS.get(kind, 'no map')}"
            draw.text((left, top), fitted(row["name"], SIDE, 14, draw), INK, font(14))
            draw.text((left, top + 19), fitted(note, SIDE, 12, draw), FADED, font(12))
            for line, (position, picture) in enumerate(shown):
                tile = _blank() if found is None else overlay(picture, _positive(found[position]))
                page.paste(tile, (left, top + HEAD + line * step))
    return page


def _open(photos: Dataset, i: int) -> Image.Image | None:
    """As the backbone saw it: all of it, squeezed to a square."""
    try:
        return photos.image(i).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    except BadImage:
        return None


def _positive(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A class activation map has a zero, below which it speaks against the class; without one, its lowest is dark."""
    a = np.nan_to_num(a)
    kept: np.ndarray[Any, Any] = np.clip(a, 0, None) if a.min() < 0 < a.max() else a - a.min()
    return kept


def _blank() -> Image.Image:
    tile = Image.new("RGB", (SIDE, SIDE), (238, 236, 231))
    ImageDraw.Draw(tile).text((SIDE / 2, SIDE / 2), "no map", FADED, font(12), anchor="mm")
    return tile
