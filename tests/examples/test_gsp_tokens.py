"""The study of GSP's synthetic tokens counts samples in the hull of another class."""

import numpy as np
import pytest

from examples.gsp_tokens import share_in_other_hulls


def test_samples_in_another_hull() -> None:
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    inside, outside = np.array([[0.5, 0.5], [0.6, 0.2]]), np.array([[3.0, 0.4], [3, 0.3]])
    points = np.concatenate([square, inside, outside])
    labels = np.repeat([0, 1], [4, 4])
    assert share_in_other_hulls(points, labels) == pytest.approx(2 / 8)
