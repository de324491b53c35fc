"""MoCo-v3 (Chen et al., 2021) with any backbone and any pool."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...losses import moco_loss
from ...models import PooledModel
from ...models.projection import MocoHead
from ...predict.distributed import gathered_rows, rank
from ..config import MocoConfig
from .self_supervised import Crops, SelfSupervised, follow, teacher_of


class Contrast(nn.Module):
    """Student with projector and predictor, teacher with projector; the loss of a batch is its output."""

    def __init__(self, model: PooledModel, options: MocoConfig) -> None:
        super().__init__()
        self.options = options
        if (
            options.freeze_patches
            and (patches := getattr(model.backbone.model, "patch_embed", None)) is not None
        ):
            patches.requires_grad_(False)
        self.student, self.projector = (
            model,
            MocoHead(model.vector_dim, options.out, options.hidden),
        )
        self.predictor = MocoHead(options.out, options.out, options.hidden, layers=2)
        self.teacher, self.teacher_projector = teacher_of(model), teacher_of(self.projector)

    def forward(self, crops: Crops) -> Tensor:
        (views,) = crops.groups  # two of one size
        queries = self.predictor(self.projector(self.student.embed(views).flatten(1))).chunk(2)
        with torch.no_grad():
            keys = self.teacher_projector(self.teacher.embed(views).flatten(1)).chunk(2)
        first = rank() * len(crops)
        pairs = zip(queries, reversed(keys), strict=True)  # each view finds the other one
        losses = [moco_loss(q, gathered_rows(k), self.options.temperature, first) for q, k in pairs]
        return losses[0] + losses[1]


class Moco(SelfSupervised):
    name = "moco"
    together = Contrast

    def loss_of_views(self, module: nn.Module, part: Crops) -> Tensor:
        found: Tensor = module(part)
        return found

    def end_step(self) -> None:
        follow(self.module.teacher, self.module.student, self.momentum)
        follow(self.module.teacher_projector, self.module.projector, self.momentum)
