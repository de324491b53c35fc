"""Unreadable validation and test images are reported, queries without a match counted, unjudgeable runs refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from cenote.backbones import create_backbone
from cenote.data import Dataset
from cenote.data.splits import check_matches, class_splits, metric_splits
from cenote.models import load
from cenote.train.engine import Engine
from cenote.train.log import Stopped
from cenote.train.metric_run import train_metric
from tests.synthetic import discs

from .test_metric import configured

ONE = {"epochs": 1}
PLAIN = {"validate": "classes"}
# Of 16 classes and 6 images: 0-5 train, 6 and 7 choose, 8-15 judge.
BROKEN = {6 + 16 * i for i in range(5)} | {8 + 16 * i for i in range(5)}


def lone(data: Dataset, classes: range) -> Dataset:
    """Of these classes only the first image is left."""
    first = np.arange(len(data)) < len(data.classes)
    return data.select(first | ~np.isin(data.labels, list(classes)))


def test_unreadable_images_are_reported_and_queries_without_a_match_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    report = train_metric(discs(bad=BROKEN), tmp_path, configured(PLAIN, {"epochs": 2}, pool="gap"))
    named = [line for line in caplog.messages if ".png" in line]
    assert len(named) == len(set(named)) == 10  # once, not in each epoch
    assert len((tmp_path / "unreadable.txt").read_text().splitlines()) == 10
    assert report.val["images"] == 12 - 5
    test = report.test
    assert (test["images"], test["queries"], test["without_match"]) == (48 - 5, 48 - 6, 1)
    resumed = train_metric(
        discs(bad=BROKEN), tmp_path, configured(PLAIN, {"epochs": 2}, pool="gap"), resume=True
    )  # fmt: skip
    assert resumed.val == report.val
    miss = train_metric(
        discs(bad=BROKEN),
        tmp_path / "miss",
        configured({**PLAIN, "without_match": "miss"}, {"epochs": 2}, pool="gap"),
    ).test
    assert (miss["queries"], miss["without_match"]) == (43, 1)
    assert miss["map@r"] == pytest.approx(test["map@r"] * 42 / 43, rel=1e-6)


@pytest.mark.parametrize(
    ("bad", "split", "counts"),
    [
        ({i for i in range(96) if i % 16 in (6, 7)}, "val", "12 of 12"),
        ({i for i in range(96) if i % 16 > 9}, "test", "36 of 48"),
    ],
)
def test_too_many_unreadable_ones_stop_the_run(
    bad: set[int], split: str, counts: str, tmp_path: Path
) -> None:
    with pytest.raises(Stopped, match=rf"\b{counts}\b.*\b{split}\b"):
        train_metric(discs(bad=bad), tmp_path, configured(PLAIN, ONE, pool="gap"))
    # The model is there if it was trained to the end.
    assert (tmp_path / "model.safetensors").exists() == (split == "test")


def test_no_readable_image_stops_the_run(tmp_path: Path) -> None:
    data = discs(4, 3, bad={2, 3, 6, 7, 10, 11})  # few enough to go on otherwise
    with pytest.raises(Stopped, match=r"\btest\b"):
        train_metric(
            data, tmp_path, configured({"validate": "last", "images_per_class": 2}, ONE, pool="gap")
        )


def test_nothing_is_trained_where_nothing_can_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "run", lambda self, resume: pytest.fail("trained"))
    for classes, cause in ((range(6, 8), "--validate last"), (range(8, 16), r"\btest\b")):
        with pytest.raises(ValueError, match=cause):
            train_metric(lone(discs(), classes), tmp_path / "run", configured(PLAIN, ONE))
    assert not (tmp_path / "run").exists()
    shop = ["train"] * 8 + ["query"] * 4 + ["gallery"] * 4
    parts = metric_splits(class_splits(discs(split_of=lambda i: shop[i % 16])), "last")
    with pytest.raises(ValueError, match=r"\btest\b.*\bgallery\b"):
        check_matches(parts)
    check_matches(parts._replace(test=parts.gallery))  # one of each class is enough there


def test_a_run_resumes_with_its_own_protocol(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    fair, plain = (
        configured({"protocol": "fair"}, ONE, pool="gap"),
        configured(None, ONE, pool="gap"),
    )
    train_metric(discs(), tmp_path / "one", plain)
    before = (tmp_path / "one" / "results.json").read_bytes()
    with pytest.raises(ValueError, match=r"\bone\b.*\bfair\b"):
        train_metric(discs(), tmp_path / "one", fair, resume=True)
    train_metric(discs(), tmp_path / "four", fair)
    with pytest.raises(ValueError, match=r"\bfour\b.*\bconventional\b"):
        train_metric(discs(), tmp_path / "four", plain, resume=True)
    assert (tmp_path / "one" / "results.json").read_bytes() == before
    assert json.loads((tmp_path / "four" / "results.json").read_text())["test"]["queries"] == 48
    for config in (plain, fair):
        with pytest.raises(ValueError, match=re.escape(str(tmp_path / "none"))):
            train_metric(discs(), tmp_path / "none", config, resume=True)
        assert not (tmp_path / "none").exists(), "configured again, it would begin"
    (tmp_path / "early").mkdir()
    train_metric(discs(), tmp_path / "early", plain, resume=True)  # without a checkpoint yet
    assert any(str(tmp_path / "early") in message for message in caplog.messages)


def test_a_frozen_backbone_does_without_a_class_that_cannot_be_read(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pt"
    torch.save(create_backbone("resnet_micro").model.state_dict(), weights)
    model = {
        "backbone": "resnet_micro",
        "size": None,
        "freeze": True,
        "scratch": False,
        "weights": weights,
    }
    config = configured(
        {"loss": "proxy-anchor", "images_per_class": 2}, {"epochs": 1, "batch": 6}, **model
    )
    data = discs(6, 4, bad={1, 7, 13, 19})  # all of one class that trains
    train_metric(data, tmp_path / "run", config)
    assert load(tmp_path / "run").vector_dim == 16
