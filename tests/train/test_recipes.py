"""Every recipe states its command, cost and figures, holds the papers' numbers, and trains in miniature."""

import copy
import dataclasses
import json
import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from PIL import Image
from torch import nn

from cenote.data import Dataset, open_dataset
from cenote.data.loading import load as batches
from cenote.data.splits import Splits, split
from cenote.models import PooledModel, create_model, load, save_model
from cenote.train.augment import augmentation
from cenote.train.build import model_arguments
from cenote.train.config import RunConfig
from cenote.train.configure import configure
from cenote.train.engine import Engine
from cenote.train.fit import build_classifier, build_task, fit
from cenote.train.recipes import (
    Recipe,
    list_recipes,
    load_recipe,
    parse_recipe,
    recipe_page,
    recipe_table,
)
from cenote.train.tasks.supervised import JSD_VIEWS, Jsd, finish, join_batch_norms

from .small_recipes import scaled_down

NAMES = list_recipes()
# test_probing.py trains the recipe of a frozen backbone.
FIT = [
    name
    for name in NAMES
    if load_recipe(name).config.command == "fit" and not load_recipe(name).config.model.freeze
]
QUICK = "model: {backbone: resnet18, pool: simpool}\ntrain: {epochs: 3}\ndata: cub\npaper: {}\n"


@pytest.fixture(scope="module")
def world() -> Dataset:
    return open_dataset("world/tiny")


@pytest.fixture(scope="module")
def splits(world: Dataset) -> Splits:
    return split(world, quiet=True)


def trained(config: RunConfig, splits: Splits, folder: Path) -> nn.Module:
    model = build_classifier(config, len(splits.train.classes))
    Engine(build_task(config, model, splits), config.train, folder).run()
    finish(model)
    return model


def with_start(recipe: Recipe, start: str) -> Recipe:
    return dataclasses.replace(recipe, start=start)


