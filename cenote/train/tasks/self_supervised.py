"""What DINO and MoCo have in common: views of images, a slow teacher, nearest neighbours to judge by."""

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
from ...models import PooledModel
from ...predict.distributed import rank, world
from ..config import OptimizationConfig
from ..engine import Task, files_of
from ..neighbours import Neighbours
from ..sar import SarLoss
from ..schedules import cosine
from ..state import TrainState


class Crops(NamedTuple):
    """Views of some images, in groups of one size; the large ones first, as many as the teacher sees."""

    groups: list[Tensor]  # (views * B, 3, H, W), view by view
    images: int

    def __len__(self) -> int:  # of images, not of fields
        return self.images


class SelfSupervised(Task):
    """A task with a student and its teacher, whose nearest neighbours judge where images have classes.

    `together` makes both of a model and options; what it makes is trained, and has them as `student` and `teacher`.
    """

    name: ClassVar[str]
    together: ClassVar[Callable[..., Any]]

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
        self.module = type(self).together(model, options).to(self.device)
        share = max(min(settings.batch, len(train)) // world(), 1)
        self.loader = load(
            train, transform, share, settings.workers, shuffle=True, seed=settings.seed, drop_last=True,
            rank=rank(), world=world(),
        )  # fmt: skip
        self.states = [TrainState(self.name, self.module, settings)]
        self.judge = None if val is None else Neighbours(train, val, settings, self.device)
        self.sar = SarLoss(model, settings) if settings.sar else None

    @property
    def teacher(self) -> PooledModel:
        """What is judged and kept."""
        found: PooledModel = self.module.teacher
        return found

    def loss_of_views(self, module: nn.Module, part: Crops) -> Tensor:
        """The method's own loss; the student sees the large views last."""
        raise NotImplementedError

    def loss(self, module: nn.Module, part: Crops) -> Tensor:
        if self.sar is None:
            return self.loss_of_views(module, part)
        with self.sar.watch() as seen:
            loss = self.loss_of_views(module, part)
        return loss + self.sar(seen)

    def prepare(self, batch: Batch, parts: int) -> list[Crops]:
        if not len(batch.labels):
            return []
        views = [view.to(self.device, non_blocking=True).chunk(parts) for view in batch.images]
        return [grouped([view[i] for view in views]) for i in range(len(views[0]))]

    def begin_step(self, epoch: float) -> None:
        self.momentum = cosine(self.options.momentum, 1.0, epoch / self.settings.epochs)
        if self.sar is not None:
            self.sar.begin_step(epoch)

    def validate(self) -> dict[str, dict[str, float]]:
        found = self.figures()
        if self.judge is not None:
            knn = self.judge(self.teacher)
            found |= {"score": next(iter(knn.values())), **knn}
        return {self.name: found}

    def figures(self) -> dict[str, float]:
        """Of the method itself, to be written down."""
        return {}

    def describe(self, batch: Batch) -> str:
        return files_of(self.train, batch.indices.tolist())


def grouped(views: Sequence[Tensor]) -> Crops:
    """Views of one size run through the network together."""
    sizes: dict[tuple[int, ...], list[Tensor]] = {}
    for view in views:
        sizes.setdefault(tuple(view.shape[2:]), []).append(view)
    return Crops([torch.cat(group) for group in sizes.values()], len(views[0]))


Network = TypeVar("Network", bound=nn.Module)


def teacher_of(student: Network) -> Network:
    """A copy without gradients, dropout and dropped paths: it trains along, but its answers are whole."""
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
def follow(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """The teacher takes a step towards the student. The statistics of its BatchNorm are its own."""
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)
