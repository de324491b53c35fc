"""Binary cross-entropy for images with several classes."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def binary_cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Sum the loss of the classes, (B, classes) each, and average over images.

    The sum, unlike the mean, gives a class the same gradient however many classes there are: the
    learning rates of cross-entropy remain useful. `label_smoothing` moves targets towards 1/2.
    """
    smooth = targets.to(logits.dtype) * (1 - label_smoothing) + label_smoothing / 2
    return F.binary_cross_entropy_with_logits(logits, smooth, reduction="none").sum(1).mean()
