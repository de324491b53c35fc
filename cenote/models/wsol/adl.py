from __future__ import annotations

import torch
from torch import Tensor

from ...backbones import Features
from ...options import check_number
from ..head import Criterion, PoolAndHead, WsolMethod


class AttentionDropout(WsolMethod):
    """Attention-based dropout layer: erase the most active region of the features, or weigh them.

    Choe and Shim, Attention-based Dropout Layer for Weakly Supervised Object Localization, CVPR
    2019. The mean over channels is the attention A. A step multiplies the features by the drop
    mask, 1 where A is below `threshold` times its maximum, with the probability `drop_rate`, and
    else by the importance map, the sigmoid of A. Here of the last features only, which must be
    behind a ReLU: behind a LayerNorm (ViT, ConvNeXt) the mean over channels says nothing.
    """

    def __init__(self, model: PoolAndHead, drop_rate: float = 0.75, threshold: float = 0.9) -> None:
        super().__init__(model)
        check_number("drop_rate", drop_rate, least=0, most=1)
        check_number("threshold", threshold, least=0, most=1)
        self.drop_rate, self.threshold = drop_rate, threshold

    def loss(
        self,
        model: PoolAndHead,
        features: Features,
        labels: Tensor,
        criterion: Criterion,
        rng: torch.Generator,
    ) -> Tensor:
        drop = float(torch.rand((), generator=rng)) < self.drop_rate
        attention = self.drop_mask(features.tokens) if drop else importance(features.tokens)
        return criterion(
            model.classify(features._replace(tokens=features.tokens * attention)), labels
        )

    def drop_mask(self, tokens: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, 1): 0 at the most active positions."""
        a = tokens.mean(-1, keepdim=True)
        return (a < self.threshold * a.amax(1, keepdim=True)).to(tokens.dtype)


def importance(tokens: Tensor) -> Tensor:
    """(B, N, D) -> (B, N, 1)."""
    return tokens.mean(-1, keepdim=True).sigmoid()
