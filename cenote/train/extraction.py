"""Features of the splits of a run, with a progress bar and a report of unreadable images."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..backbones import Backbone
from ..data import Dataset
from ..data.splits import Splits
from ..models.frozen import FrozenBackbone
from ..predict.distributed import rank
from ..predict.feature_cache import CachedFeatures, FeatureCache, cached_features
from ..progress import progress_of_total
from .callbacks import check_loggers
from .config import OptimizationConfig
from .log import RunLog, Stopped

logger = logging.getLogger(__name__)


class Unreadable:
    """Log each unreadable image once; stop the run if there are too many of them."""

    def __init__(self, folder: Path, settings: OptimizationConfig) -> None:
        self.folder, self.settings = folder, settings

    @cached_property
    def log(self) -> RunLog:
        """Created when it is needed, because it creates the folder."""
        return RunLog(self.folder, self.settings)

    def __call__(self, messages: Sequence[str], images: int, split: str) -> None:
        """Report the error messages of unreadable images, of a split of `images` images."""
        for message in messages:
            if self.log.add_unreadable(message):
                logger.warning("left out: %s", message)
        if self.log.too_many_unreadable(len(messages), images):
            self.log.stop_unreadable(f"{len(messages)} of {images} images of the {split} split")
        if len(messages) == images:
            raise Stopped(f"no image of the {split} split could be read")


def extract(backbone: Backbone, dataset: Dataset, name: str, **options: Any) -> CachedFeatures:
    """Compute `cached_features` with a progress bar."""
    with progress_of_total(f"features of {name}", hidden=rank() > 0) as progress:
        return cached_features(backbone, dataset, progress=progress, **options)


class Extraction:
    """Call it with a split and its name to get the cached features."""

    def __init__(
        self,
        frozen: FrozenBackbone,
        cache: FeatureCache | None,
        settings: OptimizationConfig,
        folder: Path,
    ) -> None:
        check_loggers(settings.log)  # an error before hours of extraction
        self.backbone, self.cache, self.workers = frozen.backbone, cache, settings.readers
        self.unreadable = Unreadable(folder, settings)

    def __call__(self, dataset: Dataset, split: str) -> CachedFeatures:
        features = extract(self.backbone, dataset, split, cache=self.cache, workers=self.workers)
        self.unreadable(features.bad, len(dataset), split)
        return features


class SplitFeatures:
    """The cached features of every split; `evaluated` is the test split, or else validation."""

    def __init__(self, extract: Extraction, splits: Splits) -> None:
        self.train, self.val = extract(splits.train, "train"), extract(splits.val, "val")
        self.test: CachedFeatures | None = None
        self.evaluated, self.evaluated_split = self.val, "val"
        if splits.test is not None:
            self.test = extract(splits.test, "test")
            self.evaluated, self.evaluated_split = self.test, "test"

    @property
    def readable(self) -> Splits:
        """The splits without unreadable images."""
        test = None if self.test is None else self.test.dataset
        return Splits(self.train.dataset, self.val.dataset, test)
