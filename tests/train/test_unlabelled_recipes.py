"""SimPool's DINO recipes hold the paper's numbers and train in miniature; options come first; errors name the key."""

import copy
import json
import math
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import tyro

from cenote.cli import main
from cenote.cli._training import given_options, options_type
from cenote.models import load
from cenote.train.build import build_model
from cenote.train.config import DINO, DinoConfig, MultiCropConfig
from cenote.train.configure import configure
from cenote.train.recipes import Recipe, list_recipes, load_recipe, parse_recipe
from cenote.train.self_supervised import adapted_options, train_without_labels
from tests.synthetic import squares

from .running import stopped_after
from .small_recipes import scaled_down

NAMES = [name for name in list_recipes() if load_recipe(name).config.command in ("dino", "moco")]
SIMPOOL = [name for name in NAMES if name.startswith("simpool/")]
MOCO = """
task: moco
model: {backbone: vit_small_patch16_224, pool: cls}
train: {epochs: 300, batch: 4096, lr: 2.4e-3, weight_decay: 0.1, warmup: 40}
options: {momentum: 0.99, temperature: 0.2}
augment: {size: 224}
data: imagenet
paper: {}
"""


def moco() -> Recipe:
    return parse_recipe(MOCO, "mine")


def twin_of(name: str) -> Recipe:
    return scaled_down(moco() if name == "moco" else load_recipe(name))


def test_the_three_networks_are_there() -> None:
    networks = ("convnext-small", "resnet50", "vit-small")
    assert [f"simpool/{network}-dino" for network in networks] == SIMPOOL
    assert {"sar/vit-small-dino", "sar/vit-small-moco"} == set(NAMES) - set(SIMPOOL)


@pytest.mark.parametrize("name", [*NAMES, "moco"])
def test_the_twin_trains_and_is_saved(name: str, tmp_path: Path) -> None:
    recipe = twin_of(name)
    config = configure(recipe.config.task, recipe)
    before = copy.deepcopy(build_model(config).state_dict())
    report = train_without_labels(squares(48), tmp_path, config)
    assert report.options == asdict(config.options) and report.knn is not None
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert all(math.isfinite(line["results"][config.task]["loss"]) for line in lines)
    model = load(tmp_path)
    after = model.state_dict()
    assert any(
        not torch.equal(before[key], after[key]) for key in before if key.startswith("backbone.")
    )
    assert model.config["norm"] == recipe.model.get("norm", "before")
    assert model.backbone.preprocessing.size == 64


@pytest.mark.parametrize("name", SIMPOOL)
def test_crops_and_head_are_the_papers(name: str) -> None:
    config = configure("dino", load_recipe(name))
    crops = config.augment
    assert isinstance(crops, MultiCropConfig)
    # C.2: six local crops; DINO's sizes
    assert (crops.local, crops.size, crops.local_size) == (6, 224, 96)
    large, small = ((0.25, 1.0), (0.05, 0.25)) if "vit" in name else ((0.14, 1.0), (0.05, 0.14))
    assert (crops.scale, crops.local_scale) == (large, small)
    options = adapted_options(config, 1_281_167)
    assert isinstance(options, DinoConfig)
    assert options == adapted_options(config, 10), (
        "a recipe's numbers do not depend on how many images there are"
    )
    assert options.end_weight_decay == (1e-6 if "resnet" in name else 0.4)
    assert options.batch_norm == ("resnet" in name) and options.fixed_length == ("vit" not in name)


def test_options_override_the_recipe() -> None:
    recipe = load_recipe("simpool/vit-small-dino")
    given = {"epochs": 7, "sar": 0.01, "pool": "cls", "local": 2, "options": {"out": 100}}
    config = configure("dino", recipe, **given, size=None)
    assert (config.train.epochs, config.train.sar, config.train.batch) == (7, 0.01, 800)
    assert config.augment.local == 2 and config.model.pool_options == {}
    assert (config.options.out, config.options.momentum) == (100, 0.996)
    both = configure("dino", recipe, pool_options={"heads": 2}).model.pool_options
    assert both == {"gamma": 1.25, "heads": 2}


def test_without_a_recipe_the_learning_rate_grows_with_the_batch() -> None:
    train = configure("dino", epochs=20, batch=1024).train
    assert (train.lr, train.warmup) == (pytest.approx(4 * DINO.lr), 2)
    assert configure("dino", batch=64).train.lr == DINO.lr
    assert configure("dino", lr=0.1, settings={"warmup": 3.0}).train.lr == 0.1


