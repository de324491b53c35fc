from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...options import check_number
from ..head import PoolAndHead, WsolMethod


class HideAndSeek(WsolMethod):
    """Hide random cells of training images, so that the network must look at other parts, too.

    Singh and Lee, Hide-and-Seek: Forcing a Network to be Meticulous, ICCV 2017: a grid of `grid` x
    `grid` cells, 56 pixels each of 224, of which each is hidden with `probability`.
    """

    changes_images = True
    needs_cam = False

    def __init__(self, model: PoolAndHead, grid: int = 4, probability: float = 0.5) -> None:
        super().__init__(model)
        check_number("grid", grid, whole=True, least=1)
        check_number("probability", probability, least=0, most=1)
        self.grid, self.probability = grid, probability

    def images(self, images: Tensor, rng: torch.Generator) -> Tensor:
        cells = torch.rand(len(images), 1, self.grid, self.grid, generator=rng) < self.probability
        hidden = F.interpolate(cells.float(), images.shape[-2:], mode="nearest") > 0
        return images.masked_fill(hidden.to(images.device), 0)  # the mean colour
