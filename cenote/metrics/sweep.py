"""Every contour box of every threshold in one pass over a map: component trees by union-find.

The foreground of threshold c is `levels > c`. Its contours are the outer borders of its 8-connected
components and the borders of their holes (4-connected background that does not reach the frame).
Going down in level, components only grow and join; going up, holes do. So two sweeps, each touching
every pixel once, meet all of them.

Needs numba: imported only where it is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import compiled, inlined

Array = np.ndarray[Any, Any]
# unsigned where it is an index: numba asks of every signed one whether it counts from the end
Index = Any
unsigned: Any = np.uint64
signed: Any = np.int64
byte: Any = np.uint8

RING = (
    (-1, -1),
    (-1, 0),
    (-1, 1),
    (0, 1),
    (1, 1),
    (1, 0),
    (1, -1),
    (0, -1),
)  # (dy, dx), clockwise; odd ones are sides


def joints(connectivity: int) -> Array:
    """For each set of neighbours (bit i: RING[i]), one of each connected group that touches the
    centre.

    Neighbours connected on the ring itself are in one component already: it is enough to join one
    of them. One hexadecimal digit each: i + 1.
    """
    table = np.zeros(256, np.int64)
    for present in range(256):
        neighbours, packed = [i for i in range(8) if present >> i & 1], 0
        while neighbours:
            front, group = [neighbours[0]], []
            while front:
                i = front.pop()
                if i in neighbours:
                    neighbours.remove(i)
                    group.append(i)
                    front += [(i + 1) % 8, (i - 1) % 8]
                    if (
                        connectivity == 8 and i % 2
                    ):  # two sides that share a corner are diagonal neighbours
                        front += [(i + 2) % 8, (i - 2) % 8]
            touching = [i for i in group if connectivity == 8 or i % 2]
            if touching:
                table[present] |= (touching[0] + 1) << 4 * packed
                packed += 1
    return table


COMPONENTS, HOLES = joints(8), joints(4)


@compiled
def met_before(levels: Array, shift: int) -> tuple[Array, Array]:
    """For each pixel (numbered as by `sort_pixels`) the set of neighbours that a sweep down, or up,
    meets before it.

    Those of higher (lower) level, and of its own those before it in reading order. In the types
    that numba needs to compare many pixels at once.
    """
    height, width = levels.shape
    padded = np.zeros(
        (height + 2, width + 2), np.uint8
    )  # no pixel of level 0 is foreground, nor is the frame
    padded[1:-1, 1:-1] = levels
    down, up = (
        np.zeros((height + 2, 1 << shift), np.uint8),
        np.zeros((height + 2, 1 << shift), np.uint8),
    )
    for y in range(height):
        a, b, c, d, u = padded[y], padded[y + 1], padded[y + 2], down[y + 1], up[y + 1]
        for x in range(width):
            v = b[x + 1]
            d[x + 1] = (
                byte(a[x] >= v)
                | byte(a[x + 1] >= v) << byte(1)
                | byte(a[x + 2] >= v) << byte(2)
                | byte(b[x + 2] > v) << byte(3)
                | byte(c[x + 2] > v) << byte(4)
                | byte(c[x + 1] > v) << byte(5)
                | byte(c[x] > v) << byte(6)
                | byte(b[x] >= v) << byte(7)
            )
            u[x + 1] = (
                byte(a[x] <= v)
                | byte(a[x + 1] <= v) << byte(1)
                | byte(a[x + 2] <= v) << byte(2)
                | byte(b[x + 2] < v) << byte(3)
                | byte(c[x + 2] < v) << byte(4)
                | byte(c[x + 1] < v) << byte(5)
                | byte(c[x] < v) << byte(6)
                | byte(b[x] <= v) << byte(7)
            )
        u[1] |= byte(0b11000001)  # going up the frame comes first, before the pixels of level 0 too
        u[width] |= byte(0b00011100)
    up[height, 1 : width + 1] |= byte(0b01110000)
    return down.ravel(), up.ravel()


@compiled
def sort_pixels(levels: Array, shift: int) -> tuple[Array, Array]:
    """Pixels in ascending level, and where each level starts. Pixel (y, x) is number (y + 1 <<
    shift) + x + 1.
    """
    height, width = levels.shape
    starts = np.zeros(257, np.int64)
    for y in range(height):
        for x in range(width):
            starts[levels[y, x] + 1] += 1
    for c in range(256):
        starts[c + 1] += starts[c]
    order, free = np.empty(height * width, np.int32), starts.copy()
    for y in range(height):
        for x in range(width):
            level = levels[y, x]
            order[free[level]] = ((y + 1) << shift) + x + 1
            free[level] += 1
    return order, starts


@inlined
def root_of(parent: Array, component: Index) -> Index:
    i = unsigned(component)
    r = unsigned(parent[i])
    above = unsigned(parent[r])
    while above != r:  # shorten the path on the way
        parent[i] = above
        i, r = r, above
        above = unsigned(parent[r])
    return r


@inlined
def cover(box: Array, overlap: Array, root: Index, x0: int, y0: int, x1: int, y1: int) -> None:
    """Grow the root's box; a box that grew has to be judged again (overlap -1)."""
    if x0 < box[root, 0] or y0 < box[root, 1] or x1 > box[root, 2] or y1 > box[root, 3]:
        box[root, 0], box[root, 1] = min(box[root, 0], x0), min(box[root, 1], y0)
        box[root, 2], box[root, 3] = max(box[root, 2], x1), max(box[root, 3], y1)
        overlap[root] = -1.0


