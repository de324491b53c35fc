"""No class is in two parts; four folds are averaged and concatenated; frozen features."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cenote.backbones import create_backbone
from cenote.data import Dataset
from cenote.data.splits import class_names, class_splits, fold_splits, metric_splits
from cenote.metrics.retrieval import retrieval_scores
from cenote.models import load
from cenote.predict.embedding import embed_dataset
from cenote.train.metric_run import train_metric
from cenote.train.reports import FairReport
from tests.synthetic import discs

from .running import stopped_after
from .test_metric import configured

# Loaded weights may be aligned differently in memory: rounding may exchange two neighbours of one of the 48 queries,
# which changes the mean over four models by at most this percentage.
ONE_QUERY = 100 / 48 / 4


def names(*parts: Dataset | None) -> list[set[str]]:
    return [set(class_names(part)) for part in parts]


def apart(*sets: set[str]) -> bool:
    return sum(map(len, sets)) == len(set().union(*sets))


def test_the_first_half_trains_and_a_quarter_of_it_chooses() -> None:
    splits = metric_splits(class_splits(discs()), "classes")
    train, val, test = names(splits.train, splits.val, splits.test)
    assert apart(train, val, test) and [len(train), len(val), len(test)] == [6, 2, 8]
    assert test == {f"class {i:02}" for i in range(8, 16)}
    whole = metric_splits(class_splits(discs()), "test")
    assert names(whole.train, whole.val, whole.test) == [train | val, test, test]
    assert metric_splits(class_splits(discs()), "last").val is None


def test_splits_of_the_datas_own_are_kept_where_their_classes_are_apart() -> None:
    own = ["train"] * 8 + ["val"] * 3 + ["test"] * 5
    splits = metric_splits(class_splits(discs(split_of=lambda i: own[i % 16])), "classes")
    assert [len(part) for part in names(splits.train, splits.val, splits.test)] == [8, 3, 5]
    assert names(splits.val) == [{"class 08", "class 09", "class 10"}]
    shop = ["train"] * 8 + ["query"] * 4 + ["gallery"] * 4
    parts = class_splits(discs(split_of=lambda i: shop[i % 16]))
    assert parts.gallery is not None and names(parts.gallery) == [
        {f"class {i}" for i in range(12, 16)}
    ]


def test_splits_that_share_classes_are_one() -> None:
    data = discs(split_of=lambda i: ("train", "test")[i // 16 % 2])  # of images, not of classes
    parts = class_splits(data)
    assert len(parts.train) == len(parts.test) == len(data) // 2 and apart(
        *names(parts.train, parts.test)
    )


def test_too_few_classes_to_hold_some_out(caplog: pytest.LogCaptureFixture) -> None:
    splits = metric_splits(class_splits(discs(classes=6)), "classes")
    assert splits.val is None and re.search(r"\b3 training classes\b", caplog.text)
    with pytest.raises(ValueError, match=r"\b3\b.*\b4\b"):
        class_splits(discs(classes=3))


def test_the_fair_protocol(tmp_path: Path) -> None:
    data = discs()
    folds = fold_splits(class_splits(data))
    held = names(*[fold.val for fold in folds])
    assert (
        len(folds) == 4
        and apart(*held)
        and all(apart(*names(fold.train, fold.val, fold.test)) for fold in folds)
    )
    config = configured({"protocol": "fair"})
    with stopped_after(11):  # in the second fold
        train_metric(data, tmp_path, config)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        train_metric(data, tmp_path, config)
    report = train_metric(data, tmp_path, config, resume=True)
    models = [load(tmp_path / f"fold-{k}") for k in range(1, 5)]
    each, labels = [], None
    for model in models:
        with torch.no_grad():
            embeddings = embed_dataset(model.eval(), folds[0].test)
        labels = embeddings.labels(folds[0].test)
        each.append(F.normalize(embeddings.vectors, dim=1))
    scores = [retrieval_scores(z, labels) for z in each]
    for name in ("recall@1", "map@r", "r_precision"):
        assert report.test[name] == pytest.approx(
            100 * np.mean([found[name] for found in scores]), abs=ONE_QUERY
        )
    together = retrieval_scores(torch.cat(each, 1), labels)
    assert report.concatenated["map@r"] == pytest.approx(100 * together["map@r"], abs=ONE_QUERY)
    assert json.loads((tmp_path / "results.json").read_text())["protocol"] == "fair"
    best = max(range(4), key=lambda k: report.folds[k].val["map@r"])
    assert (tmp_path / "model.safetensors").read_bytes() == (
        tmp_path / f"fold-{best + 1}/model.safetensors"
    ).read_bytes()


def test_a_fair_run_that_is_interrupted_names_its_own_folder(tmp_path: Path) -> None:
    config = configured({"protocol": "fair"}, pool="gap")
    with stopped_after(3) as stop:
        train_metric(discs(), tmp_path, config)
    assert "interrupted" in str(stop.value)
    report = train_metric(discs(), tmp_path, config, resume=True)
    assert isinstance(report, FairReport) and report.protocol == "fair"


def test_every_collection_of_four_models_is_judged(tmp_path: Path) -> None:
    data, config = (
        discs(),
        configured({"protocol": "fair", "repeats": 2}, {"epochs": 1}, pool="gap"),
    )
    report = train_metric(data, tmp_path, config)
    vectors, labels = dict[tuple[int, int], torch.Tensor](), None
    for fold in range(1, 5):
        for again, end in enumerate(("", "-2")):
            model, test = load(tmp_path / f"fold-{fold}{end}").eval(), class_splits(data).test
            with torch.no_grad():
                embeddings = embed_dataset(model, test)
            labels = embeddings.labels(test)
            vectors[fold, again] = F.normalize(embeddings.vectors, dim=1)
    assert not torch.equal(vectors[1, 0], vectors[1, 1])
    alone, in_a_row = list[float](), list[float]()
    for choice in np.ndindex(2, 2, 2, 2):
        four = [vectors[fold, again] for fold, again in enumerate(choice, 1)]
        alone.append(np.mean([100 * retrieval_scores(z, labels)["map@r"] for z in four]))
        in_a_row.append(100 * retrieval_scores(torch.cat(four, 1), labels)["map@r"])
    assert report.collections == len(alone) == 16 and len(report.folds) == 8
    for name, found in (("test", alone), ("concatenated", in_a_row)):
        assert getattr(report, name)["map@r"] == pytest.approx(np.mean(found), abs=ONE_QUERY)
        assert 0 < report.deviation[name]["map@r"] == pytest.approx(np.std(found), abs=ONE_QUERY)
    assert (
        load(tmp_path) is not None
        and json.loads((tmp_path / "results.json").read_text())["fold"][:5] == "fold-"
    )


def test_an_epoch_of_so_many_steps_and_an_early_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Six training classes of six images: three steps hold all of them once, and two are an epoch."""
    still = {"epochs": 40, "lr": 0.0, "patience": 3}
    config = configured({"validate": "classes", "epoch_steps": 2}, still, pool="gap")
    caplog.set_level("INFO")
    with stopped_after(5):
        train_metric(discs(), tmp_path, config)
    report = train_metric(discs(), tmp_path, config, resume=True)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4] and report.epoch <= 4
    assert re.findall(r"\d+", caplog.messages[-1]) == ["3"]  # epochs without a better score


