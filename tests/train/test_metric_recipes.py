"""The recipes of Metrix and GSP hold the papers' numbers, on each data set, and train in miniature."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from cenote.data import open_dataset
from cenote.losses.metrix import TO_PROXIES
from cenote.models import load
from cenote.pooling import MixablePool, create_pool
from cenote.train.config import MetricConfig
from cenote.train.configure import configure
from cenote.train.metric_run import batches_of, train_metric
from cenote.train.recipes import list_recipes, load_recipe, parse_recipe

from .small_recipes import scaled_down

NAMES = [name for name in list_recipes() if name.startswith("metric/")]
SETS = ("cub-retrieval", "cars-retrieval", "sop", "inshop")
QUICK = "task: metric\nmodel: {backbone: resnet18, pool: gsp}\ntrain: {epochs: 3}\ndata: sop\npaper: {}\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_twin_trains_and_is_saved(name: str, tmp_path: Path) -> None:
    recipe = scaled_down(load_recipe(name))
    if recipe.config.options.loss.startswith("pml/"):
        pytest.importorskip("pytorch_metric_learning")
    given = {}
    if recipe.config.train.schedule == "plateau":  # the world has too few classes to hold some out
        given["validate"] = "test"
    config = configure("metric", recipe, **given)
    report = train_metric(open_dataset("world/tiny"), tmp_path, config)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert all(math.isfinite(line["results"]["metric"]["loss"]) for line in lines)
    assert load(tmp_path).vector_dim == 16 and report.test["images"] == 48


def test_collages_have_the_numbers_of_their_section() -> None:
    """Section 2.2 of the supplement, in its words."""
    config = configure("metric", load_recipe("metric/collage-gsp"))
    model, train, options = config.model, config.train, config.options
    assert (model.backbone, model.pool_options["local"]) == ("resnet20", 128)
    wanted = {"prototypes": 128, "mu": 0.2, "eps": 10.0}
    assert {key: model.pool_options[key] for key in wanted} == wanted
    assert (train.optimizer, train.lr) == ("adam", 1e-3)
    assert (train.schedule, train.plateau, train.step_factor) == ("plateau", 5, 0.5)
    assert (options.classes_per_batch, options.images_per_class, options.zero_shot) == (16, 4, 0.5)


@pytest.mark.parametrize("name", [name for name in NAMES if "collage" not in name])
@pytest.mark.parametrize("data", SETS)
def test_every_data_set_has_its_numbers(name: str, data: str) -> None:
    recipe = load_recipe(name).on(data)
    counts = {"cub-retrieval": 5864, "cars-retrieval": 8054, "sop": 59551, "inshop": 25882}
    config = configure("metric", load_recipe(name), data)
    if steps := config.options.epoch_steps:  # 002
        models = 4 * config.options.repeats if config.options.protocol == "fair" else 1
        assert recipe.cost["images"] == models * steps * config.train.batch
    else:
        assert recipe.cost["images"] % counts[data] == 0
    assert recipe.data == data
    network = "bn_inception" if name.endswith("bn-inception") else "resnet50.tv_in1k"
    assert config.model.backbone == network and config.model.pretrained
    if name.endswith("-gsp"):
        few = data in ("cub-retrieval", "cars-retrieval")
        proxied = recipe.config.options.loss.startswith("proxy")
        wanted = {"prototypes": 64 if few else 128, "mu": 0.3, "eps": 0.5 if proxied else 5.0}
        assert {key: config.model.pool_options[key] for key in wanted} == wanted
        assert config.options.zero_shot == 0.1
    if config.options.classes_per_batch:
        assert (
            config.options.classes_per_batch * config.options.images_per_class == config.train.batch
        )


@pytest.mark.parametrize(
    ("name", "data", "train", "options"),
    [  # 001 Table 2.2 and 2.4.1; 002 supplementary 1.1.4 and 1.1.7, in the papers' words
        (
            "multi-similarity-metrix",
            "cub-retrieval",
            {"lr": 1e-4, "batch": 100, "epochs": 100, "step_factor": 0.5},
            {"dim": 512, "metrix": ("feature",), "images_per_class": 0},
        ),
        (
            "multi-similarity-metrix",
            "sop",
            {"lr": 3e-5, "step_factor": 0.25},
            {"classes_per_batch": 20, "images_per_class": 5},
        ),
        (
            "contrastive-metrix",
            "cars-retrieval",
            {"lr": 1e-4, "step_factor": 0.1, "weight_decay": 1e-4},
            {},
        ),
        (
            "contrastive-gsp",
            "cars-retrieval",
            {"lr": 1e-5, "batch": 32, "optimizer": "adam"},
            {"loss_options": {"pos_margin": 0.2652, "neg_margin": 0.5409}, "dim": 128},
        ),
        (
            "multi-similarity-gsp",
            "inshop",
            {"lr": 1e-5},
            {"loss_options": {"beta": 8.49, "gamma": 57.38, "m": 0.41}, "protocol": "fair"},
        ),
        (
            "proxy-anchor-gsp",
            "sop",
            {"lr": 5e-6},
            {"classes_per_batch": 32, "images_per_class": 1, "warm_up": 1.4, "proxy_rate": 100},
        ),
        (
            "triplet-gsp",
            "sop",
            {"schedule": "constant", "patience": 10},
            {"loss_options": {"margin": 0.0451}, "epoch_steps": 1000, "repeats": 3},
        ),
        ("triplet-gsp", "cub-retrieval", {"patience": 15}, {"epoch_steps": 100}),
        (
            "xbm-gsp",
            "cub-retrieval",
            {
                "lr": 1e-5,
                "batch": 112,
                "weight_decay": 4e-4,
                "schedule": "plateau",
                "plateau": 4,
                "patience": 15,
            },
            {"xbm": 25 * 112, "xbm_after": 1000, "epoch_steps": 25},
        ),
        (
            "xbm-gsp-bn-inception",
            "cub-retrieval",
            {"lr": 1e-5, "batch": 128, "weight_decay": 1e-4},
            {"xbm": 25 * 128, "dim": 512},
        ),
        ("xbm-gsp", "sop", {"lr": 1e-4, "patience": 10}, {"xbm": 1400 * 112, "epoch_steps": 250}),
    ],
)
def test_the_papers_numbers(
    name: str, data: str, train: dict[str, Any], options: dict[str, Any]
) -> None:
    config = configure("metric", load_recipe(f"metric/{name}"), data)
    assert {key: getattr(config.train, key) for key in train} == train
    assert {key: getattr(config.options, key) for key in options} == options


def test_options_override_the_recipe() -> None:
    recipe = load_recipe("metric/proxy-anchor-gsp")
    config = configure(
        "metric", recipe, "sop", pool="gap", zero_shot=0.0, dim=64, epochs=2, batch=16
    )
    assert (config.model.pool, config.model.pool_options) == ("gap", {"local": 128})
    assert (config.options.zero_shot, config.options.dim, config.train.epochs) == (0.0, 64, 2)
    assert batches_of(config, 100, 1000)[0].batch == 16
    one = configure("metric", recipe, "sop", protocol="conventional").options
    assert (one.protocol, one.repeats, one.epoch_steps) == ("conventional", 1, 1000)
    fair = configure("metric", load_recipe("metric/xbm-gsp"), "sop", protocol="fair")
    assert fair.options.validate == "classes"
    with pytest.raises(ValueError, match=r"metric/proxy-anchor-gsp.*\bfreeze\b"):
        configure("metric", recipe, freeze=True)
    with pytest.raises(ValueError, match="cenote fit --recipe sar/deit-small"):
        configure("metric", load_recipe("sar/deit-small"))
    with pytest.raises(ValueError, match="cenote metric --recipe metric/xbm-gsp"):
        configure("fit", load_recipe("metric/xbm-gsp"))


def test_another_mixing_or_loss_drops_the_options_of_the_recipes_own() -> None:
    def made(**options: Any) -> MetricConfig:
        return configure("metric", load_recipe("metric/multi-similarity-metrix"), **options).options

    assert made().metrix == ("feature",) and made().mix_options and made().loss_options
    plain, rival, loss = made(metrix=()), made(rival="mochi"), made(loss="contrastive")
    assert (plain.metrix, plain.mix_options) == ((), {}) and plain.loss_options
    assert (rival.rival, rival.metrix, rival.mix_options) == ("mochi", (), {})
    assert (loss.loss, loss.loss_options, loss.metrix) == ("contrastive", {}, ("feature",))
    assert made(loss="multi-similarity").loss_options == made().loss_options
    for name in NAMES:
        if name.endswith("-metrix"):
            recipe = load_recipe(name)
            assert "--metrix none" in recipe.about
            assert isinstance(create_pool(recipe.config.model.pool, 8), MixablePool)
            if name == "metric/proxy-nca-metrix":
                sop, inshop = (
                    TO_PROXIES // (recipe.config.train.batch * classes) for classes in (11318, 3997)
                )
                assert any(
                    {str(sop), str(inshop)} <= set(re.findall(r"\d+", line))
                    for line in recipe.left_out
                )


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ("options: {losses: nca}", "'options.losses'.*'loss'"),
        ("options: {dim: wide}", "options.dim.*'wide'"),
        ("options: {metrix: feature}", "options.metrix.*'feature'"),
        ("options: {protocol: unfair}", "options.protocol.*'conventional' or 'fair'"),
        ("sets: {sop2: {}}", "'sop2'"),
        ("sets: {inshop: {lr: 3}}", r"sets\.inshop\b.*'lr'"),
        ("sets: {inshop: {train: {rate: 3}}}", "'train.rate'"),
        ("sets: {inshop: 3}", r"sets\.inshop\b.*\b3\b"),
    ],
)
def test_mistakes_in_a_recipe_are_named(more: str, cause: str) -> None:
    with pytest.raises(ValueError, match=rf"\bmine\b.*{cause}"):
        parse_recipe(QUICK + more, "mine")


def test_an_unknown_loss_is_refused_before_a_run() -> None:
    with pytest.raises(ValueError, match="'nca2'"):
        configure("metric", parse_recipe(QUICK + "options: {loss: nca2}", "mine"))


def test_other_pools_of_a_recipe_embed_positions_first_as_well() -> None:
    recipe = load_recipe("metric/contrastive-gsp")
    config = configure("metric", recipe, pool="gem", zero_shot=0.0)
    assert config.model.pool_options == {"local": 128}
    assert configure("metric", recipe, pool="gsp").model.pool_options["mu"] == 0.3
