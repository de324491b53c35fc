"""Pure functions of arrays: they judge anybody's model. Shares are from 0 to 1."""

from .box_accuracy import BoxAccuracy, BoxScore, max_box_acc
from .boxes import CorLoc, box_iou, corloc, largest_box, mass_mask
from .contours import boxes_at
from .embedding import alignment, uniformity, utilization, zero_shot_prediction
from .intervals import bootstrap_interval
from .rankings import (
    LandmarkScore,
    average_precision,
    class_average_precisions,
    class_ranks,
    landmark_scores,
    mean_average_precision,
)
from .retrieval import QueryScores, query_scores, retrieval_scores
from .robustness import CorruptionScore, background_gap, corruption_error
from .score_maps import prepare_maps, resize_mask
from .segmentation import (
    AttentionJaccard,
    Confusion,
    PixelPrecision,
    SegmentationScore,
    attention_jaccard,
    pixel_average_precision,
    segmentation_scores,
)

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
    "class_average_precisions",
    "class_ranks",
    "corloc",
    "corruption_error",
    "landmark_scores",
    "largest_box",
    "mass_mask",
    "max_box_acc",
    "mean_average_precision",
    "pixel_average_precision",
    "prepare_maps",
    "query_scores",
    "resize_mask",
    "retrieval_scores",
    "segmentation_scores",
    "uniformity",
    "utilization",
    "zero_shot_prediction",
]
