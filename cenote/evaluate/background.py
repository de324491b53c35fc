"""What a background is worth: accuracy on ImageNet-9's eight variants (Xiao et al., ICLR 2021)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..data import Dataset
from ..data.backgrounds import VARIANTS, with_background
from ..metrics.intervals import bootstrap_interval
from ..metrics.robustness import background_gap
from ..models import PooledModel
from .classify import Progress
from .marks import (
    RIGHT,
    Answer,
    Keep,
    Kept,
    Marks,
    accuracy,
    best_of_all,
    known_to,
    mark_all,
    model_numbers,
    readable,
)

MAPPING = "in_to_in9.json"


def background(
    model: PooledModel,
    dataset: Dataset,
    variants: Sequence[str] = VARIANTS,
    seed: int = 0,
    batch: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
    kept: Kept | None = None,
    keep: Keep | None = None,
) -> dict[str, Any]:
    """Accuracy in percent on each variant, and the gap mixed_same - mixed_rand with its interval.

    ImageNet-9 itself is judged variant by variant as it was published. Of any other data set with masks the variants
    are made on the way, and all are judged on the same images: one that fails in one variant counts in none.
    """
    if not variants:
        raise ValueError(f"at least one background variant: {', '.join(VARIANTS)}")
    for variant in variants:
        if variant not in VARIANTS:
            raise ValueError(f"no background variant '{variant}': {', '.join(VARIANTS)}")
    if model.head is None:
        raise ValueError("a model without a head tells no classes: no background protocol")
    options: dict[str, Any] = {
        "batch": batch,
        "workers": workers,
        "progress": progress,
        "kept": kept,
        "keep": keep,
    }
    if is_imagenet_9(dataset):
        return _published(model, dataset, variants, options)
    return _made(model, dataset, variants, seed, options)


def _made(
    model: PooledModel,
    dataset: Dataset,
    variants: Sequence[str],
    seed: int,
    options: dict[str, Any],
) -> dict[str, Any]:
    assert model.head is not None
    numbers = model_numbers(model, dataset)
    known, left_out = known_to(dataset, numbers)
    masked = with_background(known, variants[0], seed)  # says so where no image has a mask
    left_out["no_mask"] = len(known) - len(masked)
    if options["progress"]:
        options["progress"]((len(dataset) - len(masked)) * len(variants))
    parts = {variant: partial(with_background, known, variant, seed) for variant in variants}
    marks = mark_all(model, parts, best_of_all(numbers, model.head.classes), **options)
    judged = readable(marks)
    if not judged.any():
        bad = [sentence for one in marks.values() for sentence in one.bad]
        raise ValueError(f"no image of {dataset.name} has all its variants: {bad[0]}")
    found = {variant: accuracy(one, judged) for variant, one in marks.items()}
    variants_of: dict[str, list[str]] = {}
    for variant, one in marks.items():
        for sentence in dict.fromkeys(one.bad):
            variants_of.setdefault(sentence, []).append(variant)
    bad = sorted(
        f"{names[0]}: {sentence}" if len(names) == 1 else f"{sentence} ({len(names)} variants)"
        for sentence, names in variants_of.items()
    )
    return {
        **_report(found),
        "gap_interval": _interval(marks, judged),  # 95%, the images drawn again and again
        "images": int(judged.sum()),
        "dropped": int((~judged).sum()),  # for a variant that could not be made
        "left_out": left_out,
        "unreadable": bad,
        "same_images": True,
        "seed": seed,
    }


def _published(
    model: PooledModel, dataset: Dataset, variants: Sequence[str], options: dict[str, Any]
) -> dict[str, Any]:
    domains = dataset.domains
    codes, present = domains.codes, [v for v in variants if v in domains.names]
    parts = {
        v: partial(dataset.select, np.flatnonzero(codes == domains.names.index(v))) for v in present
    }
    marks = mark_all(model, parts, coarse_answer(model, dataset), **options)
    return {
        **_report({variant: accuracy(one) for variant, one in marks.items()}),
        "gap_interval": None,
        "images": {variant: len(one.marks) - len(one.bad) for variant, one in marks.items()},
        "unreadable": [sentence for one in marks.values() for sentence in one.bad],
        "same_images": False,  # a published mixed image names no original
    }


def _report(found: dict[str, float]) -> dict[str, Any]:
    gap = background_gap(found) if {"mixed_same", "mixed_rand"} <= set(found) else None
    return {"accuracy": found, "gap": gap}


def _interval(marks: Mapping[str, Marks], judged: npt.NDArray[np.bool_]) -> list[float] | None:
    """Of the gap; both variants hold the same images, hence their differences are resampled."""
    if not {"mixed_same", "mixed_rand"} <= set(marks):
        return None
    same, rand = (
        (np.array(list(marks[v].marks)) == RIGHT)[judged] for v in ("mixed_same", "mixed_rand")
    )
    return list(bootstrap_interval(100 * (same.astype(float) - rand)))


def is_imagenet_9(dataset: Dataset) -> bool:
    """Whether its domains are the published variants."""
    domains = dataset.domains
    return (
        bool(domains.names)
        and set(domains.names) <= set(VARIANTS)
        and bool((domains.codes >= 0).all())
    )


def coarse_answer(model: PooledModel, dataset: Dataset) -> Answer:
    """Of a model of the nine classes its own; of a model of ImageNet's 1000 by the published mapping, -1 for none."""
    assert model.head is not None
    if model.head.classes != 1000:
        return best_of_all(model_numbers(model, dataset), model.head.classes)
    coarse = torch.from_numpy(read_mapping(dataset.root / MAPPING))
    return lambda logits: coarse[logits.argmax(1)]


def read_mapping(path: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(1000,): the coarse class of each of ImageNet's, -1 for none of the nine."""
    if not path.is_file():
        raise ValueError(
            f"{path} is not there: a model of ImageNet's 1000 classes needs the mapping to the nine, which lies beside "
            f"the programs of ImageNet-9 (github.com/MadryLab/backgrounds_challenge/{MAPPING})"
        )
    try:
        pairs = {int(key): int(value) for key, value in json.loads(path.read_bytes()).items()}
        found = np.array([pairs[number] for number in range(1000)], np.int64)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(
            f"{path} does not map the numbers 0 to 999 to coarse classes ({error})"
        ) from error
    return found
