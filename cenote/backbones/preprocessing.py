"""How an image becomes the tensor that a backbone was trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Transform:
    """PIL image -> (3, H, W), without randomness.

    A JPEG may be decoded at a fraction of its size whose sides have at least `min_side` pixels;
    None: at its full size.
    """

    pixels: Callable[[Any], Tensor]
    min_side: int | None = None

    def __call__(self, image: Any) -> Tensor:
        return self.pixels(image)


def scaled_side(*sides: int) -> int:
    """Return the `min_side` of images that are resized to these sides: twice the longest."""
    return 2 * max(sides)


@dataclass(frozen=True)
class Preprocessing:
    """Resize the short side to `size / crop`, crop `size` in the centre, scale to mean and std.

    `crop_mode` "squash" resizes both sides to `size / crop` instead, whatever the shape of the
    image. Half a pixel beside the crop is rounded to even by torchvision and timm ("center"), and
    down by transformers ("floor").

    `scaled_decoding` decodes large JPEGs at a fraction of their size, at least twice the wanted
    one: several times as fast, but vectors differ slightly (cosine 0.989 at worst). It is for search
    and pictures; figures that are compared with publications are without it.
    """

    size: int = 224
    crop: float = 0.875
    interpolation: str = "bicubic"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    scaled_decoding: bool = False
    crop_mode: str = "center"

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # JSON has lists only
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def __repr__(self) -> str:
        """Return the text by which indexes identify a preprocessing: as in earlier versions."""
        fields = {k: v for k, v in self.identity().items() if k != "scaled_decoding"}
        return f"Preprocessing({', '.join(f'{k}={v!r}' for k, v in fields.items())})"

    @classmethod
    def of(cls, timm_model: Any) -> Preprocessing:
        """Return the preprocessing of a timm model's configuration."""
        config = getattr(timm_model, "pretrained_cfg", None) or {}
        return cls(
            size=config.get("input_size", (3, cls.size, cls.size))[-1],
            crop=config.get("crop_pct") or cls.crop,
            interpolation=config.get("interpolation") or cls.interpolation,
            mean=config.get("mean") or cls.mean,
            std=config.get("std") or cls.std,
            crop_mode="squash" if config.get("crop_mode") == "squash" else "center",
        )

    def transform(self) -> Transform:
        """Return PIL image -> (3, size, size), as for classification."""
        side = math.floor(self.size / self.crop)
        return self._transform([side] * (2 if self.crop_mode == "squash" else 1), self.size)

    def visible_box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Return the part of an image that `transform` keeps: x0, y0, x1, y1 in pixels."""
        share = self.size / math.floor(self.size / self.crop)
        w = h = min(width, height) * share
        if self.crop_mode == "squash":
            w, h = width * share, height * share
        left, top = (width - w) / 2, (height - h) / 2
        return left, top, left + w, top + h

    def whole(self, size: tuple[int, int] | None = None) -> Transform:
        """Return PIL image -> (3, h, w) without a crop, for maps over the whole picture."""
        return self._transform(size or (self.size, self.size))

    def min_side(self, *sides: int) -> int | None:
        """Return the `min_side` of an image that is resized to these sides."""
        return scaled_side(*sides) if self.scaled_decoding else None

    def identity(self) -> dict[str, object]:
        """Return the fields for a digest, without those that earlier versions did not have."""
        fields = asdict(self)
        for name, default in (("scaled_decoding", False), ("crop_mode", "center")):
            if fields[name] == default:
                del fields[name]
        return fields

    def _interpolation(self) -> Any:
        from torchvision.transforms import InterpolationMode

        modes = {mode.value: mode for mode in InterpolationMode}
        # timm's "random" is for training.
        return modes.get(self.interpolation, InterpolationMode.BICUBIC)

    def _transform(self, resize: Sequence[int], crop: int | None = None) -> Transform:
        """Resize to the short side, or to (height, width)."""
        pixels = partial(self._pixels, resize=resize, crop=crop)
        return Transform(pixels, self.min_side(*resize))

    def _pixels(self, image: Any, resize: Sequence[int], crop: int | None) -> Tensor:
        from torchvision.transforms.v2 import functional as F

        if image.mode != "RGB":
            image = image.convert("RGB")
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        pixels = F.resize(pixels, list(resize), self._interpolation(), antialias=True)
        if crop is not None and self.crop_mode == "floor":
            top, left = ((side - crop) // 2 for side in pixels.shape[-2:])
            pixels = F.crop(pixels, top, left, crop, crop)
        elif crop is not None:
            pixels = F.center_crop(pixels, [crop, crop])
        # NumPy, not torch: threads that load images would wait for torch's threads.
        values = pixels.numpy().astype(np.float32, order="C")
        mean, std = (np.array(x, np.float32)[:, None, None] for x in (self.mean, self.std))
        values *= 1 / (255 * std)
        values -= mean / std
        return torch.from_numpy(values)
