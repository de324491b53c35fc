"""MoCo-v3 (Chen et al., 2021): a predicted view finds its other view among all images of the
batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def moco_loss(queries: Tensor, keys: Tensor, temperature: float = 0.2, first: int = 0) -> Tensor:
    """Queries (B, D) against keys (N, D) of all processes, this one's own from row `first` on.

    The factor 2 T keeps the size of the gradient the same at every temperature, as published.
    """
    q, k = F.normalize(queries.float(), dim=1), F.normalize(keys.detach().float(), dim=1)
    targets = torch.arange(first, first + len(q), device=q.device)
    return 2 * temperature * F.cross_entropy(q @ k.T / temperature, targets)
