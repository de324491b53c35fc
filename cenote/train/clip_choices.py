"""From what a user asks for to an image-text model and its training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..backbones.micro import MICRO
from ..data.image_texts import TEXT_KINDS
from ..data.transforms import train_transform
from ..models import PooledModel, create_model
from ..models.frozen import FrozenBackbone
from ..models.image_text.small import SmallClip
from ..models.image_text.text_tower import TextTower
from ..models.image_text.words import Words
from ..models.surgery.stride import create_finer_backbone
from ..options import check_names, check_number
from ..pooling import registry
from .config import OptimizationConfig

DEFAULTS = OptimizationConfig(epochs=60, batch=128, lr=1e-3, weight_decay=0.05, warmup=3, clip=1.0)
UNREAD = (
    "smoothing",
    "mixup",
    "cutmix",
    "sar",
    "sar_loss",
    "sar_schedule",
    "select",
)  # settings of `cenote fit`


@dataclass(frozen=True)
class ClipChoices:
    """What `cenote clip` was asked for."""

    backbone: str = "resnet_micro"
    pool: str = "gap"
    tokens: str = "patches"
    weights: Path | None = None
    freeze: bool = False
    scratch: bool = False
    size: int | None = None
    stride: int = 1  # how many times finer the last map is: 1, 2 or 4
    dim: int = 128  # of the common space
    width: int = 128  # of the text transformer, and of its words
    layers: int = 2
    heads: int = 4
    texts: str = "both"
    crop: float = 0.5  # the smallest part of a picture that is shown in training
    pool_options: dict[str, Any] = field(default_factory=dict)
    settings: OptimizationConfig = DEFAULTS

    def check(self) -> None:
        """Whatever is wrong is told before the images are read."""
        if self.texts not in TEXT_KINDS:
            raise ValueError(f"texts is one of {', '.join(TEXT_KINDS)}, got '{self.texts}'")
        if self.weights is not None and not self.weights.is_file():
            raise FileNotFoundError(2, "no such weights file", str(self.weights))
        if self.freeze and (self.scratch or (self.backbone in MICRO and self.weights is None)):
            raise ValueError(
                "a frozen backbone needs trained weights: --backbone lite0, for instance, or --weights"
            )
        if self.scratch and self.weights is not None:
            raise ValueError("--scratch begins with random weights: leave it out, or --weights")
        if self.settings.accumulate > 1:
            raise ValueError(
                "images are compared with all texts of their step: accumulate must be 1"
            )
        check_number("batch", self.settings.batch, whole=True, least=2)
        check_number("workers", self.settings.workers, whole=True, least=0)
        check_number("dim", self.dim, whole=True, least=1)
        check_number("crop", self.crop, above=0, most=1)
        if self.size is not None:
            check_number("size", self.size, whole=True, least=1)
        if unread := [
            name
            for name in UNREAD
            if getattr(self.settings, name) != getattr(OptimizationConfig(), name)
        ]:
            raise ValueError(
                f"cenote clip does not use {', '.join(unread)}: leave out such settings"
            )
        if self.pool != "cls":
            check_names(self.pool, self.pool_options, registry.options(self.pool))
        with torch.random.fork_rng(devices=()):
            self.tower(Words([]))

    def frozen(self) -> FrozenBackbone:
        """A backbone that stays as it is."""
        backbone = create_finer_backbone(
            self.backbone,
            self.stride,
            pretrained=self.weights is None,
            weights=self.weights,
            img_size=self.size,
        )
        backbone.preprocessing = dataclasses.replace(
            backbone.preprocessing, size=self.size or backbone.preprocessing.size
        )
        return FrozenBackbone(backbone, self.stride)

    def tower(self, words: Words) -> TextTower:
        return TextTower(len(words), self.dim, words.context, self.width, self.layers, self.heads)

    def model(self, words: Words, frozen: FrozenBackbone | None = None) -> SmallClip:
        """With a `frozen` backbone only what stands behind it is new, and learns."""
        torch.manual_seed(self.settings.seed)
        if frozen is not None:
            top = frozen.create_head(
                self.pool, 0, self.tokens, pool_options=self.pool_options, embedding_dim=self.dim
            )
            return SmallClip(frozen.create_model(top), self.tower(words), words)
        image: PooledModel = create_model(
            self.backbone, self.pool, 0, tokens=self.tokens, img_size=self.size, weights=self.weights,
            pretrained=not self.scratch and self.weights is None and self.backbone not in MICRO,
            embedding_dim=self.dim, pool_options=self.pool_options, stride=self.stride,
        )  # fmt: skip
        own = image.backbone.preprocessing
        image.backbone.preprocessing = dataclasses.replace(own, size=self.size or own.size)
        return SmallClip(image, self.tower(words), words)

    def augmentation(self, model: SmallClip) -> Any:
        """Crops and mirroring: colours stay, texts speak of them."""
        own = model.image.backbone.preprocessing
        return train_transform(own.size, own.mean, own.std, own.interpolation, (self.crop, 1.0))
