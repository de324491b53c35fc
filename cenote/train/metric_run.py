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
    image_splits,
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
from ..models.frozen import PooledHead
from ..predict.distributed import rank, world
from ..predict.embedding import EmbeddingSource
from ..predict.feature_cache import FeatureBatches, FeatureCache
from .augment import build_augmentation
from .build import build_frozen, build_head, build_model, set_preprocessing
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import can_resume, check_run_exists, run_processes
from .config import OptimizationConfig, Options, RunConfig
from .divide_and_conquer import ClusterBatchSampler, Learners
from .engine import Engine
from .extraction import Extraction, Unreadable
from .reports import FairReport, MetricReport, Scores
from .tasks.metric import Metric, MetricModule
from .whitening import fit_whitening

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
    conventional, folds = ((folder / name / CHECKPOINT).exists() for name in ("", "fold-1"))
    if (fair and conventional) or (folds and not fair):
        protocol = config.options.protocol
        raise ValueError(f"{folder} contains a run of another protocol than '{protocol}'")
    if folds and not resume:
        raise ValueError(f"{folder} already has a run: use --resume or another folder")
    if resume:
        check_run_exists(folder)
    split = {"classes": class_splits, "images": image_splits}[config.options.test]
    splits = split(data)
    with run_processes(folder, resume, splits.train, splits.val) as device:
        if fair:
            return train_folds(splits, folder, config, cache, resume, device)
        resume = can_resume(folder, resume)
        run = MetricRun(config, metric_splits(splits, config.options.validate), folder, device)
        return run.train(cache, resume)[0]


