"""A run ends with the same weights whether or not it was interrupted; what goes wrong is said in a sentence."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cenote.data.transforms import train_transform
from cenote.models import create_model
from cenote.train.engine import Engine, Stopped
from cenote.train.settings import Settings
from cenote.train.supervised import Supervised

from .conftest import squares

EVERYTHING: dict[str, Any] = {
    "epochs": 3, "batch": 6, "lr": 1e-2, "warmup": 1, "accumulate": 2, "ema": 0.8, "clip": 1.0,
    "mixup": 0.2, "cutmix": 1.0, "smoothing": 0.1, "checkpoint_minutes": 0.0,
}  # fmt: skip


def task(settings: Settings, images: int = 24, bad: tuple[int, ...] = ()) -> Supervised:
    torch.manual_seed(settings.seed)
    # Dropout draws from torch's generator at every step: resuming must put it back.
    narrow: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (4, 8, 8, 8), "drop_path_rate": 0.3}
    model = create_model("resnet18", "simpool", 3, **narrow)
    data = squares(images, bad)
    transform, judging = train_transform(32, scale=(0.5, 1.0)), model.backbone.preprocessing.whole((32, 32))
    return Supervised(model, data.split("train"), data.split("val"), settings, transform, judging)


def weights(trained: Supervised) -> dict[str, Tensor]:
    (contender,) = trained.contenders
    assert contender.average is not None or contender.best
    return {**contender.module.state_dict(), **{f"best.{n}": v for n, v in contender.best.items()}}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def quiet(sentence: str) -> None: ...


def train(settings: Settings, folder: Path, resume: bool = False, stop_after: int | None = None) -> Supervised:
    """Train; with `stop_after`, as Ctrl-C after so many steps would end it."""
    trained = task(settings)
    engine = Engine(trained, settings, folder, quiet)
    if stop_after is not None:
        steps, original = 0, trained.prepare

        def counted(batch: Any, parts: int) -> Any:
            nonlocal steps
            steps += 1
            if steps == stop_after:
                os.kill(os.getpid(), signal.SIGINT)
            return original(batch, parts)

        trained.prepare = counted  # type: ignore[method-assign]
    engine.run(resume)
    return trained


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])  # three steps an epoch: inside, at the end, in a later one
def test_a_resumed_run_ends_the_same_bit_for_bit(tmp_path: Path, steps: int) -> None:
    settings = Settings(**EVERYTHING)
    whole = weights(train(settings, tmp_path / "whole"))
    with pytest.raises(Stopped, match="interrupted; it goes on with --resume"):
        train(settings, tmp_path / "parts", stop_after=steps)
    torch.manual_seed(99)  # whatever the next process draws before it resumes
    assert_same(weights(train(settings, tmp_path / "parts", resume=True)), whole)
    one, other = (
        [(line["epoch"], line["results"]) for line in metrics(tmp_path / name)] for name in ("whole", "parts")
    )
    assert one == other


SCRIPT = """
import sys
from pathlib import Path
from cenote.train.settings import Settings
from tests.train.test_engine import EVERYTHING, train
train(Settings(**{**EVERYTHING, "epochs": 4}), Path(sys.argv[1]), resume="resume" in sys.argv)
"""


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        env=environment,
        cwd=root,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.timeout(600)
def test_kill_9_at_any_moment(tmp_path: Path) -> None:
    """Killed three times, each time somewhere else, resumed, and compared with a run that was left alone."""
    torch.set_num_threads(1)  # as the other processes
    whole = weights(train(Settings(**{**EVERYTHING, "epochs": 4}), tmp_path / "whole"))
    folder, last = tmp_path / "killed", 0.0
    for attempt in range(3):
        process = start(str(folder), *(["resume"] if attempt else []))
        checkpoint = folder / "checkpoint.pt"
        deadline = time.monotonic() + 150
        while process.poll() is None and time.monotonic() < deadline:
            if checkpoint.exists() and checkpoint.stat().st_mtime > last:
                break
            time.sleep(0.002)
        time.sleep(0.05 * attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        last = checkpoint.stat().st_mtime
    assert_same(weights(train(Settings(**{**EVERYTHING, "epochs": 4}), folder, resume=True)), whole)
    assert not list(folder.glob(".*"))  # what the kills cut off is gone


def test_what_changed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train(Settings(**EVERYTHING), tmp_path, stop_after=1)
    with pytest.raises(ValueError, match=r"keep its settings: lr was 0\.01 and is now 0\.5"):
        train(Settings(**{**EVERYTHING, "lr": 0.5}), tmp_path, resume=True)
    with pytest.raises(ValueError, match="has no checkpoint"):
        train(Settings(**EVERYTHING), tmp_path / "nothing", resume=True)
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="is not a readable checkpoint"):
        train(Settings(**EVERYTHING), tmp_path, resume=True)


def test_a_loss_that_is_not_finite_stops_with_names(tmp_path: Path) -> None:
    settings = Settings(epochs=2, batch=6, lr=1e30, optimizer="sgd")
    with pytest.raises(
        Stopped, match=r"in epoch 1, step \d, with squares/.*png.*; no checkpoint was made; a smaller --lr"
    ):
        train(settings, tmp_path)


def test_unreadable_images_are_left_out_counted_and_named(tmp_path: Path) -> None:
    settings = Settings(epochs=2, batch=6, most_bad=0.5)
    Engine(task(settings, 24, bad=(0, 4, 7)), settings, tmp_path, quiet).run()
    assert [line["unreadable"] for line in metrics(tmp_path)] == [2, 2]  # 7 is in the validation split
    named = (tmp_path / "unreadable.txt").read_text().splitlines()
    assert sorted(named) == ["0.png: damaged", "4.png: damaged"]


def test_too_many_unreadable_images_stop_a_run(tmp_path: Path) -> None:
    settings = Settings(epochs=2, batch=6)
    with pytest.raises(Stopped, match=r"1[0-9] of \d+ images could not be read"):
        Engine(task(settings, 48, bad=tuple(range(0, 48, 2))), settings, tmp_path, quiet).run()


def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path: Path) -> None:
    """The kernel refuses to let a file grow beyond the limit, as it does on a full disk."""
    settings = Settings(**{**EVERYTHING, "epochs": 1})
    train(settings, tmp_path)
    before = (tmp_path / "checkpoint.pt").read_bytes()

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    process = start(str(tmp_path), preexec_fn=limit)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0 and "no checkpoint could be written" in errors
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert [path.name for path in tmp_path.glob(".*")] == []


def stands_still(settings: Settings) -> Supervised:
    """A task that learns and whose score does not show it."""
    trained = task(settings)
    trained.validate = lambda: {"model": {"score": 50.0}}  # type: ignore[method-assign]
    return trained


def test_a_run_that_gains_nothing_ends_and_stays_ended(tmp_path: Path) -> None:
    settings = Settings(epochs=50, batch=12, patience=3)
    trained, said = stands_still(settings), list[str]()
    Engine(trained, settings, tmp_path, said.append).run()
    assert len(metrics(tmp_path)) == 4 and said[-1] == "no better score in 3 epochs: it ends here"
    again = stands_still(settings)
    Engine(again, settings, tmp_path, quiet).run(resume=True)
    assert len(metrics(tmp_path)) == 4
    assert_same(weights(trained), weights(again))


def test_a_rate_that_fell_stays_low_when_the_run_is_resumed(tmp_path: Path) -> None:
    options = EVERYTHING | {"epochs": 6, "schedule": "plateau", "plateau": 1, "step_factor": 0.5}
    settings = Settings(**options)
    whole = train(settings, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(settings, tmp_path / "stopped", stop_after=14)
    resumed = train(settings, tmp_path / "stopped", resume=True)
    rates = [each.contenders[0].optimizer.param_groups[0]["lr"] for each in (whole, resumed)]
    assert rates[0] == rates[1] < settings.lr
    assert_same(weights(whole), weights(resumed))


def test_a_rate_that_falls_is_told(tmp_path: Path) -> None:
    settings, said = Settings(epochs=5, batch=12, lr=1e-3, schedule="plateau", plateau=2), list[str]()
    Engine(stands_still(settings), settings, tmp_path, said.append).run()
    told = [line for line in said if not line.startswith("epoch ")]
    assert told == [f"no better score in 2 epochs: the rate falls to {rate}" for rate in ("0.0001", "1e-05")]


@pytest.mark.parametrize("options", [{"amp": "bf16"}, {"optimizer": "sgd"}, {"layer_decay": 0.5}, {"schedule": "step"}])
def test_it_learns(tmp_path: Path, options: dict[str, Any]) -> None:
    settings = Settings(epochs=6, batch=12, lr=1e-2, weight_decay=0.0, **options)
    trained = task(settings, 96)
    Engine(trained, settings, tmp_path, quiet).run()
    losses = [line["results"]["model"]["loss"] for line in metrics(tmp_path)]
    assert losses[-1] < 0.9 * losses[0], losses
