"""What recipes do to a picture beyond `cenote.data.transforms`: timm's policies, several views of one crop."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from ..data.transforms import MEAN, STD, Color, Range

INTERPOLATIONS = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC}


def augmentation(
    size: int = 224,
    mean: Color = MEAN,
    std: Color = STD,
    interpolation: str = "bicubic",
    scale: Range = (0.08, 1.0),
    ratio: Range = (3 / 4, 4 / 3),
    flip: float = 0.5,
    policy: str | None = None,
    erasing: float = 0.0,
    views: int = 1,
) -> Any:
    """A random part of the picture, perhaps mirrored, changed by a policy in timm's words, perhaps erased in part.

    `policy`: "rand-m9-mstd0.5-inc1" and its like; colour jitter is off beside it, as in timm. `interpolation` may be
    "random", one of two for each picture. `views` above one: a list of tensors of the same crop, the first of them
    without policy and erasing.
    """
    crop = [_crop(size, scale, ratio, mode) for mode in _modes(interpolation)]
    geometry = v2.Compose(
        [crop[0] if len(crop) == 1 else v2.RandomChoice(crop), v2.RandomHorizontalFlip(flip)]
    )
    pixels = [
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(mean), list(std)),
    ]
    noise = [v2.RandomErasing(erasing, value="random")] if erasing else []
    changed = [*_policy(policy, size, mean, interpolation), *pixels, *noise, v2.ToPureTensor()]
    if views == 1:
        return v2.Compose([geometry, *changed])
    return Views(geometry, v2.Compose([*pixels, v2.ToPureTensor()]), v2.Compose(changed), views)


class Views:
    """One crop, clean and then changed in several ways: what JSD compares."""

    def __init__(self, geometry: Any, clean: Any, changed: Any, views: int) -> None:
        self.geometry, self.clean, self.changed, self.views = (
            geometry,
            clean,
            changed,
            [clean, *[changed] * (views - 1)],
        )

    def __call__(self, image: Any) -> list[Tensor]:
        image = self.geometry(image)
        return [view(image) for view in self.views]


def _modes(interpolation: str) -> list[InterpolationMode]:
    if interpolation != "random" and interpolation not in INTERPOLATIONS:
        raise ValueError(
            f"no interpolation '{interpolation}': {', '.join(INTERPOLATIONS)} or random"
        )
    return (
        list(INTERPOLATIONS.values())
        if interpolation == "random"
        else [INTERPOLATIONS[interpolation]]
    )


def _crop(size: int, scale: Range, ratio: Range, mode: InterpolationMode) -> v2.RandomResizedCrop:
    return v2.RandomResizedCrop((size, size), tuple(scale), tuple(ratio), mode, antialias=True)


def _policy(policy: str | None, size: int, mean: Color, interpolation: str) -> list[Any]:
    """With the settings that timm's own training gives it."""
    if policy is None:
        return []
    from timm.data.auto_augment import auto_augment_transform, rand_augment_transform
    from timm.data.transforms import str_to_pil_interp

    settings: dict[str, Any] = {
        "translate_const": int(size * 0.45),
        "img_mean": tuple(round(255 * m) for m in mean),
    }
    if interpolation != "random":
        settings["interpolation"] = str_to_pil_interp(interpolation)
    make = rand_augment_transform if policy.startswith("rand") else auto_augment_transform
    try:
        made = make(policy, settings)
    except (AssertionError, KeyError, ValueError, IndexError) as error:
        raise ValueError(
            f"timm knows no policy '{policy}': for example rand-m9-mstd0.5-inc1"
        ) from error
    for op in getattr(made, "ops", None) or [
        op for ops in getattr(made, "policy", ()) for op in ops
    ]:
        if op.name.startswith("Posterize"):
            op.aug_fn = _posterize
    return [made]


def _posterize(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    """timm asks for 0 bits at the strongest level. Pillow made that black, and refuses it in later versions."""
    if bits >= 8:
        return image
    return ImageOps.posterize(image, bits) if bits > 0 else Image.new(image.mode, image.size)
