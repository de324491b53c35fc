"""`cenote dino` and `cenote moco`: train a model without labels and save its teacher.

DINO (Caron et al., 2021) and MoCo v3 (Chen et al., 2021) with any backbone and any pool. Both train
a student on views of images, and keep its moving average, the teacher.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from timm.layers.drop import DropPath
from timm.layers.patch_dropout import PatchDropout
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..data import Dataset
from ..data.loading import Batch
from ..data.splits import TRAIN, VAL
from ..evaluate.validators import KnnValidator
from ..losses import moco_loss
from ..losses.self_supervised import Spread, answer_spread, dino_loss, teacher_probabilities
from ..models import PooledModel, save_model
from ..models.head import DinoHead, MocoHead, is_transformer
from ..models.surgery import fix_positions
from ..predict.distributed import gathered_rows, rank, summed
from .augment import build_augmentation
from .build import build_model
from .checkpoint import can_resume, run_processes
from .config import DinoConfig, MocoConfig, OptimizationConfig, Options, RunConfig
from .engine import CPU, Engine, Metrics, load_batches
from .optimizer import cosine
from .reports import SelfSupervisedReport
from .sar import SarLoss, SarTask
from .state import LastEpochState

FEW_IMAGES = 100_000
FEW_STEPS = 10_000
Network = TypeVar("Network", bound=nn.Module)
logger = logging.getLogger(__name__)


class Crops(NamedTuple):
    """Views of images, grouped by size, large ones first; the teacher sees the first group."""

    groups: list[Tensor]  # each (views * B, 3, H, W), view by view
    images: int

    def __len__(self) -> int:  # of images, not of fields
        return self.images


class StudentTeacher(SarTask):
    """Train a student whose moving average is the teacher; that of the last epoch is kept.

    k-NN accuracy is only reported: the images that it is measured on may be those of a benchmark.

    `create_module(model, options)` returns the module with attributes `student` and `teacher`.
    Without `val` it is not validated.
    """

    name: ClassVar[str]
    create_module: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        model: PooledModel,
        train: Dataset,
        val: Dataset | None,
        settings: OptimizationConfig,
        transform: Any,
        options: Any,
        device: torch.device = CPU,
    ) -> None:
        self.settings, self.source, self.options, self.device = settings, train, options, device
        self.module = type(self).create_module(model, options).to(self.device)
        self.loader = load_batches(train, transform, settings, drop_last=True)
        self.states = [LastEpochState(self.name, self.module, settings)]
        self.knn = None
        if val is not None:
            self.knn = KnnValidator(train, val, settings.batch, settings.readers)
        self.sar = SarLoss(model, settings) if settings.sar else None

    @property
    def teacher(self) -> PooledModel:
        teacher: PooledModel = self.module.teacher
        return teacher

    def saved_model(self) -> PooledModel:
        return self.teacher

    def prepare(self, batch: Batch, chunks: int) -> list[Crops]:
        if not len(batch.labels):
            return []
        views = [view.to(self.device, non_blocking=True).chunk(chunks) for view in batch.images]
        return [group_by_size([view[i] for view in views]) for i in range(len(views[0]))]

    def begin_step(self, epoch: float) -> None:
        self.momentum = cosine(self.options.momentum, 1.0, epoch / self.settings.epochs)
        super().begin_step(epoch)

    def validate(self) -> Metrics:
        metrics = self.training_metrics()
        if self.knn is not None:
            accuracy = self.knn(self.teacher)
            metrics |= {"score": next(iter(accuracy.values())), **accuracy}
        return {self.name: metrics}

    def training_metrics(self) -> dict[str, float]:
        """Return metrics of the method itself, for the log."""
        return {}

    def end_step(self) -> None:
        self.module.update_teacher(self.momentum)


def group_by_size(views: Sequence[Tensor]) -> Crops:
    """Concatenate views of the same size, which run through the network together."""
    groups: dict[tuple[int, ...], list[Tensor]] = {}
    for view in views:
        groups.setdefault(tuple(view.shape[2:]), []).append(view)
    return Crops([torch.cat(group) for group in groups.values()], len(views[0]))


def create_teacher(student: Network) -> Network:
    """Copy a network without gradients, dropout and stochastic depth."""
    teacher = copy.deepcopy(student).requires_grad_(False)
    for module in teacher.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, DropPath):
            module.drop_prob = 0.0
        elif isinstance(module, PatchDropout):
            module.prob = 0.0
    return teacher


@torch.no_grad()
def update_teacher(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """Move the parameters towards the student's; BatchNorm statistics stay the teacher's."""
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)


class DinoModule(nn.Module):
    """Student and teacher with their heads; returns the loss of a batch and the teacher's outputs.

    The loss is the module's output so that DistributedDataParallel can wrap it.
    """

    centre: Tensor

    def __init__(self, model: PooledModel, options: DinoConfig) -> None:
        super().__init__()
        self.options = options
        self.student = model
        self.head = DinoHead(
            model.vector_dim,
            options.out,
            options.hidden,
            options.bottleneck,
            batch_norm=options.batch_norm,
            fixed_length=options.fixed_length,
        )
        self.teacher, self.teacher_head = create_teacher(model), create_teacher(self.head)
        self.register_buffer("centre", torch.zeros(options.out))
        self.temperature = options.warmup_t

    def forward(self, crops: Crops) -> tuple[Tensor, Tensor]:
        n = len(crops)
        # The large views run last: SAR uses the attention of images of the last size.
        vectors = [self.student.embed(group).flatten(1) for group in reversed(crops.groups)]
        student = self.head(torch.cat(vectors[::-1])).unflatten(0, (-1, n))  # (views, B, K)
        with torch.no_grad():
            u = self.teacher.embed(crops.groups[0]).flatten(1)
            teacher = self.teacher_head(u).unflatten(0, (-1, n))  # (2, B, K)
        student_t = self.options.student_t
        return dino_loss(student, teacher, self.centre, student_t, self.temperature), teacher

    def update_teacher(self, momentum: float) -> None:
        update_teacher(self.teacher, self.student, momentum)
        update_teacher(self.teacher_head, self.head, momentum)

    @torch.no_grad()
    def update_centre(self, total: Tensor, count: float) -> None:
        """Move the centre towards the mean, from the sum of `count` outputs of all processes."""
        self.centre.lerp_((total / count).to(self.centre.dtype), 1 - self.options.centre_momentum)


class Dino(StudentTeacher):
    name = "dino"
    create_module = DinoModule

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        groups = self.states[0].optimizer.param_groups
        self.has_decay = [bool(group["weight_decay"]) for group in groups]
        self.output_sum = torch.zeros(self.options.out, device=self.device)  # of the teacher
        self.output_count = 0
        # Of the last step: the teacher's outputs, the centre and the temperature.
        self.outputs: tuple[Tensor, Tensor, float] | None = None

    def begin_step(self, epoch: float) -> None:
        super().begin_step(epoch)
        options = self.options
        warm = 1.0
        if options.warmup_t_epochs:
            warm = min(epoch / options.warmup_t_epochs, 1.0)
        self.module.temperature = options.warmup_t + warm * (options.teacher_t - options.warmup_t)
        done = epoch / self.settings.epochs
        decay = cosine(self.settings.weight_decay, options.end_weight_decay, done)
        groups = self.states[0].optimizer.param_groups
        for group, has_decay in zip(groups, self.has_decay, strict=True):
            group["weight_decay"] = decay * has_decay
        self.freeze_last_layer = epoch < options.freeze_last

    def main_loss(self, module: nn.Module, crops: Crops) -> Tensor:
        loss: Tensor
        loss, teacher = module(crops)
        self.output_sum += teacher.float().sum((0, 1))
        self.output_count += teacher.shape[0] * teacher.shape[1]
        self.outputs = (teacher, self.module.centre.clone(), self.module.temperature)
        return loss

    def before_update(self, module: nn.Module) -> None:
        if self.freeze_last_layer:
            for p in self.module.head.last_layer.parameters():
                p.grad = None
        if self.options.clip is not None:
            gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
            clip_each(gradients, self.options.clip)

    def end_step(self) -> None:
        super().end_step()
        count = self.output_sum.new_tensor([self.output_count])
        total = summed(torch.cat([self.output_sum, count]))
        self.module.update_centre(total[:-1], float(total[-1]))
        self.output_sum, self.output_count = torch.zeros_like(self.output_sum), 0

    @property
    def spread(self) -> Spread | None:
        """Spread of the teacher's outputs in the last step; None if it was before a resumption."""
        return self.outputs and answer_spread(teacher_probabilities(*self.outputs))

    def training_metrics(self) -> dict[str, float]:
        if (spread := self.spread) is None:
            return {}
        return {"entropy": spread.each, "diversity": spread.together}

    def warning(self) -> str | None:
        spread = self.spread
        return spread and spread.collapsed