@compiled
def judge(box: Array, rim: int, width: int, height: int, truth: Array) -> float:
    """The largest IoU (+1 convention) of a contour's box with a true one."""
    x0, y0 = box[0] - rim, box[1] - rim
    x1, y1 = min(box[2] + rim + 1, width - 1), min(box[3] + rim + 1, height - 1)
    best = 0.0
    for i in range(len(truth)):
        w = min(x1, truth[i, 2]) - max(x0, truth[i, 0]) + 1
        h = min(y1, truth[i, 3]) - max(y0, truth[i, 1]) + 1
        if w > 0 and h > 0:
            area = (truth[i, 2] - truth[i, 0] + 1) * (truth[i, 3] - truth[i, 1] + 1)
            best = max(best, w * h / ((x1 - x0 + 1) * (y1 - y0 + 1) + area - w * h))
    return best


@compiled
def sweep(order: Array, starts: Array, met: Array, shift: int, width: int, height: int, holes: bool, truth: Array,
          best: Array) -> None:  # fmt: skip
    """Raise best[c] to the largest overlap of a component of `levels > c` or, going up, of the
    border of a hole.
    """
    row = 1 << shift
    label = np.zeros(
        len(met), np.int32
    )  # of pixels: a component that they are in, or that is part of theirs
    size = len(order) + 1
    parent, box, overlap = (
        np.empty(size, np.int32),
        np.empty((size, 4), np.int32),
        np.empty(size, np.float64),
    )
    alive, count, best_overlap, components = np.empty(size, np.int32), 0, 0.0, 0
    if holes:  # component 0 is the frame, the outside: what joins it is no hole
        parent[0], components = 0, 1
        box[0, 0], box[0, 1], box[0, 2], box[0, 3] = -1, -1, width, height
    table = HOLES if holes else COMPONENTS
    steps = np.array([0, -row - 1, -row, -row + 1, 1, row + 1, row, row - 1, -1])
    for turn in range(255):
        c = turn if holes else 254 - turn
        first, end = (starts[c], starts[c + 1]) if holes else (starts[c + 1], starts[c + 2])
        if holes and end == len(order):
            return  # no foreground is left
        for k in range(first, end):
            p = unsigned(order[k])
            x, y = signed(p & unsigned(row - 1)) - 1, signed(p >> unsigned(shift)) - 1
            joint = table[met[p]]
            if joint == 0:
                new = unsigned(components)
                parent[new], overlap[new], alive[count], label[p] = (
                    components,
                    -1.0,
                    components,
                    components,
                )
                box[new, 0], box[new, 1], box[new, 2], box[new, 3] = x, y, x, y
                count, components = count + 1, components + 1
                continue
            root = root_of(parent, label[unsigned(signed(p) + steps[joint & 15])])
            joint >>= 4
            while joint:
                r = root_of(parent, label[unsigned(signed(p) + steps[joint & 15])])
                joint >>= 4
                if r != root:
                    if holes and r == 0:  # the outside stays the outside
                        r, root = root, r
                    parent[r] = root
                    cover(box, overlap, root, box[r, 0], box[r, 1], box[r, 2], box[r, 3])
            label[p] = root
            cover(box, overlap, root, x, y, x, y)
        if first < end:
            alive_count, best_overlap = 0, 0.0
            for k in range(count):
                r = unsigned(alive[k])
                if parent[r] == r:
                    if (
                        overlap[r] < 0
                    ):  # a hole's border runs through the foreground around it: a rim of one pixel
                        overlap[r] = judge(box[r], 1 if holes else 0, width, height, truth)
                    best_overlap = max(best_overlap, float(overlap[r]))
                    alive[alive_count] = r
                    alive_count += 1
            count = alive_count
        if count:
            best[c] = max(best[c], best_overlap)
