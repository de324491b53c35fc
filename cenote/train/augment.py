"""Augmentation of training images: crops, timm's policies, and several views of one crop."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from ..data.transforms import (
    MEAN,
    STD,
    Color,
    MultiCrop,
    Range,
    train_transform,
    wsol_train_transform,
)
from ..models import PooledModel
from .config import CropConfig, MultiCropConfig, Options, PlainCropConfig, RunConfig, WsolConfig
from .tasks.supervised import JSD_VIEWS

INTERPOLATIONS = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC}


def build_augmentation(config: RunConfig, model: PooledModel) -> Any:
    """Build the transform of training images, with the size and the colours of evaluation."""
    augment, evaluation = config.augment, model.backbone.preprocessing
    size = evaluation.size
    colors: Options = {"mean": evaluation.mean, "std": evaluation.std}
    if isinstance(augment, PlainCropConfig):
        # Pretrained weights have learned from whole objects: gentle crops.
        smallest = augment.min_scale or (0.08 if config.model.from_scratch else 0.35)
        return train_transform(
            size,
            **colors,
            interpolation=evaluation.interpolation,
            scale=(smallest, 1.0),
            cutout=augment.cutout,
        )
    options = asdict(augment) | {"size": size} | colors
    if isinstance(augment, WsolConfig):
        return wsol_train_transform(**options)
    if isinstance(augment, MultiCropConfig):
        patch = _patch_size(model)
        options["local_size"] = augment.local_size or max(round(size * 3 / 7 / patch), 1) * patch
        if config.task == "moco":
            options["local"] = 0
        return MultiCrop(**options)
    assert isinstance(augment, CropConfig)
    return augmentation(views={"jsd": JSD_VIEWS}.get(config.task, 1), **options)


def _patch_size(model: PooledModel) -> int:
    size = getattr(getattr(model.backbone.model, "patch_embed", None), "patch_size", 32)
    return int(size[0] if isinstance(size, tuple) else size)


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
    """Return a random resized crop, possibly mirrored, changed by a policy of timm's and erased.

    `policy` is timm's name, such as "rand-m9-mstd0.5-inc1"; it excludes color jitter, as
    in timm. `interpolation` may be "random", one of the two for each image. With several `views`
    the result is a list of tensors of the same crop, the first without policy and erasing.
    """
    crops = [
        v2.RandomResizedCrop((size, size), tuple(scale), tuple(ratio), mode, antialias=True)
        for name, mode in INTERPOLATIONS.items()
        if interpolation in (name, "random")
    ]
    crop = crops[0] if len(crops) == 1 else v2.RandomChoice(crops)
    geometry = v2.Compose([crop, v2.RandomHorizontalFlip(flip)])
    to_tensor = [
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(mean), list(std)),
    ]
    erase = [v2.RandomErasing(erasing, value="random")] if erasing else []
    steps = [*_policy(policy, size, mean, interpolation), *to_tensor, *erase, v2.ToPureTensor()]
    if views == 1:
        return v2.Compose([geometry, *steps])
    clean = v2.Compose([*to_tensor, v2.ToPureTensor()])
    return Views(geometry, [clean, *[v2.Compose(steps)] * (views - 1)])


class Views:
    """One crop, clean and then augmented in several ways: the inputs of the JSD loss."""

    def __init__(self, geometry: Any, views: list[Any]) -> None:
        self.geometry, self.views = geometry, views

    def __call__(self, image: Any) -> list[Tensor]:
        image = self.geometry(image)
        return [view(image) for view in self.views]


def _policy(policy: str | None, size: int, mean: Color, interpolation: str) -> list[Any]:
    """Create a policy with the settings of timm's own training."""
    if policy is None:
        return []
    from timm.data.auto_augment import auto_augment_transform, rand_augment_transform
    from timm.data.transforms import str_to_pil_interp

    settings: Options = {
        "translate_const": int(size * 0.45),
        "img_mean": tuple(round(255 * m) for m in mean),
    }
    if interpolation != "random":
        settings["interpolation"] = str_to_pil_interp(interpolation)
    create = rand_augment_transform if policy.startswith("rand") else auto_augment_transform
    try:
        transform = create(policy, settings)
    except (AssertionError, KeyError, ValueError, IndexError) as error:
        raise ValueError(
            f"timm has no policy '{policy}': for example rand-m9-mstd0.5-inc1"
        ) from error
    operations = list(getattr(transform, "ops", ()))
    for sub_policy in getattr(transform, "policy", ()):
        operations += sub_policy
    for operation in operations:
        if operation.name.startswith("Posterize"):
            operation.aug_fn = _posterize
    return [transform]


def _posterize(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    """Replace timm's operation: it may ask for 0 bits, which later versions of Pillow refuse."""
    if bits < 1:
        return Image.new(image.mode, image.size)
    return ImageOps.posterize(image, min(bits, 8))
