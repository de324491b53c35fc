"""One training of `cenote metric`, judged on classes that it never saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data import Dataset
from ..data.class_splits import MetricSplits, check_matches, class_names
from ..data.loading import load
from ..data.samplers import BalancedBatchSampler, FixedLengthEpochs, SeededBatchSampler
from ..data.splits import Splits
from ..evaluate.validators import RetrievalValidator, SearchVectors
from ..metrics.retrieval import KS, KS_OF
from ..models import save_model
from ..predict.distributed import rank, world
from ..predict.embedding import EmbeddingSource
from ..predict.feature_batches import FeatureBatches
from ..predict.feature_cache import FeatureCache
from .engine import Engine
from .extraction import Extraction, Unreadable
from .log import write_results
from .metric_choices import MetricChoices
from .tasks.metric import Metric, MetricModule

Say = Callable[[str], None]


class Run:
    """One training, in a folder of its own."""

    def __init__(
        self, choices: MetricChoices, splits: MetricSplits, folder: Path, device: torch.device, say: Say,
        whole: Path | None = None,
    ) -> None:  # fmt: skip
        self.choices, self.splits, self.folder, self.device, self.say = (
            choices,
            splits,
            folder,
            device,
            say,
        )
        self.whole = whole  # the folder of all runs, where this is one of several
        self.settings, self.ks = choices.settings, KS_OF.get(splits.test.name, KS)
        check_matches(splits)
        if splits.val is None and (self.settings.patience or self.settings.schedule == "plateau"):
            raise ValueError(
                "patience and the plateau wait for a better score, and no classes are held out to score: "
                "--validate classes (of which there must be enough) or test, or leave them out"
            )
        self.plan(splits.train)
        self.unreadable = Unreadable(folder, choices.settings)

    def plan(self, train: EmbeddingSource) -> None:
        """What a step holds, of images that can be read as far as that is known; told where it is not as asked."""
        labels = np.asarray(train.labels)
        self.classes = len(np.unique(labels))
        self.settings, self.per_step = self.choices.training(self.classes, len(labels))

    def train(
        self, cache: FeatureCache | None, resume: bool
    ) -> tuple[dict[str, Any], SearchVectors]:
        """The report, and the vectors of the test images."""
        started = time.monotonic()
        splits, options = self.splits, self.choices.options
        sources: dict[str, Any] = {
            "train": splits.train,
            "val": splits.val,
            "val gallery": splits.val_gallery,
        }
        sources |= {"test": splits.test, "gallery": splits.gallery}
        if self.choices.freeze:
            frozen = self.choices.frozen()
            frozen.backbone.to(self.device)
            extract = Extraction(frozen, cache, self.settings, self.folder)
            sources = {k: None if d is None else extract(d, k) for k, d in sources.items()}
            self.plan(sources["train"])
            top = self.choices.top(frozen)
            task = self.task(options.module(top, self.classes), sources, None)
            model = frozen.create_model(top)
        else:
            model, fitted = self.choices.start()
            task = self.task(
                options.module(model, self.classes, fitted),
                sources,
                self.choices.augmentation(model),
            )
        self._tell_step()
        Engine(task, self.settings, self.folder, self._identity(), self.whole).run(resume)
        (winner,) = task.states
        task.module.load_state_dict(winner.best)
        if rank() == 0:
            save_model(model, self.folder)  # whatever judging may stumble over
        if (
            task.validator is not None and task.validator.images is None
        ):  # all was trained before it was resumed
            task.validator(task.module.body)
        found = self._judge(sources, "test", "gallery", self.ks).vectors(task.module.body)
        report = self._report(task, model.config["pool"], found, time.monotonic() - started)
        if rank() == 0:
            write_results(self.folder, report)
        return report, found

    def _tell_step(self) -> None:
        asked, per, batch = self.choices, self.choices.options.images_per_class, self.settings.batch
        wanted = (
            per * asked.options.classes_per_batch
            if asked.options.classes_per_batch
            else asked.settings.batch
        )
        if batch != wanted and rank() == 0:
            each = (
                f"{self.per_step} of {self.classes} classes, {per} of each"
                if self.per_step
                else "all there are"
            )
            self.say(f"a step holds {batch} images instead of {wanted}: {each}")

    def _judge(
        self, sources: dict[str, Any], name: str, gallery: str, ks: Sequence[int]
    ) -> RetrievalValidator:
        return RetrievalValidator(
            sources[name],
            sources[gallery],
            self.device,
            self.settings.batch,
            self.settings.workers,
            ks,
            self.choices.options.without_match,
            name,
            self.unreadable,
        )

    def task(self, module: MetricModule, sources: dict[str, Any], transform: Any) -> Metric:
        """Return the training task of `module` on the sources "train", "val" and "val gallery"."""
        settings = self.settings
        judge = None if sources["val"] is None else self._judge(sources, "val", "val gallery", (1,))
        train: EmbeddingSource = sources["train"]
        order = self._order(train)
        if isinstance(train, Dataset):
            loader: Any = load(
                train, transform, workers=settings.workers, seed=settings.seed, sampler=order
            )
        else:
            loader = FeatureBatches(train, settings.batch, order=order)
        score = self.choices.options.score
        return Metric(module, train, loader, judge, settings, score, self.device)

    def _order(self, train: EmbeddingSource) -> SeededBatchSampler:
        """Which images stand in which step, and how many steps are an epoch."""
        own, seed, here = self.choices.options, self.settings.seed, (rank(), world())
        order: SeededBatchSampler
        if self.per_step:
            share = max(self.per_step // world(), 1)
            order = BalancedBatchSampler(
                np.asarray(train.labels), share, own.images_per_class, seed, *here
            )
        else:
            share = max(self.settings.batch // world(), 1)
            order = SeededBatchSampler(
                len(train), share, True, seed, isinstance(train, Dataset) or world() > 1, *here
            )
        return order if own.epoch_steps is None else FixedLengthEpochs(order, own.epoch_steps)

    def _identity(self) -> dict[str, Any]:
        asked = {key: value for key, value in asdict(self.choices).items() if key != "settings"}
        return {**asked, "weights": str(self.choices.weights), "data": self._fingerprint()}

    def _fingerprint(self) -> str:
        val = self.splits.train.select([]) if self.splits.val is None else self.splits.val
        return Splits(self.splits.train, val, None).fingerprint()

    def _report(
        self, task: Metric, pool: str, found: SearchVectors, seconds: float
    ) -> dict[str, Any]:
        choices, splits, winner = self.choices, self.splits, task.states[0]
        val = (
            None
            if task.validator is None
            else {choices.options.score: winner.best_score, "images": task.validator.images}
        )
        chosen = (
            "last" if splits.val is None else "test" if splits.val is splits.test else "classes"
        )
        parts = {
            "train": splits.train,
            "val": splits.val if chosen == "classes" else None,
            "test": splits.test,
        }
        return {
            "task": "metric",
            "backbone": choices.backbone,
            "pool": pool,
            "epoch": winner.best_epoch + 1,
            "chosen_by": chosen,
            "val": val,
            "test": {
                **found.scores(self.ks, choices.options.without_match),
                "images": len(found.labels),
            },
            "classes": {name: class_names(part) for name, part in parts.items()},
            "options": asdict(choices.options),
            "seconds": {"training": seconds},
            "settings": asdict(self.settings),
            "data": self._fingerprint(),
        }