@torch.no_grad()
def clip_each(gradients: list[Tensor], max_norm: float) -> None:
    """Clip each tensor by its own norm, as `clip_grad_norm_` does; short ones are not rewritten."""
    if not gradients:
        return
    norms = torch.stack([norm.float() for norm in torch._foreach_norm(gradients)])
    for gradient, factor in zip(gradients, (max_norm / (norms + 1e-6)).tolist(), strict=True):
        if factor < 1:
            gradient.mul_(factor)


class MocoModule(nn.Module):
    """Student with projector and predictor, teacher with projector; returns the loss of a batch.

    As published: transformers have fixed positions, a projector of three layers, and BatchNorm after
    the predictor; convolutional networks a projector of two layers and no such BatchNorm.
    """

    def __init__(self, model: PooledModel, options: MocoConfig) -> None:
        super().__init__()
        self.options = options
        transformer = is_transformer(model.backbone)
        patches = getattr(model.backbone.model, "patch_embed", None)
        if options.freeze_patches and patches is not None:
            patches.requires_grad_(False)
        fix_positions(model.backbone)
        self.student = model
        out, hidden = options.out, options.hidden
        self.projector = MocoHead(model.vector_dim, out, hidden, layers=3 if transformer else 2)
        self.predictor = MocoHead(out, out, hidden, layers=2, last_norm=transformer)
        self.teacher, self.teacher_projector = create_teacher(model), create_teacher(self.projector)
        self.has_batch_norm = any(isinstance(m, _BatchNorm) for m in model.modules())

    def forward(self, crops: Crops) -> Tensor:
        (views,) = crops.groups  # two views of one size
        queries = [self.predictor(self.projector(u)) for u in self._embed(self.student, views)]
        with torch.no_grad():
            keys = [self.teacher_projector(u) for u in self._embed(self.teacher, views)]
        first = rank() * len(crops)
        pairs = zip(queries, reversed(keys), strict=True)  # each view is matched with the other one
        losses = [moco_loss(q, gathered_rows(k), self.options.temperature, first) for q, k in pairs]
        return losses[0] + losses[1]

    def _embed(self, network: PooledModel, views: Tensor) -> Sequence[Tensor]:
        """Return the vectors of each view; BatchNorm, as published, sees one view at a time."""
        if self.has_batch_norm:
            return [network.embed(view).flatten(1) for view in views.chunk(2)]
        return network.embed(views).flatten(1).chunk(2)

    def update_teacher(self, momentum: float) -> None:
        update_teacher(self.teacher, self.student, momentum)
        update_teacher(self.teacher_projector, self.projector, momentum)


