"""What training minimises beside, or in the place of, cross-entropy: pure functions of tensors."""

from .dino import answer_spread, dino_loss
from .moco import moco_loss
from .spatial_entropy import spatial_entropy
from .total_variation import total_variation

__all__ = ["answer_spread", "dino_loss", "moco_loss", "spatial_entropy", "total_variation"]
