"""How well attention masks fit the objects of a segmented image (VOC12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import numpy_array


def attention_jaccard(masks: Any, target: Any, void: int = 255, background: int = 0, compat: bool = False,
                      name: str = "the image") -> float:  # fmt: skip
    """Masks (heads, H, W) of one image against its class map (H, W): per class the best head, mean
    over classes.

    Make the masks with `mass_mask(maps, 0.6)`. Void pixels belong to nobody and are left out;
    `compat` counts them as other classes, as the published script does.
    """
    heads, classes = numpy_array(masks).astype(bool), numpy_array(target)
    if heads.ndim != 3 or heads.shape[1:] != classes.shape or not len(heads):
        raise ValueError(
            f"{name}: masks are (heads, H, W) of the target's size {classes.shape}, got {heads.shape}"
        )
    present = [value for value in np.unique(classes) if value not in (void, background)]
    if not present:
        raise ValueError(f"{name} has no object, only background or void pixels: leave it out")
    counted = np.ones_like(classes, bool) if compat else classes != void
    best = []
    for value in present:
        object_mask = classes == value  # never void
        shared = (heads & object_mask).sum((1, 2))
        union = ((heads | object_mask) & counted).sum((1, 2))
        best.append((shared / union).max())
    return float(np.mean(best))


class AttentionJaccard:
    """The mean of `attention_jaccard` over images: streaming and mergeable."""

    def __init__(self, void: int = 255, background: int = 0, compat: bool = False) -> None:
        self.void, self.background, self.compat = void, background, compat
        self.total, self.count = 0.0, 0

    def add(self, masks: Any, target: Any, name: str = "") -> float:
        name = name or f"image {self.count}"
        value = attention_jaccard(masks, target, self.void, self.background, self.compat, name)
        self.total, self.count = self.total + value, self.count + 1
        return value

    def merge(self, other: AttentionJaccard) -> None:
        if (other.void, other.background, other.compat) != (
            self.void,
            self.background,
            self.compat,
        ):
            raise ValueError("Jaccard scores that treat void pixels differently do not add up")
        self.total, self.count = self.total + other.total, self.count + other.count

    def result(self) -> float:
        if not self.count:
            raise ValueError("attention Jaccard of no image: add some first")
        return self.total / self.count
