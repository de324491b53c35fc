"""What the pixels of an image are, for a segmenter to learn."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..data.images import BadImage
from ..data.masks import MASK_IGNORE
from ..metrics import resize_mask

Kind = Literal["auto", "classes", "object", "labels"]
IGNORE = -1


class PixelLabels:
    """(size, size) class numbers of an image, IGNORE where a pixel does not count; `names` are the classes.

    `kind`: the "classes" that the masks hold; "object" against background; "labels", the object as the image's own
    class. "auto" is the first that the masks allow.
    """

    def __init__(self, dataset: Dataset, size: int, kind: Kind = "auto") -> None:
        if kind not in get_args(Kind):
            raise ValueError(
                f"pixels are told apart as {', '.join(get_args(Kind))}, not as '{kind}'"
            )
        several = dataset.mask_codes.startswith("classes")
        self.kind, self.size = (
            ("classes" if several else "object") if kind == "auto" else kind,
            size,
        )
        if (self.kind == "classes") != several:
            holds = "classes" if several else "objects"
            raise ValueError(
                f"the masks of {dataset.name} hold {holds}: they cannot be read as {self.kind}"
            )
        plain = ["background", *(dataset.classes if self.kind == "labels" else ["object"])]
        self.names = list(dataset.classes) if several else plain
        self.unread: dict[str, str] = {}  # the masks that could not be read, each with its sentence

    def usable(self, dataset: Dataset) -> Dataset:
        """The images that have a mask, and a class where it is asked for."""
        found = dataset.has_masks & ((dataset.labels >= 0) | (self.kind != "labels"))
        if not found.any():
            raise ValueError(
                f"{dataset.name} has no image with a mask{' and a class' * (self.kind == 'labels')}"
            )
        return dataset.select(found)

    def of(self, dataset: Dataset, i: int) -> Tensor:
        """int64; all IGNORE where there is no mask, or none that can be read."""
        name = str(dataset.path(i))
        try:
            mask = dataset.mask(i)
        except BadImage as error:
            self.unread[name] = str(error)
            mask = None
        if mask is None:
            return torch.full((self.size, self.size), IGNORE)
        pixels = resize_mask(mask, self.size).astype(np.int64)
        pixels[pixels == MASK_IGNORE] = IGNORE
        if self.kind == "labels":
            pixels[pixels == 1] = 1 + int(dataset.labels[i])
        if pixels.max() >= len(self.names):
            self.unread[name] = (
                f"{name}: its mask holds {pixels.max()}, but there are {len(self.names)} classes, from 0"
            )
            return torch.full((self.size, self.size), IGNORE)
        return torch.from_numpy(pixels)
