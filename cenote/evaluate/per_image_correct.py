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
from ..predict.distributed import device_of
from ..predict.embedding import Loading, predict_batches
from ..predict.inference import Inference
from ..predict.openvino_engine import run_frozen
from ..predict.progress_file import FinishedPasses
from .classify import class_indices

# Logits (B, classes of the model) -> (B,) classes of the data set, -1 for none of them.
Classifier = Callable[[Tensor], Tensor]
Selection = npt.NDArray[np.bool_]
CORRECT, WRONG, UNREADABLE = "1", "0", "-"


class PerImageCorrect(NamedTuple):
    """One character per image, and error messages of unreadable images."""

    correct: str
    bad: list[str]

    def array(self) -> npt.NDArray[np.str_]:
        return np.array(list(self.correct))

    def right(self, selected: Selection | None = None) -> Selection:
        """Return whether each readable image, or each of those selected, is classified correctly."""
        marks = self.array()
        if selected is None:
            selected = marks != UNREADABLE
        return np.asarray(marks[selected] == CORRECT)

    def accuracy(self, selected: Selection | None = None) -> float:
        """Return the accuracy in percent of the readable images, or of those selected."""
        right = self.right(selected)
        return 100 * float(right.mean()) if len(right) else float("nan")

    def readable(self) -> int:
        return len(self.correct) - len(self.bad)


@torch.inference_mode()
def check_images(
    model: PooledModel, dataset: Dataset, classifier: Classifier, loading: Loading
) -> PerImageCorrect:
    """Classify a data set; nothing of an image is stored but whether it is correct."""
    model, device = model.eval(), device_of(model)
    marks: npt.NDArray[np.str_] = np.full(len(dataset), UNREADABLE)
    bad: list[str] = []
    transform = model.backbone.preprocessing.transform()
    batches = load(dataset, transform, loading.batch, loading.workers)

    def forward(images: Tensor) -> Tensor:
        return model.classify(run_frozen(model.backbone, images))

    run = Inference(forward, device)
    outputs = predict_batches(batches, lambda loaded: run(loaded.images), bad, loading.progress)
    for loaded, logits in outputs:
        correct = classifier(logits.float().cpu()) == loaded.labels
        marks[loaded.indices.numpy()] = np.where(correct.numpy(), CORRECT, WRONG)
    return PerImageCorrect("".join(marks.tolist()), bad)


def check_variants(
    model: PooledModel,
    variants: Mapping[str, Callable[[], Dataset]],
    classifier: Classifier,
    loading: Loading,
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
            loading.advance(len(dataset))
        else:
            passes[name] = check_images(model, dataset, classifier, loading)
            finished.save(name, passes[name]._asdict())
    return passes


def readable_in_all(passes: Mapping[str, PerImageCorrect]) -> Selection:
    """Select the images that were readable in every pass; all passes have the same images."""
    readable: Selection = np.all([p.array() != UNREADABLE for p in passes.values()], axis=0)
    return readable


class KnownImages(NamedTuple):
    """The images of a data set whose class the model knows, and the model as their classifier."""

    images: Dataset
    classifier: Classifier
    classes: Tensor  # of the data set that the classifier may predict
    left_out: dict[str, int]  # the number of other images by reason


def known_images(model: PooledModel, dataset: Dataset, own_classes: bool = False) -> KnownImages:
    """Select the images whose class the model knows.

    The classifier chooses among all classes of the model, or with `own_classes` among those of the
    selected images.
    """
    indices, labels = model_indices(model, dataset), torch.from_numpy(dataset.labels)
    labelled = labels >= 0
    usable = labelled & (indices[labels.clamp_min(0)] >= 0)
    if not usable.any():
        raise ValueError(f"{dataset.name} has no image of a class that the model knows")
    unknown = labelled & ~usable
    counts = {"no_class": int((~labelled).sum()), "unknown_class": int(unknown.sum())}
    known, classifier = torch.nonzero(indices >= 0).flatten(), best_of_all(model, indices)
    if own_classes:
        known = labels[usable].unique()
        classifier = best_of_known(indices, known)
    return KnownImages(dataset.select(usable.numpy()), classifier, known, counts)


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


def best_of_all(model: PooledModel, indices: Tensor) -> Classifier:
    """Return the model's best class, as a class of the data set."""
    class_of = torch.full((classes_of(model),), -1)
    known = torch.nonzero(indices >= 0).flatten()
    class_of[indices[known]] = known
    return lambda logits: class_of[logits.argmax(1)]


def best_of_known(indices: Tensor, known: Tensor) -> Classifier:
    """Return the model's best class among `known`, classes of the data set."""
    return lambda logits: known[logits[:, indices[known]].argmax(1)]
