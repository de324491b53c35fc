"""Regularization of attention maps: SAR's spatial entropy, and total variation beside it.

Few large blobs have a low spatial entropy, scattered crumbs a high one [SAR Eqs. 4-9].
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..options import check_choice

# Neighbours in a map, none in the maps before and after it: all maps are one array of three
# dimensions.
IN_PLANE = np.zeros((3, 3, 3), np.int8)
IN_PLANE[1] = 1


def spatial_entropy(maps: Tensor, reduction: str = "mean") -> Tensor:
    """Return the spatial entropy of scores before the softmax (B, heads, H, W), a mean over maps.

    With the reduction "none", (B, heads). The grid may have any shape. Which positions form a
    component is not differentiated, their sums are; so is the mean that is subtracted (its gradient
    over the positions of a map sums to zero). A constant map has no entropy, and no gradient: what
    rises above the mean by less than rounding is ignored, which the released program does not do,
    and which changes the entropy of maps with a relative contrast below 1e-4.
    """
    check_choice("reduction", reduction, ("mean", "none"))
    s = maps.flatten(0, -3).float()  # (M, H, W); half floats would lose small components
    b = (s - s.mean((-2, -1), keepdim=True)).relu()  # [SAR Eq. 5]
    # A constant map may rise above its mean by rounding, (M, 1, 1).
    rounding = 4 * torch.finfo(s.dtype).eps * s.detach().abs().amax((-2, -1), keepdim=True)
    numbers, count = components(b.detach() > rounding)  # [SAR Eq. 6]
    mass = s.new_zeros(count + 1).index_add(0, numbers.flatten(), b.flatten())
    mass = mass[1:]  # [SAR Eq. 7], (count,)
    # A component's map: that of any of its positions, for instance the last one written.
    of = torch.arange(len(s), device=s.device)[:, None, None].expand_as(numbers)
    owner = numbers.new_empty(count + 1).scatter(0, numbers.flatten(), of.flatten())[1:]
    # From the masses, not from b: the only component of a map must have the share 1 exactly.
    total = s.new_zeros(len(s)).index_add(0, owner, mass)
    p = mass / total[owner]  # [SAR Eq. 8]
    h = s.new_zeros(len(s)).index_add(0, owner, -p * p.log())  # [SAR Eq. 9]
    if reduction == "mean":
        return h.mean()
    return h.view(maps.shape[:-2])


def components(masks: Tensor) -> tuple[Tensor, int]:
    """Number the 8-connected components of masks (M, H, W) from 1; return their count, too.

    The numbers (M, H, W) differ in different maps, and are 0 outside. scipy finds them on the CPU.
    """
    from scipy import ndimage

    numbers, count = ndimage.label(masks.cpu().numpy(), IN_PLANE)
    return torch.from_numpy(numbers).long().to(masks.device), int(count)


def total_variation(maps: Tensor) -> Tensor:
    """Sum the absolute differences of neighbours over a map (..., H, W); return the mean over maps.

    As in the paper; the released program takes half of the squared differences.
    """
    s = maps.float()
    across = (s[..., :, 1:] - s[..., :, :-1]).abs().sum((-2, -1))
    down = (s[..., 1:, :] - s[..., :-1, :]).abs().sum((-2, -1))
    return (across + down).mean()  # [SAR Eq. 14]
