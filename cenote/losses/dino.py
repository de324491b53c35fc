"""Self-distillation without labels (Caron et al., 2021): the student's crops answer as the
teacher's large ones do.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


def dino_loss(
    student: Tensor,
    teacher: Tensor,
    centre: Tensor,
    student_t: float = 0.1,
    teacher_t: float = 0.04,
) -> Tensor:
    """Outputs (views, B, K) of the student and (large views, B, K) of the teacher, the large views
    first in both.

    The mean over pairs of different views of the cross-entropy. One product of (large, B K) and
    (views, B K) holds all pairs. Neither teacher nor centre (K,) gets a gradient.
    """
    views, large = len(student), len(teacher)
    if views < 2 or student.shape[1:] != teacher.shape[1:]:
        raise ValueError(
            f"student and teacher are (views, B, K), got {tuple(student.shape)}, {tuple(teacher.shape)}"
        )
    log_p = (student.float() / student_t).log_softmax(-1)
    targets = teacher_probabilities(teacher, centre, teacher_t)
    pairs = targets.flatten(1) @ log_p.flatten(1).T  # (large, views)
    different_view = ~torch.eye(
        large, views, dtype=torch.bool, device=pairs.device
    )  # a view does not teach itself
    return -pairs[different_view].sum() / (different_view.sum() * student.shape[1])


@torch.no_grad()
def teacher_probabilities(teacher: Tensor, centre: Tensor, temperature: float) -> Tensor:
    return ((teacher.float() - centre.float()) / temperature).softmax(-1)


class Spread(NamedTuple):
    """Entropies in shares of their largest, log K: what a collapse looks like."""

    each: float  # of an image's answer: 1 says nothing
    together: float  # of the mean answer: 0 says the same of every image

    @property
    def collapsed(self) -> str | None:
        """A sentence, if the teacher has stopped to tell images apart."""
        if self.together < 0.02:
            return "the teacher gives every image the same answer: centre faster, or raise its temperature"
        if self.each > 0.995:
            return "the teacher's answers are uniform: lower its temperature, or centre more slowly"
        return None


@torch.no_grad()
def answer_spread(probabilities: Tensor) -> Spread:
    """Of a teacher's answers (..., K)."""
    p = probabilities.float().flatten(0, -2)
    max_entropy = math.log(p.shape[-1])
    return Spread(float(_entropy(p).mean()) / max_entropy, float(_entropy(p.mean(0))) / max_entropy)


def _entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p).sum(-1)
