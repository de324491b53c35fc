"""The box of the largest contour at every threshold (MaxBoxAcc, version 1), in one pass. Needs
numba.

The largest contour by polygon area is the outer border of a component that lies in no hole of
another. So holes are filled first: `filled(p)` is the lowest level at which p is connected to the
frame, and the components of `filled > c` are the filled ones. Their polygons
(through pixel centres) have half a unit of area for every 2 x 2 block with three pixels and one for
every full block: a sum, which grows pixel by pixel.
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from .sweep import COMPONENTS, Array, cover, judge, root_of, signed, unsigned

# Halves of area that a pixel adds: one for each of its four blocks that had two or three pixels
# already. A block is a corner of the ring and the two sides next to it.
GAINS = np.array(
    [
        sum(sum(s >> i % 8 & 1 for i in (c - 1, c, c + 1)) >= 2 for c in (0, 2, 4, 6))
        for s in range(256)
    ]
)


@compiled
def fill_holes(levels: Array) -> Array:
    """For each pixel the lowest c at which `levels <= c` connects it (4 neighbours) to the
    frame.
    """
    height, width = levels.shape
    filled = np.empty((height, width), np.uint8)
    visited = np.zeros((height, width), np.bool_)
    waiting = np.full(
        256, -1, np.int64
    )  # a list for each level: its last pixel, and from each the one before
    before = np.empty(height * width, np.int64)
    for y in range(height):
        for x in range(width):
            if y == 0 or x == 0 or y == height - 1 or x == width - 1:
                level, p = levels[y, x], y * width + x
                visited[y, x], filled[y, x] = True, level
                before[p] = waiting[level]
                waiting[level] = p
    for c in range(256):
        while waiting[c] >= 0:
            p = waiting[c]
            waiting[c] = before[p]
            y, x = p // width, p % width
            for dy, dx in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                v, u = y + dy, x + dx
                if 0 <= v < height and 0 <= u < width and not visited[v, u]:
                    level = max(levels[v, u], np.uint8(c))
                    visited[v, u], filled[v, u] = True, level
                    before[v * width + u] = waiting[level]
                    waiting[level] = v * width + u
    return filled


@compiled
def largest_sweep(
    order: Array,
    starts: Array,
    met: Array,
    shift: int,
    width: int,
    height: int,
    truth: Array,
    best: Array,
) -> None:
    """Set best[c] to the overlap of the largest component of `levels > c`, a map without holes.

    Of equally large ones OpenCV lists that first whose first pixel in reading order comes last.
    """
    row = 1 << shift
    label, size = np.zeros(len(met), np.int32), len(order)
    parent, box, overlap = (
        np.empty(size, np.int32),
        np.empty((size, 4), np.int32),
        np.empty(size, np.float64),
    )
    area, start = np.zeros(size, np.int64), np.empty(size, np.int64)
    alive, count, components = np.empty(size, np.int32), 0, 0
    steps = np.array([0, -row - 1, -row, -row + 1, 1, row + 1, row, row - 1, -1])
    for c in range(254, -1, -1):
        for k in range(starts[c + 1], starts[c + 2]):
            p = unsigned(order[k])
            x, y = signed(p & unsigned(row - 1)) - 1, signed(p >> unsigned(shift)) - 1
            root, joint = unsigned(components), COMPONENTS[met[p]]
            if joint == 0:
                parent[root], overlap[root], alive[count], start[root] = (
                    components,
                    -1.0,
                    components,
                    p,
                )
                box[root, 0], box[root, 1], box[root, 2], box[root, 3] = x, y, x, y
                count, components = count + 1, components + 1
            else:
                root = root_of(parent, label[unsigned(signed(p) + steps[joint & 15])])
                start[root] = min(start[root], signed(p))
                cover(box, overlap, root, x, y, x, y)
                joint >>= 4
            while joint:
                r = root_of(parent, label[unsigned(signed(p) + steps[joint & 15])])
                joint >>= 4
                if r != root:
                    parent[r] = root
                    area[root] += area[r]
                    start[root] = min(start[root], start[r])
                    cover(box, overlap, root, box[r, 0], box[r, 1], box[r, 2], box[r, 3])
            label[p] = root
            area[root] += GAINS[met[p]]
        alive_count = 0
        for k in range(count):
            r = unsigned(alive[k])
            if parent[r] == r:
                alive[alive_count] = r
                alive_count += 1
        count = alive_count
        if count:
            top = unsigned(alive[0])
            for k in range(1, count):
                r = unsigned(alive[k])
                if area[r] > area[top] or (area[r] == area[top] and start[r] > start[top]):
                    top = r
            best[c] = judge(box[top], 0, width, height, truth)
