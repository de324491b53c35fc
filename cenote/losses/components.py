"""Connected components of many small masks at once, 8-connected."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# Neighbours in a map, none in the maps before and after it: all of them are one array of three
# dimensions.
IN_PLANE = np.zeros((3, 3, 3), np.int8)
IN_PLANE[1] = 1


def label(masks: Tensor) -> tuple[Tensor, int]:
    """(M, H, W) bool -> numbers (M, H, W) from 0 up to what is returned, different in different
    maps; 0 outside.
    """
    return _by_scipy(masks) if masks.device.type == "cpu" else by_flooding(masks)


def _by_scipy(masks: Tensor) -> tuple[Tensor, int]:
    from scipy import ndimage

    numbers, count = ndimage.label(masks.numpy(), IN_PLANE)
    return torch.from_numpy(numbers).long(), int(count)


def by_flooding(masks: Tensor) -> tuple[Tensor, int]:
    """On any device: each position takes the largest index around it, and then that index's own.

    The second step doubles the reach each time, so that a winding component takes few rounds.
    """
    inside = masks[:, None]
    pixel_ids = torch.arange(1, masks.numel() + 1, device=masks.device).view_as(inside)
    labels = torch.where(inside, pixel_ids, 0)
    while True:
        spread = torch.where(
            inside, F.max_pool2d(labels.double(), 3, 1, 1).long(), 0
        )  # exact up to 2^53 positions
        spread = torch.cat([spread.new_zeros(1), spread.flatten()])[spread]  # (M, 1, H, W)
        if torch.equal(spread, labels):
            break
        labels = spread
    # The components' largest indices become 1, 2, ...; 0 stays 0.
    present, numbers = torch.cat([labels.new_zeros(1), labels.flatten()]).unique(
        return_inverse=True
    )
    return numbers[1:].view(masks.shape), len(present) - 1
