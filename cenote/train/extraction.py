"""Features of whole splits, with a bar to look at, and a word about every image that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ..data import Dataset
from ..models.frozen import FrozenBackbone
from ..predict.distributed import rank
from ..predict.feature_cache import CachedFeatures, FeatureCache, cached_features
from .config import OptimizationConfig
from .engine import Stopped, too_many_bad
from .log import RunLog


class Unreadable:
    """Images that cannot be read are said and written down, each once; too many of them stop the run."""

    def __init__(
        self, folder: Path, settings: OptimizationConfig, say: Callable[[str], None]
    ) -> None:
        self.folder, self.settings, self.say = folder, settings, say

    @cached_property
    def log(self) -> RunLog:
        """Not before it is needed: it makes the folder. Boards are the engine's."""
        return RunLog(self.folder, replace(self.settings, tensorboard=False, wandb=False))

    def __call__(self, bad: Sequence[str], images: int, name: str) -> None:
        """`bad`: a sentence for each, of so many `images` of a split."""
        for sentence in bad:
            if rank() == 0 and sentence not in self.log.named:
                self.say(f"left out: {sentence}")
            self.log.bad(sentence)
        if too_many_bad(len(bad), images, self.settings):
            told = f"{len(bad)} of {images} images of the {name} split could not be read"
            raise Stopped(f"{told} (they are in {self.log.bad_file})")
        if len(bad) == images:
            raise Stopped(f"no image of the {name} split could be read")


class Extraction:
    """Call it with a split and its name."""

    def __init__(
        self,
        frozen: FrozenBackbone,
        cache: FeatureCache | None,
        settings: OptimizationConfig,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self.frozen, self.cache, self.settings = frozen, cache, settings
        self.unreadable = Unreadable(folder, settings, say)

    def __call__(self, dataset: Dataset, name: str) -> CachedFeatures:
        from tqdm import tqdm

        with tqdm(unit="image", desc=f"features of {name}", disable=None, leave=False) as bar:

            def progress(done: int, of: int) -> None:
                bar.total = of
                bar.update(done - bar.n)

            workers = self.settings.workers
            found = cached_features(
                self.frozen.backbone, dataset, cache=self.cache, workers=workers, progress=progress
            )
        self.unreadable(found.bad, len(dataset), name)
        return found
