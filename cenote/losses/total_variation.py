"""Total variation, the rival that SAR compares itself with [SAR Eq. 14]."""

from __future__ import annotations

from torch import Tensor


def total_variation(maps: Tensor) -> Tensor:
    """(..., H, W) -> scalar: the absolute differences of neighbours, summed over a map, the mean
    over maps.
    """
    s = maps.float()
    across = (s[..., :, 1:] - s[..., :, :-1]).abs().sum((-2, -1))
    down = (s[..., 1:, :] - s[..., :-1, :]).abs().sum((-2, -1))
    return (across + down).mean()  # [SAR Eq. 14]
