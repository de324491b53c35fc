"""The whitening of HOW is that of the training images, before training starts."""

from pathlib import Path

import pytest
import torch

from cenote.data import open_dataset
from cenote.data.loading import load
from cenote.data.splits import split
from cenote.models import PooledModel
from cenote.models import load as load_model
from cenote.pooling.how import HOW
from cenote.train.build import build_model
from cenote.train.configure import configure
from cenote.train.fit import fit
from cenote.train.metric_run import train_metric
from cenote.train.whitening import fit_whitening

OPTIONS = {"backbone": "lite0", "pool": "how", "size": 64, "pool_options": {"out_dim": 4}}


def covariance(model: PooledModel) -> torch.Tensor:
    """Of the whitened positions of the training images."""
    assert isinstance(model.pool, HOW)
    images = split(open_dataset("world/tiny"), seed=0).train
    (batch,) = load(images, model.backbone.preprocessing.transform(), len(images))
    with torch.no_grad():
        features = model.eval().features(batch.images)
    smooth = model.pool.smooth(features.tokens, features.grid).flatten(0, 1)
    return ((smooth - model.pool.mean) @ model.pool.weight.T).T.cov()


def test_fit_with_a_frozen_backbone_whitens_the_training_images(tmp_path: Path) -> None:
    config = configure("fit", **OPTIONS, freeze=True, epochs=1)
    fit(open_dataset("world/tiny"), tmp_path / "run", config, object_map=False)
    model = load_model(tmp_path / "run")
    torch.testing.assert_close(covariance(model), torch.eye(4), rtol=0.05, atol=0.05)


def test_a_model_whitens_the_training_images() -> None:
    model = build_model(configure("fit", **OPTIONS), 2)
    fit_whitening(model, split(open_dataset("world/tiny"), seed=0).train)
    torch.testing.assert_close(covariance(model), torch.eye(4), rtol=0.05, atol=0.05)


@pytest.mark.parametrize(("scratch", "fitted"), [(False, True), (True, False)])
def test_only_trained_networks_are_whitened(scratch: bool, fitted: bool, tmp_path: Path) -> None:
    identity = torch.eye(4, 1280)
    short = {"epochs": 1, "batch": 32, "scratch": scratch}
    data = open_dataset("world/tiny")
    fit(data, tmp_path / "fit", configure("fit", **OPTIONS, **short), object_map=False)
    options = {"dim": 8, "validate": "last"}
    metric = configure("metric", **OPTIONS, **short, options=options)
    train_metric(data, tmp_path / "metric", metric)
    for name in ("fit", "metric"):
        pool = load_model(tmp_path / name).pool
        assert isinstance(pool, HOW) and torch.equal(pool.weight, identity) is not fitted
