"""Losses without labels: DINO's self-distillation (Caron et al., 2021), MoCo-v3 (Chen et al., 2021)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


def dino_loss(
    student: Tensor,
    teacher: Tensor,
    centre: Tensor,
    student_t: float = 0.1,
    teacher_t: float = 0.04,
) -> Tensor:
    """Return the mean cross-entropy over pairs of different views.

    Outputs are (views, B, K) of the student and (large views, B, K) of the teacher, the large views
    first in both. One product of (large, B K) and (views, B K) has all pairs. Neither teacher nor
    centre (K,) gets a gradient.
    """
    views, large = len(student), len(teacher)
    log_p = (student.float() / student_t).log_softmax(-1)
    targets = teacher_probabilities(teacher, centre, teacher_t)
    pairs = targets.flatten(1) @ log_p.flatten(1).T  # (large, views)
    # A view does not teach itself.
    different_view = ~torch.eye(large, views, dtype=torch.bool, device=pairs.device)
    return -pairs[different_view].sum() / (different_view.sum() * student.shape[1])


@torch.no_grad()
def teacher_probabilities(teacher: Tensor, centre: Tensor, temperature: float) -> Tensor:
    return ((teacher.float() - centre.float()) / temperature).softmax(-1)


class Spread(NamedTuple):
    """Entropies of a teacher's outputs, divided by their maximum, log K."""

    each: float  # of an image's output: 1 if it is uniform
    together: float  # of the mean output: 0 if it is the same for every image

    @property
    def collapsed(self) -> str | None:
        """A sentence, if the teacher no longer distinguishes images."""
        if self.together < 0.02:
            return "the teacher gives every image the same answer: centre faster, or raise its temperature"
        if self.each > 0.995:
            return "the teacher's answers are uniform: lower its temperature, or centre more slowly"
        return None


@torch.no_grad()
def answer_spread(probabilities: Tensor) -> Spread:
    """Return the entropies of a teacher's outputs (..., K)."""
    p = probabilities.float().flatten(0, -2)
    max_entropy = math.log(p.shape[-1])
    return Spread(float(_entropy(p).mean()) / max_entropy, float(_entropy(p.mean(0))) / max_entropy)


def _entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p).sum(-1)


def moco_loss(queries: Tensor, keys: Tensor, temperature: float = 0.2, first: int = 0) -> Tensor:
    """Compare queries (B, D) with keys (N, D) of all processes, this one's from row `first` on.

    A predicted view must find its other view among all images. The factor 2 T keeps the size of the
    gradient the same at every temperature, as published.
    """
    q, k = F.normalize(queries.float(), dim=1), F.normalize(keys.detach().float(), dim=1)
    targets = torch.arange(first, first + len(q), device=q.device)
    return 2 * temperature * F.cross_entropy(q @ k.T / temperature, targets)
