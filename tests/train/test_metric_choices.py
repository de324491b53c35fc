"""What is asked of `cenote metric` is checked, and filled in, before images are read."""

from pathlib import Path
from typing import Any

import pytest

from cenote.train.metric_choices import metric_choices

from .test_metric import MODEL, asked


@pytest.mark.parametrize(
    ("options", "model", "sentence"),
    [
        ({"loss": "multi-similar"}, {}, "did you mean 'multi-similarity'"),
        ({"metrix": ("features",)}, {}, "are some of input, feature, embed"),
        ({"metrix": ("embed",), "rival": "mochi"}, {}, "leave out --metrix or --rival"),
        ({"rival": "mochi", "loss": "proxy-anchor"}, {}, "takes no proxies"),
        ({"rival": "mochi", "mix": ("anc-neg",)}, {}, "of MoCHi, --mix-options pairs=neg-neg does"),
        ({"rival": "mochi", "mix_options": {"pairs": "neg-pos"}}, {}, "neg-pos"),
        ({"rival": "proxy-synthesis"}, {}, "takes a loss that has them"),
        ({"metrix": ("embed",), "mix_options": {"beta": 1}}, {}, "'metrix' has no option 'beta'"),
        ({"mix_options": {"weight": 1}}, {}, "need something to mix"),
        ({"loss": "proxy-nca", "xbm": 10}, {}, "no use for a memory"),
        ({"metrix": ("input",)}, {"freeze": True, "scratch": False}, "no mixing of input with --freeze"),
        ({"warm_up": 1}, {"freeze": True, "scratch": False}, "leave out --warm-up"),
        ({"embedding_norm": "layer"}, {"pool_options": {"local": 16}}, "leave out --embedding-norm"),
        ({"warm_up": 2}, {}, "would wait for 2 of 2 epochs and never learn"),
        ({}, {"freeze": True}, "freeze and scratch exclude each other"),
        ({"dims": 3}, {}, "no key 'dims'; did you mean 'dim'"),
        ({"zero_shot": 0.1}, {"tokens": "cls"}, "'cls' has none: --tokens patches"),
        ({"zero_shot": 2.0}, {}, "zero-shot: .*got 2"),
        (
            {"zero_shot": 0.1, "zero_shot_options": {"rdge": 1}},
            {},
            "'zero-shot' has no option 'rdge'; did you mean 'ridge'",
        ),
        ({"mix": ("pos-neg",)}, {}, "--mix says which pairs Metrix mixes"),
        ({"xbm_after": 3}, {}, "it needs --xbm"),
    ],
)
def test_bad_input_is_told_before_images_are_read(
    options: dict[str, Any], model: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        asked(options, **model).check()


@pytest.mark.parametrize(
    ("settings", "model", "sentence"),
    [
        ({"accumulate": 2}, {}, "accumulate must be 1"),
        ({"mixup": 0.5, "select": "boxes"}, {}, "does not use mixup, select"),
        ({"workers": -1}, {}, "workers must be at least 0"),
        ({}, {"size": -1}, "size is a number of pixels"),
        ({}, {"pool": "gsb"}, "no pool 'gsb'; did you mean 'gsp'"),
        ({}, {"pool_options": {"esp": 1}}, "'gsp' has no option 'esp'; did you mean 'eps'"),
        ({}, {"weights": Path("run")}, "leave it out, or --weights"),
    ],
)
def test_what_it_does_not_use_is_refused(settings: dict[str, Any], model: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        asked(settings=settings, **model).check()


def test_gsp_is_softer_for_proxies() -> None:
    assert asked({"loss": "proxy-anchor"}).pool_options["eps"] == 0.5
    assert "eps" not in asked().pool_options
    assert asked({"loss": "proxy-anchor"}, pool_options={"eps": 2.0}).pool_options["eps"] == 2.0


def test_a_batch_is_classes_times_images(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = metric_choices(None, "", MODEL, {"classes_per_batch": 5, "images_per_class": 3}, {"epochs": 1})
    assert [choices.training(8, 100)[0].batch, choices.training(8, 100)[1]] == [15, 5]
    assert choices.training(4, 100)[1] == 4  # there are no more
    with monkeypatch.context() as patch, pytest.raises(ValueError, match="2 classes to learn from cannot be shared"):
        patch.setattr("cenote.train.metric_choices.world", lambda: 4)
        choices.training(2, 100)
    plain = metric_choices(None, "", MODEL, {"images_per_class": 0}, {"batch": 10})
    assert plain.training(8, 100)[0].batch == 10 and plain.training(8, 100)[1] == 0
    with pytest.raises(ValueError, match="classes_per_batch is at least 2"):
        metric_choices(None, "", MODEL, {"classes_per_batch": 1}, {})
    with pytest.raises(ValueError, match="leave out one of batch and classes_per_batch"):
        metric_choices(None, "", MODEL, {"classes_per_batch": 4}, {"batch": 10})


@pytest.mark.parametrize("pairs", ["neg-neg", "anc-neg", "neg-neg,anc-neg"])
def test_mochi_mixes_the_pairs_it_is_told_to(pairs: str) -> None:
    made = metric_choices(None, "", {}, {"rival": "mochi", "mix_options": {"pairs": pairs}, "loss": "contrastive"}, {})
    assert made.options.make_mixing().pairs == tuple(pairs.split(","))