class MetricRun:
    """One training in its own folder."""

    def __init__(
        self,
        config: RunConfig,
        splits: ClassSplits,
        folder: Path,
        device: torch.device,
    ) -> None:
        self.config, self.splits, self.folder, self.device = config, splits, folder, device
        self.options = config.options
        check_matches(splits)
        if splits.val is None and (config.train.patience or config.train.schedule == "plateau"):
            raise ValueError(
                "patience and plateau need a validation score, but no classes are held out: "
                "--validate classes (if there are enough) or test, or leave them out"
            )
        self.sources: Options = splits._asdict()  # images, or their cached features
        self.set_batches()
        self.unreadable = Unreadable(folder, config.train)

    def set_batches(self) -> None:
        """Set the classes and images of a step from the training images that are known."""
        labels = np.asarray(self.sources["train"].labels)
        self.classes = len(np.unique(labels))
        self.settings, self.classes_per_step = batches_of(self.config, self.classes, len(labels))

    def train(self, cache: FeatureCache | None, resume: bool) -> tuple[MetricReport, SearchVectors]:
        """Return the report, and the embeddings of the test images."""
        started = time.monotonic()
        body: PooledModel | PooledHead
        if self.config.model.freeze:
            frozen = build_frozen(self.config, self.device)
            extract = Extraction(frozen, cache, self.settings, self.folder)
            for name, source in self.sources.items():
                if source is not None:
                    self.sources[name] = extract(source, name.replace("_", " "))
            self.set_batches()
            torch.manual_seed(self.settings.seed)
            body, fitted = build_head(self.config, frozen), False
            model = frozen.create_model(body)
        else:
            model, fitted = build_start(self.config)
            body = model.to(self.device)
        if not fitted and not self.config.model.from_scratch:
            fit_whitening(body, self.sources["train"], self.settings.readers)
        images = len(self.sources["train"])
        task = self.task(MetricModule(self.options, body, self.classes, fitted, images), model)
        self._log_batches()
        identity = {**self.config.identity(), "data": self._fingerprint()}
        engine = Engine(task, self.settings, self.folder, identity)
        winner = engine.run(resume)
        winner.load_best()
        if rank() == 0:
            save_model(model, self.folder)  # before the evaluation, which may fail
        if task.validator is not None and task.validator.images is None:
            task.validator(body)  # nothing was left to train
        ks = KS_OF.get(self.splits.test.name, KS)
        embeddings = self._retrieval("test", "gallery", ks).vectors(body)
        scores = embeddings.scores(ks, self.options.without_match)
        report = MetricReport(
            backbone=self.config.model.backbone,
            pool=model.config["pool"],
            epoch=winner.best_epoch + 1,
            **self._validation(task),
            test={**scores, "images": len(embeddings.labels)},
            options=asdict(self.options),
            seconds={"training": time.monotonic() - started},
            settings=asdict(self.settings),
            data=self._fingerprint(),
        )
        if rank() == 0:
            report.write(self.folder)
        return report, embeddings

    def task(self, module: MetricModule, model: PooledModel) -> Metric:
        """Return the training task of `module`, which trains `model` or what follows its backbone."""
        train, settings = self.sources["train"], self.settings
        validator = None
        if self.sources["val"] is not None:
            validator = self._retrieval("val", "val_gallery", (1,))
        sampler = self._sampler(train, module)
        loader: Any
        if isinstance(train, Dataset):
            transform = build_augmentation(self.config, model)
            loader = load(
                train, transform, workers=settings.readers, seed=settings.seed, sampler=sampler
            )
        else:
            loader = FeatureBatches(train, settings.batch, order=sampler)
        return Metric(module, train, loader, validator, settings, self.device)

    def _sampler(self, train: EmbeddingSource, module: MetricModule) -> SeededBatchSampler:
        """Return which images are in which step, and how many steps are an epoch."""
        seed, process = self.settings.seed, (rank(), world())
        sampler: SeededBatchSampler
        labels, images = np.asarray(train.labels), self.options.images_per_class
        if self.classes_per_step:
            share = max(self.classes_per_step // world(), 1)
            sampler = BalancedBatchSampler(labels, share, images, seed, *process)
        else:
            share = max(self.settings.batch // world(), 1)
            drop_last = isinstance(train, Dataset) or world() > 1
            sampler = SeededBatchSampler(len(train), share, True, seed, drop_last, *process)
        if isinstance(module.loss, Learners):
            sampler = ClusterBatchSampler(sampler, module.loss, labels, images)
        if self.options.epoch_steps is None:
            return sampler
        return FixedLengthEpochs(sampler, self.options.epoch_steps)

    def _retrieval(self, name: str, gallery: str, ks: Sequence[int]) -> RetrievalValidator:
        return RetrievalValidator(
            self.sources[name],
            self.sources[gallery],
            self.device,
            self.settings.batch,
            self.settings.readers,
            ks,
            self.options.without_match,
            name,
            self.unreadable,
        )

    def _log_batches(self) -> None:
        """Report a batch that is not as large as configured."""
        images, batch = self.options.images_per_class, self.settings.batch
        wanted = images * (self.options.classes_per_batch or 0) or self.config.train.batch
        if batch == wanted or rank():
            return
        content = "all there are"
        if self.classes_per_step:
            content = f"{self.classes_per_step} of {self.classes} classes, {images} of each"
        logger.info("a step has %d images instead of %d: %s", batch, wanted, content)

    def _fingerprint(self) -> str:
        val = self.splits.val or self.splits.train.select([])
        return Splits(self.splits.train, val, None).fingerprint()

    def _validation(self, task: Metric) -> Options:
        """Return the fields of the report that say how the epoch was selected."""
        splits, val_classes, val = self.splits, self.splits.val, None
        chosen_by = "last"
        if task.validator is not None:
            chosen_by, score = "classes", task.states[0].best_score
            val = {self.options.score: score, "images": task.validator.images or 0}
        if splits.val is splits.test:
            chosen_by, val_classes = "test", None
        classes = _class_names(splits.train, val_classes, splits.test)
        return {"chosen_by": chosen_by, "val": val, "classes": classes}


def _class_names(train: Dataset, val: Dataset | None, test: Dataset) -> dict[str, list[str]]:
    return {"train": class_names(train), "val": class_names(val), "test": class_names(test)}


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
    names, reports, embeddings = list[str](), list[MetricReport](), list[SearchVectors]()
    for (number, fold), repeat in product(enumerate(folds, 1), range(repeats)):
        name, message = f"fold-{number}", f"fold {number} of {len(folds)}"
        if repeats > 1:
            message += f", training {repeat + 1} of {repeats}"
        if repeat:
            name += f"-{repeat + 1}"
        if rank() == 0:
            logger.info(message)
        names.append(name)
        path = folder / name
        seed = config.train.seed + repeat * len(folds) + number - 1
        seeded = replace(config, train=replace(config.train, seed=seed))
        run = MetricRun(seeded, fold, path, device)
        report, embedding = run.train(cache, can_resume(path, resume and path.is_dir()))
        reports.append(report)
        embeddings.append(embedding)
    ks, without_match = KS_OF.get(splits.test.name, KS), config.options.without_match
    collections = list(product(*np.arange(len(reports)).reshape(len(folds), repeats)))
    alone = [_mean([reports[i].test for i in collection]) for collection in collections]
    together = [
        concatenate_vectors([embeddings[i] for i in collection]).scores(ks, without_match)
        for collection in collections
    ]
    spread: Options = {}
    if repeats > 1:
        deviation = {"test": _deviation(alone), "concatenated": _deviation(together)}
        spread = {"collections": len(alone), "deviation": deviation}
    # The model with the best validation score represents all.
    best = max(range(len(reports)), key=lambda i: (reports[i].val or {})[config.options.score])
    report_of_all = FairReport(
        backbone=config.model.backbone,
        pool=reports[0].pool,
        test=_mean(alone),
        concatenated=_mean(together),
        folds=reports,
        classes=_class_names(splits.train, None, splits.test),
        settings=reports[0].settings,
        fold=names[best],
        **spread,
    )
    if rank() == 0:
        save_model(load_model(folder / names[best]), folder)
        report_of_all.write(folder)
    return report_of_all


def _mean(reports: Sequence[Scores]) -> Scores:
    names = [name for name in reports[0] if name not in CONSTANT]
    means = {name: float(np.mean([report[name] for report in reports])) for name in names}
    return reports[0] | means


def _deviation(reports: Sequence[Scores]) -> Scores:
    names = [name for name in reports[0] if name not in CONSTANT]
    return {name: float(np.std([report[name] for report in reports])) for name in names}
