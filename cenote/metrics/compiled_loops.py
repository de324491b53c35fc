"""Loops over pixels that numba compiles: contour boxes of all thresholds, and histograms of scores.

The foreground of threshold c is `levels > c`. Its contours are the outer borders of its 8-connected
components and the borders of their holes (4-connected background that does not reach the frame).
Going down in level, components only grow and join; going up, holes do. So two sweeps of union-find,
each touching every pixel once, meet all of them.

The largest contour by polygon area is the outer border of a component that is in no hole of
another. For it the holes are filled first: `filled(p)` is the lowest level at which p is connected
to the frame, and the components of `filled > c` are the filled ones. Their polygons (through pixel
centres) have half a unit of area for every 2 x 2 block with three pixels and one for every full
block: a sum, which grows pixel by pixel.

Import this module inside functions, where numba is available.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..compiled import compiled, inlined
from .arrays import Array
from .score_maps import bin_edges

# unsigned where it is an index: numba asks of every signed one whether it counts from the end
Index = Any
unsigned: Any = np.uint64
signed: Any = np.int64
byte: Any = np.uint8

ALL, HOLES, LARGEST = 0, 1, 2  # of which components a sweep takes the overlap


def joints(connectivity: int) -> Array:
    """For each set of neighbours, one of each connected group that touches the centre.

    Bit i of a set is a neighbour on the ring around the centre, clockwise from the upper left: odd
    ones are sides. Neighbours connected on the ring itself are in one component already: it is
    enough to join one of them. One hexadecimal digit each: i + 1.
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
                    if connectivity == 8 and i % 2:  # two sides that share a corner are diagonal
                        front += [(i + 2) % 8, (i - 2) % 8]
            touching = [i for i in group if connectivity == 8 or i % 2]
            if touching:
                table[present] |= (touching[0] + 1) << 4 * packed
                packed += 1
    return table


def area_gain(present: int) -> int:
    """Halves of area that a pixel adds: one for each of its four 2 x 2 blocks (a corner of the ring
    and the two sides next to it) that had two or three pixels already.
    """
    blocks = [[present >> i % 8 & 1 for i in (c - 1, c, c + 1)] for c in (0, 2, 4, 6)]
    return sum(sum(block) >= 2 for block in blocks)


JOINTS_OF_COMPONENTS, JOINTS_OF_HOLES = joints(8), joints(4)
GAINS = np.array([area_gain(present) for present in range(256)])


@compiled
def met_before(levels: Array, shift: int) -> tuple[Array, Array]:
    """For each pixel (numbered as by `sort_pixels`) the set of neighbours that a sweep down, or up,
    meets before it.

    Those of higher (lower) level, and of its own those before it in reading order. In the types
    that numba needs to compare many pixels at once.
    """
    height, width = levels.shape
    # No pixel of level 0 is foreground, nor is the frame.
    padded = np.zeros((height + 2, width + 2), np.uint8)
    padded[1:-1, 1:-1] = levels
    down = np.zeros((height + 2, 1 << shift), np.uint8)
    up = np.zeros((height + 2, 1 << shift), np.uint8)
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
    """Pixels (numbered (y + 1 << shift) + x + 1) in ascending level, and where levels start."""
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


@compiled
def fill_holes(levels: Array) -> Array:
    """For each pixel the lowest c at which `levels <= c` connects it (4 neighbours) to the frame"""
    height, width = levels.shape
    filled = np.empty((height, width), np.uint8)
    visited = np.zeros((height, width), np.bool_)
    # A list for each level: its last pixel, and from each pixel the one before.
    waiting = np.full(256, -1, np.int64)
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
    """Grow the root's box; the overlap of a box that grew is unknown (-1)."""
    if x0 < box[root, 0] or y0 < box[root, 1] or x1 > box[root, 2] or y1 > box[root, 3]:
        box[root, 0], box[root, 1] = min(box[root, 0], x0), min(box[root, 1], y0)
        box[root, 2], box[root, 3] = max(box[root, 2], x1), max(box[root, 3], y1)
        overlap[root] = -1.0


@compiled
def largest_iou(box: Array, rim: int, width: int, height: int, truth: Array) -> float:
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