def test_a_small_run_is_adapted_and_reported_and_a_large_one_is_the_papers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    large = configure("dino", epochs=100, batch=1024)
    assert adapted_options(large, 1_281_167) == DinoConfig()
    small = configure("dino", epochs=10, batch=64, options={"teacher_t": 0.06})

    def adapted(images: int) -> DinoConfig:
        options = adapted_options(small, images)
        assert isinstance(options, DinoConfig)
        return options

    options = adapted(2_800)  # 430 steps
    assert options.momentum == pytest.approx(1 - 1 / 43)
    assert options.freeze_last == pytest.approx(0.1)
    assert (options.out, options.hidden, options.bottleneck) == (256, 512, 64)
    assert (options.batch_norm, options.teacher_t) == (True, 0.06)
    short = adapted_options(configure("dino", epochs=10), 2_800)
    assert isinstance(short, DinoConfig) and short.teacher_t == DinoConfig().warmup_t
    assert adapted(16_064).momentum == DinoConfig().momentum  # 2510 steps suffice for the teacher
    assert (adapted(64_064).out, adapted(64_064).batch_norm) == (4096, False)  # 10,010 for the head
    config = configure(
        "dino", epochs=1, batch=8, backbone="test_vit", size=32, local_size=16, local=2
    )
    caplog.set_level("INFO")
    with stopped_after(1):
        train_without_labels(squares(24), tmp_path, config)
    message = next(line for line in caplog.messages if "momentum" in line)
    assert re.search(r"momentum 0\.5\b.*\b0\.996\b", message)
    assert re.search(r"out 256\b.*\b65536\b", message)


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"out": 0}, r"\bout\b.*\b0\b"),
        ({"teacher_t": 0.0}, r"\bteacher_t\b"),
        ({"momentum": 1.5}, r"\bmomentum\b"),
    ],
)
def test_impossible_numbers_are_refused_before_the_images_are_read(
    options: dict, cause: str
) -> None:
    with pytest.raises(ValueError, match=cause):
        configure("dino", options=options)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (("temperature: 0.2", "temprature: 0.2"), "'options.temprature'.*'temperature'"),
        (("temperature: 0.2", "temperature: warm"), "options.temperature.*'warm'"),
        (("size: 224", "kind: crop"), "'crop'"),
        (("size: 224", "policy: v0"), "'augment.policy'"),
        (("task: moco", "task: supervised"), "'options."),
        (("task: moco", "task: mocco"), "'mocco'.*'moco'"),
    ],
)
def test_mistakes_in_a_recipe_are_named(change: tuple[str, str], cause: str) -> None:
    with pytest.raises(ValueError, match=rf"\bmine\b.*{cause}"):
        parse_recipe(MOCO.replace(*change), "mine")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("fit", "simpool/vit-small-dino"),
        ("dino", "simpool/vit-small-supervised"),
        ("moco", "simpool/vit-small-dino"),
    ],
)
def test_each_command_takes_its_own_recipes(command: str, name: str) -> None:
    recipe = load_recipe(name)
    with pytest.raises(ValueError, match=f"cenote {recipe.config.command} --recipe {name}"):
        configure(command, recipe)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "# Mine.\ntask: dino\nmodel: {backbone: test_vit, pool: simpool}\ntrain: {epochs: 5, batch: 32, lr: 1e-3}\n"
        "options: {out: 64, hidden: 32, bottleneck: 16}\naugment: {size: 32, local_size: 16, local: 2}\n"
        "data: world/tiny\npaper: {}\n"
    )
    changed = ["--epochs", "1", "--last-block", "F", "--tokens", "cls"]
    assert (
        main(["dino", "world/tiny", "--recipe", str(mine), *changed, "-o", str(tmp_path / "run")])
        == 0
    )
    assert (
        "10 nearest neighbours" in capsys.readouterr().out
    )  # the one test of the sentences of this command
    report = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (
        report["settings"]["epochs"] == 1
        and report["settings"]["batch"] == 32
        and report["settings"]["sar"] == 0.01
    )
    assert report["options"]["out"] == 64 and load(tmp_path / "run").config["last_block"] == "F"
    for wrong in (
        ["--recipe", "simpool/vit-small-dion"],
        ["--options", "out=many"],
        ["--settings", "epoch=1"],
    ):
        assert main(["dino", "world/tiny", "-o", str(tmp_path / "no"), *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", ["dino", "moco"])
def test_the_scales_of_crops_are_options(command: str) -> None:
    options = tyro.cli(options_type(command), args=["--crop-scale", "0.08,1"])
    config = configure(command, **given_options(command, options))
    assert config.augment.scale == (0.08, 1.0)
    if command == "dino":
        config = configure("dino", local_scale=(0.05, 0.4))
        assert config.augment.local_scale == (0.05, 0.4)
    with pytest.raises(ValueError, match="scale must be MIN,MAX"):
        configure(command, crop_scale=(1.0, 0.2))
