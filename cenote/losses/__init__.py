"""Losses beside, or instead of, cross-entropy: functions of tensors."""

from .catalogue import create_metric_loss, list_metric_losses, loss_table
from .drloc import DRLoc
from .generic import generic_loss
from .metric import MetricLoss
from .metrix import Metrix
from .metrix_rivals import IMix, MoCHi, ProxySynthesis
from .mixing import Mixable, mixtures_of, positivity
from .multi_label import binary_cross_entropy
from .self_supervised import answer_spread, dino_loss, moco_loss
from .spatial_entropy import spatial_entropy, total_variation
from .xbm import CrossBatchMemory
from .zero_shot import ZeroShot

__all__ = [
    "CrossBatchMemory",
    "DRLoc",
    "IMix",
    "MetricLoss",
    "Metrix",
    "Mixable",
    "MoCHi",
    "ProxySynthesis",
    "ZeroShot",
    "answer_spread",
    "binary_cross_entropy",
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