@pytest.mark.parametrize("name", FIT)
def test_the_twin_trains_and_is_saved(name: str, splits: Splits, tmp_path: Path) -> None:
    config = configure("fit", scaled_down(load_recipe(name)))
    before = copy.deepcopy(build_classifier(config, len(splits.train.classes)).state_dict())
    model = trained(config, splits, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert all(math.isfinite(line["results"]["model"]["loss"]) for line in lines)
    after = model.state_dict()
    moved = {key.partition(".")[0] for key in before if not torch.equal(before[key], after[key])}
    learned = {"head"} if config.task == "head" else {"backbone", "head"}
    assert learned <= moved and (config.task != "head" or moved == {"head"})
    save_model(model, tmp_path / "model")
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(load(tmp_path / "model")(x), model.eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_opens_with_command_cost_figure_and_confession(name: str) -> None:
    recipe = load_recipe(name)
    first, *_ = recipe.about.splitlines()
    assert (
        f"cenote {recipe.config.command} {recipe.data}:FOLDER --recipe {name} " in first
        and first.endswith("-o RUN")
    )
    assert ("--weights" in first) == (recipe.start is not None)
    opening = " ".join(recipe.about.split())
    assert "full-size run" in opening  # and that nobody has made it here
    seen = recipe.cost["images"] * recipe.config.train.epochs
    assert f"{seen / 1e6:.4g} million" in opening
    assert (
        f"{recipe.config.train.epochs} epochs" in opening
        and f"{recipe.cost['images']:,}" in opening
    )
    assert f"{seen * recipe.multiply_adds:.1e}" in opening
    assert recipe.paper["source"] and recipe.paper["where"]
    for figure in list(recipe.paper["figures"].values())[:2]:
        assert str(figure) in opening


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # S C.2, A D.1, L 4.3, in the papers' words
        (
            "simpool/resnet18-supervised",
            {"lr": 0.1, "batch": 4 * 128, "epochs": 100, "optimizer": "sgd"},
        ),
        (
            "simpool/resnet50-supervised",
            {"lr": 0.4, "batch": 8 * 128, "epochs": 100, "optimizer": "sgd"},
        ),
        (
            "simpool/convnext-small-supervised",
            {"lr": 0.004, "batch": 4096, "accumulate": 4, "optimizer": "adamw"},
        ),
        (
            "simpool/vit-small-supervised",
            {"lr": 5e-4, "batch": 8 * 74, "epochs": 100, "optimizer": "adamw"},
        ),
        ("simpool/vit-small-cifar10", {"lr": 7.5e-6 * 768 / 512, "batch": 8 * 96, "epochs": 1000}),
        (
            "simpool/vit-small-linear",
            {"lr": 1e-3 * 1024 / 256, "batch": 4 * 256, "weight_decay": 0.0},
        ),
        (
            "simpool/resnet50-dino",
            {"lr": 0.3 * 1280 / 256, "min_lr": 0.0048, "batch": 8 * 160, "optimizer": "lars"},
        ),
        (
            "simpool/convnext-small-dino",
            {"lr": 1e-3 * 480 / 256, "min_lr": 2e-6, "batch": 8 * 60, "epochs": 100},
        ),
        (
            "simpool/vit-small-dino",
            {"lr": 5e-4 * 800 / 256, "min_lr": 1e-5, "batch": 8 * 100, "epochs": 100},
        ),
        ("sar/deit-small", {"lr": 1e-3, "batch": 1024, "weight_decay": 0.05, "epochs": 300}),
        ("sar/pvt-small", {"lr": 1e-3, "batch": 1024, "weight_decay": 0.05, "sar": 0.01}),
        ("sar/t2t-vit-14", {"lr": 1e-3, "batch": 1024, "weight_decay": 0.05, "sar": 0.01}),
        ("sar/cvt-13", {"lr": 0.02, "batch": 2048, "schedule": "cosine", "sar": 0.01}),
        ("sar/deit-small-scratch", {"epochs": 5000, "sar": 0.01}),
        ("sar/deit-small-finetune", {"lr": 5e-4, "batch": 512, "epochs": 100}),
        ("sar/vit-small-dino", {"batch": 512, "epochs": 300, "sar": 0.01}),
        ("sar/vit-small-moco", {"batch": 1024, "epochs": 300, "sar": 0.01}),
        ("sar/vit-small-linear", {"optimizer": "momentum", "epochs": 100}),
        (
            "probing/ep",
            {
                "lr": 0.1 * 4096 / 256,
                "batch": 8 * 512,
                "epochs": 90,
                "warmup": 10,
                "optimizer": "lars",
            },
        ),
        ("localization/cub-gmp", {"batch": 32, "epochs": 50, "step_every": 15, "step_factor": 0.1}),
        (
            "localization/openimages-gmp",
            {"batch": 32, "epochs": 10, "step_every": 3, "step_factor": 0.1},
        ),
    ],
)
def test_the_papers_numbers(name: str, expected: dict[str, object]) -> None:
    found = dataclasses.asdict(load_recipe(name).config.train)
    assert {key: found[key] for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if load_recipe(name).config.model.pool == "simpool"]
)
def test_gamma_is_that_of_the_network(name: str) -> None:
    model = load_recipe(name).config.model
    assert model.pool_options["gamma"] == (1.25 if model.backbone.startswith("vit") else 2.0)


def test_the_searched_ranges_hold_the_starting_point() -> None:
    recipes = [load_recipe(name) for name in NAMES if name.startswith("localization/")]
    searched = [recipe for recipe in recipes if recipe.search]
    assert searched
    for recipe in searched:
        assert recipe.search["trials"] == 30
        for key in ("lr", "weight_decay"):
            low, high = recipe.search[key]["range"]
            assert low <= getattr(recipe.config.train, key) <= high
        assert ("cutout" in recipe.search) == ("cutout" in recipe.augment)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (("train:", "trian:"), "'trian'.*'train'"),
        (("paper: {}", "name: x\npaper: {}"), "no key 'name'"),
        (("epochs: 3", "epoch: 3"), "'train.epoch'.*'epochs'"),
        (("epochs: 3", "epochs: many"), "train.epochs.*'many'"),
        (("epochs: 3", "epochs: 0"), r"\bepochs\b.*\b0\b"),
        (("epochs: 3", "optimizer: adagrad"), "train.optimizer.*'sgd', 'momentum', 'adamw'"),
        (("pool: simpool", "pools: simpool"), "'model.pools'.*'pool'"),
        (("data: cub", "data: cubs"), "'cubs'.*'cub'"),
        (("paper: {}", "augment: {sise: 3}\npaper: {}"), "'augment.sise'.*'size'"),
        (("paper: {}", "task: jds\npaper: {}"), "'jds'.*'jsd'"),
        (("paper: {}", ""), "'paper'"),
        (("train: {", "train: {{"), "YAML"),
        (("train: {epochs: 3}", "train: 3"), r"\btrain\b.*\b3\b"),
    ],
)
def test_mistakes_in_a_recipe_are_named(change: tuple[str, str], cause: str) -> None:
    with pytest.raises(ValueError, match=rf"\bmine\b.*{cause}"):
        parse_recipe(QUICK.replace(*change), "mine")


