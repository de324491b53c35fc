"""How well the contour boxes of a map fit the true boxes, at one threshold or at all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Array
from .boxes import box_iou
from .score_maps import check_score_map, quantise

EIGHT = np.ones((3, 3), int)


def contour_overlaps(levels: Array, truth: Array, version: int = 2) -> Array:
    """(H, W) uint8 -> (256,): at c the largest IoU (+1 convention) of a contour box of `levels > c`
    with a true box.

    Version 2 looks at all contours, version 1 at the one of largest area. Where nothing is above c
    the box is [0, 0, 0, 0], as in the published program. `truth` is (k, 4) whole pixels of the map.
    """
    best = np.zeros(256)
    best[levels.max() :] = box_iou([0, 0, 0, 0], truth, plus_one=True).max()
    from .compiled_loops import ALL, HOLES, LARGEST, SWEEPS, fill_holes, met_before, sort_pixels

    truth, levels = np.ascontiguousarray(truth, np.int64), np.ascontiguousarray(levels)
    shift = (levels.shape[1] + 1).bit_length()  # rows of the padded map start at powers of two
    if version == 1:
        levels = fill_holes(levels)
    order, starts = sort_pixels(levels, shift)
    down, up = met_before(levels, shift)
    sweeps = [(down, ALL), (up, HOLES)] if version == 2 else [(down, LARGEST)]
    for met, which in sweeps:
        SWEEPS[which](order, starts, met, shift, levels.shape, truth, best)
    return best


def boxes_at(score_map: Any, threshold: float, version: int = 1) -> Array:
    """(k, 4) boxes x0, y0, x1, y1 of a score map in [0, 1] at one threshold; (0, 4) if none."""
    levels = quantise(check_score_map(score_map, "the image"))
    foreground = levels > int(threshold * levels.max())
    boxes = contour_boxes(foreground) if version == 2 else largest_contour_box(foreground)
    boxes[:, 2:] = np.minimum(boxes[:, 2:], np.array(foreground.shape[::-1]) - 1)
    return boxes


def contour_boxes(foreground: Array) -> Array:
    """(k, 4) boxes x0, y0, x0 + w, y0 + h of components (8 neighbours) and borders of holes."""
    from scipy import ndimage

    components = ndimage.find_objects(ndimage.label(foreground, EIGHT)[0])
    background = ndimage.label(np.pad(~foreground, 1, constant_values=True))[0]
    holes = ndimage.find_objects(background)[1:]  # the first touches the frame
    boxes = [(x.start, y.start, x.stop, y.stop) for y, x in components]
    # A rim of one pixel around the hole, and back from the padded image's coordinates to the
    # image's.
    boxes += [(x.start - 2, y.start - 2, x.stop, y.stop) for y, x in holes]
    return np.array(boxes, np.int64).reshape(-1, 4)


def largest_contour_box(foreground: Array) -> Array:
    """(1, 4) or (0, 4): the box of the largest polygon; ties keep the last first pixel."""
    from scipy import ndimage

    filled = ndimage.binary_fill_holes(foreground)
    labels, count = ndimage.label(filled, EIGHT)
    if not count:
        return np.zeros((0, 4), np.int64)
    padded = np.pad(labels, 1)
    corners = padded[:-1, :-1], padded[:-1, 1:], padded[1:, :-1], padded[1:, 1:]
    blocks = np.stack(corners)  # all 2 x 2 blocks
    halves = np.maximum((blocks > 0).sum(0) - 2, 0)  # three of four pixels: half a unit of area
    area = np.bincount(blocks.max(0).ravel(), halves.ravel(), count + 1)[1:]
    top = count - 1 - int(area[::-1].argmax())  # labels are numbered by first pixel
    y, x = ndimage.find_objects(labels)[top]
    return np.array([[x.start, y.start, x.stop, y.stop]], np.int64)
