"""`cenote metric`: train embeddings on some classes and evaluate them on classes never seen."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data import Dataset
from ..data.loading import load
from ..data.samplers import BalancedBatchSampler, FixedLengthEpochs, SeededBatchSampler
from ..data.splits import (
    ClassSplits,
    Splits,
    check_matches,
    class_names,
    class_splits,
    fold_splits,
    metric_splits,
)
from ..evaluate.validators import (
    COUNTS,
    RetrievalValidator,
    SearchVectors,
    concatenate_vectors,
)
from ..metrics.retrieval import KS, KS_OF
from ..models import PooledModel, save_model
from ..models import load as load_model
from ..predict.distributed import processes, rank, world
from ..predict.embedding import EmbeddingSource
from ..predict.feature_cache import FeatureBatches, FeatureCache
from .build import (
    build_augmentation,
    build_frozen,
    build_head,
    build_metric_module,
    build_model,
    set_preprocessing,
)
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import can_resume, check_run_exists
from .config import OptimizationConfig, RunConfig
from .engine import Engine
from .extraction import Extraction, Unreadable
from .reports import FairReport, MetricReport, Scores, write_report
from .tasks.metric import Metric, MetricModule

logger = logging.getLogger(__name__)
CONSTANT = (*COUNTS, "images")  # the same for every model


def train_metric(
    data: Dataset,
    folder: Path,
    config: RunConfig,
    cache: FeatureCache | None = None,
    resume: bool = False,
) -> MetricReport | FairReport:
    """Train, save the model of the selected epoch in `folder`, and test it on unseen classes."""
    fair = config.options.protocol == "fair"
    _check_folder(folder, fair, resume)
    splits = class_splits(data)
    with processes() as device:
        if fair:
            return train_folds(splits, folder, config, cache, resume, device)
        run = MetricRun(config, metric_splits(splits, config.options.validate), folder, device)
        return run.train(cache, resume and can_resume(folder))[0]


def _check_folder(folder: Path, fair: bool, resume: bool) -> None:
    if resume:
        check_run_exists(folder)
    conventional = (folder / CHECKPOINT).exists()
    folds = (folder / "fold-1" / CHECKPOINT).exists()
    if not resume and (conventional or folds):
        raise ValueError(f"{folder} contains a run: resume it, or choose another folder")
    if (fair and conventional) or (folds and not fair):
        before, now = ("conventional", "fair") if fair else ("fair", "conventional")
        raise ValueError(f"{folder} contains a run of the {before} protocol, not of the {now} one")


class MetricRun:
    """One training in its own folder; `resume_folder` is that of all folds."""

    def __init__(
        self,
        config: RunConfig,
        splits: ClassSplits,
        folder: Path,
        device: torch.device,
        resume_folder: Path | None = None,
    ) -> None:
        self.config, self.splits, self.folder, self.device = config, splits, folder, device
        self.options, self.resume_folder = config.options, resume_folder
        self.ks = KS_OF.get(splits.test.name, KS)
        check_matches(splits)
        if splits.val is None and (config.train.patience or config.train.schedule == "plateau"):
            raise ValueError(
                "patience and plateau need a validation score, but no classes are held out: "
                "--validate classes (if there are enough) or test, or leave them out"
            )
        self.set_batches(splits.train)
        self.unreadable = Unreadable(folder, config.train)

    def set_batches(self, train: EmbeddingSource) -> None:
        """Set the classes and images of a step from the training images that are known."""
        labels = np.asarray(train.labels)
        self.classes = len(np.unique(labels))
        self.settings, self.classes_per_step = batches_of(self.config, self.classes, len(labels))

    def train(self, cache: FeatureCache | None, resume: bool) -> tuple[MetricReport, SearchVectors]:
        """Return the report, and the embeddings of the test images."""
        started = time.monotonic()
        sources: dict[str, Any] = {
            "train": self.splits.train,
            "val": self.splits.val,
            "val gallery": self.splits.val_gallery,
            "test": self.splits.test,
            "gallery": self.splits.gallery,
        }
        if self.config.model.freeze:
            frozen = build_frozen(self.config)
            frozen.backbone.to(self.device)
            extract = Extraction(frozen, cache, self.settings, self.folder)
            for name, source in sources.items():
                sources[name] = None if source is None else extract(source, name)
            self.set_batches(sources["train"])
            torch.manual_seed(self.settings.seed)
            head = build_head(self.config, frozen)
            task = self.task(build_metric_module(self.options, head, self.classes), sources, None)
            model = frozen.create_model(head)
        else:
            model, fitted = build_start(self.config)
            module = build_metric_module(self.options, model, self.classes, fitted)
            task = self.task(module, sources, build_augmentation(self.config, model))
        self._log_batches()
        Engine(task, self.settings, self.folder, self._identity(), self.resume_folder).run(resume)
        (winner,) = task.states
        task.module.load_state_dict(winner.best)
        if rank() == 0:
            save_model(model, self.folder)  # before the evaluation, which may fail
        if (
            task.validator is not None and task.validator.images is None
        ):  # nothing was left to train
            task.validator(task.module.body)
        embeddings = self._retrieval(sources, "test", "gallery", self.ks).vectors(task.module.body)
        seconds = time.monotonic() - started
        report = self._report(task, model.config["pool"], embeddings, seconds)
        if rank() == 0:
            write_report(self.folder, report)
        return report, embeddings

    def task(self, module: MetricModule, sources: dict[str, Any], transform: Any) -> Metric:
        """Return the training task of `module` on the sources "train", "val" and "val gallery"."""
        train, settings = sources["train"], self.settings
        validator = None
        if sources["val"] is not None:
            validator = self._retrieval(sources, "val", "val gallery", (1,))
        sampler = self._sampler(train)
        loader: Any
        if isinstance(train, Dataset):
            loader = load(
                train, transform, workers=settings.workers, seed=settings.seed, sampler=sampler
            )
        else:
            loader = FeatureBatches(train, settings.batch, order=sampler)
        return Metric(module, train, loader, validator, settings, self.options.score, self.device)

    def _sampler(self, train: EmbeddingSource) -> SeededBatchSampler:
        """Return which images are in which step, and how many steps are an epoch."""
        seed, process = self.settings.seed, (rank(), world())
        sampler: SeededBatchSampler
        if self.classes_per_step:
            share = max(self.classes_per_step // world(), 1)
            labels, images = np.asarray(train.labels), self.options.images_per_class
            sampler = BalancedBatchSampler(labels, share, images, seed, *process)
        else:
            share = max(self.settings.batch // world(), 1)
            drop_last = isinstance(train, Dataset) or world() > 1
            sampler = SeededBatchSampler(len(train), share, True, seed, drop_last, *process)
        if self.options.epoch_steps is None:
            return sampler
        return FixedLengthEpochs(sampler, self.options.epoch_steps)

    def _retrieval(
        self, sources: dict[str, Any], name: str, gallery: str, ks: Sequence[int]
    ) -> RetrievalValidator:
        return RetrievalValidator(
            sources[name],
            sources[gallery],
            self.device,
            self.settings.batch,
            self.settings.workers,
            ks,
            self.options.without_match,
            name,
            self.unreadable,
        )

    def _log_batches(self) -> None:
        """Report a batch that is not as large as configured."""
        images, batch = self.options.images_per_class, self.settings.batch
        wanted = self.config.train.batch
        if self.options.classes_per_batch:
            wanted = images * self.options.classes_per_batch
        if batch == wanted or rank():
            return
        content = "all there are"
        if self.classes_per_step:
            content = f"{self.classes_per_step} of {self.classes} classes, {images} of each"
        logger.info("a step has %d images instead of %d: %s", batch, wanted, content)

    def _identity(self) -> dict[str, Any]:
        return {**self.config.identity(), "data": self._fingerprint()}

    def _fingerprint(self) -> str:
        val = self.splits.train.select([]) if self.splits.val is None else self.splits.val
        return Splits(self.splits.train, val, None).fingerprint()

    def _report(
        self, task: Metric, pool: str, embeddings: SearchVectors, seconds: float
    ) -> MetricReport:
        options, splits, winner = self.options, self.splits, task.states[0]
        chosen_by, val_classes, val = "classes", splits.val, None
        if splits.val is None:
            chosen_by = "last"
        elif splits.val is splits.test:
            chosen_by, val_classes = "test", None
        if task.validator is not None:
            val = {options.score: winner.best_score, "images": task.validator.images or 0}
        test = embeddings.scores(self.ks, options.without_match)
        classes = {"train": splits.train, "val": val_classes, "test": splits.test}
        return MetricReport(
            backbone=self.config.model.backbone,
            pool=pool,
            epoch=winner.best_epoch + 1,
            chosen_by=chosen_by,
            val=val,
            test={**test, "images": len(embeddings.labels)},
            classes={name: class_names(dataset) for name, dataset in classes.items()},
            options=asdict(options),
            seconds={"training": seconds},
            settings=asdict(self.settings),
            data=self._fingerprint(),
        )


def batches_of(config: RunConfig, classes: int, images: int) -> tuple[OptimizationConfig, int]:
    """Return the settings with the batch of a step, and its number of classes (0: random batches).

    A step has at least two classes, and at most all of them.
    """
    train, per_class = config.train, config.options.images_per_class
    batch = min(train.batch, images)
    if not per_class:
        return replace(train, batch=batch), 0
    if classes < world():
        raise ValueError(
            f"{classes} training classes cannot be shared among {world()} processes: start fewer"
        )
    count = min(config.options.classes_per_batch or max(batch // per_class, 2), classes)
    count -= count % world()  # each process has whole classes
    return replace(train, batch=count * per_class), count


def build_start(config: RunConfig) -> tuple[PooledModel, bool]:
    """Return the model, and whether its pool was trained by the run that it starts from."""
    model, start = build_model(config), config.model.start
    if start is None:
        return model, False
    saved = load_model(start)
    model.backbone.preprocessing = saved.backbone.preprocessing
    set_preprocessing(config, model.backbone)
    try:
        model.backbone.load_state_dict(saved.backbone.state_dict())
    except RuntimeError as error:
        name = model.backbone.name
        raise ValueError(f"{start} contains another backbone than '{name}'") from error
    if saved.config["pool"] != model.config["pool"]:
        return model, False
    state = model.state_dict()
    weights = {
        name: value
        for name, value in saved.state_dict().items()
        if not name.startswith(("backbone.", "head."))
        and name in state
        and state[name].shape == value.shape
    }
    model.load_state_dict(weights, strict=False)
    return model, all(name in weights for name in state if name.startswith("pool."))


def train_folds(
    splits: ClassSplits,
    folder: Path,
    config: RunConfig,
    cache: FeatureCache | None,
    resume: bool,
    device: torch.device,
) -> FairReport:
    """Train four models, each without a quarter of the classes (Musgrave et al.), and average.

    Each is trained `repeats` times, and every collection of four is evaluated, alone and with
    concatenated embeddings: 81 for three trainings [GSP supplementary 1.1.4].
    """
    folds, repeats = fold_splits(splits), config.options.repeats
    names, reports, embeddings = list[str](), list[MetricReport](), list[list[SearchVectors]]()
    for (number, fold), repeat in product(enumerate(folds, 1), range(repeats)):
        again = f", training {repeat + 1} of {repeats}" if repeats > 1 else ""
        if rank() == 0:
            logger.info("fold %d of %d%s", number, len(folds), again)
        names.append(f"fold-{number}" if repeat == 0 else f"fold-{number}-{repeat + 1}")
        path = folder / names[-1]
        seed = config.train.seed + repeat * len(folds) + number - 1
        seeded = replace(config, train=replace(config.train, seed=seed))
        run = MetricRun(seeded, fold, path, device, folder)
        report, embedding = run.train(cache, resume and path.is_dir() and can_resume(path))
        reports.append(report)
        embeddings += [[]] if repeat == 0 else []
        embeddings[-1].append(embedding)
    ks, without_match = KS_OF.get(splits.test.name, KS), config.options.without_match
    places = np.arange(len(reports)).reshape(len(folds), repeats)
    alone = [_mean([reports[i].test for i in collection]) for collection in product(*places)]
    together = [
        concatenate_vectors(some).scores(ks, without_match) for some in product(*embeddings)
    ]
    deviation = {"test": _deviation(alone), "concatenated": _deviation(together)}
    # The model with the best validation score represents all.
    best = max(range(len(reports)), key=lambda i: (reports[i].val or {})[config.options.score])
    classes = {"train": splits.train, "val": None, "test": splits.test}
    report_of_all = FairReport(
        backbone=config.model.backbone,
        pool=reports[0].pool,
        test=_mean(alone),
        concatenated=_mean(together),
        folds=reports,
        classes={name: class_names(dataset) for name, dataset in classes.items()},
        settings=reports[0].settings,
        fold=names[best],
        collections=len(alone) if repeats > 1 else None,
        deviation=deviation if repeats > 1 else None,
    )
    if rank() == 0:
        save_model(load_model(folder / names[best]), folder)
        write_report(folder, report_of_all)
    return report_of_all


def _mean(reports: Sequence[Scores]) -> Scores:
    return {
        name: value if name in CONSTANT else float(np.mean([report[name] for report in reports]))
        for name, value in reports[0].items()
    }


def _deviation(reports: Sequence[Scores]) -> Scores:
    names = [name for name in reports[0] if name not in CONSTANT]
    return {name: float(np.std([report[name] for report in reports])) for name in names}