def test_a_pool_that_does_not_exist_is_refused_before_a_run() -> None:
    recipe = parse_recipe(QUICK.replace("pool: simpool", "pool: simpol"), "mine")
    with pytest.raises(ValueError, match=r"'simpol'.*'simpool'"):
        configure("fit", recipe)


def test_a_file_of_your_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "# Hello.\n" + QUICK.replace("epochs: 3", "lr: 1e-3")
    )  # which YAML takes for text
    recipe = load_recipe(path)
    assert (recipe.config.train.lr, recipe.about) == (1e-3, "Hello.")
    with pytest.raises(
        ValueError, match=r"'simpool/vit-smal-supervised'.*'simpool/vit-small-supervised'"
    ):
        load_recipe("simpool/vit-smal-supervised")
    with pytest.raises(FileNotFoundError):
        load_recipe(tmp_path / "none.yaml")


def test_options_override_the_recipe() -> None:
    recipe = scaled_down(load_recipe("simpool/vit-small-supervised"))
    config = configure("fit", recipe, pool="gap", epochs=7, lr=(0.5,))
    assert (config.train.epochs, config.train.lr, config.train.mixup) == (7, 0.5, 0.2)
    assert build_classifier(config, 4).config["pool"] == "gap" and not config.model.pool_options
    with pytest.raises(ValueError, match=r"'epochs'"):
        configure("fit", recipe, settings={"epoch": 7})


def test_the_warm_up_of_fewer_epochs_is_shorter() -> None:
    recipe = load_recipe("simpool/resnet18-supervised")
    assert configure("fit", recipe).train.warmup == 5
    assert configure("fit", recipe, epochs=2).train.warmup == pytest.approx(0.4)
    assert configure("fit", recipe, epochs=2, settings={"warmup": 1.5}).train.warmup == 1.5


def test_an_option_adds_to_the_recipe_or_is_refused() -> None:
    config = configure(
        "fit", load_recipe("simpool/vit-small-supervised"), pool_options={"heads": 2}
    )
    assert config.model.pool_options == {"gamma": 1.25, "heads": 2}
    for flag in ("freeze", "scratch"):
        with pytest.raises(ValueError, match=rf"localization/cub-gap.*\b{flag}\b"):
            configure("fit", load_recipe("localization/cub-gap"), **{flag: True})


def test_fit_takes_a_recipe(world: Dataset, tmp_path: Path) -> None:
    recipe = scaled_down(load_recipe("simpool/vit-small-supervised"))
    report = fit(world, tmp_path, configure("fit", recipe))
    assert report.pool == "simpool" and load(tmp_path).class_names == world.classes


def test_one_recipe_starts_where_another_ended(splits: Splits, tmp_path: Path) -> None:
    def model_of(name: str, classes: int) -> PooledModel:
        return build_classifier(configure("fit", scaled_down(load_recipe(name))), classes)

    first = model_of("simpool/vit-small-supervised", 9)
    save_model(first, tmp_path / "run")
    recipe = load_recipe("simpool/vit-small-cifar10")
    twin = with_start(scaled_down(recipe), "x")
    second = build_classifier(configure("fit", twin, weights=tmp_path / "run"), 5)
    for name, value in second.state_dict().items():
        if not name.startswith("head."):
            assert torch.equal(value, first.state_dict()[name]), name
    assert second.head is not None and second.head.classes == 5
    with pytest.raises(ValueError, match=r"simpool/vit-small-cifar10.*--weights"):
        configure("fit", recipe)
    save_model(model_of("simpool/resnet50-supervised", 9), tmp_path / "other")
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "other"))):
        build_classifier(configure("fit", twin, weights=tmp_path / "other"), 5)


def test_jsd_against_its_definition(splits: Splits) -> None:
    """Cross-entropy of the clean view plus 12 times the mean divergence of each view from their mean."""
    config = configure("fit", scaled_down(load_recipe("simpool/resnet18-supervised")))
    model = build_classifier(config, 6)
    task = build_task(config, model, splits)
    assert isinstance(task, Jsd)
    (part,) = task.prepare(next(iter(task.loader)), 1)
    assert part.inputs.shape == (JSD_VIEWS * len(part), 3, 64, 64)
    answers = torch.randn(JSD_VIEWS * len(part), 6)
    clean, *_ = views = answers.softmax(1).chunk(JSD_VIEWS)
    mean = sum(views) / JSD_VIEWS
    divergence = sum((p * (p / mean).log()).sum(1).mean() for p in views) / JSD_VIEWS
    expected = F.cross_entropy(clean.log(), part.labels, label_smoothing=0.1) + 12 * divergence
    fixed = type("Fixed", (nn.Module,), {"forward": lambda self, x: answers})()
    torch.testing.assert_close(task.loss(fixed, part), expected, rtol=1e-4, atol=1e-5)
    x = torch.randn(2, 3, 64, 64)
    split_norms = model.eval()(x)
    join_batch_norms(model)
    assert not any("aux_bn" in name for name in model.state_dict())
    torch.testing.assert_close(model(x), split_norms, rtol=1e-4, atol=1e-5)


