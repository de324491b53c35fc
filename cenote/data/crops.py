"""DINO's views of a picture. What torchvision's classes would draw, drawn in the same order, at a third of the cost:

on small pictures most of their time goes into finding out what they were given.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional

from .transforms import MEAN, STD, Colour, Range

JITTER = (
    (functional.adjust_brightness, (0.6, 1.4)),
    (functional.adjust_contrast, (0.6, 1.4)),
    (functional.adjust_saturation, (0.8, 1.2)),
    (functional.adjust_hue, (-0.1, 0.1)),
)
RADIUS = (0.1, 2.0)  # of Pillow's Gaussian blur, with which DINO was published


class MultiCrop:
    """DINO's views of one picture: two large crops, then `local` small ones, as a list of tensors.

    The scales are SimPool's for ViT-S; its ResNet-50 and ConvNeXt-S have (0.14, 1) and (0.05, 0.14), DINO itself
    (0.4, 1) and (0.05, 0.4) with 8 or 10 small crops. Colours, blur and solarization are DINO's.
    """

    def __init__(
        self,
        size: int = 224,
        local_size: int = 96,
        local: int = 6,
        scale: Range = (0.25, 1.0),
        local_scale: Range = (0.05, 0.25),
        mean: Colour = MEAN,
        std: Colour = STD,
    ) -> None:
        self.local = local
        self.views = [
            View(size, scale, mean, std, blur=1.0),
            View(size, scale, mean, std, blur=0.1, solarize=0.2),
            View(local_size, local_scale, mean, std, blur=0.5),
        ]

    def __call__(self, image: Image.Image) -> list[Tensor]:
        first, second, small = self.views
        return [first(image), second(image), *(small(image) for _ in range(self.local))]


class View:
    """A random crop, perhaps mirrored, recoloured, grey, blurred, solarized."""

    def __init__(
        self, size: int, scale: Range, mean: Colour, std: Colour, blur: float, solarize: float = 0.0
    ) -> None:
        self.crop = v2.RandomResizedCrop((size, size), scale, (3 / 4, 4 / 3))
        self.blur, self.solarize = blur, solarize
        self.mean, self.std = (torch.tensor(values)[:, None, None] for values in (mean, std))

    def __call__(self, image: Image.Image) -> Tensor:
        part = self.crop.make_params([image])
        bicubic = InterpolationMode.BICUBIC
        image = functional.resized_crop(
            image, **part, size=self.crop.size, interpolation=bicubic, antialias=True
        )
        if _happens(0.5):
            image = functional.horizontal_flip(image)
        if _happens(0.8):
            order = torch.randperm(4).tolist()
            strengths = [_between(*ends) for _, ends in JITTER]
            for place in order:
                image = JITTER[place][0](image, strengths[place])
        if _happens(0.2):
            image = functional.rgb_to_grayscale(image, num_output_channels=3)
        if _happens(self.blur):
            image = image.filter(ImageFilter.GaussianBlur(_between(*RADIUS)))
        if self.solarize and _happens(self.solarize):
            image = functional.solarize(image, 128)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels.float().div_(255).sub_(self.mean).div_(self.std)


def _happens(probability: float) -> bool:
    return float(torch.rand(1)) < probability


def _between(low: float, high: float) -> float:
    return float(torch.empty(1).uniform_(low, high))
