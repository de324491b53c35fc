"""SAR: spatial entropy of the attention maps as a regularizer beside any loss [SAR Eq. 12]."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..losses import spatial_entropy, total_variation
from ..models import PooledModel
from ..models.attention_maps import AttentionLogits
from .config import OptimizationConfig
from .engine import Task
from .optimizer import cosine

PENALTIES = {"entropy": spatial_entropy, "variation": total_variation}
WARMUP_EPOCHS = 10.0  # of the cosine schedule, in the released program


class SarLoss:
    """Use `with sar.watch() as scores:` around the forward pass, then add `sar(scores)`."""

    def __init__(self, model: PooledModel, settings: OptimizationConfig) -> None:
        self.model, self.settings, self.weight = model, settings, settings.sar
        self.watch()  # raises before training if the model has no attention

    def begin_step(self, epoch: float) -> None:
        """Update the weight: constant in the paper; warm-up and cosine in the released program."""
        peak, epochs = self.settings.sar, self.settings.epochs
        if self.settings.sar_schedule == "constant":
            return
        warmup = min(WARMUP_EPOCHS, epochs / 2)
        if epoch < warmup:
            self.weight = peak * epoch / warmup
        else:
            self.weight = cosine(peak, 0.0, (epoch - warmup) / max(epochs - warmup, 1e-12))

    def watch(self) -> AttentionLogits:
        return AttentionLogits(self.model)

    def __call__(self, scores: AttentionLogits) -> Tensor:
        return self.weight * PENALTIES[self.settings.sar_loss](scores.last())


class SarTask(Task):
    """A task whose `main_loss` SAR's loss is added to, if there is one."""

    sar: SarLoss | None

    def begin_step(self, epoch: float) -> None:
        if self.sar is not None:
            self.sar.begin_step(epoch)

    def loss(self, module: nn.Module, inputs: Any) -> Tensor:
        if self.sar is None:
            return self.main_loss(module, inputs)
        with self.sar.watch() as scores:
            loss = self.main_loss(module, inputs)
        return loss + self.sar(scores)

    def main_loss(self, module: nn.Module, inputs: Any) -> Tensor:
        """Return the loss of the task; the images whose attention counts must run last."""
        loss: Tensor = module(inputs)
        return loss
