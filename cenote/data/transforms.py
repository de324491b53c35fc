"""Training transforms on torchvision v2, and DINO's crops.

The resize and centre crop of evaluation belong to the backbone: `cenote.backbones.Preprocessing`.
All randomness comes from torch's default generator, which the loader seeds for every image. Every
transform but `MultiCrop` also takes an image with its targets, `transform(image, targets)`, and
moves boxes and mask along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional

from .checks import check
from .record import Box

Color = Sequence[float]
Range = tuple[float, float]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# DINO's color jitter, and the radius of its Gaussian blur (Pillow's).
JITTER = (
    (functional.adjust_brightness, (0.6, 1.4)),
    (functional.adjust_contrast, (0.6, 1.4)),
    (functional.adjust_saturation, (0.8, 1.2)),
    (functional.adjust_hue, (-0.1, 0.1)),
)
BLUR_RADIUS = (0.1, 2.0)


class Targets(TypedDict, total=False):
    """Annotations that are transformed with the image."""

    boxes: tv_tensors.BoundingBoxes  # (n, 4) x1, y1, x2, y2
    mask: tv_tensors.Mask  # (H, W)


def make_targets(
    boxes: Sequence[Box], mask: npt.NDArray[np.uint8] | None, size: tuple[int, int]
) -> Targets:
    """Convert boxes and mask of an image of `size` (width, height) for torchvision's transforms."""
    corners = torch.tensor([box[:4] for box in boxes], dtype=torch.float32).reshape(-1, 4)
    boxes_tensor = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=size[::-1])
    targets = Targets(boxes=boxes_tensor)
    if mask is not None:
        targets["mask"] = tv_tensors.Mask(torch.from_numpy(np.ascontiguousarray(mask)))
    return targets


def train_transform(
    size: int = 224,
    mean: Color = MEAN,
    std: Color = STD,
    interpolation: str = "bicubic",
    scale: Range = (0.08, 1.0),
    ratio: Range = (3 / 4, 4 / 3),
    flip: float = 0.5,
    cutout: float = 0.0,
) -> v2.Compose:
    """Return a random resized crop of `size` x `size` with a random horizontal flip.

    `cutout` is the largest black square, as a fraction of the side.
    """
    modes = {mode.value: mode for mode in InterpolationMode}
    check(interpolation in modes, f"no interpolation '{interpolation}': {', '.join(modes)}")
    crop = v2.RandomResizedCrop((size, size), scale, ratio, modes[interpolation], antialias=True)
    # ToImage first: torch crops and resizes bytes twice as fast as Pillow.
    return _pipeline([v2.ToImage(), crop, v2.RandomHorizontalFlip(flip)], mean, std, cutout)


def wsol_train_transform(
    size: int = 224,
    resize: int = 256,
    mean: Color = MEAN,
    std: Color = STD,
    flip: float = 0.5,
    cutout: float = 0.0,
) -> v2.Compose:
    """Weakly supervised localization: resize to a square, random crop, random flip, Cutout."""
    squeeze = v2.Resize((resize, resize), InterpolationMode.BILINEAR, antialias=True)
    steps = [v2.ToImage(), squeeze, v2.RandomCrop(size), v2.RandomHorizontalFlip(flip)]
    return _pipeline(steps, mean, std, cutout)


def wsol_eval_transform(size: int = 224, mean: Color = MEAN, std: Color = STD) -> v2.Compose:
    """Weakly supervised localization: resize to a square, so that the map covers the full image."""
    squeeze = v2.Resize((size, size), InterpolationMode.BILINEAR, antialias=True)
    return _pipeline([v2.ToImage(), squeeze], mean, std)


