"""timm's recipe for ResNets: a clean and two changed views of each image, which are to be answered alike."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.split_batchnorm import SplitBatchNorm2d, convert_splitbn_model
from torch import Tensor, nn

from ..data import Dataset
from ..data.loading import Batch
from ..models import PooledModel
from .config import OptimizationConfig
from .supervised import Labelled, Supervised

VIEWS = 3
WEIGHT = 12.0  # of the divergence beside the cross-entropy, AugMix's and timm's


class Jsd(Supervised):
    """Cross-entropy of the clean view, and the Jensen-Shannon divergence of all views' answers.

    Each view has BatchNorm layers of its own while it trains; `joined` leaves those of the clean one.
    """

    def __init__(
        self,
        model: PooledModel,
        train: Dataset,
        val: Dataset,
        settings: OptimizationConfig,
        *rest: Any,
        **named: Any,
    ) -> None:
        if settings.mixup or settings.cutmix:
            raise ValueError(
                "views of one image are not mixed with others: mixup and cutmix must be 0 with jsd"
            )
        # Before the optimizer sees the parameters.
        convert_splitbn_model(model.backbone.model, VIEWS)
        super().__init__(model, train, val, settings, *rest, **named)

    def prepare(self, batch: Batch, parts: int) -> list[Labelled]:
        if not len(batch.labels):
            return []
        views = [view.to(self.device, non_blocking=True).chunk(parts) for view in batch.images]
        labels = batch.labels.to(self.device).chunk(parts)
        # (VIEWS * B, 3, H, W): all clean ones first, as the split BatchNorm expects
        return [
            Labelled(torch.cat(part), y)
            for part, y in zip(zip(*views, strict=True), labels, strict=True)
        ]

    def loss_of_answers(self, module: nn.Module, part: Labelled) -> Tensor:
        # From logarithms: timm's own loss takes log p of a p that can be 0, and its gradient is then NaN.
        answers = module(part.images).log_softmax(1).chunk(VIEWS)
        mean = torch.stack(answers).exp().mean(0).clamp_min(1e-7).log()
        divergence = torch.stack(
            [(log_p.exp() * (log_p - mean)).sum(1).mean() for log_p in answers]
        ).mean()
        clean: Tensor = F.cross_entropy(
            answers[0], part.labels, label_smoothing=self.settings.smoothing
        )
        return clean + WEIGHT * divergence


def joined(module: nn.Module) -> None:
    """Put plain BatchNorm layers, the clean view's, in the place of the split ones."""
    for name, child in module.named_children():
        if isinstance(child, SplitBatchNorm2d):
            plain = nn.BatchNorm2d(
                child.num_features,
                child.eps,
                child.momentum,
                child.affine,
                child.track_running_stats,
            )
            own = {
                key: value
                for key, value in child.state_dict().items()
                if not key.startswith("aux_bn.")
            }
            plain.load_state_dict(own)
            setattr(module, name, plain.to(child.weight.device).train(child.training))
        else:
            joined(child)
