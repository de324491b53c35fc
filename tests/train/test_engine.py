"""A run ends with the same weights whether or not it was interrupted; errors name the setting, file or number."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cenote.data.transforms import train_transform
from cenote.models import create_model
from cenote.train.config import OptimizationConfig
from cenote.train.engine import Diverged, Engine
from cenote.train.log import Interrupted, Stopped
from cenote.train.tasks.supervised import Supervised
from tests.synthetic import squares
from tests.toy_models import narrow_resnet

from .running import stopped_after

ROOT = Path(__file__).parents[2]

EVERYTHING: dict[str, Any] = {
    "epochs": 3, "batch": 6, "lr": 1e-2, "warmup": 1, "accumulate": 2, "ema": 0.8, "clip": 1.0,
    "mixup": 0.2, "cutmix": 1.0, "smoothing": 0.1, "checkpoint_minutes": 0.0,
}  # fmt: skip


def task(settings: OptimizationConfig, images: int = 24, bad: tuple[int, ...] = ()) -> Supervised:
    torch.manual_seed(settings.seed)
    # Dropout draws from torch's generator at every step: resuming must put it back.
    narrow: dict[str, Any] = {
        "layers": (1, 1, 1, 1),
        "channels": (4, 8, 8, 8),
        "drop_path_rate": 0.3,
    }
    model = create_model("resnet18", "simpool", 3, **narrow)
    data = squares(images, bad)
    model.backbone.preprocessing = replace(model.backbone.preprocessing, size=32)
    transform = train_transform(32, scale=(0.5, 1.0))
    return Supervised(model, data.split("train"), data.split("val"), settings, transform)


def weights(trained: Supervised) -> dict[str, Tensor]:
    (state,) = trained.states
    assert state.ema is not None or state.best
    return {**state.module.state_dict(), **{f"best.{n}": v for n, v in state.best.items()}}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def train(settings: OptimizationConfig, folder: Path, resume: bool = False) -> Supervised:
    trained = task(settings)
    Engine(trained, settings, folder).run(resume)
    return trained


def test_a_resumed_run_ends_the_same_bit_for_bit(tmp_path: Path) -> None:
    settings = OptimizationConfig(**EVERYTHING)
    whole = weights(train(settings, tmp_path / "whole"))
    for steps in (1, 3, 7):  # of three per epoch: inside, at the end, in a later one
        folder = tmp_path / str(steps)
        with stopped_after(steps):
            train(settings, folder)
        torch.manual_seed(99)  # the next process may draw any numbers before it resumes
        assert_same(weights(train(settings, folder, resume=True)), whole)
        one, other = (
            [(line["epoch"], line["results"]) for line in metrics(path)]
            for path in (tmp_path / "whole", folder)
        )
        assert one == other


def test_an_interrupted_run_saves_a_checkpoint(tmp_path: Path) -> None:
    settings = OptimizationConfig(epochs=2, batch=6)
    interrupted = task(settings)
    interrupted.begin_step = lambda epoch: os.kill(os.getpid(), signal.SIGINT)  # type: ignore[method-assign]
    with pytest.raises(Interrupted, match=re.escape(str(tmp_path))):
        Engine(interrupted, settings, tmp_path).run()
    assert (tmp_path / "checkpoint.pt").is_file()


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_a_device_that_runs_out_of_memory_ends_the_run_with_advice(
    error: type[RuntimeError], tmp_path: Path
) -> None:
    settings = OptimizationConfig(epochs=2, batch=6)
    large = task(settings)

    def loss(*_: object) -> Tensor:
        raise error("out of memory")

    large.loss = loss  # type: ignore[method-assign]
    with pytest.raises(Stopped, match=r"cpu ran out of memory in a step of 6 images: .*--batch"):
        Engine(large, settings, tmp_path).run()


SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
import torch
from cenote.train.config import OptimizationConfig
from tests.train.test_engine import EVERYTHING, train
torch.set_num_threads(int(sys.argv[2]))  # as many as in the test: the promise holds for the same number
train(OptimizationConfig(**{**EVERYTHING, "epochs": 4}), Path(sys.argv[1]), resume="resume" in sys.argv)
"""


def killed_in_its_run(folder: Path, resume: bool, delay: float) -> None:
    """Start a run in a process and send SIGKILL `delay` seconds after it has written a checkpoint."""
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        str(folder),
        str(torch.get_num_threads()),
        *(["resume"] if resume else []),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    checkpoint = folder / "checkpoint.pt"
    before = checkpoint.stat().st_mtime_ns if resume else 0
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not (
        checkpoint.exists() and checkpoint.stat().st_mtime_ns > before
    ):
        time.sleep(0.002)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert checkpoint.exists(), errors[-2000:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_kill_9_at_any_moment(kills: int, tmp_path: Path) -> None:
    """Killed, each time somewhere else, resumed, and compared with a run that was not interrupted."""
    settings = OptimizationConfig(**{**EVERYTHING, "epochs": 4})
    whole = weights(train(settings, tmp_path / "whole"))
    for kill in range(kills):
        killed_in_its_run(tmp_path / "killed", resume=kill > 0, delay=0.05 * kill)
    assert_same(weights(train(settings, tmp_path / "killed", resume=True)), whole)
    assert not list((tmp_path / "killed").glob(".*"))  # partly written files are removed


def test_what_changed_is_refused(tmp_path: Path) -> None:
    with stopped_after(1):
        train(OptimizationConfig(**EVERYTHING), tmp_path)
    with pytest.raises(ValueError, match=r"\blr\b.*\b0\.01\b.*\b0\.5\b"):
        train(OptimizationConfig(**{**EVERYTHING, "lr": 0.5}), tmp_path, resume=True)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "nothing"))):
        train(OptimizationConfig(**EVERYTHING), tmp_path / "nothing", resume=True)
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "checkpoint.pt"))):
        train(OptimizationConfig(**EVERYTHING), tmp_path, resume=True)


