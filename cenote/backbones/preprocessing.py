"""How an image becomes the tensor that a backbone was trained on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

Transform = Callable[[Any], Tensor]  # a PIL image -> (3, H, W)


@dataclass(frozen=True)
class Preprocessing:
    """Resize the short side to `size / crop`, crop `size` in the centre, scale to mean and std."""

    size: int = 224
    crop: float = 0.875
    interpolation: str = "bicubic"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # JSON has lists only
            object.__setattr__(self, name, tuple(getattr(self, name)))

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
        )

    def transform(self) -> Transform:
        """Return PIL image -> (3, size, size), as for classification."""
        from torchvision.transforms import v2

        short_side = math.floor(self.size / self.crop)
        resize = v2.Resize(short_side, self._interpolation(), antialias=True)
        return self._pipeline(resize, v2.CenterCrop(self.size))

    def whole(self, size: tuple[int, int] | None = None) -> Transform:
        """Return PIL image -> (3, h, w) without a crop, for maps over the whole picture."""
        from torchvision.transforms import v2

        size = size or (self.size, self.size)
        return self._pipeline(v2.Resize(size, self._interpolation(), antialias=True))

    def _interpolation(self) -> Any:
        from torchvision.transforms import InterpolationMode

        modes = {mode.value: mode for mode in InterpolationMode}
        # timm's "random" is for training.
        return modes.get(self.interpolation, InterpolationMode.BICUBIC)

    def _pipeline(self, *geometry: Any) -> Transform:
        import torch
        from torchvision.transforms import v2

        pixels = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(self.mean, self.std)]
        steps = [v2.ToImage(), v2.RGB(), *geometry, *pixels, v2.ToPureTensor()]
        return cast(Transform, v2.Compose(steps))
