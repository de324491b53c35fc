"""Metric learning: pull vectors of a class together and push those of other classes apart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...backbones import Features
from ...data.loading import Batch
from ...data.samplers import mix_seed
from ...evaluate.validators import RetrievalValidator, embed_images_or_features
from ...losses.catalogue import create_metric_loss
from ...losses.metric import MetricLoss
from ...losses.metrix import Metrix
from ...losses.metrix_rivals import IMix, MoCHi, ProxySynthesis
from ...losses.mixing import Mixable
from ...losses.pml import create_miner
from ...losses.xbm import CrossBatchMemory
from ...losses.zero_shot import ZeroShot
from ...models import PooledModel
from ...models.frozen import PooledHead
from ...models.head import Embedding
from ...options import check_names
from ...pooling import MixablePool
from ...pooling.gsp import GSP
from ...predict.distributed import gathered, joined_rows, rank, world
from ...predict.embedding import EmbeddingSource, Loading
from ...predict.feature_cache import FeatureBatch
from ..config import MetricConfig, OptimizationConfig, Options
from ..divide_and_conquer import Learners
from ..engine import Examples, Metrics, Task, dataset_of
from ..state import LastEpochState, TrainState

NAME = "metric"
RIVALS = {"i-mix": IMix, "mochi": MoCHi, "proxy-synthesis": ProxySynthesis}
logger = logging.getLogger(__name__)


class MetricModule(nn.Module):
    """Model, loss with its proxies, mixing and memory; returns the loss of all processes' images.

    Vectors are gathered with their gradients, so that pairs across processes count and every
    process computes the same loss; the generator must have the same seed everywhere. Images made
    by input mixup are divided among the processes. `images` is the number of training images.
    """

    fitted: Tensor

    def __init__(
        self,
        options: MetricConfig,
        body: PooledModel | PooledHead,
        classes: int,
        fitted: bool = False,
        images: int = 0,
    ) -> None:
        super().__init__()
        self.options, self.mixing = options, build_mixing(options)
        zero_shot, memory = None, None
        if options.zero_shot:
            assert isinstance(body.pool, GSP)
            zero_shot = build_zero_shot(options, classes, body.pool.prototypes.shape[0])
        if options.xbm:
            memory = CrossBatchMemory(options.xbm, options.dim)
        # In this order: checkpoints know parameters by their position.
        self.body, self.loss = body, build_metric_loss(options, classes, images)
        self.zero_shot, self.memory = zero_shot, memory
        # GSP's prototypes are initialized with tokens of the first batch, unless already fitted.
        self.register_buffer("fitted", torch.tensor(fitted or not isinstance(body.pool, GSP)))
        self.generator = torch.Generator()  # seeded for every step
        self.epoch, self.step, self.counts = 0.0, 0, [0]
        self.no_loss_reason: str | None = None  # if the last batch had no loss
        self.last_batch: tuple[Tensor, Tensor] | None = None  # vectors and labels for the memory

    def forward(self, batch: Examples) -> Tensor:
        features = self.features(batch.inputs)
        self.counts = gathered(len(batch))  # they differ if images are unreadable
        if self.training and not self.fitted:
            self._fit_prototypes(features)
        z, histograms = self.vectors(features)
        z, labels = joined_rows(z, self.counts), joined_rows(batch.labels, self.counts)
        self.no_loss_reason = self.loss.silent(labels)
        loss = self._metric_loss(batch, features, z, labels)
        if self.zero_shot is not None and histograms is not None:
            self.no_loss_reason = self.no_loss_reason or self.zero_shot.silent(labels)
            w = self.zero_shot.weight
            histograms = joined_rows(histograms, self.counts)
            zero_shot = self.zero_shot(histograms, labels, self.generator)
            loss = (1 - w) * loss + w * zero_shot  # [GSP Sec. 4.4]
        self.last_batch = (z.detach(), labels)
        return loss

    def features(self, inputs: Tensor | Features) -> Features:
        """Compute features, without gradients for the backbone during its warm-up."""
        if isinstance(inputs, Features):
            return inputs
        assert isinstance(self.body, PooledModel)
        if self.epoch >= self.options.warm_up:
            return self.body.features(inputs)
        with torch.no_grad():
            features = self.body.features(inputs)
        if world() == 1 or not self.training:
            return features
        # DistributedDataParallel waits for a gradient of every parameter: here it is zero.
        trained = [p for p in self.body.backbone.parameters() if p.requires_grad]
        zero = sum(p.flatten()[0] * 0 for p in trained)
        return features._replace(**{name: x + zero for name, x in features.tensors().items()})

    def vectors(self, features: Features) -> tuple[Tensor, Tensor | None]:
        """Return z (B, D), not normalized, and GSP's histograms (B, m) for the zero-shot loss."""
        if self.zero_shot is None:
            return self._embed(features), None
        assert isinstance(self.body.pool, GSP)
        u, histograms = self.body.pool.with_histogram(self.body.pooled_tokens(features))
        return self.body.refine(u), histograms

    def _embed(self, features: Features) -> Tensor:
        """Return z (B, D); several pooled vectors without an embedding after them are in a row."""
        return self.body.embed_features(features).flatten(1)

    def update_memory(self) -> None:
        """Add the vectors of the last batch to the cross-batch memory."""
        started = self.step >= self.options.xbm_after
        if self.memory is not None and self.last_batch is not None and started:
            z, labels = self.last_batch
            finite = z.isfinite().all(1)
            self.memory.add(z[finite], labels[finite])
        self.last_batch = None

    def lr_factors(self) -> list[tuple[Iterable[nn.Parameter], float]]:
        """Return the learning rate factor of proxies and label embeddings."""
        proxies = list(self.loss.parameters())
        if self.zero_shot is not None:
            proxies += self.zero_shot.parameters()
        return [(proxies, self.options.proxy_rate)]

    def no_weight_decay(self) -> set[str]:
        names: set[str] = getattr(self.body, "no_weight_decay", set)()
        return {f"body.{name}" for name in names}

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int]:
        if not isinstance(self.body, PooledModel):
            raise ValueError("layer_decay needs a backbone that trains, this one is frozen")
        layer_of = self.body.group_matcher(coarse)
        return lambda name: layer_of(name.removeprefix("body."))

    def train(self, mode: bool = True) -> MetricModule:
        super().train(mode)
        if self.options.freeze_bn and isinstance(self.body, PooledModel):
            for layer in self.body.backbone.modules():
                if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                    layer.eval()
        return self

    def _metric_loss(
        self, batch: Examples, features: Features, z: Tensor, labels: Tensor
    ) -> Tensor:
        memory = None
        if self.memory is not None and int(self.memory.filled):
            memory = self.memory.get()
        loss: Tensor
        if self.mixing is None:
            loss = self.loss(z, labels, memory)
            return loss
        if isinstance(self.mixing, Metrix):
            reason = self.mixing.silent(self.loss, labels)
            self.no_loss_reason = self.no_loss_reason or reason
        linear = is_linear(self.body)
        maps = images = mixed_pool = None
        if self.mixing.needs_maps and not linear:
            maps = joined_rows(self.body.pooled_tokens(features), self.counts)
        if self.mixing.needs_images:
            assert isinstance(batch.inputs, Tensor)
            images = joined_rows(batch.inputs, self.counts)
        if isinstance(self.body.pool, MixablePool):
            mixed_pool = self._pool_mixed
        embed = partial(self._embed_maps, grid=features.grid)
        mixable = Mixable(labels, z, maps, images, embed, self._embed_images, linear, mixed_pool)
        loss = self.mixing(self.loss, mixable, self.generator, memory)
        return loss

    def _embed_maps(self, maps: Tensor, grid: tuple[int, int]) -> Tensor:
        prefix = maps.shape[1] - grid[0] * grid[1]
        features = Features(maps[:, prefix:], grid)
        if prefix:
            features = features._replace(cls=maps[:, 0], registers=maps[:, 1:prefix])
        return self._embed(features)

    def _pool_mixed(self, maps: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        assert isinstance(self.body.pool, MixablePool)
        return self.body.refine(self.body.pool.mixed(maps, b, c, lam))

    def _embed_images(self, images: Tensor) -> Tensor:
        """Divide the images among the processes, if there are enough of them."""
        if len(images) < world():
            return self._embed(self.features(images))
        shares = images.tensor_split(world())
        vectors = self._embed(self.features(shares[rank()]))
        return joined_rows(vectors, [len(share) for share in shares])

    @torch.no_grad()
    def _fit_prototypes(self, features: Features) -> None:
        """Initialize GSP's prototypes in place: the optimizer already holds them."""
        assert isinstance(self.body.pool, GSP)
        tokens = self.body.pooled_tokens(features).float()
        self.body.pool.fit(joined_rows(tokens, self.counts))
        self.fitted.fill_(True)


class Metric(Task):
    """Metric learning, validated by retrieval of classes that are held out.

    `train` is the data that the loader reads, images or cached features. Without a `validator` the
    last epoch is kept.
    """

    def __init__(
        self,
        module: MetricModule,
        train: EmbeddingSource,
        loader: Any,
        validator: RetrievalValidator | None,
        settings: OptimizationConfig,
        device: torch.device,
    ) -> None:
        self.settings, self.device, self.source, self.loader = settings, device, train, loader
        self.validator, self.score = validator, str(module.options.score)
        self.label_to_index = label_to_index(np.asarray(train.labels))
        self.module = module.to(self.device)
        kind = LastEpochState if validator is None else TrainState
        self.states = [kind(NAME, self.module, settings)]
        self.logged: set[str] = set()

    def examples(self, batch: Batch | FeatureBatch) -> Examples:
        labels = self.label_to_index[batch.labels].to(self.device)
        if isinstance(self.module.loss, Learners):
            self.module.loss.choose(torch.as_tensor(batch.indices))
        return Examples(super().examples(batch).inputs, labels)

    def saved_model(self) -> PooledModel:
        module = self.states[0].evaluated
        assert isinstance(module, MetricModule) and isinstance(module.body, PooledModel)
        return module.body

    def begin_epoch(self, epoch: int) -> None:
        loss, options = self.module.loss, self.module.options
        if not isinstance(loss, Learners):
            return
        if epoch >= self.settings.epochs - options.joint_epochs:
            loss.join()
        elif epoch % options.recluster == 0:
            loading = Loading(self.settings.batch, self.settings.readers)
            with torch.no_grad():
                body = self.module.body.eval()
                x, positions, _ = embed_images_or_features(body, self.source, self.device, loading)
            labels = torch.from_numpy(dataset_of(self.source).labels)[positions]
            loss.divide(x, positions, labels, mix_seed(self.settings.seed, epoch) >> 33)

    def begin_step(self, epoch: float) -> None:
        self.module.epoch, self.module.step = epoch, round(epoch * len(self.loader))
        # Depends on the step alone: the same in every process, and in a resumed run.
        self.module.generator.manual_seed(mix_seed(self.settings.seed, self.module.step) >> 1)

    def loss(self, module: nn.Module, inputs: Examples) -> Tensor:
        loss = super().loss(module, inputs)
        reason = self.module.no_loss_reason
        if reason is not None and reason not in self.logged:
            self.logged.add(reason)
            logger.info(reason)
        return loss

    def before_update(self, module: nn.Module) -> None:
        backbone = getattr(self.module.body, "backbone", None)
        if backbone is not None and self.module.epoch < self.module.options.warm_up:
            for p in backbone.parameters():
                p.grad = None  # without weight decay and momentum

    def end_step(self) -> None:
        self.module.update_memory()

    def counts_for_patience(self) -> bool:
        """Return whether the backbone trains and the memory is used."""
        options = self.module.options
        return self.module.epoch >= options.warm_up and self.module.step >= options.xbm_after

    def validate(self) -> Metrics:
        if self.validator is None:
            return {}
        module = self.states[0].evaluated
        assert isinstance(module, MetricModule)
        scores = self.validator(module.body)
        logged = {key: scores[key] for key in dict.fromkeys([self.score, "map@r", "recall@1"])}
        return {NAME: {"score": scores[self.score], **logged}}


def label_to_index(labels: Any) -> Tensor:
    """Return a table from label to index among the labels that occur: losses need 0 to C - 1."""
    present = np.unique(labels)
    indices = torch.full((int(present[-1]) + 1,), -1)
    indices[torch.from_numpy(present)] = torch.arange(len(present))
    return indices


def is_linear(body: PooledModel | PooledHead) -> bool:
    """Return whether mixing maps equals mixing vectors: average pooling without a norm after it."""
    linear = isinstance(body.after, nn.Identity)
    if isinstance(body.embedding, Embedding):
        linear = linear and isinstance(body.embedding.norm, nn.Identity)
    return linear and (body.pool is None or body.pool.name == "gap")


def build_metric_loss(options: MetricConfig, classes: int, images: int = 0) -> MetricLoss:
    """Build the loss, with `learners` one of each slice of the embedding of `images` images."""
    arguments = dict(options.loss_options)
    if options.miner is not None:
        if not options.loss.startswith("pml/"):
            raise ValueError(f"a miner selects the pairs of a loss pml/NAME, not of {options.loss}")
        arguments["miner"] = create_miner(options.miner, **options.miner_options)

    def create(dim: int) -> MetricLoss:
        return create_metric_loss(options.loss, classes, dim, **arguments)

    if options.learners:
        return Learners(create, options.dim, options.learners, images)
    return create(options.dim)


def build_zero_shot(options: MetricConfig, classes: int, prototypes: int) -> ZeroShot:
    fixed = ("classes", "prototypes", "weight")
    names = [name for name in signature(ZeroShot).parameters if name not in fixed]
    check_names("zero-shot", options.zero_shot_options, names)
    return ZeroShot(classes, prototypes, options.zero_shot, **options.zero_shot_options)


def build_mixing(options: MetricConfig) -> Any:
    """Build Metrix or a rival, or return None if nothing is mixed."""
    if not (options.metrix or options.rival):
        return None
    kind: Any = Metrix
    arguments: Options = {"where": options.metrix, "pairs": options.mix}
    if options.rival:
        kind, arguments = RIVALS[options.rival], {}
    names = [item.name for item in fields(kind) if item.name not in arguments]
    check_names(options.rival or "metrix", options.mix_options, names)
    for name, value in options.mix_options.items():
        if name == "pairs" and isinstance(value, str):
            value = value.split(",")
        arguments[name] = tuple(value) if isinstance(value, list) else value
    return kind(**arguments)