def make_sweep(which: int) -> Any:
    """Compile one sweep for each kind: the compiler leaves out what it does not need."""
    holes, largest = which == HOLES, which == LARGEST
    table = JOINTS_OF_HOLES if holes else JOINTS_OF_COMPONENTS

    def sweep(
        order: Array,
        starts: Array,
        met: Array,
        shift: int,
        shape: tuple[int, int],
        truth: Array,
        best: Array,
    ) -> None:
        """Raise best[c] to the largest overlap of ALL components of `levels > c`, of the borders of
        its HOLES (going up), or of the LARGEST component of a map without holes.

        Of equally large ones OpenCV lists that first whose first pixel in reading order comes last.
        """
        height, width = shape
        row, size = 1 << shift, len(order) + 1
        steps = np.array([0, -row - 1, -row, -row + 1, 1, row + 1, row, row - 1, -1])
        # Of each pixel: a component that it is in, or that is part of its own.
        label = np.zeros(len(met), np.int32)
        parent, box = np.empty(size, np.int32), np.empty((size, 4), np.int32)
        overlap = np.empty(size, np.float64)
        room = size if largest else 0
        area, start = np.zeros(room, np.int64), np.empty(room, np.int64)
        alive, count, best_overlap, components = np.empty(size, np.int32), 0, 0.0, 0
        if holes:  # component 0 is the frame, the outside: what joins it is not a hole
            parent[0], components = 0, 1
            box[0, 0], box[0, 1], box[0, 2], box[0, 3] = -1, -1, width, height
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
                    parent[new], alive[count], label[p] = components, components, components
                    overlap[new] = -1.0
                    if largest:
                        start[new] = signed(p)
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
                        if largest:
                            area[root] += area[r]
                            start[root] = min(start[root], start[r])
                label[p] = root
                cover(box, overlap, root, x, y, x, y)
                if largest:
                    area[root] += GAINS[met[p]]
                    start[root] = min(start[root], signed(p))
            if first < end:
                alive_count, best_overlap, top = 0, 0.0, unsigned(alive[0])
                for k in range(count):
                    r = unsigned(alive[k])
                    if parent[r] != r:
                        continue
                    alive[alive_count] = r
                    alive_count += 1
                    if largest:
                        if (
                            alive_count == 1
                            or area[r] > area[top]
                            or (area[r] == area[top] and start[r] > start[top])
                        ):
                            top = r
                        continue
                    if (
                        overlap[r] < 0
                    ):  # a hole's border is in the foreground around it: a rim of one
                        overlap[r] = largest_iou(box[r], 1 if holes else 0, width, height, truth)
                    best_overlap = max(best_overlap, float(overlap[r]))
                count = alive_count
                if largest and count:
                    best_overlap = largest_iou(box[top], 0, width, height, truth)
            if count:
                best[c] = max(best[c], best_overlap)

    return compiled(sweep)


SWEEPS = {which: make_sweep(which) for which in (ALL, HOLES, LARGEST)}


BLOCK = 4096  # pixels at a time: what is noted of them stays in the nearest cache
FINE = 4096  # bins beyond which float32 cannot tell to a thousandth of a bin where a score falls


@lru_cache(16)
def edges_as(kind: Any, bin_width: float) -> tuple[Array, Any, Any]:
    """What `count_pixels` asks for, for scores of this type of floats.

    The edges that a bin begins with, for negatives, positives and ignored pixels, rounded up: every
    score falls where it did, and half as much is read. Then the bins in one unit, and a thousandth
    of one.
    """
    edges = bin_edges(bin_width)
    real = np.float32 if kind == np.float32 and len(edges) <= FINE else np.float64
    rounded = edges.astype(real)
    rounded = np.where(rounded < edges, np.nextafter(rounded, real(np.inf)), rounded)
    return np.tile(rounded[:-1], 3), real(1 / bin_width), real(0.001)


@compiled
def count_pixels(
    scores: Array, truth: Array, edges: Array, bins_per_unit: float, little: float, pixels: Array
) -> bool:
    """Add scores in [0, 1] to pixels[truth]; true if a mask value is none of 0, 1 and 255."""
    bins, wrong = len(edges) // 3, np.int32(0)
    below, where = np.int32(bins - 3), np.empty(BLOCK, np.int32)
    # Neighbouring pixels fall into the same bin: four histograms in turn, or each would wait for
    # the one before it.
    turns = np.zeros((4, 3 * bins), np.int32)
    a, b, c, d = turns[0], turns[1], turns[2], turns[3]
    for start in range(0, len(scores), BLOCK):
        values, mask = scores[start : start + BLOCK], truth[start : start + BLOCK]
        # Short loops of one kind of work each: the compiler makes vectors of them.
        for i in range(len(values)):
            # The product and the edges are rounded, by less than a thousandth of a bin: this is the
            # bin, or one less.
            near = np.int32(values[i] * bins_per_unit - little)
            where[i] = below if values[i] == 1 else near  # there may be an edge just below 1
        for i in range(len(values)):
            value = mask[i]
            wrong += np.int32((value != 0) & (value != 1) & (value != 255))
            histogram = np.int32(value == 1) + np.int32(2) * np.int32(value == 255)
            where[i] += np.int32(bins) * histogram
        for i in range(len(values)):
            k = unsigned(where[i])
            where[i] = np.int32(k) + np.int32(values[i] >= edges[k + unsigned(1)])
        fours = len(values) // 4 * 4
        for i in range(0, fours, 4):
            a[unsigned(where[i])] += 1
            b[unsigned(where[i + 1])] += 1
            c[unsigned(where[i + 2])] += 1
            d[unsigned(where[i + 3])] += 1
        for i in range(fours, len(values)):
            a[where[i]] += 1
    for kind in range(2):
        for k in range(bins):
            pixels[kind, k] += turns[:, kind * bins + k].sum()
    return bool(wrong > 0)
