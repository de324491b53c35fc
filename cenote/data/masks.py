"""Mask files of several conventions as one: 0 background, 1 object or a class, 255 does not count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from .images import BadImage, open_raw

MaskCodes = Literal["object", "trimap", "classes", "classes from 1"]
UNCOUNTED = 255


def read_mask(
    paths: Sequence[Path], ignore: Path | None = None, codes: MaskCodes = "object"
) -> npt.NDArray[np.uint8]:
    """The union of the masks; where `ignore` is set and no mask is, the pixel does not count.

    object: anything but 0 is object, except that a file with nothing but 1, 2 and 3 is a trimap.
    trimap: 1 object, 2 background, 3 border that does not count.
    classes: as stored, 255 does not count. classes from 1: 0 does not count, k is class k - 1.
    """
    if codes not in get_args(MaskCodes):
        raise ValueError(f"no mask codes '{codes}': {', '.join(get_args(MaskCodes))}")
    union: npt.NDArray[np.uint8] | None = None
    for path in paths:
        values = decoded(open_raw(path), codes)
        if union is not None and union.shape != values.shape:
            raise BadImage(
                path,
                f"this mask is {_size(values)} pixels, another of the same image {_size(union)}",
            )
        union = values if union is None else np.where(values > 0, values, union)
    if ignore is not None:
        hidden = _numbers(open_raw(ignore)) > 0
        union = np.zeros(hidden.shape, np.uint8) if union is None else union
        if union.shape != hidden.shape:
            raise BadImage(
                ignore, f"this mask is {_size(hidden)} pixels, the object's {_size(union)}"
            )
        union = np.where(hidden & (union == 0), np.uint8(UNCOUNTED), union)
    assert union is not None, "a mask has at least one file"
    return union


def _numbers(image: Image.Image) -> npt.NDArray[np.uint8]:
    """As stored: of a palette the index, of a colour image its brightest channel."""
    values: npt.NDArray[np.generic] = np.asarray(image)
    if values.ndim == 3:
        values = values[..., :3].max(-1)
    return np.asarray(values if values.dtype == bool else np.minimum(values, 255), np.uint8)


def decoded(image: Image.Image, codes: MaskCodes = "object") -> npt.NDArray[np.uint8]:
    """One mask file, opened raw."""
    values = _numbers(image)
    if codes == "classes":
        return values
    if codes == "classes from 1":
        return values - np.uint8(1)  # 0 becomes 255
    if codes == "trimap" or (
        values.size and values.min() >= 1 and values.max() <= 3 and (values == 2).any()
    ):
        return np.array([0, 1, 0, UNCOUNTED], np.uint8)[np.minimum(values, 3)]
    return (values > 0).astype(np.uint8)


def _size(values: npt.NDArray[np.generic]) -> str:
    return f"{values.shape[1]} x {values.shape[0]}"
