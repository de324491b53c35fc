"""Contour boxes threshold by threshold, with scipy: exact, and what is used where numba is not
installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .boxes import box_iou

Array = np.ndarray[Any, Any]
EIGHT = np.ones((3, 3), int)


def contour_boxes(foreground: Array) -> Array:
    """(k, 4) boxes x0, y0, x0 + w, y0 + h of all contours: components (8 neighbours) and the
    borders of their holes.
    """
    from scipy import ndimage

    components = ndimage.find_objects(ndimage.label(foreground, EIGHT)[0])
    background = ndimage.label(np.pad(~foreground, 1, constant_values=True))[
        0
    ]  # 1: what touches the frame
    holes = ndimage.find_objects(background)[1:]
    boxes = [(x.start, y.start, x.stop, y.stop) for y, x in components]
    # A rim of one pixel around the hole, and back from the padded image's coordinates to the
    # image's.
    boxes += [(x.start - 2, y.start - 2, x.stop, y.stop) for y, x in holes]
    return np.array(boxes, np.int64).reshape(-1, 4)


def largest_contour_box(foreground: Array) -> Array:
    """(1, 4) or (0, 4): the box of the contour of largest polygon area, of equals the one whose
    first pixel is last.
    """
    from scipy import ndimage

    filled = ndimage.binary_fill_holes(foreground)
    labels, count = ndimage.label(filled, EIGHT)
    if not count:
        return np.zeros((0, 4), np.int64)
    padded = np.pad(labels, 1)
    blocks = np.stack(
        [padded[:-1, :-1], padded[:-1, 1:], padded[1:, :-1], padded[1:, 1:]]
    )  # all 2 x 2 blocks
    halves = np.maximum((blocks > 0).sum(0) - 2, 0)  # three of four pixels: half a unit of area
    area = np.bincount(blocks.max(0).ravel(), halves.ravel(), count + 1)[1:]
    top = count - 1 - int(area[::-1].argmax())  # labels are numbered by first pixel
    y, x = ndimage.find_objects(labels)[top]
    return np.array([[x.start, y.start, x.stop, y.stop]], np.int64)


def overlaps_by_threshold(levels: Array, truth: Array, version: int, best: Array) -> None:
    """Set best[c], for every c below the highest level, to the largest IoU of a contour of
    `levels > c`.
    """
    height, width = levels.shape
    find = contour_boxes if version == 2 else largest_contour_box
    low = 0
    for high in np.unique(
        levels
    ):  # the foreground of all thresholds from low up to here is the same
        if high > low:
            boxes = find(levels >= high)
            boxes[:, 2:] = np.minimum(boxes[:, 2:], (width - 1, height - 1))
            best[low:high] = box_iou(boxes, truth, plus_one=True).max()
        low = high