def test_a_loss_that_is_not_finite_stops_with_names(tmp_path: Path) -> None:
    settings = OptimizationConfig(epochs=2, batch=6, lr=1e30, optimizer="sgd")
    with pytest.raises(Diverged, match=r"epoch 1, step \d.*squares/\d+\.png"):
        train(settings, tmp_path)


def test_unreadable_images_are_left_out_counted_and_named(tmp_path: Path) -> None:
    settings = OptimizationConfig(epochs=2, batch=6, most_bad=0.5)
    Engine(task(settings, 24, bad=(0, 4, 7)), settings, tmp_path).run()
    assert [line["unreadable"] for line in metrics(tmp_path)] == [
        2,
        2,
    ]  # 7 is in the validation split
    named = (tmp_path / "unreadable.txt").read_text().splitlines()
    assert sorted(named) == ["0.png: damaged", "4.png: damaged"]


def test_too_many_unreadable_images_stop_a_run(tmp_path: Path) -> None:
    settings = OptimizationConfig(epochs=2, batch=6)
    with pytest.raises(Stopped, match=r"\b1[0-9] of \d+\b.*unreadable\.txt"):
        Engine(task(settings, 48, bad=tuple(range(0, 48, 2))), settings, tmp_path).run()


def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path: Path) -> None:
    """The kernel refuses to let a file grow beyond the limit, as it does on a full disk."""
    settings = OptimizationConfig(**{**EVERYTHING, "epochs": 1})
    train(settings, tmp_path)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with full_disk(), pytest.raises(Stopped):
        train(settings, tmp_path)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert [path.name for path in tmp_path.glob(".*")] == []


@contextmanager
def full_disk(size: int = 4096) -> Iterator[None]:
    """No file may grow beyond `size` bytes. Python ignores the signal, so that a write fails with an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def stands_still(settings: OptimizationConfig) -> Supervised:
    """A task that trains and whose score never changes."""
    trained = task(settings)
    trained.validate = lambda: {"model": {"score": 50.0}}  # type: ignore[method-assign]
    return trained


def test_a_run_without_improvement_stops_and_stays_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = OptimizationConfig(epochs=50, batch=12, patience=3)
    trained = stands_still(settings)
    Engine(trained, settings, tmp_path).run()
    assert len(metrics(tmp_path)) == 4 and re.findall(r"\d+", caplog.messages[-1]) == ["3"]
    again = stands_still(settings)
    Engine(again, settings, tmp_path).run(resume=True)
    assert len(metrics(tmp_path)) == 4
    assert_same(weights(trained), weights(again))


def test_a_rate_that_fell_stays_low_when_the_run_is_resumed(tmp_path: Path) -> None:
    options = EVERYTHING | {"epochs": 6, "schedule": "plateau", "plateau": 1, "step_factor": 0.5}
    settings = OptimizationConfig(**options)

    def run(name: str, resume: bool = False) -> Supervised:
        trained = stands_still(settings)
        Engine(trained, settings, tmp_path / name).run(resume)
        return trained

    whole = run("whole")
    with stopped_after(14):
        run("stopped")
    resumed = run("stopped", resume=True)
    rates = [each.states[0].optimizer.param_groups[0]["lr"] for each in (whole, resumed)]
    assert rates[0] == rates[1] < settings.lr
    assert_same(weights(whole), weights(resumed))


def test_a_lower_learning_rate_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = OptimizationConfig(epochs=5, batch=12, lr=1e-3, schedule="plateau", plateau=2)
    Engine(stands_still(settings), settings, tmp_path).run()
    first, second = [line for line in caplog.messages if not line.startswith("epoch ")]
    assert "0.0001" in first and "1e-05" in second


@pytest.mark.parametrize(
    "options", [{"amp": "bf16"}, {"optimizer": "sgd"}, {"layer_decay": 0.5}, {"schedule": "step"}]
)
def test_it_learns(tmp_path: Path, options: dict[str, Any]) -> None:
    settings = OptimizationConfig(epochs=6, batch=8, lr=2e-2, weight_decay=0.0, **options)
    model, data = narrow_resnet(layers=(1, 1, 1, 1), channels=(8, 16, 16, 16)), squares(64)
    whole = model.backbone.preprocessing.whole((32, 32))
    learner = Supervised(model, data.split("train"), data.split("val"), settings, whole)
    Engine(learner, settings, tmp_path).run()
    losses = [line["results"]["model"]["loss"] for line in metrics(tmp_path)]
    assert losses[-1] < 0.9 * losses[0], losses  # 0.2 to 0.6 of it on the CPUs that were tried
