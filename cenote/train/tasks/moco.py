"""MoCo v3 (Chen et al., 2021) with any backbone and any pool."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...losses import moco_loss
from ...models import PooledModel
from ...models.projection import MocoHead
from ...predict.distributed import gathered_rows, rank
from ..config import MocoConfig
from .self_supervised import Crops, SelfSupervised, create_teacher, update_teacher


class MocoModule(nn.Module):
    """Student with projector and predictor, teacher with projector; returns the loss of a batch."""

    def __init__(self, model: PooledModel, options: MocoConfig) -> None:
        super().__init__()
        self.options = options
        patches = getattr(model.backbone.model, "patch_embed", None)
        if options.freeze_patches and patches is not None:
            patches.requires_grad_(False)
        self.student = model
        self.projector = MocoHead(model.vector_dim, options.out, options.hidden)
        self.predictor = MocoHead(options.out, options.out, options.hidden, layers=2)
        self.teacher, self.teacher_projector = create_teacher(model), create_teacher(self.projector)

    def forward(self, crops: Crops) -> Tensor:
        (views,) = crops.groups  # two views of one size
        queries = self.predictor(self.projector(self.student.embed(views).flatten(1))).chunk(2)
        with torch.no_grad():
            keys = self.teacher_projector(self.teacher.embed(views).flatten(1)).chunk(2)
        first = rank() * len(crops)
        pairs = zip(queries, reversed(keys), strict=True)  # each view is matched with the other one
        losses = [moco_loss(q, gathered_rows(k), self.options.temperature, first) for q, k in pairs]
        return losses[0] + losses[1]

    def update_teacher(self, momentum: float) -> None:
        update_teacher(self.teacher, self.student, momentum)
        update_teacher(self.teacher_projector, self.projector, momentum)


class Moco(SelfSupervised):
    name = "moco"
    create_module = MocoModule

    def loss_of_views(self, module: nn.Module, crops: Crops) -> Tensor:
        loss: Tensor = module(crops)
        return loss

    def end_step(self) -> None:
        self.module.update_teacher(self.momentum)
