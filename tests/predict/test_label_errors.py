"""Planted label errors and outliers are ranked first, and counted."""

import numpy as np
import pytest

from cenote.data import open_dataset
from cenote.models import create_model
from cenote.predict.embedding import embed_dataset
from cenote.predict.label_errors import OUTLIER, label_errors, leave_one_out, outlier_scores
from tests.shared_data import shared_data


def clusters(images: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(images) % classes
    centres = 2 * rng.standard_normal((classes, 16))
    return centres[labels] + rng.standard_normal((images, 16)), labels


def flipped(labels: np.ndarray, classes: int, errors: int) -> tuple[np.ndarray, np.ndarray]:
    """Give some images another class at random: the labels, and which are wrong."""
    rng = np.random.default_rng(1)
    planted = np.isin(np.arange(len(labels)), rng.choice(len(labels), errors, replace=False))
    noise = np.where(planted, rng.integers(1, classes, len(labels)), 0)
    return (labels + noise) % classes, planted


def test_leave_one_out_is_a_regression_without_the_image() -> None:
    x, labels = clusters(30, 3)
    decay, y = 0.7, np.eye(3)[labels]
    centred = x - x.mean(0)
    variances, axes = np.linalg.eigh(centred.T @ centred / 30)
    scores = leave_one_out(centred @ axes, variances, labels, 3, decay)
    penalty = decay * 30 * np.diag([*np.ones(16), 0])  # none on the bias
    for i in range(30):
        others = np.arange(30) != i
        design = np.c_[x, np.ones(30)]
        a = design[others]
        weights = np.linalg.solve(a.T @ a + penalty, a.T @ y[others])
        np.testing.assert_allclose(scores[i], design[i] @ weights, atol=1e-8)


def test_planted_errors_are_first_and_counted() -> None:
    x, truth = clusters(600, 6)
    labels, planted = flipped(truth, 6, 30)
    errors = label_errors(x, labels, 6)
    first = errors.ranking()[:30]
    assert planted[first].mean() >= 0.9
    assert 24 <= errors.wrong.sum() <= 36
    assert (errors.suggested[first] == truth[first])[planted[first]].mean() >= 0.9
    assert (errors.suggested != labels).all()


def test_correct_labels_are_not_suspected() -> None:
    x, labels = clusters(600, 6)
    errors = label_errors(x, labels, 6)
    assert errors.wrong.sum() < 3 and (errors.wrong > 0.5).sum() <= 1


def test_outliers_by_all_distances() -> None:
    x, _ = clusters(200, 4)
    x[:3] = 10 * np.random.default_rng(2).standard_normal((3, 16))
    scores = outlier_scores(x)
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    distances = np.linalg.norm(u[:, None] - u, axis=2)
    mean = np.sort(distances, 1)[:, 1:21].mean(1)  # without itself
    deviations = mean - np.median(mean)
    expected = deviations / (1.4826 * np.median(abs(deviations)))
    np.testing.assert_allclose(scores, expected, atol=1e-3)
    assert set(scores.argsort()[-3:]) == {0, 1, 2} and scores[:3].min() > OUTLIER


def test_few_images_are_enough() -> None:
    x, labels = clusters(4, 2)
    assert len(outlier_scores(x)) == 4 and len(label_errors(x, labels, 2).wrong) == 4


@pytest.mark.slow
def test_errors_planted_in_real_images() -> None:
    dataset = open_dataset(str(shared_data("rsscn7")))
    vectors = embed_dataset(create_model("lite0", "gap", pretrained=True), dataset)
    truth = vectors.labels(dataset).numpy()
    labels, planted = flipped(truth, 7, 18)
    errors = label_errors(vectors.vectors.numpy(), labels, 7)
    assert planted[errors.ranking()[:18]].mean() > 0.7
    assert 9 <= errors.wrong.sum() <= 36  # of 18, within a factor of two
