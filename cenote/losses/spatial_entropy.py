"""The spatial entropy of attention maps [SAR Eqs. 4-9]: few large blobs have little of it,
scattered crumbs much.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .components import label


def spatial_entropy(maps: Tensor, reduction: str = "mean") -> Tensor:
    """(B, heads, H, W) scores before the softmax -> the mean over images and heads, or "none":
    (B, heads).

    The grid may have any shape. Which positions form a component is not differentiated, their sums
    are; the mean that is taken off is (its gradient over the positions of a map sums to zero). A
    constant map has none, and no gradient.
    """
    if maps.ndim < 3:
        raise ValueError(f"maps are (B, heads, H, W), got shape {tuple(maps.shape)}")
    if reduction not in ("mean", "none"):
        raise ValueError(f"reduction is mean or none, got '{reduction}'")
    s = maps.flatten(
        0, -3
    ).float()  # (M, H, W); half floats would lose small components in the sums
    b = (s - s.mean((-2, -1), keepdim=True)).relu()  # [SAR Eq. 5]
    foreground = b.detach() > _rounding(s)
    numbers, count = label(foreground)  # [SAR Eq. 6]
    mass = s.new_zeros(count + 1).index_add(0, numbers.flatten(), b.flatten())[
        1:
    ]  # [SAR Eq. 7], (count,)
    # A component's map: that of any of its positions, for instance the last one written.
    owner = numbers.new_empty(count + 1)
    of = torch.arange(len(s), device=s.device)[:, None, None].expand_as(numbers)
    owner = owner.scatter(0, numbers.flatten(), of.flatten())[1:]
    # From the masses, not from b: the only component of a map must have the share 1 exactly.
    total = s.new_zeros(len(s)).index_add(0, owner, mass)
    p = mass / total[owner]  # [SAR Eq. 8]
    h = s.new_zeros(len(s)).index_add(0, owner, -p * p.log())  # [SAR Eq. 9]
    return h.mean() if reduction == "mean" else h.view(maps.shape[:-2])


def _rounding(s: Tensor) -> Tensor:
    """What a constant map may seem to rise above its mean, (M, 1, 1)."""
    return 4 * torch.finfo(s.dtype).eps * s.detach().abs().amax((-2, -1), keepdim=True)
