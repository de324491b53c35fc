"""DINO (Caron et al., 2021) with any backbone and any pool: the pool is part of the student and of the teacher."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...losses.dino import Spread, answer_spread, dino_loss, teacher_probabilities
from ...models import PooledModel
from ...models.projection import DinoHead
from ...predict.distributed import summed
from ..config import DinoConfig
from ..schedules import cosine
from .self_supervised import Crops, SelfSupervised, follow, teacher_of


class Distillation(nn.Module):
    """Student and teacher; the loss of a batch is its output, so that it can be spread over processes."""

    centre: Tensor

    def __init__(self, model: PooledModel, options: DinoConfig) -> None:
        super().__init__()
        self.options = options
        self.student = model
        self.head = DinoHead(
            model.vector_dim, options.out, options.hidden, options.bottleneck,
            batch_norm=options.batch_norm, fixed_length=options.fixed_length,
        )  # fmt: skip
        self.teacher, self.teacher_head = teacher_of(model), teacher_of(self.head)
        self.register_buffer("centre", torch.zeros(options.out))
        self.temperature = options.warmup_t

    def forward(self, crops: Crops) -> tuple[Tensor, Tensor]:
        """The loss, and the teacher's outputs, of which the centre learns."""
        n = len(crops)
        vectors = [
            self.student.embed(group).flatten(1) for group in reversed(crops.groups)
        ]  # large ones last:
        student = self.head(torch.cat(vectors[::-1])).unflatten(
            0, (-1, n)
        )  # their attention is what SAR looks at
        with torch.no_grad():
            u = self.teacher.embed(crops.groups[0]).flatten(1)
            teacher = self.teacher_head(u).unflatten(0, (-1, n))  # (2, B, K)
        return dino_loss(
            student, teacher, self.centre, self.options.student_t, self.temperature
        ), teacher

    def follow(self, momentum: float) -> None:
        follow(self.teacher, self.student, momentum)
        follow(self.teacher_head, self.head, momentum)

    @torch.no_grad()
    def centre_on(self, total: Tensor, count: float) -> None:
        """The sum of `count` outputs of the teacher, over all processes."""
        self.centre.lerp_((total / count).to(self.centre.dtype), 1 - self.options.centre_momentum)


class Dino(SelfSupervised):
    name = "dino"
    together = Distillation

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.decays = [group["weight_decay"] for group in self.states[0].optimizer.param_groups]
        self.total, self.count = torch.zeros(self.options.out, device=self.device), 0
        self.answers: tuple[Tensor, Tensor, float] | None = (
            None  # of the last step, with its centre and temperature
        )

    def begin_step(self, epoch: float) -> None:
        super().begin_step(epoch)
        own, epochs = self.options, self.settings.epochs
        warm = min(epoch / own.warmup_t_epochs, 1.0) if own.warmup_t_epochs else 1.0
        self.module.temperature = own.warmup_t + warm * (own.teacher_t - own.warmup_t)
        decay = cosine(self.settings.weight_decay, own.end_weight_decay, epoch / epochs)
        for group, base in zip(self.states[0].optimizer.param_groups, self.decays, strict=True):
            group["weight_decay"] = decay if base else 0.0
        self.frozen = epoch < own.freeze_last

    def loss_of_views(self, module: nn.Module, part: Crops) -> Tensor:
        loss, teacher = module(part)
        self.total += teacher.float().sum((0, 1))
        self.count += teacher.shape[0] * teacher.shape[1]
        self.answers = (teacher, self.module.centre.clone(), self.module.temperature)
        found: Tensor = loss
        return found

    def before_update(self, module: nn.Module) -> None:
        if self.frozen:
            for p in self.module.head.last_layer.parameters():
                p.grad = None
        if self.options.clip is not None:
            clip_each(
                [p.grad for p in self.module.parameters() if p.grad is not None], self.options.clip
            )

    def end_step(self) -> None:
        self.module.follow(self.momentum)
        together = summed(torch.cat([self.total, self.total.new_tensor([self.count])]))
        self.module.centre_on(together[:-1], float(together[-1]))
        self.total, self.count = torch.zeros_like(self.total), 0

    @property
    def spread(self) -> Spread | None:
        """Of the last step's answers: asked for once an epoch, so not computed in every step."""
        return None if self.answers is None else answer_spread(teacher_probabilities(*self.answers))

    def figures(self) -> dict[str, float]:
        spread = self.spread
        return {} if spread is None else {"entropy": spread.each, "diversity": spread.together}

    def warning(self) -> str | None:
        spread = self.spread
        return None if spread is None else spread.collapsed


@torch.no_grad()
def clip_each(gradients: list[Tensor], longest: float) -> None:
    """As `clip_grad_norm_` does with each tensor alone; those that are short enough are not written again."""
    if not gradients:
        return
    norms = torch.stack([norm.float() for norm in torch._foreach_norm(gradients)])
    for gradient, factor in zip(gradients, (longest / (norms + 1e-6)).tolist(), strict=True):
        if factor < 1:
            gradient.mul_(factor)
