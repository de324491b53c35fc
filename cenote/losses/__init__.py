"""What training minimises beside, or in the place of, cross-entropy: pure functions of tensors."""

from .catalogue import create_metric_loss, list_metric_losses, loss_table
from .dino import answer_spread, dino_loss
from .generic import generic_loss
from .i_mix import IMix
from .metric import MetricLoss
from .metrix import Metrix, Mixable
from .mochi import MoCHi
from .moco import moco_loss
from .positivity import mixtures_of, positivity
from .proxy_synthesis import ProxySynthesis
from .spatial_entropy import spatial_entropy
from .total_variation import total_variation
from .xbm import CrossBatchMemory
from .zero_shot import ZeroShot

__all__ = [
    "CrossBatchMemory",
    "IMix",
    "MetricLoss",
    "Metrix",
    "Mixable",
    "MoCHi",
    "ProxySynthesis",
    "ZeroShot",
    "answer_spread",
    "create_metric_loss",
    "dino_loss",
    "generic_loss",
    "list_metric_losses",
    "loss_table",
    "mixtures_of",
    "moco_loss",
    "positivity",
    "spatial_entropy",
    "total_variation",
]
