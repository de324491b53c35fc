"""A linear probe finds the minimum of its convex objective, and tells classes that vectors tell."""

import pytest
import torch
import torch.nn.functional as F

from cenote.data import open_dataset
from cenote.evaluate.probes import linear_probe, regress
from cenote.models import create_model


def test_the_gradient_vanishes_and_no_start_matters() -> None:
    torch.manual_seed(0)
    x, labels = torch.randn(60, 7, dtype=torch.float64), torch.randint(4, (60,))
    weights = regress(x, labels, 4, 0.01).requires_grad_()
    loss = (
        F.cross_entropy(x @ weights[:, :-1].T + weights[:, -1], labels)
        + 0.005 * weights[:, :-1].square().sum()
    )
    (slope,) = torch.autograd.grad(loss, weights)
    assert slope.abs().max() < 1e-4
    elsewhere = regress(x, labels, 4, 0.01, torch.randn(4, 8, dtype=torch.float64))
    torch.testing.assert_close(elsewhere[:, :-1], weights[:, :-1].detach(), atol=5e-3, rtol=0)


def test_scikit_learn_agrees() -> None:
    linear_model = pytest.importorskip(
        "sklearn.linear_model", reason="needs: pip install scikit-learn"
    )
    torch.manual_seed(1)
    x, labels = torch.randn(80, 5, dtype=torch.float64), torch.randint(3, (80,))
    decay = 0.05
    peer = linear_model.LogisticRegression(C=1 / (decay * len(x)), tol=1e-10, max_iter=1000).fit(
        x.numpy(), labels
    )
    own = regress(x, labels, 3, decay)
    torch.testing.assert_close(own[:, :-1], torch.from_numpy(peer.coef_), atol=2e-3, rtol=0)


def test_colours_are_told_by_an_untrained_network() -> None:
    torch.manual_seed(0)
    data = open_dataset("world/tiny")
    model = create_model("test_vit", "gap", 0, img_size=64).eval()
    found = linear_probe(model, data.split("train"), data.split("val"), data.split("test"))
    assert found.linear_decay > 0 and 0 <= found.linear <= 100
    train = linear_probe(model, data.split("train"), data.split("train"), data.split("train"))
    assert train.linear > 90  # more dimensions than images
