"""Metric learning: vectors of a class draw together, those of other classes apart, also of classes never seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.loading import Batch, mixed
from ..predict.distributed import rank
from .config import OptimizationConfig
from .contender import Contender
from .engine import Task, files_of
from .metric_module import MetricModule, MetricPart
from .probe import FeatureBatch
from .retrieval import Retrieval, Source

NAME = "metric"


class Latest(Contender):
    """Where nothing judges, the last epoch is the best."""

    def keep_if_best(self, score: float, epoch: int) -> None:
        super().keep_if_best(float(epoch), epoch)


class Metric(Task):
    """A task: the loss of `module` on batches of `loader`, judged by neighbours of classes that are held out.

    `train` is the data that the loader reads, images or cached features. Without a `judge` the last epoch is kept.
    """

    def __init__(
        self,
        module: MetricModule,
        train: Source,
        loader: Any,
        judge: Retrieval | None,
        settings: OptimizationConfig,
        score: str = "map@r",
        device: torch.device | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.settings, self.device, self.say = settings, device or torch.device("cpu"), say
        self.train, self.loader, self.judge, self.score = train, loader, judge, score
        self.places = places_of(np.asarray(train.labels))
        self.module = module.to(self.device)
        self.contenders = [(Latest if judge is None else Contender)(NAME, self.module, settings)]
        self.told: set[str] = set()

    def prepare(self, batch: Batch | FeatureBatch, parts: int) -> list[MetricPart]:
        if not len(batch.labels):
            return []
        labels = self.places[batch.labels].to(self.device)
        if isinstance(batch, FeatureBatch):
            return [MetricPart(batch.features.to(self.device), labels)]
        return [MetricPart(batch.images.to(self.device, non_blocking=True), labels)]

    def begin_step(self, epoch: float) -> None:
        self.module.epoch, self.module.step = epoch, round(epoch * len(self.loader))
        # What is drawn depends on the step alone: the same in every process, and after a resume.
        self.module.generator.manual_seed(mixed(self.settings.seed, self.module.step) >> 1)

    def loss(self, module: nn.Module, part: MetricPart) -> Tensor:
        found: Tensor = module(part)
        silent = self.module.silent
        if silent is not None and silent not in self.told and rank() == 0:
            self.told.add(silent)
            self.say(silent)
        return found

    def before_update(self, module: nn.Module) -> None:
        waiting = self.module.epoch < self.module.waiting.warm_up
        if waiting and (backbone := getattr(self.module.body, "backbone", None)) is not None:
            for p in backbone.parameters():
                p.grad = None  # no weight decay and no momentum either

    def end_step(self) -> None:
        self.module.remember()

    def settled(self) -> bool:
        """Not before the backbone learns and the memory is looked into."""
        own = self.module.waiting
        return self.module.epoch >= own.warm_up and self.module.step >= own.memory_after

    def validate(self) -> dict[str, dict[str, float]]:
        if self.judge is None:
            return {}
        module = self.contenders[0].judged
        assert isinstance(module, MetricModule)
        found = self.judge(module.body)
        shown = {key: found[key] for key in dict.fromkeys([self.score, "map@r", "recall@1"])}
        return {NAME: {"score": found[self.score], **shown}}

    def describe(self, batch: Batch | FeatureBatch) -> str:
        if isinstance(batch, FeatureBatch):
            return files_of(self.loader.cached.dataset, batch.indices)
        return files_of(self.loader.dataset.dataset, batch.indices.tolist())


def places_of(labels: Any) -> Tensor:
    """For each label its place among those that occur: losses count the classes that are trained from 0."""
    present = np.unique(labels)
    places = torch.full((int(present[-1]) + 1,), -1)
    places[torch.from_numpy(present)] = torch.arange(len(present))
    return places
