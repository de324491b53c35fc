"""Pure functions of arrays: they judge anybody's model. Shares are from 0 to 1."""

from .average_precision import average_precision
from .box_accuracy import BoxAccuracy, BoxScore, max_box_acc
from .boxes import CorLoc, box_iou, corloc
from .embedding import alignment, uniformity, utilization
from .intervals import bootstrap_interval
from .jaccard import AttentionJaccard, attention_jaccard
from .masks import largest_box, mass_mask
from .overlaps import boxes_at
from .pixel_precision import PixelPrecision, join_masks, pixel_average_precision
from .rankings import LandmarkScore, class_ranks, landmark_scores
from .retrieval import QueryScores, query_scores, retrieval_scores
from .robustness import (
    CorruptionScore,
    background_gap,
    coarse_accuracy,
    corruption_error,
    subset_accuracy,
)
from .score_maps import prepare_maps, resize_mask
from .segmentation import Confusion, SegmentationScore, segmentation_scores
from .zero_shot import zero_shot_prediction

__all__ = [
    "AttentionJaccard",
    "BoxAccuracy",
    "BoxScore",
    "Confusion",
    "CorLoc",
    "CorruptionScore",
    "LandmarkScore",
    "PixelPrecision",
    "QueryScores",
    "SegmentationScore",
    "alignment",
    "attention_jaccard",
    "average_precision",
    "background_gap",
    "bootstrap_interval",
    "box_iou",
    "boxes_at",
    "class_ranks",
    "coarse_accuracy",
    "corloc",
    "corruption_error",
    "join_masks",
    "landmark_scores",
    "largest_box",
    "mass_mask",
    "max_box_acc",
    "pixel_average_precision",
    "prepare_maps",
    "query_scores",
    "resize_mask",
    "retrieval_scores",
    "segmentation_scores",
    "subset_accuracy",
    "uniformity",
    "utilization",
    "zero_shot_prediction",
]
