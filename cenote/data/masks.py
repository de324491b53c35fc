"""Read mask files of several conventions: 0 background, 1 object or class ids, 255 ignore."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

from .checks import check
from .images import BadImage, open_raw

MaskCodes = Literal["object", "trimap", "classes", "classes from 1"]
MASK_IGNORE = 255
TRIMAP = np.array([0, 1, 0, MASK_IGNORE], np.uint8)


def read_mask(
    paths: Sequence[Path], ignore: Path | None = None, codes: MaskCodes = "object"
) -> npt.NDArray[np.uint8]:
    """Return the union of masks; background pixels where the `ignore` mask is set become 255.

    object: all values but 0 are object; a file with nothing but 1, 2 and 3 is read as a trimap.
    trimap: 1 object, 2 background, 3 border to ignore.
    classes: as stored, 255 ignore. classes from 1: 0 ignore, k is class k - 1.
    """
    names = get_args(MaskCodes)
    check(codes in names, f"no mask codes '{codes}': {', '.join(names)}")
    union: npt.NDArray[np.uint8] | None = None
    for path in paths:
        values = decode_mask(open_raw(path), codes)
        if union is not None:
            _check_size(path, values, union)
            values = np.where(values > 0, values, union)
        union = values
    if ignore is not None:
        ignored = _values(open_raw(ignore)) > 0
        union = np.zeros(ignored.shape, np.uint8) if union is None else union
        _check_size(ignore, ignored, union)
        union = np.where(ignored & (union == 0), np.uint8(MASK_IGNORE), union)
    assert union is not None, "a mask has at least one file"
    return union


def decode_mask(image: Image.Image, codes: MaskCodes = "object") -> npt.NDArray[np.uint8]:
    """Convert one mask file, opened with `open_raw`."""
    values = _values(image)
    if codes == "classes":
        return values
    if codes == "classes from 1":
        return values - np.uint8(1)  # 0 becomes 255
    if codes == "trimap" or _is_trimap(values):
        return TRIMAP[np.minimum(values, 3)]
    return (values > 0).astype(np.uint8)


def _is_trimap(values: npt.NDArray[np.uint8]) -> bool:
    if not values.size or values.min() < 1 or values.max() > 3:
        return False
    return bool((values == 2).any())


def _values(image: Image.Image) -> npt.NDArray[np.uint8]:
    """Return the values as stored: the index of a palette, the brightest channel of a color."""
    values: npt.NDArray[np.generic] = np.asarray(image)
    if values.ndim == 3:
        values = values[..., :3].max(-1)
    return np.asarray(values if values.dtype == bool else np.minimum(values, 255), np.uint8)


def _check_size(path: Path, mask: npt.NDArray[np.generic], union: npt.NDArray[np.uint8]) -> None:
    if mask.shape != union.shape:
        size, other_size = (f"{x.shape[1]} x {x.shape[0]}" for x in (mask, union))
        raise BadImage(path, f"this mask is {size} pixels, another mask of the image {other_size}")
