"""Labels that are probably wrong, and outliers, from the vectors of a frozen model."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from torch import Tensor

from ..data import Dataset
from ..data.splits import refuse_several_classes
from ..metrics.nearest import nearest
from ..models import PooledModel
from ..unit import unit
from .distributed import device_of
from .embedding import Loading, embed_source
from .feature_cache import FeatureBatch, FillProgress, cached_features

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
DECAYS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # relative to the mean variance of a channel
NEIGHBOURS = 20
OUTLIER = 3.0  # robust standard deviations above the median; measured in docs/data.md


class LabelErrors(NamedTuple):
    """For each image, in the order of the vectors."""

    confidence: Floats  # probability of the label, of a classifier that has not seen the image
    wrong: Floats  # probability that the label is wrong; its sum estimates the number of errors
    suggested: Ints  # the most probable other class

    def ranking(self) -> Ints:
        """Return positions, the most suspicious label first."""
        return np.argsort(self.confidence, kind="stable")


def label_errors(vectors: npt.ArrayLike, labels: Ints, classes: int) -> LabelErrors:
    """Estimate which labels (N,) are wrong from vectors (N, D), by leave-one-out predictions.

    A least-squares classifier predicts every image from all others. Its scores s become
    p = softmax(t s), and a label is drawn from p with probability 1 - e and is any other class with
    probability e; weight decay, t and e maximize the likelihood of the labels.
    """
    x = np.asarray(vectors, np.float64)
    x = x - x.mean(0)
    variances, axes = np.linalg.eigh(x.T @ x / len(x))
    z = x @ axes  # (N, D) principal components
    fits = []
    for decay in DECAYS:
        scores = leave_one_out(z, variances, labels, classes, decay * variances.mean())
        fits.append(_fit_noise(scores, labels))
    return max(fits, key=lambda fit: fit[0])[1]


def _fit_noise(scores: Floats, labels: Ints) -> tuple[float, LabelErrors]:
    """Return the largest log-likelihood over t and e, and the errors that follow from it."""
    rows, others = np.arange(len(labels)), scores.shape[1] - 1
    scores = scores / scores.std()

    def mixture(parameters: Floats) -> tuple[Floats, Floats, Floats]:
        t, e = np.exp(parameters[0]), expit(parameters[1])
        p = np.exp(t * scores[rows, labels] - logsumexp(t * scores, 1))
        wrong = e * (1 - p) / others
        return p, wrong, np.maximum((1 - e) * p + wrong, 1e-300)

    def loss(parameters: Floats) -> float:
        return -float(np.log(mixture(parameters)[2]).sum())

    solution = minimize(loss, (1.0, -3.0), method="Nelder-Mead")
    p, wrong, likelihood = mixture(solution.x)
    scores[rows, labels] = -np.inf
    return -solution.fun, LabelErrors(p, wrong / likelihood, scores.argmax(1))


def leave_one_out(z: Floats, variances: Floats, labels: Ints, classes: int, decay: float) -> Floats:
    """Return the scores (N, classes) of ridge regressions, each without the image it predicts.

    `z` are principal components and their `variances`. With the hat matrix H the prediction without
    image i is (H y - h_ii y_i) / (1 - h_ii): no regression is repeated.
    """
    y = np.eye(classes)[labels]  # (N, classes)
    mean = y.mean(0)
    weights = 1 / (variances + decay) / len(z)
    h = z**2 @ weights + 1 / len(z)  # (N,)
    prediction = (z * weights) @ (z.T @ (y - mean)) + mean
    scores: Floats = (prediction - h[:, None] * y) / (1 - h[:, None])
    return scores


def outlier_scores(vectors: npt.ArrayLike) -> Floats:
    """Return how far each vector (N, D) is from its 20 nearest neighbours, relative to the others.

    Mean distance of unit vectors, in robust standard deviations (1.48 times the median absolute
    deviation) above the median: above 3 it is an outlier.
    """
    x = unit(torch.as_tensor(vectors)).float()
    distances = np.zeros(len(x))
    counts = torch.full((len(x),), min(NEIGHBOURS, len(x) - 1))
    for rows, neighbours in nearest(x, None, counts):
        # One neighbour of all queries at a time: (queries, 20, D) could be a gigabyte.
        lengths = [torch.linalg.vector_norm(x[rows] - x[i], dim=1) for i in neighbours.T]
        distances[rows] = torch.stack(lengths).mean(0)
    deviations = distances - np.median(distances)
    return deviations / (1.4826 * np.median(np.abs(deviations)) or 1.0)


@torch.inference_mode()
def find_label_errors(
    model: PooledModel, dataset: Dataset, workers: int = 0, progress: FillProgress | None = None
) -> tuple[Dataset, LabelErrors, Floats]:
    """Return the readable images that have a class, their label errors and their outlier scores.

    Features of the model's backbone are cached, as in training.
    """
    refuse_several_classes(dataset, "--errors")
    dataset, backbone = dataset.select(dataset.labels >= 0), model.backbone
    preprocessing = replace(backbone.preprocessing, scaled_decoding=False)
    features = cached_features(backbone, dataset, preprocessing, workers=workers, progress=progress)
    dataset, device = features.dataset, device_of(model)
    classes = len(np.unique(dataset.labels))
    if classes < 2:
        raise ValueError(f"--errors needs images of two classes or more, got {classes}")

    def embed(batch: FeatureBatch) -> Tensor:
        return model.embed_features(batch.features.to(device))

    vectors = embed_source(features, embed, None, Loading()).vectors.numpy()
    errors = label_errors(vectors, dataset.labels, len(dataset.classes))
    return dataset, errors, outlier_scores(vectors)
