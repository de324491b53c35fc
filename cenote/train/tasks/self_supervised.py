"""Base of DINO and MoCo: views of images, a momentum teacher, k-NN validation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from timm.layers.drop import DropPath
from timm.layers.patch_dropout import PatchDropout
from torch import Tensor, nn

from ...data import Dataset
from ...data.loading import Batch, load
from ...evaluate.validators import KnnValidator
from ...models import PooledModel
from ...predict.distributed import rank, world
from ..config import OptimizationConfig
from ..engine import Task, file_names
from ..sar import SarLoss
from ..schedules import cosine
from ..state import TrainState

Network = TypeVar("Network", bound=nn.Module)


class Crops(NamedTuple):
    """Views of images, grouped by size, large ones first; the teacher sees the first group."""

    groups: list[Tensor]  # each (views * B, 3, H, W), view by view
    images: int

    def __len__(self) -> int:  # of images, not of fields
        return self.images


class SelfSupervised(Task):
    """Train a student whose moving average is the teacher; the teacher is validated and kept.

    `create_module(model, options)` returns the module with attributes `student` and `teacher`.
    Without `val` there is no k-NN validation.
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
        device: torch.device | None = None,
    ) -> None:
        self.settings, self.train, self.options = settings, train, options
        self.device = device or torch.device("cpu")
        self.module = type(self).create_module(model, options).to(self.device)
        self.loader = load(
            train,
            transform,
            max(min(settings.batch, len(train)) // world(), 1),
            settings.workers,
            shuffle=True,
            seed=settings.seed,
            drop_last=True,
            rank=rank(),
            world=world(),
        )
        self.states = [TrainState(self.name, self.module, settings)]
        self.knn = None
        if val is not None:
            self.knn = KnnValidator(train, val, settings.batch, settings.workers)
        self.sar = SarLoss(model, settings) if settings.sar else None

    @property
    def teacher(self) -> PooledModel:
        teacher: PooledModel = self.module.teacher
        return teacher

    def loss_of_views(self, module: nn.Module, crops: Crops) -> Tensor:
        """Return the loss of the method; the student must process the large views last, for SAR."""
        raise NotImplementedError

    def loss(self, module: nn.Module, crops: Crops) -> Tensor:
        if self.sar is None:
            return self.loss_of_views(module, crops)
        with self.sar.watch() as scores:
            loss = self.loss_of_views(module, crops)
        return loss + self.sar(scores)

    def prepare(self, batch: Batch, chunks: int) -> list[Crops]:
        if not len(batch.labels):
            return []
        views = [view.to(self.device, non_blocking=True).chunk(chunks) for view in batch.images]
        return [group_by_size([view[i] for view in views]) for i in range(len(views[0]))]

    def begin_step(self, epoch: float) -> None:
        self.momentum = cosine(self.options.momentum, 1.0, epoch / self.settings.epochs)
        if self.sar is not None:
            self.sar.begin_step(epoch)

    def validate(self) -> dict[str, dict[str, float]]:
        metrics = self.training_metrics()
        if self.knn is not None:
            accuracy = self.knn(self.teacher)
            metrics |= {"score": next(iter(accuracy.values())), **accuracy}
        return {self.name: metrics}

    def training_metrics(self) -> dict[str, float]:
        """Return metrics of the method itself, for the log."""
        return {}

    def describe(self, batch: Batch) -> str:
        return file_names(self.train, batch.indices.tolist())


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
