"""No class is in two parts; four folds are averaged and concatenated; frozen features; two processes are as one."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from cenote.backbones import create_backbone
from cenote.data import Dataset
from cenote.metrics.retrieval import retrieval_scores
from cenote.models import load
from cenote.train.metric_fit import learn_metric
from cenote.train.metric_splits import class_names, fold_splits, halves, metric_splits
from cenote.train.vectors import vectors_of

from .many_classes import discs
from .processes import by_one_and_by_two, same_weights
from .stopping import stopped_after
from .test_metric import asked, quiet


def names(*parts: Dataset | None) -> list[set[str]]:
    return [set(class_names(part)) for part in parts]


def apart(*sets: set[str]) -> bool:
    return sum(map(len, sets)) == len(set().union(*sets))


def test_the_first_half_trains_and_a_quarter_of_it_chooses() -> None:
    splits = metric_splits(halves(discs()), "classes", quiet)
    train, val, test = names(splits.train, splits.val, splits.test)
    assert apart(train, val, test) and [len(train), len(val), len(test)] == [6, 2, 8]
    assert test == {f"class {i:02}" for i in range(8, 16)}
    whole = metric_splits(halves(discs()), "test", quiet)
    assert names(whole.train, whole.val, whole.test) == [train | val, test, test]
    assert metric_splits(halves(discs()), "last", quiet).val is None


def test_splits_of_the_datas_own_are_kept_where_their_classes_are_apart() -> None:
    own = ["train"] * 8 + ["val"] * 3 + ["test"] * 5
    splits = metric_splits(halves(discs(split_of=lambda i: own[i % 16])), "classes", quiet)
    assert [len(part) for part in names(splits.train, splits.val, splits.test)] == [8, 3, 5]
    assert names(splits.val) == [{"class 08", "class 09", "class 10"}]
    shop = ["train"] * 8 + ["query"] * 4 + ["gallery"] * 4
    parts = halves(discs(split_of=lambda i: shop[i % 16]))
    assert parts.gallery is not None and names(parts.gallery) == [{f"class {i}" for i in range(12, 16)}]


def test_splits_that_share_classes_are_one() -> None:
    data = discs(split_of=lambda i: ("train", "test")[i // 16 % 2])  # of images, not of classes
    parts = halves(data)
    assert len(parts.train) == len(parts.test) == len(data) // 2 and apart(*names(parts.train, parts.test))


def test_too_few_classes_to_hold_some_out() -> None:
    said: list[str] = []
    splits = metric_splits(halves(discs(classes=6)), "classes", said.append)
    assert splits.val is None and "3 classes to learn from are too few" in said[0]
    with pytest.raises(ValueError, match="two halves need at least 4"):
        halves(discs(classes=3))


def test_the_fair_protocol(tmp_path: Path) -> None:
    data = discs()
    folds = fold_splits(halves(data))
    held = names(*[fold.val for fold in folds])
    assert len(folds) == 4 and apart(*held) and all(apart(*names(fold.train, fold.val, fold.test)) for fold in folds)
    choices = asked({"protocol": "fair"})
    with stopped_after(11):  # in the second fold
        learn_metric(data, tmp_path, choices, say=quiet)
    with pytest.raises(ValueError, match="holds a run already"):
        learn_metric(data, tmp_path, choices, say=quiet)
    report = learn_metric(data, tmp_path, choices, resume=True, say=quiet)
    models = [load(tmp_path / f"fold-{k}") for k in range(1, 5)]
    each, labels = [], None
    for model in models:
        with torch.no_grad():
            vectors, labels = vectors_of(model.eval(), folds[0].test, choices.settings, torch.device("cpu"))
        each.append(F.normalize(vectors, dim=1))
    scores = [retrieval_scores(z, labels) for z in each]
    for name in ("recall@1", "map@r", "r_precision"):
        assert report["test"][name] == pytest.approx(100 * np.mean([found[name] for found in scores]), abs=1e-3)
    together = retrieval_scores(torch.cat(each, 1), labels)
    assert report["concatenated"]["map@r"] == pytest.approx(100 * together["map@r"], abs=1e-3)
    assert json.loads((tmp_path / "results.json").read_text())["protocol"] == "fair"
    best = max(range(4), key=lambda k: report["folds"][k]["val"]["map@r"])
    assert (tmp_path / "model.safetensors").read_bytes() == (
        tmp_path / f"fold-{best + 1}/model.safetensors"
    ).read_bytes()


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "weights.pt"
    torch.save(create_backbone("resnet_micro").model.state_dict(), path)
    return path


@pytest.mark.parametrize("options", [{"zero_shot": 0.1, "metrix": ("feature",)}, {"loss": "proxy-anchor", "xbm": 8}])
def test_frozen_features_train_pool_and_embedding(options: dict[str, object], weights: Path, tmp_path: Path) -> None:
    model = {"backbone": "resnet_micro", "size": None, "freeze": True, "scratch": False, "weights": weights}
    choices = asked({**options, "validate": "classes"}, {"epochs": 3}, **model)
    report = learn_metric(discs(), tmp_path / "run", choices, say=quiet)
    saved = load(tmp_path / "run").eval()
    with torch.no_grad():
        vectors, labels = vectors_of(saved, halves(discs()).test, choices.settings, torch.device("cpu"))
    found = retrieval_scores(vectors, labels)  # from images, as the user has it; the cache holds half floats
    assert report["test"]["map@r"] == pytest.approx(100 * found["map@r"], abs=2.0)
    assert report["test"]["images"] == 48
    again = learn_metric(discs(), tmp_path / "again", choices, say=quiet)
    assert again["test"] == report["test"]


SCRIPT = """
import sys
from pathlib import Path
from cenote.train.metric_fit import learn_metric
from tests.train.many_classes import discs
from tests.train.test_metric import asked, quiet

options = {"zero_shot": 0.1, "metrix": ("feature", "input"), "xbm": 20, "validate": "classes", "warm_up": 0.5}
learn_metric(discs(), Path(sys.argv[1]), asked(options), say=quiet)
"""


def test_two_processes_are_as_good_as_one(tmp_path: Path) -> None:
    """Pairs, mixtures, prototypes and the memory are those of the whole batch."""
    alone, together = by_one_and_by_two(SCRIPT, tmp_path)
    same_weights(load_file, (alone / "model.safetensors", together / "model.safetensors"), rtol=1e-2, atol=2e-4)
    images = [json.loads((folder / "results.json").read_text())["test"]["images"] for folder in (alone, together)]
    assert images[0] == images[1]