def test_jsd_learns_from_a_network_that_is_far_too_sure(splits: Splits) -> None:
    """Where a probability is 0 in float32, the gradient is still a number."""
    config = configure("fit", scaled_down(load_recipe("simpool/resnet18-supervised")))
    model = build_classifier(config, 6)
    task = build_task(config, model, splits)
    (part,) = task.prepare(next(iter(task.loader)), 1)
    answers = torch.zeros(JSD_VIEWS * len(part), 6)
    answers[:, 0] = 150.0
    answers.requires_grad_()
    sure = type("Sure", (nn.Module,), {"forward": lambda self, x: answers})()
    task.loss(sure, part).backward()
    assert answers.grad is not None and answers.grad.isfinite().all()


@pytest.mark.parametrize("policy", ["rand-m10-inc1", "v0"])
def test_the_strongest_posterize_does_not_stop_a_run(policy: str) -> None:
    """timm asks Pillow for 0 bits, which late versions refuse: some pictures in a thousand of a real run."""
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8))
    transform = augmentation(16, policy=policy)
    for seed in range(300):
        random.seed(seed)
        np.random.seed(seed)
        assert transform(picture).isfinite().all()


def test_views_are_of_one_crop_and_the_first_is_clean() -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8))
    views = augmentation(
        32, policy="rand-m9-mstd0.5-inc1", erasing=1.0, views=3, scale=(1.0, 1.0), ratio=(1.0, 1.0)
    )
    plain = augmentation(32, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0)(picture)
    clean, *changed = views(picture)
    assert torch.equal(clean, plain) or torch.equal(clean, plain.flip(-1))
    assert all(not torch.equal(clean, view) for view in changed)
    with pytest.raises(ValueError, match="'rand-x9'"):
        augmentation(policy="rand-x9")


def test_augmentation_depends_on_seed_epoch_and_image_alone(splits: Splits) -> None:
    """timm's policies draw from Python and NumPy, which the loader seeds as well."""
    transform = augmentation(32, interpolation="random", policy="rand-m9-mstd0.5-inc1", erasing=0.5)
    first, second = (
        next(iter(batches(splits.train, transform, 8, shuffle=True, seed=3))).images
        for _ in range(2)
    )
    assert torch.equal(first, second)


def test_a_frozen_part_stays_so_in_training() -> None:
    recipe = scaled_down(load_recipe("simpool/resnet50-linear"))
    model = build_classifier(configure("fit", recipe), 3).train()
    assert model.training and not any(m.training for m in model.backbone.modules())
    assert {name.partition(".")[0] for name, p in model.named_parameters() if p.requires_grad} == {
        "head"
    }


def test_the_full_size_models_can_be_created() -> None:
    models = [model_arguments(load_recipe(name).config) for name in NAMES]
    for model in {str(model): model for model in models}.values():  # each once
        with torch.device("meta"):
            create_model(**model | {"pretrained": False, "num_classes": 10})


def test_pages_are_complete(capsys: pytest.CaptureFixture[str]) -> None:
    from cenote.cli.listings import recipes

    plain, markdown = recipe_table(), recipe_table("markdown")
    assert all(name in plain and f"`{name}`" in markdown for name in NAMES)
    for name in NAMES:
        text = recipe_page(name)
        recipe = load_recipe(name)
        opening, about, body = text.partition(recipe.about)
        assert opening.strip() == name and about
        assert yaml.safe_load(body)["train"]["lr"] == recipe.config.train.lr
    recipes(NAMES[0], style="json")
    assert json.loads(capsys.readouterr().out)["name"] == NAMES[0]
    recipes()
    assert NAMES[-1] in capsys.readouterr().out


def test_the_page_of_the_docs_is_up_to_date() -> None:
    document = Path(__file__).parents[2] / "docs" / "recipes.md"
    assert recipe_table("markdown") in document.read_text(encoding="utf-8"), (
        "cenote recipes --style markdown has changed"
    )
