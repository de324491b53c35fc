"""SAR's prior beside any loss: attention that holds together in few large pieces."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..losses import spatial_entropy, total_variation
from ..models import PooledModel
from ..models.scores import Scores
from .config import OptimizationConfig
from .schedules import cosine

PENALTIES = {"entropy": spatial_entropy, "variation": total_variation}
WARMUP = 10.0  # epochs, in the released program
WEIGHT = 0.01  # (A 12)
WITH_LOSS = ("E", "F")  # rows of Table 1(b): the blocks of A and C, trained with the loss


def row_settings(last_block: str | None, settings: dict[str, Any]) -> dict[str, Any]:
    """A row's name says whether the loss is there; a weight that is given stays."""
    return {"sar": WEIGHT} | settings if last_block in WITH_LOSS else settings


class SarLoss:
    """`with sar.watch() as seen: ...`, then `sar(seen)` is what is added to the loss."""

    def __init__(self, model: PooledModel, settings: OptimizationConfig) -> None:
        self.model, self.settings, self.weight = model, settings, settings.sar
        self.watch()  # a model without attention is told before it trains

    def begin_step(self, epoch: float) -> None:
        """The paper's weight is constant; the released one grows for ten epochs and follows a cosine to zero."""
        whole, epochs = self.settings.sar, self.settings.epochs
        if self.settings.sar_schedule == "constant":
            return
        warmup = min(WARMUP, epochs / 2)
        late = (epoch - warmup) / max(epochs - warmup, 1e-12)
        self.weight = whole * epoch / warmup if epoch < warmup else cosine(whole, 0.0, late)

    def watch(self) -> Scores:
        return Scores(self.model)

    def __call__(self, seen: Scores) -> Tensor:
        return self.weight * PENALTIES[self.settings.sar_loss](seen.last())
