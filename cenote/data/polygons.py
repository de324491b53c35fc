"""COCO's segmentations, polygons or run lengths, drawn as masks; many of them in a few arrays."""

from __future__ import annotations

from array import array
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
RUNS, CROWD = 1, 2  # flags of a segmentation


def fill_polygon(corners: npt.NDArray[np.floating[Any]], height: int, width: int) -> Mask:
    """Fill the pixels whose centre, at .5, is inside of the (N, 2) corners x, y (even-odd rule)."""
    (x1, y1), (x2, y2) = corners.astype(float).T, np.roll(corners, -1, axis=0).astype(float).T
    # The rows whose centre line an edge crosses: its upper end is included, its lower end is not,
    # so that corners count once.
    first_row = _first_centre(np.minimum(y1, y2), height)
    counts = _first_centre(np.maximum(y1, y2), height) - first_row
    edge = np.repeat(np.arange(len(x1)), counts)
    row = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts) + first_row[edge]
    crossing = x1[edge] + (row + 0.5 - y1[edge]) * (x2 - x1)[edge] / (y2 - y1)[edge]
    column = _first_centre(crossing, width)
    inside = np.zeros((height, width), bool)
    if len(row):
        top, left, bottom, right = row.min(), column.min(), row.max() + 1, column.max() + 1
        shape = (bottom - top, right - left)
        flat = (row - top) * shape[1] + column - left
        crossings = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)
        # The window is one column narrower where the polygon leaves the image.
        window = inside[top:bottom, left:right]
        # Inside: an odd number of edges to the left.
        window[:] = crossings.cumsum(axis=1)[:, : window.shape[1]] % 2
    return inside


def _first_centre(position: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.int64]:
    """Return the first pixel whose centre is not before this position."""
    return np.clip(np.ceil(position - 0.5), 0, size).astype(np.int64)


def read_runs(counts: npt.NDArray[np.int64], height: int, width: int) -> Mask:
    """Decode lengths of runs of 0, 1, 0, ... down the columns."""
    if (counts < 0).any() or counts.sum() != height * width:
        raise ValueError(f"its runs cover {counts.sum()} pixels, the image has {height * width}")
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(width, height).T


def unpack_runs(text: str) -> list[int]:
    """Decompress run lengths: five bits per character, from "0" on; the sixth bit means "more".

    From the fourth run on, the difference to the run two before is stored, in two's complement.
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64:
            raise ValueError(f"{character!r} is not a character of compressed run lengths")
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            if bits & 16:
                value -= 1 << shift
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    if shift:
        raise ValueError("it ends in the middle of a run")
    return runs


class SegmentationsBuilder:
    """Collects segmentations, each with its row."""

    def __init__(self) -> None:
        self.rows, self.flags, self.sizes = array("q"), array("B"), array("q")
        self.numbers, self.ends = array("f"), array("q")  # polygons; float32 is precise enough
        self.runs, self.run_ends = array("q"), array("q")

    def add(self, row: int, segmentation: Any, crowd: bool) -> None:
        """Add a list of polygons or run lengths; anything else is a ValueError."""
        flag = CROWD if crowd else 0
        if isinstance(segmentation, dict):
            height, width = (int(side) for side in segmentation["size"])
            counts = segmentation["counts"]
            self.runs.extend(unpack_runs(counts) if isinstance(counts, str) else map(int, counts))
            self._end(row, flag | RUNS, (height, width))
            return
        if not isinstance(segmentation, list):
            raise ValueError(f"neither polygons nor run lengths but {str(segmentation)[:40]}")
        for polygon in segmentation:
            if len(polygon) % 2 or not isfinite(sum(polygon)):  # NaN and infinity show in the sum
                raise ValueError(f"a polygon needs pairs of numbers, got {str(polygon)[:40]}")
            if len(polygon) >= 6:  # fewer corners enclose nothing
                self.numbers.extend(polygon)
                self._end(row, flag, (0, 0))

    def _end(self, row: int, flag: int, size: tuple[int, int]) -> None:
        self.rows.append(row)
        self.flags.append(flag)
        self.ends.append(len(self.numbers))
        self.run_ends.append(len(self.runs))
        self.sizes.extend(size)

    def build(self, rows: int) -> Segmentations:
        return Segmentations(
            rows=np.bincount(np.array(self.rows, np.int64), minlength=rows).cumsum(),
            flags=np.array(self.flags),
            sizes=np.array(self.sizes).reshape(-1, 2),
            numbers=np.array(self.numbers),
            ends=np.array(self.ends),
            runs=np.array(self.runs),
            run_ends=np.array(self.run_ends),
        )


class Segmentations(NamedTuple):
    """Segmentations of many rows; row r has those from rows[r - 1] to rows[r]."""

    rows: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]
    sizes: npt.NDArray[np.int64]  # (N, 2) height and width, for run lengths
    numbers: npt.NDArray[np.float32]
    ends: npt.NDArray[np.int64]
    runs: npt.NDArray[np.int64]
    run_ends: npt.NDArray[np.int64]

    def mask(self, row: int, height: int, width: int) -> npt.NDArray[np.uint8] | None:
        """Draw a row: 0 background, 1 object, 255 crowd without object; None if it has none."""
        start, stop = _bounds(self.rows, row)
        if start == stop:
            return None
        union = np.zeros((height, width), np.uint8)
        for i in range(start, stop):
            value = 255 if self.flags[i] & CROWD else 1
            union[self._draw(i, height, width) & (union != 1)] = value
        return union

    def _draw(self, i: int, height: int, width: int) -> Mask:
        if not self.flags[i] & RUNS:
            corners = self.numbers[slice(*_bounds(self.ends, i))].reshape(-1, 2)
            return fill_polygon(corners, height, width)
        stored_height, stored_width = self.sizes[i].tolist()
        if (stored_height, stored_width) != (height, width):
            stored = f"{stored_width} x {stored_height}"
            raise ValueError(f"its run lengths are for {stored} pixels, not {width} x {height}")
        return read_runs(self.runs[slice(*_bounds(self.run_ends, i))], height, width)


def _bounds(ends: npt.NDArray[np.int64], i: int) -> tuple[int, int]:
    return int(ends[i - 1]) if i else 0, int(ends[i])
