"""Metric learning: vectors of a class draw together, those of other classes apart, also of classes never seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...backbones import Features
from ...data.loading import Batch
from ...data.samplers import mix_seed
from ...losses.metrix import Metrix, Mixable
from ...losses.xbm import CrossBatchMemory
from ...losses.zero_shot import ZeroShot
from ...models import PooledModel
from ...models.embedding import Embedding
from ...models.frozen import PooledHead
from ...pooling import MixablePool
from ...pooling.gsp import GSP
from ...predict.distributed import gathered, joined_rows, rank, world
from ...predict.feature_batches import FeatureBatch
from ..config import OptimizationConfig
from ..engine import Task, files_of
from ..retrieval import Retrieval, Source
from ..state import TrainState


class MetricInputs(NamedTuple):
    inputs: Tensor | Features  # images, or features from a cache
    labels: Tensor  # (B,), from 0, of the classes that are trained

    def __len__(self) -> int:  # of images, not of fields
        return self.labels.shape[0]


@dataclass(frozen=True)
class Waiting:
    """What stands still, and for how long."""

    warm_up: float = 0.0  # epochs in which the backbone keeps its weights
    freeze_bn: bool = False  # the statistics of its BatchNorm stay those it came with
    proxy_rate: float = 1.0  # how many times as fast proxies and label embeddings learn
    memory_after: int = 0  # steps before the memory is used


class MetricModule(nn.Module):
    """Its output is the loss of a batch, of all processes' images together: pairs across processes count.

    The vectors of all processes are gathered with their gradients and every process computes the same loss of them;
    the generator must be the same everywhere too. Images that input mixup makes are shared out among processes.
    """

    fitted: Tensor

    def __init__(
        self,
        body: PooledModel | PooledHead,
        loss: Any,
        mixing: Any = None,
        zero_shot: ZeroShot | None = None,
        memory: CrossBatchMemory | None = None,
        waiting: Waiting | None = None,
        fitted: bool = False,
    ) -> None:
        super().__init__()
        self.body, self.loss, self.zero_shot, self.memory = body, loss, zero_shot, memory
        self.mixing, self.waiting = mixing, waiting or Waiting()
        # GSP's prototypes begin at tokens of the first batch, unless they are `fitted` already.
        self.register_buffer("fitted", torch.tensor(fitted or not isinstance(body.pool, GSP)))
        self.generator = torch.Generator()  # seeded anew for every step
        self.epoch, self.step, self.counts = 0.0, 0, [0]
        self.silent: str | None = None  # why the last batch said nothing, if so
        self.seen: tuple[Tensor, Tensor] | None = None  # of the last batch, for the memory

    def forward(self, part: MetricInputs) -> Tensor:
        features = self.features(part.inputs)
        self.counts = gathered(len(part))  # they differ where images cannot be read
        if self.training and not self.fitted:
            self._fit(features)
        z, histograms = self.vectors(features)
        z, labels = joined_rows(z, self.counts), joined_rows(part.labels, self.counts)
        self.silent = self.loss.silent(labels)
        loss = self._dml(part, features, z, labels)
        if self.zero_shot is not None and histograms is not None:
            self.silent = self.silent or self.zero_shot.silent(labels)
            w = self.zero_shot.weight
            histograms = joined_rows(histograms, self.counts)
            loss = (1 - w) * loss + w * self.zero_shot(
                histograms, labels, self.generator
            )  # (G 4.4)
        self.seen = (z.detach(), labels)
        return loss

    def features(self, inputs: Tensor | Features) -> Features:
        """Without gradients for the backbone while it waits; with zeros where other processes wait for some."""
        if isinstance(inputs, Features):
            return inputs
        assert isinstance(self.body, PooledModel)
        if self.epoch >= self.waiting.warm_up:
            return self.body.features(inputs)
        with torch.no_grad():
            features = self.body.features(inputs)
        if world() == 1 or not self.training:
            return features
        nothing = sum(
            p.flatten()[0] * 0 for p in self.body.backbone.parameters() if p.requires_grad
        )
        cls = None if features.cls is None else features.cls + nothing
        return Features(features.tokens + nothing, features.grid, cls)

    def vectors(self, features: Features) -> tuple[Tensor, Tensor | None]:
        """z (B, D), not normalised, and GSP's histograms (B, m) where the zero-shot loss asks for them."""
        if self.zero_shot is None:
            return self.body.embed_features(features), None
        assert isinstance(self.body.pool, GSP)
        u, histograms = self.body.pool.with_histogram(_pooled_tokens(self.body, features))
        return self.body.refine(u), histograms

    def remember(self) -> None:
        """After the step: its vectors go into the memory."""
        if (
            self.memory is not None
            and self.seen is not None
            and self.step >= self.waiting.memory_after
        ):
            z, labels = self.seen
            finite = z.isfinite().all(1)
            self.memory.add(z[finite], labels[finite])
        self.seen = None

    def own_rates(self) -> list[tuple[Iterable[nn.Parameter], float]]:
        """Proxies and label embeddings begin anywhere and have far to go."""
        own = [
            p for part in (self.loss, self.zero_shot) if part is not None for p in part.parameters()
        ]
        return [(own, self.waiting.proxy_rate)]

    def no_weight_decay(self) -> set[str]:
        ask = getattr(self.body, "no_weight_decay", set)
        return {f"body.{name}" for name in ask()}

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int]:
        if not isinstance(self.body, PooledModel):
            raise ValueError("a frozen backbone has no layers to train: no layer_decay")
        layer_of = self.body.group_matcher(coarse)
        return lambda name: layer_of(name.removeprefix("body."))

    def train(self, mode: bool = True) -> MetricModule:
        super().train(mode)
        if self.waiting.freeze_bn and isinstance(self.body, PooledModel):
            for layer in _batch_norms(self.body.backbone):
                layer.eval()
        return self

    def _dml(self, part: MetricInputs, features: Features, z: Tensor, labels: Tensor) -> Tensor:
        memory = None
        if self.memory is not None and int(self.memory.filled):
            memory = self.memory.get()
        if self.mixing is None:
            loss: Tensor = self.loss(z, labels, memory)
            return loss
        if isinstance(self.mixing, Metrix):
            self.silent = self.silent or self.mixing.silent(self.loss, labels)
        linear = is_linear(self.body)
        maps = (
            joined_rows(_maps(self.body, features), self.counts)
            if self.mixing.needs_maps and not linear
            else None
        )
        images = None
        if self.mixing.needs_images:
            assert isinstance(part.inputs, Tensor)
            images = joined_rows(part.inputs, self.counts)
        embed = partial(self._embed, grid=features.grid)
        mixed = self._mixed if isinstance(self.body.pool, MixablePool) else None
        batch = Mixable(labels, z, maps, images, embed, self._network, linear, mixed)
        loss = self.mixing(self.loss, batch, self.generator, memory)
        return loss

    def _embed(self, maps: Tensor, grid: tuple[int, int]) -> Tensor:
        places = grid[0] * grid[1]
        cls = maps[:, places] if maps.shape[1] > places else None
        return self.body.embed_features(Features(maps[:, :places], grid, cls))

    def _mixed(self, maps: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        assert isinstance(self.body.pool, MixablePool)
        return self.body.refine(self.body.pool.mixed(maps, b, c, lam))

    def _network(self, images: Tensor) -> Tensor:
        """Each process runs its share; what is too little to share, all of them run."""
        if len(images) < world():
            return self.body.embed_features(self.features(images))
        shares = images.tensor_split(world())
        mine = self.body.embed_features(self.features(shares[rank()]))
        return joined_rows(mine, [len(share) for share in shares])

    @torch.no_grad()
    def _fit(self, features: Features) -> None:
        """GSP's prototypes begin at tokens of the first batch, in place: the optimizer holds them already."""
        assert isinstance(self.body.pool, GSP)
        tokens = _pooled_tokens(self.body, features).float()
        self.body.pool.fit(joined_rows(tokens, self.counts))
        self.fitted.fill_(True)


def is_linear(body: PooledModel | PooledHead) -> bool:
    """Whether the vector of mixed maps is the mix of the vectors: average pooling, and no norm behind it."""
    plain = isinstance(body.after, nn.Identity)
    if isinstance(body.embedding, Embedding):
        plain = plain and isinstance(body.embedding.norm, nn.Identity)
    return plain and (body.pool is None or body.pool.name == "gap")


def _pooled_tokens(body: PooledModel | PooledHead, features: Features) -> Tensor:
    if body.tokens == "patches":
        return features.tokens
    assert features.cls is not None
    return torch.cat([features.cls[:, None], features.tokens], 1)


def _maps(body: PooledModel | PooledHead, features: Features) -> Tensor:
    """(B, N, D), or (B, N + 1, D) with the CLS token last where it counts."""
    if body.tokens == "patches" or features.cls is None:
        return features.tokens
    return torch.cat([features.tokens, features.cls[:, None]], 1)


def _batch_norms(module: nn.Module) -> Iterator[nn.Module]:
    return (
        layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)
    )


NAME = "metric"


class LastEpochState(TrainState):
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
        self.states = [
            (LastEpochState if judge is None else TrainState)(NAME, self.module, settings)
        ]
        self.told: set[str] = set()

    def prepare(self, batch: Batch | FeatureBatch, parts: int) -> list[MetricInputs]:
        if not len(batch.labels):
            return []
        labels = self.places[batch.labels].to(self.device)
        if isinstance(batch, FeatureBatch):
            return [MetricInputs(batch.features.to(self.device), labels)]
        return [MetricInputs(batch.images.to(self.device, non_blocking=True), labels)]

    def begin_step(self, epoch: float) -> None:
        self.module.epoch, self.module.step = epoch, round(epoch * len(self.loader))
        # What is drawn depends on the step alone: the same in every process, and after a resume.
        self.module.generator.manual_seed(mix_seed(self.settings.seed, self.module.step) >> 1)

    def loss(self, module: nn.Module, part: MetricInputs) -> Tensor:
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
        module = self.states[0].judged
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