class Cutout(v2.Transform):  # type: ignore[misc]  # torchvision has no types
    """Black square with a side from 0 to `max_size` of the image's shorter side, anywhere.

    Size and position are drawn for each image; the square may be cut off at the border. Use it
    before Normalize, where black is 0. Boxes and masks do not change: the object is only hidden.
    """

    def __init__(self, max_size: float) -> None:
        super().__init__()
        check(0 <= max_size <= 1, f"max_size is a fraction of the side from 0 to 1, got {max_size}")
        self.max_size = max_size

    def make_params(self, flat_inputs: list[Any]) -> dict[str, tuple[int, ...]]:
        height, width = v2.query_size(flat_inputs)
        side, x, y = torch.rand(3).tolist()
        half, x, y = side * self.max_size * min(height, width) / 2, x * width, y * height
        left, right = max(0, round(x - half)), min(width, round(x + half))
        top, bottom = max(0, round(y - half)), min(height, round(y + half))
        return {"box": (left, top, right, bottom)}

    def transform(self, inpt: Any, params: dict[str, tuple[int, ...]]) -> Any:
        left, top, right, bottom = params["box"]
        if not (isinstance(inpt, tv_tensors.Image) or type(inpt) is Tensor):
            return inpt
        pixels = inpt.clone()
        pixels[..., top:bottom, left:right] = 0
        return pixels


def _pipeline(steps: Sequence[Any], mean: Color, std: Color, cutout: float = 0.0) -> v2.Compose:
    """Append the conversion to float, with Cutout before Normalize."""
    pixels = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    if cutout:
        pixels.append(Cutout(cutout))
    pixels.append(v2.Normalize(list(mean), list(std)))
    return v2.Compose([*steps, *pixels, v2.ToPureTensor()])


class MultiCrop:
    """DINO's views of one image: two large crops, then `local` small ones, as a list of tensors.

    The scales are SimPool's for ViT-S; its ResNet-50 and ConvNeXt-S have (0.14, 1) and
    (0.05, 0.14), DINO itself (0.4, 1) and (0.05, 0.4) with 8 or 10 small crops. Colors, blur and
    solarization are DINO's.
    """

    def __init__(
        self,
        size: int = 224,
        local_size: int = 96,
        local: int = 6,
        scale: Range = (0.25, 1.0),
        local_scale: Range = (0.05, 0.25),
        mean: Color = MEAN,
        std: Color = STD,
    ) -> None:
        self.local = local
        self.views = [
            AugmentedCrop(size, scale, mean, std, blur=1.0),
            AugmentedCrop(size, scale, mean, std, blur=0.1, solarize=0.2),
            AugmentedCrop(local_size, local_scale, mean, std, blur=0.5),
        ]

    def __call__(self, image: Image.Image) -> list[Tensor]:
        first, second, small = self.views
        return [first(image), second(image), *(small(image) for _ in range(self.local))]


class AugmentedCrop:
    """Random crop with random flip, color jitter, grey, blur and solarization.

    It draws what torchvision's classes would draw, in the same order, at a third of the cost: on
    small images those spend most of their time on inspecting their inputs.
    """

    def __init__(
        self, size: int, scale: Range, mean: Color, std: Color, blur: float, solarize: float = 0.0
    ) -> None:
        self.crop = v2.RandomResizedCrop((size, size), scale, (3 / 4, 4 / 3))
        self.blur, self.solarize = blur, solarize
        self.mean, self.std = (torch.tensor(values)[:, None, None] for values in (mean, std))

    def __call__(self, image: Image.Image) -> Tensor:
        box, bicubic = self.crop.make_params([image]), InterpolationMode.BICUBIC
        image = functional.resized_crop(
            image, **box, size=self.crop.size, interpolation=bicubic, antialias=True
        )
        if _draw(0.5):
            image = functional.horizontal_flip(image)
        if _draw(0.8):
            order = torch.randperm(4).tolist()
            strengths = [_uniform(*ends) for _, ends in JITTER]
            for k in order:
                image = JITTER[k][0](image, strengths[k])
        if _draw(0.2):
            image = functional.rgb_to_grayscale(image, num_output_channels=3)
        if _draw(self.blur):
            image = image.filter(ImageFilter.GaussianBlur(_uniform(*BLUR_RADIUS)))
        if self.solarize and _draw(self.solarize):
            image = functional.solarize(image, 128)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels.float().div_(255).sub_(self.mean).div_(self.std)


def _draw(probability: float) -> bool:
    return float(torch.rand(1)) < probability


def _uniform(low: float, high: float) -> float:
    return float(torch.empty(1).uniform_(low, high))
