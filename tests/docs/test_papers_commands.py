"""Every command of docs/papers.md runs, on small data that stand in for the published sets.

A table is made at its tiny scale: one cell of each column that has commands of its own, in another
row each.
"""

from __future__ import annotations

import logging
import re
import shutil
from itertools import cycle
from pathlib import Path

import pytest
from safetensors.torch import save_file

from cenote.backbones import create_backbone
from cenote.cli import main
from cenote.data.synthetic import World, write_world
from cenote.reproduce import make_cells
from cenote.reproduce.papers import Item, list_items
from cenote.reproduce.run import Job, run_cells
from cenote.train.recipes import load_recipe
from tests.data.benchmarks import annotated_trees
from tests.docs.reading import ROOT, inline
from tests.docs.running import release_memory, run
from tests.docs.shrinking import MICRO, TRAIN

MADE = [pytest.param(item, id=item.names[0]) for item in list_items() if item.commands]
# Inputs by the start of a table's name and by their own; other inputs are photographs.
TREES = ("patterncom", "fashioniq", "cirr", "circo")
STAND_INS = {
    "gsp/table-4 data": "collage:products",
    "gsp/figure-6 data": "products",
    "gsp/table data": "products",
    **{
        f"dissertation/table-2 {name}": "products"
        for name in ("data", "cars", "cub", "sop", "inshop")
    },
    "dissertation/table-5 data": "patterncom:patterncom",
    "dissertation/table words": "words.txt",
    "dissertation/table fashioniq": "fashioniq:fashioniq",
    "dissertation/table cirr": "cirr:cirr",
    "dissertation/table circo": "circo:circo",
    "simpool/table-c5 cub": "products",
    "simpool/table-c5 cars": "products",
    "simpool/table-c5 sop": "products",
    "simpool/table-c5 inshop": "products",
    "simpool/table-c4 oxford": "roxford:roxford",
    "simpool/table-c4 paris": "rparis:rparis",
}


def stand_in(item: Item, name: str) -> str:
    for key, value in STAND_INS.items():
        table, _, known = key.partition(" ")
        if item.names[0].startswith(table) and known == name:
            return value
    return "photos"


@pytest.fixture
def published(folder: Path) -> Path:
    """Small copies of data sets with queries beside the photographs."""
    for name in TREES:
        getattr(annotated_trees, name)(folder / name)
    for name, file in (("roxford", "roxford5k"), ("rparis", "rparis6k")):
        (folder / name).mkdir()
        annotated_trees.landmarks(folder / name, file)
    return folder


def run_here(job: Job) -> int:
    """Run a command in this process, where torch is imported."""
    job.log.touch()
    code = main([*job.words, "-o", str(job.folder)])
    release_memory()
    return code


@pytest.mark.survey
@pytest.mark.timeout(900)
@pytest.mark.parametrize("item", MADE)
def test_a_table_is_made(item: Item, published: Path, caplog: pytest.LogCaptureFixture) -> None:
    inputs = {name: stand_in(item, name) for name in item.inputs}
    cells = {
        (cell.row, cell.column): cell for cell in make_cells(item, "tiny", inputs, 1, Path("out"))
    }
    assert cells
    rows, chosen = cycle(item.rows), {}
    for column in dict.fromkeys(column for _, column in cells):
        declared = item.columns[column]
        commands = declared.arguments, str(declared.scales.get("tiny")), declared.score
        if commands not in chosen:
            row = next(row for row in rows if (row, column) in cells)
            chosen[commands] = cells[row, column]
    with caplog.at_level(logging.ERROR):
        list(run_cells(list(chosen.values()), run_here))
    assert not [cell for cell in chosen.values() if cell.number() is None], caplog.text


# Of the commands within the page's sentences.
NOT_RUN_HERE = {
    r"^cenote reproduce .* -o": "test_a_table_is_made",
    r"^cenote reproduce NAME$": "any of them",
    r"^cenote bench models": "tests/cli/test_models_command.py",
    r"^cenote serve": "it runs until it is stopped; tests/web starts it",
    r"^cenote tournament .*--ablation": "test_a_table_is_made has Table 10",
    r"^python examples/": "tests/examples",
    r"--on segment": "minutes; test_a_table_is_made has Table C3",
    r"--preset collage": "it needs classes; tests/data/test_synthetic_files.py writes one",
}
SETS = ("roxford", "fashioniq", "patterncom")  # whose small copies are in folders of their names
WEIGHTS = {
    "bn_inception": "bn_inception.safetensors",
    "bn-inception": "bn_inception.safetensors",
    "collage": "resnet20.safetensors",
}
# Recipes whose networks have weights that are downloaded.
MICRO_OPTIONS = " ".join(f"{name} {value}" for name, value in MICRO.items())


