"""Slow and obvious contours of a thresholded map, for the tests of the sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

Mask = np.ndarray
Box = tuple[int, int, int, int]  # x0, y0, x0 + w, y0 + h
CLOCKWISE = [(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)]  # (dy, dx)
SIDES = [(0, 1), (1, 0), (0, -1), (-1, 0)]


def floods(mask: Mask, steps: list[tuple[int, int]]) -> list[set[tuple[int, int]]]:
    """Connected sets of pixels, by first pixel in reading order."""
    left, found = {(int(y), int(x)) for y, x in zip(*mask.nonzero(), strict=True)}, []
    for start in sorted(left):
        front, component = [start], set()
        while front:
            y, x = front.pop()
            if (y, x) in left:
                left.remove((y, x))
                component.add((y, x))
                front += [(y + dy, x + dx) for dy, dx in steps]
        if component:
            found.append(component)
    return found


def around(pixels: set[tuple[int, int]], rim: int = 0) -> Box:
    ys, xs = [y for y, _ in pixels], [x for _, x in pixels]
    return min(xs) - rim, min(ys) - rim, max(xs) + rim + 1, max(ys) + rim + 1


def flood_boxes(mask: Mask) -> list[Box]:
    height, width = mask.shape
    boxes = [around(component) for component in floods(mask, CLOCKWISE)]
    for hole in floods(~mask, SIDES):
        if all(0 < y < height - 1 and 0 < x < width - 1 for y, x in hole):
            boxes.append(around(hole, rim=1))
    return boxes


def traced_area(component: set[tuple[int, int]]) -> float:
    """The area within the outer border, walked pixel by pixel, by the shoelace formula."""
    y, x = start = min(component)
    direction, border, first = 6, [start], None
    while True:
        for turn in range(8):  # clockwise from the pixel just passed on the outside
            way = (direction + 6 + turn) % 8
            after = y + CLOCKWISE[way][0], x + CLOCKWISE[way][1]
            if after in component:
                break
        else:
            return 0.0  # a single pixel
        if (y, x) == start and first == way:
            break  # about to leave the start the same way again
        first = way if first is None else first
        (y, x), direction = after, way
        border.append(after)
    pairs = pairwise(border)
    return abs(sum(x0 * y1 - x1 * y0 for (y0, x0), (y1, x1) in pairs)) / 2


def flood_largest(mask: Mask) -> list[Box]:
    """Of equal areas, the component whose first pixel is last."""
    components = floods(mask, CLOCKWISE)[::-1]
    return [around(max(components, key=traced_area))] if components else []


def opencv_boxes(mask: Mask, largest: bool = False) -> list[Box]:
    import cv2

    contours = cv2.findContours(
        mask.astype(np.uint8) * 255, cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE
    )[-2]
    if largest and len(contours):
        contours = [max(contours, key=cv2.contourArea)]
    return [(x, y, x + w, y + h) for x, y, w, h in map(cv2.boundingRect, contours)]


def iou(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """With both corners inside."""
    w, h = min(a[2], b[2]) - max(a[0], b[0]) + 1, min(a[3], b[3]) - max(a[1], b[1]) + 1
    shared = max(w, 0) * max(h, 0)
    areas = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (a, b)]
    return shared / (areas[0] + areas[1] - shared)


def overlaps(
    levels: np.ndarray, truth: np.ndarray, boxes_of: Callable[[Mask], list[Box]]
) -> np.ndarray:
    """(256,): threshold by threshold."""
    height, width = levels.shape
    result, known = np.zeros(256), {}
    for c in range(256):
        mask = levels > c
        key = mask.tobytes()
        if key not in known:
            boxes = [
                (x0, y0, min(x1, width - 1), min(y1, height - 1))
                for x0, y0, x1, y1 in boxes_of(mask)
            ]
            known[key] = max(
                iou(box, tuple(true)) for box in boxes or [(0, 0, 0, 0)] for true in truth.tolist()
            )
        result[c] = known[key]
    return result


def shapes() -> Iterator[tuple[str, np.ndarray]]:
    """Maps with a name: what a sweep could get wrong."""
    y, x = np.mgrid[:11, :13]
    rings = np.maximum(abs(y - 5), abs(x - 6))
    yield "constant zero", np.zeros((5, 7))
    yield "constant", np.full((5, 7), 255)
    yield "one pixel", np.full((1, 1), 255)
    yield "one pixel in the dark", np.where((y == 4) & (x == 3), 255, 0)
    yield "one row", np.array([[0, 3, 3, 0, 200, 255, 0, 7]])
    yield "one column", np.array([[0, 3, 3, 0, 200, 255, 0, 7]]).T
    yield "checkerboard", (y + x) % 2 * 255
    yield "checkerboard of plateaus", np.where((y // 2 + x // 2) % 2, 255, 100)
    yield "nested rings", rings % 2 * 255
    yield "rings of rising level", np.where(rings % 2, 40 + 30 * rings, 10)
    yield "pyramid", 255 - rings * 30
    yield "crater", rings * 30
    yield "all along the border", np.where((y == 0) | (x == 0) | (y == 10) | (x == 12), 255, 20)
    yield "open ring", np.where((rings == 3) & (x != 6), 255, 0)
    yield "ring closed by a corner only", np.where((abs(y - 5) + abs(x - 6) == 4), 255, 0)
    yield "diagonal", np.where(y == x, 255, 0)
    yield (
        "ring with a tail",
        np.where((abs(y - 5) + abs(x - 6) == 1) | ((y == 5) & (x > 7)), 255, 0),
    )
    yield (
        "hole touching a hole by a corner",
        np.where(((y == 4) & (x == 4)) | ((y == 5) & (x == 5)), 0, 255),
    )
    yield "two equal squares", np.where((y < 3) & ((x < 3) | (x > 9)), 255, 0)


def random_levels(rng: np.random.Generator, most: int) -> np.ndarray:
    """Noise, plateaus, smooth blobs, sieves, sparse dots; few or many levels."""
    height, width = rng.integers(1, most, 2)
    count = int(rng.choice([2, 3, 5, 20, 256]))
    levels = rng.integers(0, count, (height, width)) * (255 // (count - 1))
    kind = rng.integers(5)
    if kind == 1:
        padded = np.pad(levels, 1, mode="edge")
        levels = (
            sum(padded[dy : dy + height, dx : dx + width] for dy in range(3) for dx in range(3))
            // 9
        )
    elif kind == 2:
        levels = np.where(rng.random((height, width)) < 0.2, levels, 0)
    elif kind == 3:
        levels = np.where(rng.random((height, width)) < 0.8, 255, levels)
    elif kind == 4:
        levels = np.kron(levels, np.ones((2, 3), int))[:height, :width]
    return levels.astype(np.uint8)


def random_truth(rng: np.random.Generator, levels: np.ndarray) -> np.ndarray:
    height, width = levels.shape
    points = rng.integers(0, [width + 1, height + 1], (int(rng.integers(1, 4)), 2, 2))
    return np.concatenate([points.min(1), points.max(1)], 1)
