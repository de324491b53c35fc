"""What metric learning is asked for: `options` of a recipe, and of the command."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor

from ..losses.catalogue import create_metric_loss
from ..losses.i_mix import IMix
from ..losses.metric import MetricLoss
from ..losses.metrix import Metrix, Mixable
from ..losses.mochi import MoCHi
from ..losses.proxy_synthesis import ProxySynthesis
from ..losses.xbm import CrossBatchMemory
from ..losses.zero_shot import ZeroShot
from ..models import PooledModel
from ..models.frozen import PooledHead
from ..options import check_names
from ..pooling.gsp import GSP
from .tasks.metric import Freezing, MetricModule

RIVALS = {"i-mix": IMix, "mochi": MoCHi, "proxy-synthesis": ProxySynthesis}


@dataclass(frozen=True)
class MetricOptions:
    dim: int = 512  # of the embedding
    embedding_norm: str | None = None  # "layer": a LayerNorm between pool and embedding
    loss: str = "multi-similarity"
    loss_options: dict[str, Any] = field(default_factory=dict)
    metrix: tuple[str, ...] = ()  # where examples are mixed: input, feature, embed
    mix: tuple[str, ...] = ("pos-neg", "anc-neg")  # which pairs are
    rival: str | None = None  # i-mix, mochi or proxy-synthesis in the place of Metrix
    mix_options: dict[str, Any] = field(default_factory=dict)  # of Metrix or its rival
    zero_shot: float = 0.0  # weight of GSP's zero-shot loss; the paper's is 0.1
    zero_shot_options: dict[str, Any] = field(default_factory=dict)
    xbm: int = 0  # vectors of earlier steps that are compared with too
    xbm_after: int = 0  # steps before they are
    images_per_class: int = 4  # of a step; 0: images come as they come, not class by class
    classes_per_batch: int | None = None  # the batch, in images, divided by those of a class
    warm_up: float = 0.0  # epochs in which the backbone keeps its weights
    freeze_bn: bool = False  # the backbone's BatchNorm keeps the statistics it came with
    proxy_rate: float = 100.0  # how many times as fast proxies and label embeddings learn
    protocol: Literal["conventional", "fair"] = "conventional"
    repeats: int = 1  # trainings of each of the fair protocol's four models
    epoch_steps: int | None = (
        None  # steps of an epoch, after which the model is judged; None: all images once
    )
    validate: Literal["classes", "test", "last"] = "classes"  # who chooses the epoch
    score: Literal["map@r", "recall@1"] = "map@r"  # and by what
    without_match: Literal["exclude", "miss"] = (
        "exclude"  # what becomes of queries that have nothing to find
    )

    def __post_init__(self) -> None:
        if self.rival is not None and self.rival not in RIVALS:
            raise ValueError(f"the rivals of Metrix are {', '.join(RIVALS)}, got '{self.rival}'")
        if self.rival and self.metrix:
            raise ValueError("Metrix or one of its rivals: leave out --metrix or --rival")
        if self.mix_options and not (self.rival or self.metrix):
            raise ValueError(
                "options of mixing need something to mix: --metrix feature, for instance"
            )
        for name in ("images_per_class", "xbm", "xbm_after", "warm_up"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.classes_per_batch is not None and (
            self.classes_per_batch < 2 or not self.images_per_class
        ):
            raise ValueError("classes_per_batch is at least 2, with images_per_class of at least 1")
        if self.xbm_after and not self.xbm:
            raise ValueError("xbm_after is when a memory begins: it needs --xbm, its size")
        if self.epoch_steps is not None and self.epoch_steps < 1:
            raise ValueError(f"epoch_steps must be at least 1, got {self.epoch_steps}")
        if not 1 <= self.repeats <= 5:
            told = "every collection of four models is judged, 81 of 3 trainings, 625 of 5"
            raise ValueError(f"repeats is from 1 to 5, got {self.repeats}: {told}")
        if self.protocol == "fair" and self.validate != "classes":
            raise ValueError(
                "the fair protocol chooses by the classes that a fold holds out: leave out --validate"
            )
        if self.repeats > 1 and self.protocol != "fair":
            raise ValueError(
                "--repeats needs --protocol fair: it is how often each of its four models is trained"
            )
        if self.proxy_rate <= 0:
            raise ValueError(f"proxy_rate must be above 0, got {self.proxy_rate}")

    def module(
        self, body: PooledModel | PooledHead, classes: int, fitted: bool = False
    ) -> MetricModule:
        """All that learns, around a model or the top of one, whose pool may be `fitted` to data already."""
        pool = body.pool
        zero_shot = None
        if self.zero_shot:
            assert isinstance(pool, GSP)
            zero_shot = self.make_zero_shot(classes, pool.prototypes.shape[0])
        freezing = Freezing(self.warm_up, self.freeze_bn, self.proxy_rate, self.xbm_after)
        memory = CrossBatchMemory(self.xbm, self.dim) if self.xbm else None
        return MetricModule(
            body, self.make_loss(classes), self.make_mixing(), zero_shot, memory, freezing, fitted
        )

    def make_loss(self, classes: int) -> MetricLoss:
        return create_metric_loss(self.loss, classes, self.dim, **self.loss_options)

    def make_zero_shot(self, classes: int, prototypes: int) -> ZeroShot:
        known = [
            name
            for name in signature(ZeroShot).parameters
            if name not in ("classes", "prototypes", "weight")
        ]
        check_names("zero-shot", self.zero_shot_options, known)
        return ZeroShot(classes, prototypes, self.zero_shot, **self.zero_shot_options)

    def make_mixing(self) -> Any:
        """Metrix, a rival, or nothing."""
        if not (self.metrix or self.rival):
            return None
        kind: Any = RIVALS[self.rival] if self.rival else Metrix
        own: dict[str, Any] = {} if self.rival else {"where": self.metrix, "pairs": self.mix}
        known = [f.name for f in fields(kind) if f.name not in own]
        check_names(self.rival or "metrix", self.mix_options, known)
        given: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in self.mix_options.items()
        }  # fmt: skip
        if isinstance(given.get("pairs"), str):
            given["pairs"] = tuple(given["pairs"].split(","))
        return kind(**own, **given)

    def check(self) -> None:
        """One step with next to nothing: a loss and what it cannot work with are told before the images are read."""
        with torch.random.fork_rng(devices=()):
            loss, mixing = self.make_loss(2), self.make_mixing()
            if self.zero_shot:
                self.make_zero_shot(2, 1)
            z, labels = torch.randn(4, self.dim), torch.tensor([0, 0, 1, 1])
            memory = (torch.randn(2, self.dim), labels[1:3]) if self.xbm else None
            if mixing is None:
                loss(z, labels, memory)
                return

            def some(x: Tensor) -> Tensor:
                return torch.randn(len(x), self.dim)

            batch = Mixable(labels, z, torch.randn(4, 1, 1), torch.randn(4, 3, 1, 1), some, some)
            mixing(loss, batch, torch.Generator(), memory)
