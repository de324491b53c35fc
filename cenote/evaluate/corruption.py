"""Accuracy under corruptions: ImageNet-C itself, or any data set, corrupted on the fly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from PIL import Image

from ..data import Dataset
from ..data.corruptions import CORRUPTIONS, SEVERITIES, with_corruption
from ..data.corruptions.registry import find_corruption
from ..metrics.robustness import ALEXNET_ERRORS, corruption_error
from ..models import PooledModel
from ..predict.embedding import Loading
from ..predict.progress_file import FinishedPasses
from ..report import robustness
from ..report.blocks import Block
from ..report.robustness import corruption_title
from ..report.sheet import first_readable
from .per_image_correct import check_variants, known_images, readable_in_all
from .protocol import Evaluation, Figure, Picture, Protocol, Report, count_images, left_out

CLEAN = "clean"
MAX_MESSAGES = 5  # unreadable files that are named
OTHER_DATA = (
    "mCE divides by AlexNet's errors on ImageNet: on other data it compares models with each other, "
    "but not with papers"
)
OWN_FROST = "frost is drawn here, not photographed: its error and mCE are not comparable with published ones"
INCOMPLETE = "mCE needs all 15 corruptions of ImageNet-C at all 5 severities"


@dataclass
class CorruptionReport(Report):
    """Accuracies in percent by corruption and severity, their means, and mCE."""

    clean: float | None
    accuracy: dict[str, dict[str, float]]
    by_corruption: dict[str, float]
    mean_accuracy: float
    mce: float | None
    relative_mce: float | None
    notes: list[str]
    images: int  # readable in every pass; of ImageNet-C, in one corruption at one severity
    left_out: dict[str, int]
    unreadable: list[str]
    seed: int | None

    def table(self, split: str) -> str:
        severities = list(next(iter(self.accuracy.values())))
        heads = "".join(f"{severity:>7}" for severity in severities)
        lines = [f"{'accuracy in percent at severity':<32}{heads}   mean"]
        for name, shares in self.accuracy.items():
            values = "".join(f"{share:7.1f}" for share in shares.values())
            lines.append(f"{corruption_title(name):<32}{values}{self.by_corruption[name]:7.1f}")
        line = f"mean under corruption {self.mean_accuracy:.2f}, of {count_images(self.images)}"
        if self.clean is not None:
            line = f"clean {self.clean:.2f}, {line}"
        lines.append(line)
        if self.mce is not None:
            line = f"mCE {self.mce:.1f}"
            if self.relative_mce is not None:
                line += f", relative mCE {self.relative_mce:.1f}"
            lines.append(line)
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, *left_out(self.unreadable, MAX_MESSAGES, **self.left_out)])

    def figures(self) -> list[Figure]:
        return [
            Figure("under corruption", self.mean_accuracy, "%"),
            Figure("clean", self.clean, "%"),
            Figure("mCE", self.mce, "%, lower is better"),
        ]


class Corruption(Protocol[CorruptionReport], name="corruption"):
    one_class = True
    resumable = True

    def run(self, evaluation: Evaluation) -> CorruptionReport:
        model, test = evaluation.model, evaluation.test
        passes = 1 if is_imagenet_c(test) else len(CORRUPTIONS) * len(SEVERITIES) + 1
        finished = evaluation.finished_passes("corruption")
        with evaluation.loading("corruption", len(test) * passes) as loading:
            return corruption(model, test, seed=evaluation.seed, loading=loading, finished=finished)

    def pictures(self, evaluation: Evaluation, report: CorruptionReport) -> Iterable[Picture]:
        test, bars = evaluation.test, robustness.draw_corruption_bars
        yield "corruption.png", lambda: bars(vars(report), evaluation.title)
        position = first_readable(test, range(len(test)))
        if is_imagenet_c(test) or position is None:
            return

        def corrupted(name: str, severity: int) -> Image.Image:
            dataset = corrupt_for(evaluation.model, test, evaluation.seed, name, severity)
            return dataset.image(position)

        sheet = robustness.corruption_sheet
        yield "corruptions.jpg", lambda: sheet(test.image(position), corrupted, 3)
        yield "severities.jpg", lambda: robustness.severity_sheet(corrupted)

    def blocks(self, evaluation: Evaluation, report: CorruptionReport) -> list[Block]:
        assert evaluation.out is not None
        return robustness.corruption_blocks(vars(report), evaluation.out / "corruptions.jpg")


def corruption(
    model: PooledModel,
    dataset: Dataset,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    loading: Loading = Loading(),
    finished: FinishedPasses | None = None,
) -> CorruptionReport:
    """Compute the accuracy by corruption and severity, their mean, and mCE if all are evaluated.

    Images are resized to the model's size, then corrupted, then cropped; ImageNet-C was cropped
    first. Of ImageNet-C the corrupted files are read, by default all corruptions that exist.
    """
    published = is_imagenet_c(dataset)
    if corruptions is None:
        domains = dataset.domains.names
        corruptions = [name for name in CORRUPTIONS if not published or name in domains]
    pairs = list(product(corruptions, severities))
    for name, severity in pairs:
        find_corruption(name, severity)
    known = known_images(model, dataset)
    corrupt = partial(corrupt_for, model, known.images, seed)
    variants: dict[str, Callable[[], Dataset]] = {CLEAN: lambda: known.images}
    if published:
        corrupt, variants = partial(_read_corrupted, known.images), {}
    variants |= {f"{name}/{severity}": partial(corrupt, name, severity) for name, severity in pairs}
    if not published:
        loading.advance((len(dataset) - len(known.images)) * len(variants))
    passes = check_variants(model, variants, known.classifier, loading, finished)
    readable, clean, images = None, None, max(result.readable() for result in passes.values())
    if not published:
        readable = readable_in_all(passes)
        clean, images = passes[CLEAN].accuracy(readable), int(readable.sum())
        if not images:
            raise ValueError(f"no image of {dataset.name} could be read: {passes[CLEAN].bad[0]}")
    accuracy = {
        name: {str(k): passes[f"{name}/{k}"].accuracy(readable) for k in severities}
        for name in corruptions
    }
    means = {name: float(np.mean(list(shares.values()))) for name, shares in accuracy.items()}
    return CorruptionReport(
        clean=clean,
        accuracy=accuracy,
        by_corruption=means,
        mean_accuracy=float(np.mean(list(means.values()))),
        **_corruption_errors(accuracy, clean, published),
        images=images,
        left_out=known.left_out,
        unreadable=sorted({message for result in passes.values() for message in result.bad}),
        seed=None if published else seed,
    )


def _corruption_errors(
    accuracy: dict[str, dict[str, float]], clean: float | None, published: bool
) -> dict[str, Any]:
    """Return mCE and relative mCE in percent, and notes; further corruptions do not count."""
    mce = relative_mce = None
    notes = []
    if all(len(accuracy.get(name, ())) == len(SEVERITIES) for name in ALEXNET_ERRORS):
        errors = {n: [1 - share / 100 for share in accuracy[n].values()] for n in ALEXNET_ERRORS}
        score = corruption_error(errors, None if clean is None else 1 - clean / 100)
        mce = 100 * score.mce
        if score.relative_mce is not None:
            relative_mce = 100 * score.relative_mce
        if not published:
            notes.append(OTHER_DATA)
    else:
        notes.append(INCOMPLETE)
    if not published and "frost" in accuracy:
        notes.append(OWN_FROST)
    return {"mce": mce, "relative_mce": relative_mce, "notes": notes}


def corrupt_for(
    model: PooledModel, dataset: Dataset, seed: int, name: str, severity: int
) -> Dataset:
    """Corrupt a data set at the size that the model sees."""
    preprocessing = model.backbone.preprocessing
    short = math.floor(preprocessing.size / preprocessing.crop)
    interpolation = preprocessing.interpolation
    return with_corruption(dataset, name, severity, seed, short=short, interpolation=interpolation)


def _read_corrupted(dataset: Dataset, name: str, severity: int) -> Dataset:
    """Select the images of ImageNet-C with this corruption and severity."""
    domains, levels = dataset.domains, dataset.attribute("severity")
    selected = np.zeros(len(dataset), bool)
    if name in domains.names and str(severity) in levels.names:
        selected = domains.codes == domains.names.index(name)
        selected &= levels.codes == levels.names.index(str(severity))
    if not selected.any():
        raise ValueError(
            f"{dataset.name} has no images of {name} at severity {severity} in {dataset.root}"
        )
    return dataset.select(selected)


def is_imagenet_c(dataset: Dataset) -> bool:
    """Return whether the domains of a data set are corruptions, with their severity."""
    has_severity = "severity" in dataset.table.attributes
    return has_severity and bool(set(dataset.domains.names) & set(CORRUPTIONS))
