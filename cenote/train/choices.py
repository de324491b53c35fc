"""From what a user asks for to settings, a model and a transform."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from ..backbones import Backbone
from ..data import Dataset
from ..data.transforms import train_transform
from ..models import PooledModel, create_model
from ..models.surgery.pyramid import Pyramid
from ..models.surgery.stride import create_finer_backbone
from .config import OptimizationConfig
from .tasks.supervised import Supervised

PROBE = OptimizationConfig(epochs=30, batch=128, lr=1e-3, warmup=2, weight_decay=0.05)
PROBE_RATES = (3e-4, 1e-3, 3e-3, 1e-2)
FINETUNE = OptimizationConfig(
    epochs=20, batch=64, lr=3e-4, warmup=2, weight_decay=0.05, smoothing=0.1, clip=1.0
)
SCRATCH = OptimizationConfig(
    epochs=100, batch=64, lr=1e-3, warmup=5, weight_decay=0.05, smoothing=0.1, clip=1.0
)


@dataclass(frozen=True)
class Choices:
    """What `cenote fit` was asked for. A recipe fills in what is left open."""

    backbone: str = "lite0"
    pool: str = "simpool"
    tokens: str = "patches"
    weights: Path | None = None
    freeze: bool = False
    scratch: bool = False
    size: int | None = None
    stride: int = 1  # how many times finer the last map is: 1, 2 or 4
    fpn: str | None = None  # the level of a feature pyramid that is pooled
    last_block: str | None = None  # "sar", or a row A-F of SAR's Table 1(b)
    keep_cls: bool = False  # a CLS token stays in the encoder, though a pool takes its place
    cutout: float = 0.0  # largest black square, as a share of the side
    rates: tuple[float, ...] = ()
    pool_options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(
        default_factory=dict
    )  # fields of OptimizationConfig that are not to be the default

    def __post_init__(self) -> None:
        if self.freeze and self.scratch:
            raise ValueError(
                "a frozen backbone needs trained weights: freeze and scratch exclude each other"
            )
        if self.freeze and self.fpn:
            raise ValueError(
                "a feature pyramid must be trained: --fpn and --freeze exclude each other (--stride works)"
            )
        if self.freeze and (self.last_block or self.settings.get("sar")):
            raise ValueError(
                "SAR changes how a backbone learns to attend: no --sar and no --last-block with --freeze"
            )
        if self.freeze and self.cutout:
            raise ValueError(
                "frozen features are computed once, from whole pictures: no --cutout with --freeze"
            )
        if self.freeze and self.settings.get("select", "accuracy") != "accuracy":
            raise ValueError(
                "with --freeze an epoch is chosen by accuracy; train all weights to choose by localization"
            )
        if not 0 <= self.cutout <= 1:
            raise ValueError(
                f"cutout is a share of the image's side from 0 to 1, got {self.cutout}"
            )
        if not self.freeze and len(self.rates) > 1:
            raise ValueError("several rates are tried with a frozen backbone only: give one lr")

    def training(self) -> OptimizationConfig:
        """The defaults of this kind of run with the user's own in their place."""
        base = PROBE if self.freeze else SCRATCH if self.scratch else FINETUNE
        known = [f.name for f in dataclasses.fields(OptimizationConfig)]
        for name in self.settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean '{near[0]}'?" if near else f": {', '.join(known)}"
                raise ValueError(f"no setting '{name}'{hint}")
        rate = {"lr": self.rates[0]} if self.rates and not self.freeze else {}
        return dataclasses.replace(base, **{**self.settings, **rate})

    def check(self) -> None:
        """Weights that are not there, and what the backbone cannot do: told before the images are read."""
        if self.weights is not None and not self.weights.exists():
            raise FileNotFoundError(2, "no such weights file", str(self.weights))
        if self.stride == 1 and self.fpn is None:
            return
        with torch.random.fork_rng(devices=()):  # nothing is drawn that training would draw
            backbone = create_finer_backbone(self.backbone, self.stride, img_size=self.size)
            if self.fpn is not None:
                Pyramid(backbone, self.fpn, dim=1)

    def model(self, classes: int) -> PooledModel:
        torch.manual_seed(self.training().seed)
        model = create_model(
            self.backbone,
            self.pool,
            classes,
            pretrained=not self.scratch and self.weights is None,
            weights=self.weights,
            tokens=self.tokens,
            pool_options=self.pool_options,
            img_size=self.size,
            stride=self.stride,
            fpn=self.fpn,
            last_block=self.last_block,
            keep_cls=self.keep_cls,
        )
        self._resize(model.backbone)
        return model

    def frozen_backbone(self) -> Backbone:
        options: dict[str, Any] = {
            "pretrained": True,
            "weights": self.weights,
            "img_size": self.size,
        }
        backbone = create_finer_backbone(self.backbone, self.stride, **options)
        self._resize(backbone)
        return backbone

    def _resize(self, backbone: Backbone) -> None:
        if self.size is not None:
            backbone.preprocessing = dataclasses.replace(backbone.preprocessing, size=self.size)

    def task(
        self,
        model: PooledModel,
        train: Dataset,
        val: Dataset,
        transform: Any,
        device: torch.device | None = None,
    ) -> Supervised:
        """What the engine is to train."""
        return Supervised(model, train, val, self.training(), transform, device=device)

    def finish(self, model: PooledModel) -> None:
        """Take out of the trained model what was there for training alone."""

    def augmentation(self, model: PooledModel) -> Any:
        """Random crops, gentle for trained weights: they know whole objects."""
        own = model.backbone.preprocessing
        scale = (0.08, 1.0) if self.scratch else (0.35, 1.0)
        return train_transform(
            own.size, own.mean, own.std, own.interpolation, scale, cutout=self.cutout
        )


def given_only(asked: dict[str, Any]) -> dict[str, Any]:
    """Without what was left open."""
    return {
        key: value
        for key, value in asked.items()
        if not (value is None or value is False or value in ((), {}))
    }


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """`gamma=2 heads=4` -> {"gamma": 2, "heads": 4}, each value as YAML reads it."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"an option is KEY=VALUE, for example gamma=2; got '{pair}'")
        found[key.strip().replace("-", "_")] = _value(value)
    return found


def _value(text: str) -> Any:
    """As YAML reads it, but 1e-4 is a number."""
    value = yaml.safe_load(text)
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
