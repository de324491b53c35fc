"""Dependence on the background: ImageNet-9's eight variants (Xiao et al., ICLR 2021)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from ..data import Dataset
from ..data.backgrounds import VARIANTS, with_background
from ..data.checks import check, errors_in, read_json
from ..metrics.intervals import bootstrap_interval
from ..metrics.robustness import background_gap
from ..models import PooledModel
from ..predict.embedding import Loading
from ..predict.progress_file import FinishedPasses
from ..report.blocks import Block
from ..report.robustness import VARIANT_NAMES, background_blocks, draw_variant_bars, variant_sheet
from ..report.sheet import first_readable
from .per_image_correct import Classifier, check_variants, classes_of, known_images, readable_in_all
from .protocol import Evaluation, Figure, Picture, Protocol, Report, count_images, left_out

MAPPING_FILE = "in_to_in9.json"
MAX_MESSAGES = 5  # unreadable files that are named
GAP = {"mixed_same", "mixed_rand"}


@dataclass
class BackgroundReport(Report):
    """Accuracies in percent; the published ImageNet-9 does not pair the images of variants."""

    accuracy: dict[str, float]
    gap: float | None  # mixed_same - mixed_rand
    gap_interval: list[float] | None  # 95%
    images: int | dict[str, int]
    unreadable: list[str]
    same_images: bool
    dropped: int = 0  # images of which some variant cannot be made
    left_out: dict[str, int] | None = None
    seed: int | None = None

    def to_json(self) -> dict[str, object]:
        report = super().to_json()
        if not self.same_images:
            for key in ("dropped", "left_out", "seed"):
                del report[key]
        return report

    def table(self, split: str) -> str:
        lines = []
        for name, share in self.accuracy.items():
            text = "no readable image" if math.isnan(share) else f"{share:6.2f}"
            lines.append(f"{VARIANT_NAMES[name]:<12}{text}")
        if self.gap is not None and not math.isnan(self.gap):
            line = f"gap, Mixed-Same - Mixed-Rand: {self.gap:+.2f}"
            if self.gap_interval:
                line += " (95%: {:+.2f} to {:+.2f})".format(*self.gap_interval)
            lines.append(line)
        if isinstance(self.images, int):
            images = count_images(self.images)
            lines.append(f"accuracy in percent on the same {images} in every variant")
        counts = {"dropped": self.dropped, **(self.left_out or {})}
        return "\n".join([*lines, *left_out(self.unreadable, MAX_MESSAGES, **counts)])

    def figures(self) -> list[Figure]:
        unit = "points, Mixed-Same − Mixed-Rand"
        if self.gap_interval:
            unit += " (95%: {:+.1f} to {:+.1f})".format(*self.gap_interval)
        return [
            Figure("original images", self.accuracy.get("original"), "%"),
            Figure("gap of backgrounds", self.gap, unit),
        ]


class Background(Protocol[BackgroundReport], name="background"):
    one_class = True
    resumable = True

    def run(self, evaluation: Evaluation) -> BackgroundReport:
        model, test = evaluation.model, evaluation.test
        published = is_imagenet_9(test)
        finished = evaluation.finished_passes("background", masks=not published)
        images = len(test) * (1 if published else len(VARIANTS))
        with evaluation.loading("background", images) as loading:
            return background(model, test, seed=evaluation.seed, loading=loading, finished=finished)

    def pictures(self, evaluation: Evaluation, report: BackgroundReport) -> Iterable[Picture]:
        test, values = evaluation.test, vars(report)
        yield "background.png", lambda: draw_variant_bars(values, evaluation.title)
        if report.same_images:
            usable = np.flatnonzero(test.has_masks & (test.labels >= 0)).tolist()
            position = first_readable(test, usable)
            if position is not None:
                yield "variants.jpg", lambda: variant_sheet(test, position, evaluation.seed)

    def blocks(self, evaluation: Evaluation, report: BackgroundReport) -> list[Block]:
        assert evaluation.out is not None
        return background_blocks(vars(report), evaluation.out / "variants.jpg")


def background(
    model: PooledModel,
    dataset: Dataset,
    variants: Sequence[str] = VARIANTS,
    seed: int = 0,
    loading: Loading = Loading(),
    finished: FinishedPasses | None = None,
) -> BackgroundReport:
    """Compute the accuracy on each variant, and the gap mixed_same - mixed_rand with its interval.

    ImageNet-9 itself is evaluated variant by variant as published. Of any other data set with masks
    the variants are made on the fly and evaluated on the same images: an image that fails in one
    variant is not used in any.
    """
    if is_imagenet_9(dataset):
        domains = dataset.domains
        published = {
            v: partial(dataset.select, np.flatnonzero(domains.codes == domains.names.index(v)))
            for v in variants
            if v in domains.names
        }
        classifier = coarse_classifier(model, dataset)
        passes = check_variants(model, published, classifier, loading, finished)
        accuracy = {variant: result.accuracy() for variant, result in passes.items()}
        return BackgroundReport(
            accuracy=accuracy,
            gap=background_gap(accuracy) if set(accuracy) >= GAP else None,
            gap_interval=None,
            images={variant: result.readable() for variant, result in passes.items()},
            unreadable=[message for result in passes.values() for message in result.bad],
            same_images=False,  # a published mixed image does not name its original
        )
    known = known_images(model, dataset)
    masked = with_background(known.images, variants[0], seed)  # raises if no image has a mask
    loading.advance((len(dataset) - len(masked)) * len(variants))
    changed = {
        variant: partial(with_background, known.images, variant, seed) for variant in variants
    }
    passes = check_variants(model, changed, known.classifier, loading, finished)
    readable = readable_in_all(passes)
    counts = Counter(message for result in passes.values() for message in set(result.bad))
    messages = sorted(f"{message} ({n} of {len(passes)} variants)" for message, n in counts.items())
    if not readable.any():
        raise ValueError(f"no image of {dataset.name} has all its variants: {messages[0]}")
    accuracy = {variant: result.accuracy(readable) for variant, result in passes.items()}
    gap = interval = None
    if set(accuracy) >= GAP:
        gap = background_gap(accuracy)
        # Both variants have the same images, so their differences are resampled.
        same, rand = (passes[v].right(readable) for v in ("mixed_same", "mixed_rand"))
        interval = list(bootstrap_interval(100 * (same.astype(float) - rand)))
    return BackgroundReport(
        accuracy=accuracy,
        gap=gap,
        gap_interval=interval,
        images=int(readable.sum()),
        unreadable=messages,
        same_images=True,
        dropped=int((~readable).sum()),
        left_out={**known.left_out, "no_mask": len(known.images) - len(masked)},
        seed=seed,
    )


def is_imagenet_9(dataset: Dataset) -> bool:
    """Return whether the domains of a data set are the published variants."""
    domains = dataset.domains
    are_variants = bool(domains.names) and set(domains.names) <= set(VARIANTS)
    return are_variants and bool((domains.codes >= 0).all())


def coarse_classifier(model: PooledModel, dataset: Dataset) -> Classifier:
    """Return the classifier of a model of nine classes, or of ImageNet's 1000 by a mapping."""
    if classes_of(model) != 1000:
        return known_images(model, dataset).classifier
    path = dataset.root / MAPPING_FILE
    if not path.is_file():
        raise ValueError(
            f"{path} is missing: a model of ImageNet's 1000 classes needs the mapping to the nine of "
            f"the ImageNet-9 repository (github.com/MadryLab/backgrounds_challenge/{MAPPING_FILE})"
        )
    with errors_in(path):
        pairs = {int(key): int(value) for key, value in read_json(path).items()}
        check(set(pairs) == set(range(1000)), "it does not map the classes 0 to 999")
    coarse = torch.tensor([pairs[number] for number in range(1000)])  # -1: none of the nine
    return lambda logits: coarse[logits.argmax(1)]
