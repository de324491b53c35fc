"""Two processes under torchrun train what one process trains, and count every image once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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


def run(folder: Path, processes: int, accumulate: int = 1) -> tuple[dict[str, torch.Tensor], list[dict[str, float]]]:
    root = Path(__file__).parents[2]
    script = folder / "train.py"
    folder.mkdir()
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] * (processes > 1)
    command = [sys.executable, *torchrun, str(script), str(folder), str(accumulate)]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return torch.load(folder / "weights.pt", weights_only=True), [json.loads(x)["results"]["model"] for x in lines]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_two_processes_are_as_good_as_one(tmp_path: Path, accumulate: int) -> None:
    alone, told = run(tmp_path / "alone", 1)
    together, also_told = run(tmp_path / "together", 2, accumulate)
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, rtol=1e-3, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}")
    for one, other in zip(told, also_told, strict=True):
        assert one["accuracy"] == other["accuracy"] and one["loss"] == pytest.approx(other["loss"], rel=1e-4)


def test_a_tournament_of_two_processes_judges_every_image_once(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    options = ["world/tiny", "--pools", "gap", "simpool", "--seeds", "1", "--epochs", "2", "--lr", "1e-3"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "cenote"]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "CENOTE_CACHE": str(tmp_path / "c")}
    command += ["tournament", *options, "-o", str(tmp_path / "t")]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "t" / "results.json").read_text())
    assert [row["failed"] for row in report["standings"]] == [None, None]
    for row in report["standings"]:
        right = row["accuracy"][0] / 100 * report["images"]
        assert right == pytest.approx(round(right), abs=1e-6) and row["boxes"]
    assert (tmp_path / "t" / "model.safetensors").is_file()
    assert done.stdout.count("results.json") == 1  # one of them speaks


WITHOUT_LABELS = """
import sys
from pathlib import Path
from cenote.train.settings import Settings
from cenote.train.unlabelled import Unlabelled, learn
from tests.train.conftest import squares

small = {"out": 32, "hidden": 16, "bottleneck": 8}
settings = Settings(epochs=2, batch=6, lr=1e-3, weight_decay=0.04)
asked = Unlabelled("dino", "test_vit", "simpool", size=32, local_size=16, local=2, options=small, settings=settings)
learn(squares(24), Path(sys.argv[1]), asked, say=lambda sentence: None)
"""


def test_dino_of_two_processes_is_that_of_one(tmp_path: Path) -> None:
    """The centre and the gradients are those of the whole batch."""
    from safetensors.torch import load_file

    root = Path(__file__).parents[2]
    (tmp_path / "learn.py").write_text(WITHOUT_LABELS)
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    found = []
    for processes in (1, 2):
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [sys.executable, *torchrun, str(tmp_path / "learn.py"), str(tmp_path / str(processes))]
        done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        found.append(load_file(tmp_path / str(processes) / "model.safetensors"))
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-3, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}")
