"""Polygons to pixels in whole numbers.

A library's rasteriser works in floating point and moves single pixels from version to version and from compiler to
compiler. Here a pixel is inside if its centre is, by integer division, everywhere the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FINE = 16  # corners lie on a grid of this many steps a pixel

Ints = npt.NDArray[np.int64]


def spans(
    x: Ints, y: Ints, ends: Sequence[int], width: int, height: int
) -> tuple[list[int], list[int], list[int]]:
    """Runs of covered pixels, polygon after polygon: where each starts and stops in the flat image, and whose it is.

    Corners come in steps of 1/16 pixel; polygon k has those before `ends[k]`. Where it crosses itself, even-odd holds.
    """
    lasts = np.asarray(ends, np.int64) - 1
    firsts = np.concatenate([[0], lasts[:-1] + 1])
    following = np.arange(1, len(x) + 1)
    following[lasts] = firsts
    owner = np.repeat(np.arange(len(lasts)), lasts - firsts + 1)
    # Every edge downwards.
    x1, y1 = x[following], y[following]
    down = y < y1
    x0, y0, x1, y1 = (
        np.where(down, x, x1),
        np.where(down, y, y1),
        np.where(down, x1, x),
        np.where(down, y1, y),
    )
    # An edge crosses the rows whose centre line, 16 r + 8, lies in y0 <= line < y1.
    top, bottom = (_within((edge + FINE // 2 - 1) // FINE, height) for edge in (y0, y1))
    rows = bottom - top
    edge = np.repeat(np.arange(len(rows)), rows)
    row = np.arange(len(edge)) - (np.cumsum(rows) - rows - top)[edge]
    dy = (y1 - y0)[edge]
    # The first pixel whose centre is not left of the crossing: ceil((crossing - 8) / 16).
    crossing = dy * (x0[edge] - FINE // 2) + (FINE * row + FINE // 2 - y0[edge]) * (x1 - x0)[edge]
    column = _within(-(-crossing // (FINE * dy)), width)
    keys = (owner[edge] * height + row) * (width + 1) + column
    keys.sort()
    line, start = np.divmod(keys[::2], width + 1)
    stop = keys[1::2] - line * (width + 1)
    seen = np.flatnonzero(stop > start)
    line, start, stop = line[seen], start[seen], stop[seen]
    owner, row = np.divmod(line, height)
    return (row * width + start).tolist(), (row * width + stop).tolist(), owner.tolist()


def _within(values: Ints, most: int) -> Ints:
    return np.minimum(np.maximum(values, 0), most)  # np.clip costs more than the rest of a line
