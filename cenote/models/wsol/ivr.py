from __future__ import annotations

import torch
from torch import Tensor

from ...metrics import prepare_maps
from ...options import check_number
from ..head import PoolAndHead, WsolMethod


class InferiorValueRemoval(WsolMethod):
    """Scale maps from a percentile to their maximum, instead of from their minimum.

    Kim et al., Normalization Matters in Weakly Supervised Object Localization, ICCV 2021. Training
    is that of a plain classifier; the percentile that is best for the boxes of validation images is
    saved (`cenote.train.wsol`), and without boxes the one that is given.
    """

    percentile: Tensor

    def __init__(self, model: PoolAndHead, percentile: float = 30.0) -> None:
        super().__init__(model)
        check_number("percentile", percentile, least=0, most=99)
        self.register_buffer("percentile", torch.tensor(float(percentile)))

    def scores(self, maps: Tensor, size: int) -> Tensor:
        return prepare_maps(maps, size, low=float(self.percentile))
