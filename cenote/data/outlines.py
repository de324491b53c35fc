"""COCO's segmentations, polygons or run lengths, as pixels; many of them in a few arrays."""

from __future__ import annotations

from array import array
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]


def fill_polygon(corners: npt.NDArray[np.floating[Any]], height: int, width: int) -> Mask:
    """(N, 2) corners x, y, in pixels whose centres lie at .5: the pixels whose centres are inside (even-odd rule)."""
    (x1, y1), (x2, y2) = (
        corners.astype(np.float64).T,
        np.roll(corners, -1, axis=0).astype(np.float64).T,
    )
    # The rows whose centre line an edge crosses: its upper end counts, its lower does not, so corners count once.
    first, last = _centre(np.minimum(y1, y2), height), _centre(np.maximum(y1, y2), height)
    counts = last - first
    edge = np.repeat(np.arange(len(x1)), counts)
    row = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts) + first[edge]
    crossing = x1[edge] + (row + 0.5 - y1[edge]) * (x2 - x1)[edge] / (y2 - y1)[edge]
    column = _centre(crossing, width)
    inside = np.zeros((height, width), bool)
    if len(row):
        top, left, bottom, right = row.min(), column.min(), row.max() + 1, column.max() + 1
        flat = (row - top) * (right - left) + column - left
        crossings = np.bincount(flat, minlength=(bottom - top) * (right - left)).reshape(
            bottom - top, -1
        )
        window = inside[
            top:bottom, left:right
        ]  # narrower by one column where the outline leaves the image
        window[:] = (
            crossings.cumsum(axis=1)[:, : window.shape[1]] % 2
        )  # an odd number of edges to the left
    return inside


def _centre(place: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.int64]:
    """The first pixel whose centre is not before this place."""
    return np.clip(np.ceil(place - 0.5), 0, size).astype(np.int64)


def read_runs(counts: npt.NDArray[np.int64], height: int, width: int) -> Mask:
    """Lengths of runs of 0, 1, 0, ... down the columns."""
    if (counts < 0).any() or counts.sum() != height * width:
        raise ValueError(f"its runs cover {counts.sum()} pixels, the image has {height * width}")
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(width, height).T


def unpack_runs(text: str) -> list[int]:
    """The compressed form: five bits a character, from "0" on; the sixth bit says that more follow.

    From the fourth run on, the difference to the run before the last is stored, in two's complement.
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64:
            raise ValueError(f"{character!r} is not in the alphabet of compressed runs")
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            value -= (bits & 16) << (shift - 4) if bits & 16 else 0
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    if shift:
        raise ValueError("it ends in the middle of a run")
    return runs


class OutlinesBuilder:
    """Segmentations as they come, each with its row."""

    def __init__(self) -> None:
        self.rows, self.flags, self.ends, self.sizes = (
            array("q"),
            array("B"),
            array("q"),
            array("q"),
        )
        self.numbers = array("f")  # a hundredth of a pixel in 10,000 needs no more
        self.runs, self.run_ends = array("q"), array("q")

    def add(self, row: int, segmentation: Any, crowd: bool) -> None:
        """ValueError if it is neither a list of polygons nor run lengths."""
        if isinstance(segmentation, dict):
            height, width = (int(side) for side in segmentation["size"])
            counts = segmentation["counts"]
            self.runs.extend(
                unpack_runs(counts) if isinstance(counts, str) else [int(count) for count in counts]
            )
            self._end(row, 1 | crowd << 1, (height, width))
            return
        if not isinstance(segmentation, list):
            raise ValueError(f"it is neither polygons nor run lengths but {str(segmentation)[:40]}")
        for polygon in segmentation:
            if len(polygon) % 2 or not isfinite(sum(polygon)):  # the sum passes on NaN and infinity
                raise ValueError(f"a polygon is not made of pairs of numbers: {str(polygon)[:40]}")
            if len(polygon) >= 6:  # fewer corners enclose nothing
                self.numbers.extend(polygon)
                self._end(row, crowd << 1, (0, 0))

    def _end(self, row: int, flag: int, size: tuple[int, int]) -> None:
        self.rows.append(row)
        self.flags.append(flag)
        self.ends.append(len(self.numbers))
        self.run_ends.append(len(self.runs))
        self.sizes.extend(size)

    def build(self, rows: int) -> Outlines:
        ends = np.bincount(np.array(self.rows, np.int64), minlength=rows).cumsum()
        parts = {
            key: np.array(getattr(self, key))
            for key in ("flags", "ends", "numbers", "runs", "run_ends")
        }
        return Outlines(ends, sizes=np.array(self.sizes).reshape(-1, 2), **parts)


class Outlines:
    """Segmentations of many rows; `mask` draws those of one."""

    def __init__(self, rows: npt.NDArray[np.int64], **parts: npt.NDArray[Any]) -> None:
        self.rows, self.parts = rows, parts

    def mask(self, row: int, height: int, width: int) -> npt.NDArray[np.uint8] | None:
        """0 background, 1 object, 255 a crowd and no object; None without segmentations."""
        first, last = int(self.rows[row - 1]) if row else 0, int(self.rows[row])
        if first == last:
            return None
        union = np.zeros((height, width), np.uint8)
        for i in range(first, last):
            drawn, crowd = self._draw(i, height, width), bool(self.parts["flags"][i] & 2)
            union[drawn & (union != 1)] = 255 if crowd else 1
        return union

    def _draw(self, i: int, height: int, width: int) -> Mask:
        if self.parts["flags"][i] & 1:
            stored = tuple(int(side) for side in self.parts["sizes"][i])
            if stored != (height, width):
                raise ValueError(
                    f"its run lengths are of {stored[1]} x {stored[0]} pixels, the image {width} x {height}"
                )
            return read_runs(self._slice("runs", "run_ends", i), height, width)
        return fill_polygon(self._slice("numbers", "ends", i).reshape(-1, 2), height, width)

    def _slice(self, values: str, ends: str, i: int) -> npt.NDArray[Any]:
        return self.parts[values][
            int(self.parts[ends][i - 1]) if i else 0 : int(self.parts[ends][i])
        ]
