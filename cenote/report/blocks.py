"""A page of a report, its blocks and their pictures: plain values, written as JSON."""

from __future__ import annotations

import platform
from base64 import b64encode
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from PIL import Image
from pydantic import Field

from ..data.images import full_size
from ..version import __version__
from .sheet import fit
from .table import CellValue

RelativeBox = tuple[float, float, float, float]  # x0, y0, x1, y1 as shares of width and height
MapRows = tuple[tuple[float, ...], ...]  # from the top, 0 to 1
MAX_CELLS = 28  # of a map, in each direction


@dataclass(frozen=True)
class Text:
    title: str
    paragraphs: tuple[str, ...]
    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class TableColumn:
    name: str
    numeric: bool = False
    help: str = ""  # shown as a tooltip


@dataclass(frozen=True)
class Table:
    """A table that a reader can sort. `highlighted`: indices of the most important rows."""

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[CellValue, ...], ...]
    notes: tuple[str, ...] = ()
    highlighted: tuple[int, ...] = ()
    kind: Literal["table"] = "table"


@dataclass(frozen=True)
class Point:
    name: str
    x: float | None  # without x it is a horizontal line
    y: float
    deviation: float = 0.0  # of y, drawn to both sides
    group: str = ""
    best: bool = False


@dataclass(frozen=True)
class Scatter:
    title: str
    x_label: str
    y_label: str
    points: tuple[Point, ...]
    log_x: bool = True
    notes: tuple[str, ...] = ()
    max_y: float | None = None  # where the axis ends at the latest
    kind: Literal["scatter"] = "scatter"


@dataclass(frozen=True)
class MapTile:
    name: str
    values: MapRows  # empty without a map
    note: str = ""


@dataclass(frozen=True)
class PhotoWithMaps:
    picture: str  # a data URI, like all pictures of a page
    caption: str
    maps: tuple[MapTile, ...]


@dataclass(frozen=True)
class Maps:
    """Attention maps of several methods on the same photographs, one row for each photograph."""

    title: str
    photos: tuple[PhotoWithMaps, ...]
    notes: tuple[str, ...] = ()
    kind: Literal["maps"] = "maps"


@dataclass(frozen=True)
class PhotoWithBoxes:
    picture: str
    truth: tuple[RelativeBox, ...]
    predicted: tuple[RelativeBox, ...]
    caption: str
    iou: float | None = None  # 0 to 1


@dataclass(frozen=True)
class Boxes:
    title: str
    photos: tuple[PhotoWithBoxes, ...]
    notes: tuple[str, ...] = ()
    kind: Literal["boxes"] = "boxes"


@dataclass(frozen=True)
class Bar:
    name: str
    value: float
    group: str = ""


@dataclass(frozen=True)
class Bars:
    """Horizontal bars; `baseline` is a line through all of them."""

    title: str
    unit: str
    bars: tuple[Bar, ...]
    notes: tuple[str, ...] = ()
    baseline: Bar | None = None
    kind: Literal["bars"] = "bars"


@dataclass(frozen=True)
class SearchTile:
    picture: str  # empty if the file is missing
    caption: str
    correct: bool | None = None  # None without ground truth


@dataclass(frozen=True)
class SearchPanel:
    """A query by image, perhaps with words, and its results, best first."""

    query: SearchTile
    text: str
    results: tuple[SearchTile, ...]


@dataclass(frozen=True)
class Panels:
    title: str
    rows: tuple[SearchPanel, ...]
    notes: tuple[str, ...] = ()
    kind: Literal["panels"] = "panels"


@dataclass(frozen=True)
class Picture:
    title: str
    picture: str
    alt: str
    kind: Literal["picture"] = "picture"


Block = Annotated[
    Text | Table | Scatter | Maps | Boxes | Bars | Panels | Picture, Field(discriminator="kind")
]


def made_with() -> dict[str, str]:
    """Return the versions and the machine behind a number."""
    import timm
    import torch

    return {
        "cenote": __version__,
        "torch": torch.__version__,
        "timm": timm.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
    }


@dataclass(frozen=True)
class Page:
    title: str
    lead: str  # one sentence below the title
    blocks: tuple[Block, ...]
    command: str = ""  # reproduces the page
    seconds: float | None = None
    made_with: dict[str, str] = field(default_factory=made_with)


def picture_of(image: Image.Image, side: int = 320) -> str:
    """Return a JPEG data URI; the longer side has at most `side` pixels."""
    small = image.convert("RGB")
    if max(small.size) > side:
        small = fit(small, side)
    return data_uri(small, "jpeg", quality=82, optimize=True, progressive=False)


def data_uri(image: Image.Image, format: str, **options: object) -> str:
    buffer = BytesIO()
    image.save(buffer, format, **options)
    return f"data:image/{format};base64,{b64encode(buffer.getvalue()).decode()}"


def picture_blocks(path: Path, title: str, alt: str) -> list[Block]:
    """Return a block with a picture that is written already, nothing if it is not there."""
    try:
        with Image.open(path) as sheet:
            return [Picture(title, picture_of(sheet, 1200), alt)]
    except OSError:
        return []


def boxed_photo(
    photo: Image.Image, boxes: Any, caption: str, truth: Any = (), iou: float | None = None
) -> PhotoWithBoxes:
    """Return a photograph for the page; boxes are in pixels of its file."""
    width, height = full_size(photo)

    def relative(pixel_boxes: Any) -> tuple[Any, ...]:
        shares = np.asarray(pixel_boxes, np.float64).reshape(-1, 4) / [width, height, width, height]
        return tuple(tuple(box) for box in shares.round(4).tolist())

    return PhotoWithBoxes(picture_of(photo), relative(truth), relative(boxes), caption, iou)


def map_values(a: Any) -> MapRows:
    """Scale a map of any range to rows of 0 to 1; a constant map gives no rows."""
    a = np.nan_to_num(np.asarray(a, np.float32), posinf=0, neginf=0)
    if a.min() == a.max():
        return ()
    a = positive(a)
    # A single spike, as some transformers have, must not leave everything else dark.
    peak = max(float(np.quantile(a, 0.99)), float(a.max()) / 3)
    return shrink_map(np.clip(a / peak, 0, 1))


def positive(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Clip a CAM at 0, since negative values are against the class; else subtract the minimum."""
    low = 0 if a.min() < 0 < a.max() else a.min()
    return np.asarray(np.clip(a - low, 0, None))


def shrink_map(a: Any) -> MapRows:
    """Average a map with values from 0 to 1 to at most 28 cells wide and high."""
    a = np.asarray(a, np.float32)
    rows, columns = (min(MAX_CELLS, n) for n in a.shape)
    if (rows, columns) != a.shape:
        a = np.asarray(Image.fromarray(a).resize((columns, rows), Image.Resampling.BOX))
    return tuple(tuple(round(float(v), 3) for v in row) for row in a)
