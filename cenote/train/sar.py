"""SAR: spatial entropy of the attention maps as a regularizer beside any loss [SAR Eq. 12]."""

from __future__ import annotations

from torch import Tensor

from ..losses import spatial_entropy, total_variation
from ..models import PooledModel
from ..models.attention_logits import AttentionLogits
from .config import OptimizationConfig
from .schedules import cosine

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
