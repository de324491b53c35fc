"""Choose the size at which a model sees an image of any size."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ..backbones import Backbone
from .distributed import device_of

log = logging.getLogger(__name__)
MAX_SHORT_SIDE = 640  # by default: the number of pairs of patches grows with its fourth power
Output = TypeVar("Output")


@dataclass(frozen=True)
class InputSize:
    """Map the (width, height) of an image to those the model sees: multiples of its stride.

    `target` is the side of a square of the same area, or with `short_side` the shorter side.
    Without a target the image keeps its size, between `minimum` and MAX_SHORT_SIDE.
    """

    stride: tuple[int, int]  # vertical, horizontal
    target: int | None
    short_side: bool = False
    minimum: int = 1  # a stride of 32 makes four patches of 64 pixels: too few to find an object
    fixed: int | None = None  # side of the square that a model requires

    def __call__(self, size: tuple[int, int]) -> tuple[int, int]:
        width, height = self.scaled(size)
        down, across = self.stride
        return max(1, round(width / across)) * across, max(1, round(height / down)) * down

    def scaled(self, size: tuple[int, int]) -> tuple[float, float]:
        """Return the width and height before they are rounded to the stride."""
        if self.fixed is not None:
            return self.fixed, self.fixed
        target = self.target or min(max(min(size), self.minimum), MAX_SHORT_SIDE)
        scale = target / (min(size) if self.short_side else math.sqrt(size[0] * size[1]))
        # No side beyond four times the target: an image of 10 x 10,000 pixels is squeezed.
        width, height = (min(side * scale, 4 * target) for side in size)
        return width, height

    @property
    def max_short_side(self) -> int:
        """The longest that the shorter side of an image can become, up to the stride."""
        return self.fixed or self.target or max(self.minimum, MAX_SHORT_SIDE)


def stride_of(backbone: Backbone) -> tuple[int, int]:
    """Return the vertical and horizontal stride of a backbone in whole pixels."""
    down, across = (max(1, round(side)) for side in backbone.stride())
    return down, across


def supported_size(
    backbone: Backbone, preferred: InputSize, forward: Callable[[Tensor], Output]
) -> tuple[InputSize, Output]:
    """Try `forward` on an empty image, so that errors show before any work.

    Returns the preferred size, or the backbone's own size if it takes no other, and the output.
    """
    device, size = device_of(backbone), backbone.preprocessing.size
    width, height = preferred((4 * preferred.stride[1], 3 * preferred.stride[0]))
    try:
        return preferred, forward(torch.zeros(1, 3, height, width, device=device))
    except ValueError as error:
        try:
            output = forward(torch.zeros(1, 3, size, size, device=device))
        except ValueError:
            raise error from None
    log.info(
        "'%s' takes %d x %d pixels only: images are resized to that", backbone.name, size, size
    )
    return InputSize(preferred.stride, None, fixed=size), output