class Moco(StudentTeacher):
    name = "moco"
    create_module = MocoModule


TASK_OF = {"dino": Dino, "moco": Moco}


def train_without_labels(
    data: Dataset, folder: Path, config: RunConfig, resume: bool = False
) -> SelfSupervisedReport:
    """Train, save the teacher of the last epoch in `folder`, and report."""
    resume = can_resume(folder, resume)
    train, val = unlabelled_splits(data)
    with run_processes(folder, resume, train, val) as device:
        started = time.monotonic()
        model = build_model(config)
        options = adapted_options(config, len(train))
        transform = build_augmentation(config, model)
        kind = TASK_OF[config.task]
        task = kind(model, train, val, config.train, transform, options, device)
        _log_adapted(config.options, options)
        untrained = None  # the accuracy that learning is compared with
        if task.knn is not None:
            scores = task.knn(task.teacher)
            untrained = next(iter(scores.values()))
            if rank() == 0 and not resume:
                texts = [f"{name} {value:.4g}" for name, value in scores.items()]
                logger.info("before training  %s", "  ".join(texts))
        identity = {**config.identity(), "images": len(train)}
        winner = Engine(task, config.train, folder, identity).run(resume)
        winner.load_best()
        report = SelfSupervisedReport(
            method=config.task,
            backbone=config.model.backbone,
            pool=config.model.pool,
            epoch=winner.best_epoch + 1,
            knn=winner.best_metrics.get("score"),
            knn_untrained=untrained,
            images=len(train),
            options=asdict(options),
            seconds={"training": time.monotonic() - started},
            settings=asdict(config.train),
        )
        if rank() == 0:
            save_model(task.teacher, folder)
            report.write(folder)
        return report


def adapted_options(config: RunConfig, images: int) -> DinoConfig | MocoConfig:
    """Return the options of the method; those of DINO are adapted to a small run.

    Options that are set explicitly stay. The temperature warms up in at most a third of the epochs.
    Few images need fewer than 65,536 outputs and a narrower head. In a short run the teacher
    averages over at most a tenth of it, its temperature stays low, the last layer is frozen for a
    hundredth of the epochs, and the head learns quickly: 256 outputs and BatchNorm (without both the
    loss of `vit_micro` stays at log(out) for 60 steps).
    """
    options, epochs = config.options, config.train.epochs
    if not isinstance(options, DinoConfig):
        assert isinstance(options, MocoConfig)
        return options
    smaller: Options = {"warmup_t_epochs": min(options.warmup_t_epochs, epochs / 3)}
    if images < FEW_IMAGES:
        smaller |= {"out": 4096, "hidden": 512}
    if (steps := epochs * (images // config.train.batch)) < FEW_STEPS:
        smaller |= {"out": 256, "bottleneck": 64, "batch_norm": True, "teacher_t": options.warmup_t}
        smaller["momentum"] = min(options.momentum, 1 - 1 / max(steps / 10, 2))
        smaller["freeze_last"] = min(options.freeze_last, epochs / 100)
    adapted = {name: v for name, v in smaller.items() if name not in config.explicit_options}
    return replace(options, **adapted)


def _log_adapted(before: Any, options: Any) -> None:
    old, new = asdict(before), asdict(options)
    changes = [f"{k} {_short(new[k])} for {_short(old[k])}" for k in new if new[k] != old[k]]
    if changes and rank() == 0:
        logger.info("a small run: %s", ", ".join(changes))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def unlabelled_splits(data: Dataset) -> tuple[Dataset, Dataset | None]:
    """Return the images to train on, and labelled images to validate on where there are any."""
    names = data.splits
    train = next((data.split(name) for name in TRAIN if name in names), data)
    val = next((data.split(name) for name in (*VAL, "test") if name in names), None)
    if val is None or not (val.labels >= 0).any() or not (train.labels >= 0).any():
        return train, None
    return train, val
