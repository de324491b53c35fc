"""The options of `cenote metric` are checked, and completed, before images are read."""

from pathlib import Path
from typing import Any

import pytest

from cenote.train.configure import configure
from cenote.train.metric_run import batches_of
from cenote.train.tasks.metric import build_mixing

from .test_metric import MODEL, configured


@pytest.mark.parametrize(
    ("options", "model", "cause"),
    [
        ({"loss": "multi-similar"}, {}, "'multi-similar'.*'multi-similarity'"),
        ({"metrix": ("features",)}, {}, "'input', 'feature' or 'embed'"),
        ({"metrix": ("embed",), "rival": "mochi"}, {}, "--metrix.*--rival"),
        ({"rival": "mochi", "loss": "proxy-anchor"}, {}, "proxies"),
        ({"rival": "mochi", "mix": ("anc-neg",)}, {}, "--mix-options pairs=neg-neg"),
        ({"rival": "mochi", "mix_options": {"pairs": "neg-pos"}}, {}, "neg-pos"),
        ({"rival": "proxy-synthesis"}, {}, "proxies"),
        ({"metrix": ("embed",), "mix_options": {"beta": 1}}, {}, "'metrix'.*'beta'"),
        ({"mix_options": {"weight": 1}}, {}, "--metrix"),
        ({"loss": "proxy-nca", "xbm": 10}, {}, "proxy-nca.*memory"),
        ({"metrix": ("input",)}, {"freeze": True, "scratch": False}, r"\binput\b.*--freeze"),
        ({"warm_up": 1}, {"freeze": True, "scratch": False}, "--warm-up"),
        ({"embedding_norm": "layer"}, {"pool_options": {"local": 16}}, "--embedding-norm"),
        ({"warm_up": 2}, {}, r"\b2 of 2 epochs\b"),
        ({}, {"freeze": True}, r"\bfreeze\b.*\bscratch\b"),
        ({"dims": 3}, {}, "dims'.*'dim'"),
        ({"zero_shot": 0.1}, {"tokens": "cls"}, "'cls'.*--tokens patches"),
        ({"zero_shot": 2.0}, {}, r"zero-shot.*\b2\b"),
        ({"zero_shot": 0.1, "zero_shot_options": {"rdge": 1}}, {}, "'zero-shot'.*'rdge'.*'ridge'"),
        ({"mix": ("pos-neg",)}, {}, "--mix.*--metrix"),
        ({"xbm_after": 3}, {}, "xbm_after.*--xbm"),
        ({"miner": "MultiSimilarityMiner"}, {}, "pml/NAME.*multi-similarity"),
        ({"loss": "pml/TripletMarginLoss", "miner": "TripletMiner"}, {}, "--miner.*TripletMiner"),
        ({"test": "images", "validate": "classes"}, {}, "--test images.*--validate test"),
        ({"miner_options": {"epsilon": 0.1}}, {}, "--miner-options"),
    ],
)
def test_bad_options_are_refused_before_images_are_read(
    options: dict[str, Any], model: dict[str, Any], cause: str
) -> None:
    with pytest.raises(ValueError, match=cause):
        configured(options, **model)


@pytest.mark.parametrize(
    ("settings", "model", "cause"),
    [
        ({"accumulate": 2}, {}, r"\baccumulate\b"),
        ({"mixup": 0.5, "select": "boxes"}, {}, "mixup, select"),
        ({"workers": -1}, {}, r"\bworkers\b.*-1\b"),
        ({}, {"size": -1}, r"\bsize\b.*-1\b"),
        ({}, {"pool": "gsb"}, "'gsb'.*'gsp'"),
        ({}, {"pool_options": {"esp": 1}}, "'gsp'.*'esp'.*'eps'"),
        ({}, {"weights": Path("run")}, "--scratch|run"),
    ],
)
def test_unused_settings_are_refused(
    settings: dict[str, Any], model: dict[str, Any], cause: str
) -> None:
    with pytest.raises(ValueError, match=cause):
        configured(settings=settings, **model)


def test_gsp_is_softer_for_proxies() -> None:
    assert configured({"loss": "proxy-anchor"}).model.pool_options["eps"] == 0.5
    assert "eps" not in configured().model.pool_options
    assert (
        configured({"loss": "proxy-anchor"}, pool_options={"eps": 2.0}).model.pool_options["eps"]
        == 2.0
    )


def test_a_batch_is_classes_times_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def batches(classes: int, images: int, **given: Any) -> tuple[int, int]:
        train, count = batches_of(configure("metric", **MODEL, **given), classes, images)
        return train.batch, count

    sizes = {"classes_per_batch": 5, "images_per_class": 3, "epochs": 1}
    assert batches(8, 100, **sizes) == (15, 5)
    assert batches(4, 100, **sizes)[1] == 4  # there are no more
    with (
        monkeypatch.context() as patch,
        pytest.raises(ValueError, match=r"\b2 training classes\b.*\b4 processes\b"),
    ):
        patch.setattr("cenote.train.metric_run.world", lambda: 4)
        batches(2, 100, **sizes)
    assert batches(8, 100, images_per_class=0, batch=10) == (10, 0)
    with pytest.raises(ValueError, match=r"--classes-per-batch.*\b2\b.*\b1\b"):
        batches(8, 100, classes_per_batch=1)
    with pytest.raises(ValueError, match=r"\bbatch\b.*\bclasses_per_batch\b"):
        batches(8, 100, classes_per_batch=4, batch=10)


@pytest.mark.parametrize("pairs", ["neg-neg", "anc-neg", "neg-neg,anc-neg"])
def test_mochi_mixes_the_configured_pairs(pairs: str) -> None:
    config = configure("metric", rival="mochi", mix_options={"pairs": pairs}, loss="contrastive")
    assert build_mixing(config.options).pairs == tuple(pairs.split(","))
