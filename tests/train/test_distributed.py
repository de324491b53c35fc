"""Two processes under torchrun train what one process trains, and count every image once."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from .processes import by_one_and_by_two, in_processes, same_weights

SCRIPT = """
import sys
from pathlib import Path
import torch
from cenote.data.transforms import train_transform
from cenote.models import create_model
from cenote.train.distributed import processes, rank
from cenote.train.engine import Engine
from cenote.train.settings import Settings
from cenote.train.supervised import Supervised
from tests.train.conftest import squares

settings = Settings(epochs=2, batch=6, lr=1e-3, accumulate=int(sys.argv[2]), clip=1.0)
with processes() as device:
    torch.manual_seed(0)
    model = create_model("vit_tiny_patch16_224", "simpool", 3, depth=-11, img_size=32)  # no batch statistics
    data = squares(31)  # 24 to train, 7 to judge: the processes' shares of those differ
    whole = model.backbone.preprocessing.whole((32, 32))
    task = Supervised(model, data.split("train"), data.split("val"), settings, train_transform(32), whole, device)
    Engine(task, settings, Path(sys.argv[1]), lambda sentence: None).run()
    if rank() == 0:
        torch.save(model.state_dict(), Path(sys.argv[1]) / "weights.pt")
"""


def told(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line)["results"]["model"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("accumulate", ["1", "3"])
def test_two_processes_are_as_good_as_one(tmp_path: Path, accumulate: str) -> None:
    alone, together = by_one_and_by_two(SCRIPT, tmp_path, accumulate)
    same_weights(read_weights, (alone / "weights.pt", together / "weights.pt"), rtol=1e-3, atol=2e-5)
    for one, other in zip(told(alone), told(together), strict=True):
        assert one["accuracy"] == other["accuracy"] and one["loss"] == pytest.approx(other["loss"], rel=1e-4)


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(path, weights_only=True))


def test_a_tournament_of_two_processes_judges_every_image_once(tmp_path: Path) -> None:
    options = ["world/tiny", "--pools", "gap", "simpool", "--seeds", "1", "--epochs", "2", "--lr", "1e-3"]
    command = ["-m", "cenote", "tournament", *options, "-o", str(tmp_path / "t")]
    printed = in_processes(2, *command, CENOTE_CACHE=str(tmp_path / "c"))
    report = json.loads((tmp_path / "t" / "results.json").read_text())
    assert [row["failed"] for row in report["standings"]] == [None, None]
    for row in report["standings"]:
        right = row["accuracy"][0] / 100 * report["images"]
        assert right == pytest.approx(round(right), abs=1e-6) and row["boxes"]
    assert (tmp_path / "t" / "model.safetensors").is_file()
    assert printed.count("results.json") == 1  # one of them speaks


WITHOUT_LABELS = """
import sys
from pathlib import Path
from cenote.train.settings import Settings
from cenote.train.unlabelled import Unlabelled, learn
from tests.train.conftest import squares

small = {"out": 32, "hidden": 16, "bottleneck": 8, "batch_norm": False}  # no batch statistics
settings = Settings(epochs=2, batch=6, lr=1e-3, weight_decay=0.04)
asked = Unlabelled("dino", "test_vit", "simpool", size=32, local_size=16, local=2, options=small, settings=settings)
learn(squares(24), Path(sys.argv[1]), asked, say=lambda sentence: None)
"""


def test_dino_of_two_processes_is_that_of_one(tmp_path: Path) -> None:
    """The centre and the gradients are those of the whole batch."""
    alone, together = by_one_and_by_two(WITHOUT_LABELS, tmp_path)
    same_weights(load_file, (alone / "model.safetensors", together / "model.safetensors"), rtol=1e-3, atol=2e-5)
