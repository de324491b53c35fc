"""Right or wrong, image by image: what is left of a pass, so that passes can be compared on the same images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..data import Dataset
from ..data.loading import load
from ..models import PooledModel
from .classify import Progress, match_labels

Answer = Callable[
    [Tensor], Tensor
]  # logits (B, classes of the model) -> (B,) classes of the data set, -1 for none
Kept = Mapping[str, Mapping[str, Any]]  # finished passes, as JSON holds them
Keep = Callable[[str, dict[str, Any]], None]
RIGHT, WRONG, UNREADABLE = "1", "0", "-"


class Marks(NamedTuple):
    """One character an image, and the sentences about those that could not be read."""

    marks: str
    bad: list[str]


@torch.inference_mode()
def mark(
    model: PooledModel,
    dataset: Dataset,
    answer: Answer,
    batch: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> Marks:
    """Nothing of an image is kept but its mark."""
    if model.head is None:
        raise ValueError("a model without a head tells no classes")
    model = model.eval()
    device = next(model.parameters()).device
    marks: npt.NDArray[np.str_] = np.full(len(dataset), UNREADABLE)
    bad: list[str] = []
    for found in load(dataset, model.backbone.preprocessing.transform(), batch, workers):
        bad += [sentence for _, sentence in found.bad]
        if len(found.indices):
            right = answer(model(found.images.to(device)).cpu()) == found.labels
            marks[found.indices.numpy()] = np.where(right.numpy(), RIGHT, WRONG)
        if progress:
            progress(len(found.indices) + len(found.bad))
    return Marks("".join(marks.tolist()), bad)


def mark_all(
    model: PooledModel,
    parts: Mapping[str, Callable[[], Dataset]],
    answer: Answer,
    kept: Kept | None = None,
    keep: Keep | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Marks]:
    """A pass over each part, but for those that `kept` holds; `keep` is given each new one as soon as it is there."""
    found = {}
    for name, part in parts.items():
        dataset = part()
        before = (kept or {}).get(name, {})
        if len(before.get("marks", "")) == len(dataset):
            found[name] = Marks(before["marks"], list(before.get("bad", ())))
            if progress:
                progress(len(dataset))
            continue
        found[name] = mark(model, dataset, answer, progress=progress, **options)
        if keep:
            keep(name, found[name]._asdict())
    return found


def readable(marks: Mapping[str, Marks]) -> npt.NDArray[np.bool_]:
    """Which images were read in every pass; all passes are over the same images."""
    found: npt.NDArray[np.bool_] = np.all(
        [np.array(list(one.marks)) != UNREADABLE for one in marks.values()], axis=0
    )
    return found


def accuracy(marks: Marks, judged: npt.NDArray[np.bool_] | None = None) -> float:
    """In percent, of the readable images or of those `judged`."""
    text = np.array(list(marks.marks))
    text = text[text != UNREADABLE] if judged is None else text[judged]
    return 100 * float((text == RIGHT).mean()) if len(text) else float("nan")


def model_numbers(model: PooledModel, dataset: Dataset) -> Tensor:
    """For each class of the data set its number in the model, -1 for none: by name, or by WordNet id for ImageNet's."""
    wnids = dataset.table.attributes.get("wnid")
    if (
        model.class_names is None
        and wnids is not None
        and model.head is not None
        and model.head.classes == 1000
    ):
        from timm.data.imagenet_info import ImageNetInfo

        order = {
            wnid: number for number, wnid in enumerate(ImageNetInfo("imagenet-1k").label_names())
        }
        found = torch.full((len(dataset.classes),), -1)
        labels, codes = dataset.labels, dataset.attribute("wnid").codes
        for label, code in set(zip(labels.tolist(), codes.tolist(), strict=True)):
            if label >= 0 and code >= 0:
                found[label] = order.get(wnids.names[code], -1)
        return found
    found = match_labels(model, dataset)
    assert model.head is not None
    return torch.where(found < model.head.classes, found, -1)


def best_of_all(numbers: Tensor, classes: int) -> Answer:
    """The model's best class, as a class of the data set."""
    back = torch.full((classes,), -1)
    known = numbers >= 0
    back[numbers[known]] = torch.arange(len(numbers))[known]
    return lambda logits: back[logits.argmax(1)]


def best_of_those(numbers: Tensor) -> Answer:
    """The model's best among the data set's own classes."""
    own = torch.nonzero(numbers >= 0).flatten()
    return lambda logits: own[logits[:, numbers[own]].argmax(1)]


def known_to(dataset: Dataset, numbers: Tensor) -> tuple[Dataset, dict[str, int]]:
    """The images whose class the model knows, and how many were left out for what."""
    labels = torch.from_numpy(dataset.labels)
    labelled = labels >= 0
    usable = labelled & (numbers[labels.clamp_min(0)] >= 0)
    left_out = {
        "no_class": int((~labelled).sum()),
        "unknown_class": int((labelled & ~usable).sum()),
    }
    if not usable.any():
        raise ValueError(f"{dataset.name} has no image of a class that the model knows")
    return dataset.select(usable.numpy()), left_out
