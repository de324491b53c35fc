"""Nearest neighbours as a classifier, weighted as DINO weighs them."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor


def knn_accuracy(
    memory: Tensor,
    memory_labels: Tensor,
    queries: Tensor,
    labels: Tensor,
    k: Sequence[int] = (10, 20),
    temperature: float = 0.07,
    chunk: int = 1024,
) -> dict[int, float]:
    """Share of queries (M, D) whose k nearest of the memory (N, D), by cosine, vote for their
    class.

    A neighbour of similarity s has exp(s / temperature) votes.
    """
    if not len(queries) or not len(memory):
        raise ValueError(
            f"nearest neighbours need a memory and queries, got {len(memory)} and {len(queries)} vectors"
        )
    memory, classes = (
        F.normalize(memory.float(), dim=1),
        int(max(memory_labels.max(), labels.max())) + 1,
    )
    max_k = min(max(k), len(memory))
    right = dict.fromkeys(k, 0)
    for start in range(0, len(queries), chunk):
        block = F.normalize(queries[start : start + chunk].float(), dim=1)
        similarity, nearest = (block @ memory.T).topk(max_k, 1)  # (m, most)
        voted = (
            F.one_hot(memory_labels[nearest], classes) * (similarity / temperature).exp()[..., None]
        )
        for count in k:
            predicted = voted[:, :count].sum(1).argmax(1)  # (m, classes) -> (m,)
            right[count] += int((predicted == labels[start : start + chunk]).sum())
    return {count: correct / len(queries) for count, correct in right.items()}
