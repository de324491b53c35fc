from __future__ import annotations

from torch import Tensor

from ...metrics import prepare_maps
from ...options import check_number
from ..head import PoolAndHead, WsolMethod


class RethinkingCam(WsolMethod):
    """Thresholded average pooling, negative weight clamping, and a percentile as the standard.

    Bae et al., Rethinking Class Activation Mapping for Weakly Supervised Object Localization, ECCV
    2020. The first is the pool `tap`; negative weights of a class count as 0 in its map; and
    thresholds are shares of the `percentile` of a map instead of its maximum.
    """

    pool = "tap"

    def __init__(self, model: PoolAndHead, percentile: float = 90.0) -> None:
        super().__init__(model)
        check_number("percentile", percentile, above=0, most=100)
        self.percentile = percentile

    def class_weights(self, w: Tensor) -> Tensor:
        return w.clamp_min(0)

    def scores(self, maps: Tensor, size: int) -> Tensor:
        return prepare_maps(maps, size, low=None, high=self.percentile)
