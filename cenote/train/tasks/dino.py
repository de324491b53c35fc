"""DINO (Caron et al., 2021) with any backbone and any pool."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...losses.self_supervised import Spread, answer_spread, dino_loss, teacher_probabilities
from ...models import PooledModel
from ...models.projection import DinoHead
from ...predict.distributed import summed
from ..config import DinoConfig
from ..schedules import cosine
from .self_supervised import Crops, SelfSupervised, create_teacher, update_teacher


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
        # The large views run last: SAR uses the attention of the last forward pass.
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


class Dino(SelfSupervised):
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
            group["weight_decay"] = decay if has_decay else 0.0
        self.freeze_last_layer = epoch < options.freeze_last

    def loss_of_views(self, module: nn.Module, crops: Crops) -> Tensor:
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
        self.module.update_teacher(self.momentum)
        count = self.output_sum.new_tensor([self.output_count])
        total = summed(torch.cat([self.output_sum, count]))
        self.module.update_centre(total[:-1], float(total[-1]))
        self.output_sum, self.output_count = torch.zeros_like(self.output_sum), 0

    @property
    def spread(self) -> Spread | None:
        """Spread of the teacher's outputs in the last step; computed once per epoch."""
        if self.outputs is None:
            return None
        return answer_spread(teacher_probabilities(*self.outputs))

    def training_metrics(self) -> dict[str, float]:
        spread = self.spread
        return {} if spread is None else {"entropy": spread.each, "diversity": spread.together}

    def warning(self) -> str | None:
        spread = self.spread
        return None if spread is None else spread.collapsed


@torch.no_grad()
def clip_each(gradients: list[Tensor], max_norm: float) -> None:
    """Clip each tensor by its own norm, as `clip_grad_norm_` does; short ones are not rewritten."""
    if not gradients:
        return
    norms = torch.stack([norm.float() for norm in torch._foreach_norm(gradients)])
    for gradient, factor in zip(gradients, (max_norm / (norms + 1e-6)).tolist(), strict=True):
        if factor < 1:
            gradient.mul_(factor)
