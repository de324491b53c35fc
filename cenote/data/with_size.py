"""A picture as a model takes it, and the size that it had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from PIL import Image
from torch import Tensor


class WithSize:
    """A transform that also gives the (width, height) of the picture: boxes are in its pixels."""

    def __init__(self, transform: Callable[[Image.Image], Any]) -> None:
        self.transform = transform

    def __call__(self, image: Image.Image) -> tuple[Any, Tensor]:
        return self.transform(image), torch.tensor(image.size)
