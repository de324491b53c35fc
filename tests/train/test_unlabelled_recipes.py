"""SimPool's DINO recipes hold the paper's numbers and train in miniature; options come first; errors name the key."""

import copy
import json
import math
import re
from pathlib import Path

import pytest
import torch

from cenote.cli import main
from cenote.models import load
from cenote.train.config import DinoConfig
from cenote.train.recipe_choices import choices_of
from cenote.train.recipes import Recipe, list_recipes, load_recipe, parse_recipe
from cenote.train.unlabelled import DINO, asked_for, learn, options_of
from tests.synthetic import squares

from .running import quiet

NAMES = [name for name in list_recipes() if load_recipe(name).command in ("dino", "moco")]
MOCO = """
task: moco
model: {backbone: vit_small_patch16_224, pool: cls}
train: {epochs: 300, batch: 4096, lr: 2.4e-3, weight_decay: 0.1, warmup: 40}
options: {momentum: 0.99, temperature: 0.2}
augment: {size: 224}
data: imagenet
paper: {}
"""


class Enough(Exception):
    """Ends a run at its first message."""


def stop(messages: list[str], line: str) -> None:
    messages.append(line)
    raise Enough


def moco() -> Recipe:
    return parse_recipe(MOCO, "mine")


def twin_of(name: str) -> Recipe:
    return (moco() if name == "moco" else load_recipe(name)).scaled_down()


def test_the_three_networks_are_there() -> None:
    assert [
        f"simpool/{network}-dino" for network in ("convnext-small", "resnet50", "vit-small")
    ] == NAMES


@pytest.mark.parametrize("name", [*NAMES, "moco"])
def test_the_twin_trains_and_is_saved(name: str, tmp_path: Path) -> None:
    recipe = twin_of(name)
    asked = asked_for(recipe.task, {}, recipe)
    before = copy.deepcopy(asked.model().state_dict())
    report = learn(squares(48), tmp_path, asked, say=quiet)
    assert report["options"] | recipe.options == report["options"] and report["knn"] is not None
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert all(math.isfinite(line["results"][recipe.task]["loss"]) for line in lines)
    model = load(tmp_path)
    after = model.state_dict()
    assert any(
        not torch.equal(before[key], after[key]) for key in before if key.startswith("backbone.")
    )
    assert (
        model.config["norm"] == recipe.model.get("norm", "before")
        and model.backbone.preprocessing.size == 64
    )


@pytest.mark.parametrize("name", NAMES)
def test_crops_and_head_are_the_papers(name: str) -> None:
    asked = asked_for("dino", {}, load_recipe(name))
    assert (asked.local, asked.size, asked.local_size) == (
        6,
        224,
        96,
    )  # C.2: six local crops; DINO's sizes
    large, small = ((0.25, 1.0), (0.05, 0.25)) if "vit" in name else ((0.14, 1.0), (0.05, 0.14))
    assert (asked.scale, asked.local_scale) == (large, small)
    options = options_of(asked, 1_281_167)
    assert options == options_of(asked, 10), (
        "a recipe's numbers do not depend on how many images there are"
    )
    assert options.end_weight_decay == (1e-6 if "resnet" in name else 0.4)
    assert options.batch_norm == ("resnet" in name) and options.fixed_length == ("vit" not in name)


def test_what_is_given_comes_before_the_recipe() -> None:
    recipe = load_recipe("simpool/vit-small-dino")
    asked = asked_for(
        "dino",
        {"epochs": 7, "sar": 0.01},
        recipe,
        pool="cls",
        local=2,
        options={"out": 100},
        size=None,
    )
    assert (asked.settings.epochs, asked.settings.sar, asked.settings.batch, asked.local) == (
        7,
        0.01,
        800,
        2,
    )
    assert (
        asked.pool_options == {}
        and asked.options["out"] == 100
        and asked.options["momentum"] == 0.996
    )
    assert asked_for("dino", {}, recipe, pool_options={"heads": 2}).pool_options == {
        "gamma": 1.25,
        "heads": 2,
    }


def test_without_a_recipe_the_rate_grows_with_the_batch() -> None:
    asked = asked_for("dino", {"epochs": 20, "batch": 1024})
    assert (asked.settings.lr, asked.settings.warmup) == (pytest.approx(4 * DINO.lr), 2)
    assert asked_for("dino", {"batch": 64}).settings.lr == DINO.lr
    assert asked_for("dino", {"lr": 0.1, "warmup": 3.0}).settings.lr == 0.1


def test_a_small_run_is_adapted_aloud_and_a_large_one_is_the_papers() -> None:
    large = asked_for("dino", {"epochs": 100, "batch": 1024})
    assert options_of(large, 1_281_167) == DinoConfig()
    small = asked_for("dino", {"epochs": 10, "batch": 64}, options={"teacher_t": 0.06})
    found = options_of(small, 2_800)  # 430 steps
    assert found.momentum == pytest.approx(1 - 1 / 43) and found.freeze_last == pytest.approx(0.1)
    assert (found.out, found.hidden, found.bottleneck, found.batch_norm, found.teacher_t) == (
        256,
        512,
        64,
        True,
        0.06,
    )
    assert options_of(asked_for("dino", {"epochs": 10}), 2_800).teacher_t == DinoConfig().warmup_t
    assert (
        options_of(small, 16_064).momentum == DinoConfig().momentum
    )  # 2510 steps are enough for the teacher
    assert (options_of(small, 64_064).out, options_of(small, 64_064).batch_norm) == (
        4096,
        False,
    )  # 10,010 for the head
    messages: list[str] = []
    asked = asked_for(
        "dino", {"epochs": 1, "batch": 8}, backbone="test_vit", size=32, local_size=16, local=2
    )
    with pytest.raises(Enough):
        learn(squares(24), Path("unused"), asked, say=lambda line: stop(messages, line))
    assert re.search(r"momentum 0\.5\b.*\b0\.996\b", messages[0]) and re.search(
        r"out 256\b.*\b65536\b", messages[0]
    )


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
        options_of(asked_for("dino", {}, options=options), 0)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (("temperature: 0.2", "temprature: 0.2"), "'options.temprature'.*'temperature'"),
        (("temperature: 0.2", "temperature: warm"), "options.temperature.*'warm'"),
        (("size: 224", "kind: crop"), "'crop'"),
        (("size: 224", "policy: v0"), "'augment.policy'"),
        (("task: moco", "task: supervised"), "'supervised'"),
        (("task: moco", "task: mocco"), "'mocco'.*'moco'"),
    ],
)
def test_mistakes_in_a_recipe_are_named(change: tuple[str, str], cause: str) -> None:
    with pytest.raises(ValueError, match=rf"\bmine\b.*{cause}"):
        parse_recipe(MOCO.replace(*change), "mine")


def test_each_command_takes_its_own_recipes() -> None:
    with pytest.raises(ValueError, match="cenote dino --recipe simpool/vit-small-dino"):
        choices_of(load_recipe("simpool/vit-small-dino"))
    with pytest.raises(ValueError, match="cenote fit --recipe simpool/vit-small-supervised"):
        asked_for("dino", {}, load_recipe("simpool/vit-small-supervised"))
    with pytest.raises(ValueError, match="cenote dino --recipe simpool/vit-small-dino"):
        asked_for("moco", {}, load_recipe("simpool/vit-small-dino"))


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
