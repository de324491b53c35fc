"""Whenever a save ends too early, the old model or the new one is there, whole."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import cenote
from tests.toy_models import narrow_resnet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    narrow_resnet().save(tmp_path / "m")
    return tmp_path / "m"


SAVES_FOR_EVER = """
import sys, torch
from cenote.models import create_model, saving
model = create_model("resnet18", "gap", num_classes=3, layers=(1, 1, 1, 1), channels=(64, 64, 128, 256))
arguments = saving.arguments_of(model)
saving.arguments_of = lambda model: arguments  # quick: the kill is to happen while files are written
for value in range(int(sys.argv[2]), 10**6):
    for tensor in model.state_dict().values():
        tensor.fill_(value)
    model.class_names = [str(value)] * 3
    saving.save_model(model, sys.argv[1])
    print(value, flush=True)
"""


@pytest.mark.slow
def test_a_kill_leaves_the_old_model_or_the_new(tmp_path: Path) -> None:
    """Three processes killed with SIGKILL in the middle of their work, at moments that differ."""
    last = 0
    for delay in (0.0, 0.013, 0.029):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVES_FOR_EVER, str(tmp_path / "m"), str(last)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        first = int(process.stdout.readline())
        for _ in range(3):
            process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        saved = [first, *map(int, process.stdout.read().split())][-1]
        process.wait()
        model = cenote.load(tmp_path / "m")
        assert model.class_names is not None and len(set(model.class_names)) == 1
        last = int(model.class_names[0])
        assert last >= saved
        assert all((tensor == last).all() for tensor in model.state_dict().values())
    narrow_resnet().save(tmp_path / "m")
    assert sorted(os.listdir(tmp_path / "m")) == ["config.json", "model.safetensors"]


def test_every_single_step_of_a_save_can_be_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies before the n-th rename, sync or deletion, for every n: a sure version of the
    race above.
    """
    old, new = narrow_resnet("gap"), narrow_resnet("gap")
    with torch.no_grad():
        old.head.linear.bias.fill_(1.0)  # type: ignore[union-attr]
        new.head.linear.bias.fill_(2.0)  # type: ignore[union-attr]
    seen = set()
    for step in range(40):
        folder = tmp_path / str(step)
        old.save(folder)
        child = os.fork()
        if child == 0:
            count = 0

            def dying(real: Any, step: int = step) -> Any:
                def call(*args: Any, **kwargs: Any) -> Any:
                    nonlocal count
                    if count == step:
                        os._exit(9)
                    count += 1
                    return real(*args, **kwargs)

                return call

            os.replace, os.fsync, Path.unlink = (
                dying(os.replace),
                dying(os.fsync),
                dying(Path.unlink),
            )  # type: ignore[method-assign]
            try:
                new.save(folder)
            finally:
                os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        back = cenote.load(folder)
        bias = back.head.linear.bias[0].item()  # type: ignore[union-attr]
        assert bias in (1.0, 2.0)
        seen.add(bias)
        new.save(folder)  # and the next save cleans up
        assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]
        if code == 0:
            break
    assert seen == {1.0, 2.0} and step >= 6


def test_what_a_library_leaves_half_written_is_cleaned_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors writes under a name of its own first, beside the one it is given."""

    def killed(_: Any, path: Path, **__: Any) -> None:
        (path.parent / ".tmpAbC123").write_bytes(b"half")
        os._exit(9)  # nothing is cleaned up

    new = narrow_resnet("gap")
    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr("cenote.models.saving.save_file", killed)
            new.save(folder)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert len(os.listdir(folder)) == 3  # the two files of the model, and the remains
    assert cenote.load(folder).config["pool"] == "simpool"
    new.save(folder)
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]


def test_a_failed_save_leaves_the_old_one_and_no_litter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder / "config.json").read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr("cenote.models.saving.save_file", full)
    with pytest.raises(OSError) as caught:
        narrow_resnet("gap").save(folder)
    assert caught.value.errno == 28
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]
    assert (folder / "config.json").read_bytes() == before and cenote.load(folder).config[
        "pool"
    ] == "simpool"


def test_a_save_removes_nothing_that_it_did_not_write(folder: Path) -> None:
    (folder / ".cenote-notes").mkdir()
    (folder / ".cenote-notes" / "mine.txt").write_text("kept")
    narrow_resnet("gap").save(folder)
    assert (folder / ".cenote-notes" / "mine.txt").read_text() == "kept"
