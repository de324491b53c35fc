"""What happens to a picture on its way into training; DINO's views are in `crops`.

Evaluation's resize and centre crop belong to the backbone: `cenote.backbones.Preprocessing`. All randomness comes from
torch's default generator, which the loader seeds for every image. Every transform here also takes a picture with its
truth, `transform(image, truth)`, and moves the boxes and the mask along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional

from .record import Box

Colour = Sequence[float]
Range = tuple[float, float]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Targets(TypedDict, total=False):
    """What moves along with the pixels."""

    boxes: tv_tensors.BoundingBoxes  # (n, 4) x1, y1, x2, y2
    mask: tv_tensors.Mask  # (H, W)


def make_targets(
    boxes: Sequence[Box], mask: npt.NDArray[np.uint8] | None, size: tuple[int, int]
) -> Targets:
    """Boxes and mask of an image of `size` (width, height), as torchvision's transforms know them."""
    corners = torch.tensor([box[:4] for box in boxes], dtype=torch.float32).reshape(-1, 4)
    targets = Targets(
        boxes=tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=size[::-1])
    )
    if mask is not None:
        targets["mask"] = tv_tensors.Mask(torch.from_numpy(np.ascontiguousarray(mask)))
    return targets


def train_transform(
    size: int = 224,
    mean: Colour = MEAN,
    std: Colour = STD,
    interpolation: str = "bicubic",
    scale: Range = (0.08, 1.0),
    ratio: Range = (3 / 4, 4 / 3),
    flip: float = 0.5,
    randaugment: tuple[int, int] | None = None,
    erasing: float = 0.0,
    cutout: float = 0.0,
) -> v2.Compose:
    """A random part of the picture at `size` x `size`, perhaps mirrored.

    `randaugment` is (operations, magnitude of 30), for images without truth only. `erasing` is the probability that a
    rectangle becomes noise. `cutout` is the largest black square, as a share of the side.
    """
    steps: list[Any] = [_crop(size, scale, ratio, interpolation), v2.RandomHorizontalFlip(flip)]
    if randaugment is None:
        steps.insert(0, v2.ToImage())  # torch crops and resizes bytes twice as fast as Pillow
    else:  # and Pillow turns and colours them faster than torch
        grey = [round(255 * value) for value in mean]  # what a turned picture leaves empty
        steps.append(
            v2.RandAugment(*randaugment, interpolation=InterpolationMode.BILINEAR, fill=grey)
        )
    noise = [v2.RandomErasing(erasing, value="random")] if erasing else []
    return _pipeline(steps, mean, std, cutout, noise)


def wsol_train_transform(
    size: int = 224,
    resize: int = 256,
    mean: Colour = MEAN,
    std: Colour = STD,
    flip: float = 0.5,
    cutout: float = 0.0,
) -> v2.Compose:
    """Weakly supervised localization: squeezed to a square, a random crop of it, perhaps mirrored, perhaps Cutout."""
    squeeze = v2.Resize((resize, resize), InterpolationMode.BILINEAR, antialias=True)
    steps = [v2.ToImage(), squeeze, v2.RandomCrop(size), v2.RandomHorizontalFlip(flip)]
    return _pipeline(steps, mean, std, cutout)


def wsol_eval_transform(size: int = 224, mean: Colour = MEAN, std: Colour = STD) -> v2.Compose:
    """Weakly supervised localization: the whole picture squeezed to a square, so that its map covers all of it."""
    squeeze = v2.Resize((size, size), InterpolationMode.BILINEAR, antialias=True)
    return _pipeline([v2.ToImage(), squeeze], mean, std)


def wsol_boxes(
    boxes: Iterable[Sequence[Any]], size: tuple[int, int], to: int = 224
) -> npt.NDArray[np.int64]:
    """True boxes of an image of `size` (width, height) at the size of evaluation, truncated as the protocol does."""
    corners = np.array([box[:4] for box in boxes], np.float64).reshape(-1, 4)
    return (corners * to / np.array([*size, *size], np.float64)).astype(np.int64)


class Cutout(v2.Transform):  # type: ignore[misc]  # torchvision has no types
    """A black square: its side uniform from 0 to `max_size` of the image's shorter side, its centre anywhere.

    Size and place are drawn for each image; what lies beyond the border is cut off. It stands before Normalize, where
    black is 0. Boxes and masks stay: the object is still there, only hidden.
    """

    def __init__(self, max_size: float) -> None:
        super().__init__()
        if not 0 <= max_size <= 1:
            raise ValueError(
                f"Cutout's largest side is a share of the image from 0 to 1, got {max_size}"
            )
        self.max_size = max_size

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = v2.query_size(flat_inputs)
        side, x, y = torch.rand(3).tolist()
        half, x, y = side * self.max_size * min(height, width) / 2, x * width, y * height
        left, right = max(0, round(x - half)), min(width, round(x + half))
        top, bottom = max(0, round(y - half)), min(height, round(y + half))
        return {"box": (left, top, right, bottom)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        left, top, right, bottom = params["box"]
        if isinstance(inpt, Image.Image):
            inpt = inpt.copy()
            inpt.paste(0, params["box"])
        elif isinstance(inpt, tv_tensors.Image) or type(inpt) is Tensor:
            plain = inpt.as_subclass(Tensor).clone()
            plain[..., top:bottom, left:right] = 0
            inpt = (
                tv_tensors.wrap(plain, like=inpt) if isinstance(inpt, tv_tensors.Image) else plain
            )
        return inpt


def _crop(size: int, scale: Range, ratio: Range, interpolation: str) -> v2.RandomResizedCrop:
    known = {mode.value: mode for mode in InterpolationMode}
    if interpolation not in known:
        raise ValueError(f"no interpolation '{interpolation}': {', '.join(known)}")
    return v2.RandomResizedCrop((size, size), scale, ratio, known[interpolation], antialias=True)


def _pipeline(
    steps: Sequence[Any], mean: Colour, std: Colour, cutout: float = 0.0, noise: Sequence[Any] = ()
) -> v2.Compose:
    """The steps on bytes, then numbers: Cutout where black is 0, erasing where the mean is."""
    black = [Cutout(cutout)] if cutout else []
    pixels = [
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        *black,
        v2.Normalize(list(mean), list(std)),
    ]
    return v2.Compose([*steps, *pixels, *noise, v2.ToPureTensor()])


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
