"""Whether each image is classified correctly, so that passes are compared on the same images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..data import Dataset
from ..data.loading import load
from ..models import PooledModel
from ..predict.batches import Progress, predict_batches
from ..predict.device import device_of
from ..predict.progress_file import FinishedPasses
from .classify import class_indices

# Logits (B, classes of the model) -> (B,) classes of the data set, -1 for none of them.
Classifier = Callable[[Tensor], Tensor]
CORRECT, WRONG, UNREADABLE = "1", "0", "-"
REASONS = {
    "no_class": "without a class",
    "unknown_class": "of classes that the model does not know",
    "no_mask": "without a mask",
}


class PerImageCorrect(NamedTuple):
    """One character per image, and error messages of unreadable images."""

    correct: str
    bad: list[str]

    def array(self) -> npt.NDArray[np.str_]:
        return np.array(list(self.correct))

    def accuracy(self, selected: npt.NDArray[np.bool_] | None = None) -> float:
        """Return the accuracy in percent of the readable images, or of those selected."""
        marks = self.array()
        marks = marks[marks != UNREADABLE] if selected is None else marks[selected]
        return 100 * float((marks == CORRECT).mean()) if len(marks) else float("nan")

    def readable(self) -> int:
        return len(self.correct) - len(self.bad)


@torch.inference_mode()
def check_images(
    model: PooledModel,
    dataset: Dataset,
    classifier: Classifier,
    batch: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> PerImageCorrect:
    """Classify a data set; nothing of an image is stored but whether it is correct."""
    model = model.eval()
    marks: npt.NDArray[np.str_] = np.full(len(dataset), UNREADABLE)
    bad: list[str] = []
    device = device_of(model)
    batches = load(dataset, model.backbone.preprocessing.transform(), batch, workers)

    def forward(loaded: object) -> Tensor:
        logits: Tensor = model(loaded.images.to(device))  # type: ignore[attr-defined]
        return logits.cpu()

    for loaded, logits in predict_batches(batches, forward, bad, progress):
        correct = classifier(logits) == loaded.labels
        marks[loaded.indices.numpy()] = np.where(correct.numpy(), CORRECT, WRONG)
    return PerImageCorrect("".join(marks.tolist()), bad)


def check_variants(
    model: PooledModel,
    variants: Mapping[str, Callable[[], Dataset]],
    classifier: Classifier,
    batch: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
    finished: FinishedPasses | None = None,
) -> dict[str, PerImageCorrect]:
    """Classify each variant of a data set in one pass, except those that `finished` has."""
    finished = finished or FinishedPasses()
    passes = {}
    for name, variant in variants.items():
        dataset = variant()
        saved = finished.results.get(name, {})
        if len(saved.get("correct", "")) == len(dataset):
            passes[name] = PerImageCorrect(saved["correct"], list(saved.get("bad", ())))
            if progress:
                progress(len(dataset))
            continue
        passes[name] = check_images(model, dataset, classifier, batch, workers, progress)
        finished.save(name, passes[name]._asdict())
    return passes


def readable_in_all(passes: Mapping[str, PerImageCorrect]) -> npt.NDArray[np.bool_]:
    """Select the images that were readable in every pass; all passes have the same images."""
    readable: npt.NDArray[np.bool_] = np.all(
        [result.array() != UNREADABLE for result in passes.values()], axis=0
    )
    return readable


def classes_of(model: PooledModel) -> int:
    """Return the number of classes; raise for a model without a head."""
    if model.head is None:
        raise ValueError("a model without a head predicts no classes")
    return model.head.classes


def model_indices(model: PooledModel, dataset: Dataset) -> Tensor:
    """Return the model's index of each class, -1 for none: by name, or by ImageNet's WordNet id."""
    wnids = dataset.table.attributes.get("wnid")
    if model.class_names is None and wnids is not None and classes_of(model) == 1000:
        from timm.data.imagenet_info import ImageNetInfo

        names = ImageNetInfo("imagenet-1k").label_names()
        index_of = {wnid: index for index, wnid in enumerate(names)}
        indices = torch.full((len(dataset.classes),), -1)
        pairs = zip(dataset.labels.tolist(), dataset.attribute("wnid").codes.tolist(), strict=True)
        for label, code in set(pairs):
            if label >= 0 and code >= 0:
                indices[label] = index_of.get(wnids.names[code], -1)
        return indices
    indices = class_indices(model, dataset)
    return torch.where(indices < classes_of(model), indices, -1)


def best_of_all(indices: Tensor, classes: int) -> Classifier:
    """Return the model's best class, as a class of the data set."""
    class_of = torch.full((classes,), -1)
    in_model = indices >= 0
    class_of[indices[in_model]] = torch.arange(len(indices))[in_model]
    return lambda logits: class_of[logits.argmax(1)]


def best_of_known(indices: Tensor) -> Classifier:
    """Return the model's best class among the data set's classes."""
    in_model = torch.nonzero(indices >= 0).flatten()
    return lambda logits: in_model[logits[:, indices[in_model]].argmax(1)]


def select_known(dataset: Dataset, indices: Tensor) -> tuple[Dataset, dict[str, int]]:
    """Select the images whose class the model knows; also count the others by reason."""
    labels = torch.from_numpy(dataset.labels)
    labelled = labels >= 0
    usable = labelled & (indices[labels.clamp_min(0)] >= 0)
    counts = {
        "no_class": int((~labelled).sum()),
        "unknown_class": int((labelled & ~usable).sum()),
    }
    if not usable.any():
        raise ValueError(f"{dataset.name} has no image of a class that the model knows")
    return dataset.select(usable.numpy()), counts
