"""`cenote metric`: labelled images in, a model whose vectors tell classes it never saw out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data import Dataset
from ..data.balanced import BalancedOrder
from ..data.cache import FeatureCache
from ..data.loading import load
from ..metrics.retrieval import KS, KS_OF
from ..models import load as load_model
from ..models import save_model
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import begun, refuse_missing
from .distributed import processes, rank, world
from .engine import Engine
from .extraction import Extraction, Unreadable
from .fit import fingerprint, write_results
from .metric import Metric
from .metric_choices import MetricChoices
from .metric_module import MetricModule
from .metric_splits import Halves, MetricSplits, check_findable, class_names, fold_splits, halves, metric_splits
from .probe import FeatureBatches
from .retrieval import COUNTS, Retrieval, Searched, Source, concatenated, scores
from .splits import Splits

Say = Callable[[str], None]


class Run:
    """One training, in a folder of its own."""

    def __init__(
        self, choices: MetricChoices, splits: MetricSplits, folder: Path, device: torch.device, say: Say
    ) -> None:
        self.choices, self.splits, self.folder, self.device, self.say = choices, splits, folder, device, say
        self.settings, self.ks = choices.settings, KS_OF.get(splits.test.name, KS)
        check_findable(splits)
        self.plan(splits.train)
        self.unreadable = Unreadable(folder, choices.settings, say)

    def plan(self, train: Source) -> None:
        """What a step holds, of images that can be read as far as that is known; told where it is not as asked."""
        labels = np.asarray(train.labels)
        self.classes = len(np.unique(labels))
        self.settings, self.per_step = self.choices.training(self.classes, len(labels))

    def train(self, cache: FeatureCache | None, resume: bool) -> tuple[dict[str, Any], Searched]:
        """The report, and the vectors of the test images."""
        started = time.monotonic()
        splits, options = self.splits, self.choices.options
        sources: dict[str, Any] = {"train": splits.train, "val": splits.val, "val gallery": splits.val_gallery}
        sources |= {"test": splits.test, "gallery": splits.gallery}
        if self.choices.freeze:
            frozen = self.choices.frozen()
            frozen.backbone.to(self.device)
            extract = Extraction(frozen, cache, self.settings, self.folder, self.say)
            sources = {k: None if d is None else extract(d, k) for k, d in sources.items()}
            self.plan(sources["train"])
            top = self.choices.top(frozen)
            task = self._task(options.module(top, self.classes), sources, None)
            model = frozen.model(top)
        else:
            model, fitted = self.choices.start()
            task = self._task(options.module(model, self.classes, fitted), sources, self.choices.augmentation(model))
        self._tell_step()
        Engine(task, self.settings, self.folder, self.say, self._identity()).run(resume)
        (winner,) = task.contenders
        task.module.load_state_dict(winner.best)
        if rank() == 0:
            save_model(model, self.folder)  # whatever judging may stumble over
        if task.judge is not None and task.judge.images is None:  # all was trained before it was resumed
            task.judge(task.module.body)
        found = self._judge(sources, "test", "gallery", self.ks).searched(task.module.body)
        report = self._report(task, model.config["pool"], found, time.monotonic() - started)
        if rank() == 0:
            write_results(self.folder, report)
        return report, found

    def _tell_step(self) -> None:
        asked, per, batch = self.choices, self.choices.options.images_per_class, self.settings.batch
        wanted = per * asked.options.classes_per_batch if asked.options.classes_per_batch else asked.settings.batch
        if batch != wanted and rank() == 0:
            each = f"{self.per_step} of {self.classes} classes, {per} of each" if self.per_step else "all there are"
            self.say(f"a step holds {batch} images instead of {wanted}: {each}")

    def _judge(self, sources: dict[str, Any], name: str, gallery: str, ks: Sequence[int]) -> Retrieval:
        lone = self.choices.options.without_match
        return Retrieval(
            sources[name], sources[gallery], self.settings, self.device, ks, lone, name, self.unreadable
        )  # fmt: skip

    def _task(self, module: MetricModule, sources: dict[str, Any], transform: Any) -> Metric:
        settings = self.settings
        judge = None if sources["val"] is None else self._judge(sources, "val", "val gallery", (1,))
        train: Source = sources["train"]
        order = None
        if self.per_step:
            share = max(self.per_step // world(), 1)
            labels, images = np.asarray(train.labels), self.choices.options.images_per_class
            order = BalancedOrder(labels, share, images, settings.seed, rank(), world())
        if isinstance(train, Dataset):
            loader: Any = load(
                train, transform, max(settings.batch // world(), 1), settings.workers, shuffle=True,
                seed=settings.seed, drop_last=True, rank=rank(), world=world(), order=order,
            )  # fmt: skip
        else:
            loader = FeatureBatches(train, settings.batch, shuffle=True, seed=settings.seed, order=order)
        score = self.choices.options.score
        return Metric(module, train, loader, judge, settings, score, self.device, self.say)

    def _identity(self) -> dict[str, Any]:
        asked = {key: value for key, value in asdict(self.choices).items() if key != "settings"}
        return {**asked, "weights": str(self.choices.weights), "data": self._fingerprint()}

    def _fingerprint(self) -> str:
        val = self.splits.train.select([]) if self.splits.val is None else self.splits.val
        return fingerprint(Splits(self.splits.train, val, None))

    def _report(self, task: Metric, pool: str, found: Searched, seconds: float) -> dict[str, Any]:
        choices, splits, winner = self.choices, self.splits, task.contenders[0]
        val = None if task.judge is None else {choices.options.score: winner.best_score, "images": task.judge.images}
        chosen = "last" if splits.val is None else "test" if splits.val is splits.test else "classes"
        parts = {"train": splits.train, "val": splits.val if chosen == "classes" else None, "test": splits.test}
        return {
            "task": "metric",
            "backbone": choices.backbone,
            "pool": pool,
            "epoch": winner.best_epoch + 1,
            "chosen_by": chosen,
            "val": val,
            "test": {**scores(found, self.ks, choices.options.without_match), "images": len(found.labels)},
            "classes": {name: class_names(part) for name, part in parts.items()},
            "options": asdict(choices.options),
            "seconds": {"training": seconds},
            "settings": asdict(self.settings),
            "data": self._fingerprint(),
        }


def learn_metric(
    data: Dataset,
    folder: Path,
    choices: MetricChoices,
    cache: FeatureCache | None = None,
    resume: bool = False,
    say: Say = print,
) -> dict[str, Any]:
    """Train as chosen, save the model of the chosen epoch in `folder`, judge it on unseen classes, and report."""
    choices.check()
    _refuse_another_run(folder, choices.options.protocol == "fair", resume)
    parts = halves(data)
    with processes() as device:
        if choices.options.protocol == "fair":
            return _four(parts, folder, choices, cache, resume, say, device)
        splits = metric_splits(parts, choices.options.validate, say)
        return Run(choices, splits, folder, device, say).train(cache, resume and begun(folder, say))[0]


def _four(
    parts: Halves, folder: Path, choices: MetricChoices, cache: FeatureCache | None, resume: bool, say: Say,
    device: torch.device,
) -> dict[str, Any]:  # fmt: skip
    """Musgrave's protocol: four models, each without a quarter of the classes, which chooses its epoch."""
    reports, vectors = [], []
    for number, splits in enumerate(fold_splits(parts), 1):
        say(f"fold {number} of 4")
        inside = folder / f"fold-{number}"
        goes_on = resume and inside.is_dir() and begun(inside, say)
        report, found = Run(choices, splits, inside, device, say).train(cache, goes_on)
        reports.append(report)
        vectors.append(found)
    ks = KS_OF.get(parts.test.name, KS)
    each, same = [report["test"] for report in reports], (*COUNTS, "images")
    together: dict[str, Any] = {
        "task": "metric",
        "protocol": "fair",
        "backbone": choices.backbone,
        "pool": reports[0]["pool"],
        "test": {name: value if name in same else float(np.mean([one[name] for one in each]))
                 for name, value in each[0].items()},
        "concatenated": scores(concatenated(vectors), ks, choices.options.without_match),
        "folds": reports,
        "classes": {"train": class_names(parts.train), "val": [], "test": class_names(parts.test)},
        "settings": reports[0]["settings"],
    }  # fmt: skip
    if rank() == 0:  # of the four, the one that chose best stands for all where one model is asked for
        best = max(range(len(reports)), key=lambda k: reports[k]["val"][choices.options.score])
        save_model(load_model(folder / f"fold-{best + 1}"), folder)
        write_results(folder, together | {"fold": best + 1})
    return together


def _refuse_another_run(folder: Path, fair: bool, resume: bool) -> None:
    if resume:
        refuse_missing(folder)
    one, four = ((place / CHECKPOINT).exists() for place in (folder, folder / "fold-1"))
    if not resume and (one or four):
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder")
    if one if fair else four:
        was, now = ("conventional", "fair") if fair else ("fair", "conventional")
        raise ValueError(f"{folder} holds a run of the {was} protocol: it does not go on with the {now} one")
