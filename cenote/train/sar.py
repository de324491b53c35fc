"""SAR: spatial entropy of the attention maps as a regularizer beside any loss [SAR Eq. 12]."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..losses import spatial_entropy, total_variation
from ..models import PooledModel
from ..models.attention_logits import AttentionLogits
from .config import OptimizationConfig
from .schedules import cosine

PENALTIES = {"entropy": spatial_entropy, "variation": total_variation}
WARMUP_EPOCHS = 10.0  # of the cosine schedule, in the released program
WEIGHT = 0.01  # [SAR Eq. 12]
ROWS_WITH_LOSS = ("E", "F")  # of [SAR Table 1b]: the last blocks of rows A and C, with the loss


def row_settings(last_block: str | None, settings: dict[str, Any]) -> dict[str, Any]:
    """Add the weight of the loss if this row of [SAR Table 1b] has it and `settings` have none."""
    return {"sar": WEIGHT} | settings if last_block in ROWS_WITH_LOSS else settings


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