def folder_of(recipe: str) -> str:
    return f"run-{recipe.replace('/', '-')}"


def data_for(command: str) -> str:
    """Return what takes the place of a published data set."""
    if "--grid" in command:
        return "many/images"  # enough classes for a fifth of them
    if "--test images" in command or "--on retrieve" in command:
        return "few"  # several test images of each class
    if command.startswith("cenote metric"):
        return "products"
    return "photos"


def adapted(command: str) -> str:
    """Replace published data, models and runs by what is in the folder."""
    name = command.split()[1]
    recipe = re.search(r"--recipe (\S+)", command)
    weights = next((file for key, file in WEIGHTS.items() if key in command), "")
    command = command.replace("cifar100-collage:FOLDER", "collage:products")
    command = re.sub(
        r"([\w/-]+):FOLDER",
        lambda m: f"{m[1]}:{m[1]}" if m[1] in SETS else data_for(command),
        command,
    )
    command = command.replace("DATA --on retrieve", "few --on retrieve")
    command = command.replace("open_clip/ViT-L-14/openai", "clip").replace("FILE", weights)
    if name == "fit" and "--weights RUN" in command and recipe:
        start = load_recipe(recipe[1]).start
        assert start is not None
        command = command.replace("--weights RUN", f"--weights {folder_of(start)}")
    if "--map cam" in command:
        command = command.replace("RUN", "RUN-gap")
    if "--on zero-shot" in command:
        command = command.replace(" RUN ", " RUN-gsp ")
    if name in ("metric", "sweep") and recipe and not weights:
        command += f" {MICRO_OPTIONS}"
    if name == "metric" and recipe:
        command += " --epoch-steps 2"  # the recipes of GSP have 100
    if name == "dino":
        command += " --options out=64 hidden=64 bottleneck=16"
    if name in TRAIN:
        command = re.sub(r"--runs \d+", "--runs 1", command)
        command = re.sub(r"--gamma [\d. ]+", "--gamma 1 2 ", command)
        if "--screen" not in command:  # which needs two values
            command = re.sub(r"(=[\d.]+),[\d.,]+", r"\1", command)
        target = folder_of(recipe[1]) if recipe else "run"
        command = re.sub(r"-o \w+", f"-o {target} --batch 8", command)
    return command


@pytest.fixture
def page_folder(published: Path) -> Path:
    """A trained model, an index, a small CLIP and weights beside the data."""
    tiny = "--scratch --backbone vit_micro --pool cls --size 64 --epochs 1 --batch 8"
    gsp = "--scratch --backbone resnet_micro --pool gsp --size 64 --epochs 1 --batch 8"
    for line in (
        f"fit photos {tiny} -o RUN",
        f"fit photos {tiny} --pool gap -o RUN-gap".replace("--pool cls ", ""),
        f"metric products {gsp} -o RUN-gsp",
        "index photos/images -o ix",
        "clip DATA --epochs 1 -o clip",
    ):
        assert main(line.split()) == 0, line
    for name, classes in (("few", 4), ("many", 20)):
        write_world(World.preset("tiny", images=60, classes=classes), published / name, jobs=1)
    for network in ("bn_inception", "resnet20"):
        save_file(create_backbone(network).model.state_dict(), f"{network}.safetensors")
    return published


@pytest.mark.survey
@pytest.mark.timeout(3600)
def test_the_commands_within_sentences_run(
    page_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = []
    texts = dict.fromkeys(c.text for c in inline(ROOT / "docs" / "papers.md") if len(c.words) > 2)
    for text in texts:
        if any(re.search(pattern, text) for pattern in NOT_RUN_HERE):
            continue
        words = adapted(text).split()
        for folder in ("OUT", "out"):  # of another command
            shutil.rmtree(folder, ignore_errors=True)
        if run(words, monkeypatch):
            failed.append(f"{' '.join(words)}\n{capfd.readouterr().err[-800:]}")
        release_memory()
    assert not failed, "\n".join(failed)
