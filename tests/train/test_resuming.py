"""What a resumed run must share with its beginning: images, folder, machine."""

import logging
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from cenote.cli import main
from cenote.data import open_dataset
from cenote.data.files import lock_folder
from cenote.train import engine as engines
from cenote.train.checkpoint import run_processes
from cenote.train.config import OptimizationConfig
from cenote.train.engine import Engine

from .test_engine import task


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for i in range(8):
        path = tmp_path / "photos" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((40, 40), 50 + i).convert("RGB").save(path)
    return tmp_path / "photos"


def begin(photos: Path, folder: Path, resume: bool) -> None:
    with run_processes(folder, resume, open_dataset(photos)):
        (folder / "work").touch()


def test_changed_images_are_named(photos: Path, tmp_path: Path) -> None:
    folder, image = tmp_path / "run", photos / "a" / "0.png"
    begin(photos, folder, False)
    os.utime(image, (1, 1))  # copied, not changed
    begin(photos, folder, True)
    before = image.read_bytes()
    Image.effect_noise((40, 40), 9).convert("RGB").save(image)
    with pytest.raises(ValueError, match=r"a/0\.png was replaced"):
        begin(photos, folder, True)
    image.write_bytes(before)
    begin(photos, folder, True)
    image.rename(photos / "b" / "8.png")
    with pytest.raises(ValueError, match=r"a/0\.png was removed"):
        begin(photos, folder, True)
    image.write_bytes(before)
    with pytest.raises(ValueError, match=r"b/8\.png was added"):
        begin(photos, folder, True)


@pytest.mark.parametrize("name", [b"p.png", b"\xff.png"])
def test_pipes_and_names_that_are_not_text(name: bytes, photos: Path, tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(photos), b"a", name)
    if name == b"p.png":
        os.mkfifo(path)
    else:
        os.link(photos / "a" / "0.png", path)
    begin(photos, tmp_path / "run", False)
    begin(photos, tmp_path / "run", True)


@pytest.mark.parametrize("command", ["fit", "tournament", "dino"])
def test_a_second_run_in_the_folder_is_refused(
    command: str, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with lock_folder(tmp_path / "run"):
        assert main([command, str(photos), "-o", str(tmp_path / "run")]) == 2
    assert "another process is writing" in capfd.readouterr().err


def test_the_first_epoch_is_saved_and_later_ones_by_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = OptimizationConfig(epochs=5, batch=6)
    trained, saved = Engine(task(settings), settings, tmp_path), []
    monkeypatch.setattr(
        engines, "save_checkpoint", lambda folder, state: saved.append(state["epoch"])
    )
    trained.run()
    assert saved == [1, 5]
    trained.save_seconds, trained.saved_at = 10.0, engines.time.monotonic() - 400
    assert not trained._checkpoint_due()  # 10 of 400 seconds are more than 2%
    trained.save_seconds = 1.0
    assert trained._checkpoint_due()


def test_another_number_of_threads_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = OptimizationConfig(epochs=1, batch=6)
    Engine(task(settings), settings, tmp_path).run()
    with caplog.at_level(logging.INFO):
        Engine(task(settings), settings, tmp_path).run(resume=True)
    assert "rounding" not in caplog.text
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    with caplog.at_level(logging.INFO):
        Engine(task(settings), settings, tmp_path).run(resume=True)
    assert "resumes with 77" in caplog.text


@pytest.mark.parametrize("command", ["fit", "tournament"])
def test_ctrl_c_names_the_command_that_resumes(
    command: str,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    real = Engine.train_step

    def interrupted(engine: Engine, batch: object) -> None:
        real(engine, batch)
        os.kill(os.getpid(), signal.SIGINT)

    arguments = [command, str(photos), "-o", str(tmp_path / "run"), "--epochs", "1"]
    arguments += {"fit": ["--freeze"], "tournament": ["--pools", "gap"]}[command]
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "train_step", interrupted)
        assert main(arguments) == 130
    words = capfd.readouterr().err.splitlines()[-1].partition("resume with: cenote ")[2].split()
    assert words == [*arguments, "--resume"]
    assert main(words) == 0


def test_whole_numbers_for_mixup(tmp_path: Path) -> None:
    settings = replace(OptimizationConfig(epochs=1, batch=6), mixup=1, cutmix=1)
    Engine(task(settings), settings, tmp_path).run()
