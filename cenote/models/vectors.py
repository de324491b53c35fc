"""The vectors of a whole data set, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Embedded(NamedTuple):
    """The vectors of the images that could be read."""

    vectors: Tensor  # (N, D) float32
    positions: Tensor  # (N,) in the dataset
    bad: list[str]  # a sentence for each of the others


def collected(
    batches: Iterable[Any], embed: Callable[[Any], Tensor], images: int, progress: Callable[[int], object] | None = None
) -> Embedded:
    """What `embed` makes of every batch, in one block of memory for `images` at most: nothing else is kept.

    A batch has `indices`, and `bad` where images may be unreadable. Gradients are the caller's to turn off.
    """
    vectors, positions, bad = torch.empty(0, 0), torch.empty(images, dtype=torch.long), list[str]()
    done = 0
    for batch in batches:
        count, unread = len(batch.indices), [sentence for _, sentence in getattr(batch, "bad", ())]
        bad += unread
        if count:
            u = embed(batch).flatten(1).float().cpu()
            if not done:
                vectors = torch.empty(images, u.shape[1])
            vectors[done : done + count] = u
            positions[done : done + count] = torch.as_tensor(batch.indices)
            done += count
        if progress:
            progress(count + len(unread))
    return Embedded(vectors[:done], positions[:done], bad)