@pytest.mark.parametrize(
    ("waiting", "epochs"), [({"xbm": 20, "xbm_after": 7}, 3 + 4), ({"warm_up": 2.0}, 2 + 4)]
)
def test_patience_begins_when_the_memory_and_the_backbone_do(
    waiting: dict[str, float], epochs: int, tmp_path: Path
) -> None:
    """Epochs of two steps. The memory is looked into from the eighth step on, of the fourth epoch."""
    options = {"validate": "classes", "epoch_steps": 2, **waiting}
    train_metric(
        discs(), tmp_path, configured(options, {"epochs": 40, "lr": 0.0, "patience": 3}, pool="gap")
    )
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == epochs


def test_repeats_and_patience_need_what_they_count(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--repeats.*--protocol fair"):
        configured({"repeats": 3})
    with pytest.raises(ValueError, match=r"\brepeats\b.*\b100\b"):
        configured({"repeats": 100, "protocol": "fair"})
    with pytest.raises(ValueError, match=r"\bepoch_steps\b.*\b0\b"):
        configured({"epoch_steps": 0})
    for settings in ({"patience": 2}, {"schedule": "plateau"}):
        for data, validate in ((discs(), "last"), (discs(classes=6), "classes")):
            with pytest.raises(ValueError, match="--validate classes"):
                train_metric(data, tmp_path, configured({"validate": validate}, settings))
    with pytest.raises(ValueError, match=r"\bfair\b.*--validate"):
        configured({"protocol": "fair", "validate": "test"})


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "weights.pt"
    torch.save(create_backbone("resnet_micro").model.state_dict(), path)
    return path


@pytest.mark.parametrize(
    "options", [{"zero_shot": 0.1, "metrix": ("feature",)}, {"loss": "proxy-anchor", "xbm": 8}]
)
def test_frozen_features_train_pool_and_embedding(
    options: dict[str, object], weights: Path, tmp_path: Path
) -> None:
    model = {
        "backbone": "resnet_micro",
        "size": None,
        "freeze": True,
        "scratch": False,
        "weights": weights,
    }
    config = configured({**options, "validate": "classes"}, {"epochs": 3}, **model)
    report = train_metric(discs(), tmp_path / "run", config)
    saved = load(tmp_path / "run").eval()
    with torch.no_grad():
        test = class_splits(discs()).test
        embeddings = embed_dataset(saved, test)
    # From images, as the user has it; the cache holds half floats.
    found = retrieval_scores(embeddings.vectors, embeddings.labels(test))
    assert report.test["map@r"] == pytest.approx(100 * found["map@r"], abs=5.0)
    assert report.test["images"] == 48
    again = train_metric(discs(), tmp_path / "again", config)
    assert again.test == report.test
