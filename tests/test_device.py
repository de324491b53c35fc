"""One device for every command: an accelerator if there is one, what --device names otherwise."""

import os
from pathlib import Path

import pytest
import torch

from cenote.cli import COMMANDS, command_function, main
from cenote.data.processes import count_workers
from cenote.device import VARIABLE, default_device, half_precision, use_device

WITHOUT_A_MODEL = {
    *("landscape", "pools", "data", "world", "losses", "recipes", "cache", "models"),
    *("export", "bench"),  # on the CPU, so that figures and files do not depend on the machine
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "")  # restored after the test, whatever a command sets
        monkeypatch.delenv(name)


def add_accelerators(monkeypatch: pytest.MonkeyPatch, kind: str, count: int) -> None:
    def current(check_available: bool = False) -> torch.device | None:
        return torch.device(kind) if count else None

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("kind", "count", "name", "rank", "device"),
    [
        ("cuda", 0, "auto", "0", "cpu"),
        ("cuda", 2, "auto", "0", "cuda:0"),
        ("cuda", 2, "auto", "1", "cuda:1"),  # under torchrun
        ("cuda", 2, "cuda:0", "1", "cuda:0"),
        ("cuda", 2, "cpu", "1", "cpu"),
        ("mps", 1, "auto", "0", "mps:0"),
        ("xpu", 1, "xpu", "0", "xpu:0"),
    ],
)
def test_the_device(
    monkeypatch: pytest.MonkeyPatch, kind: str, count: int, name: str, rank: str, device: str
) -> None:
    add_accelerators(monkeypatch, kind, count)
    monkeypatch.setenv("LOCAL_RANK", rank)
    use_device(name)
    assert default_device() == torch.device(device)


@pytest.mark.parametrize("name", ["cuda:2", "xpu", "gpu"])
def test_a_device_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    add_accelerators(monkeypatch, "cuda", 2)
    with pytest.raises(ValueError, match=f"device '{name}.*: this machine has cpu, cuda:0, cuda:1"):
        use_device(name)


def test_a_wrong_device_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    add_accelerators(monkeypatch, "cuda", 0)
    assert main(["attend", str(tmp_path), "--device", "cuda"]) == 2
    assert capfd.readouterr().err == (
        "cenote attend: device 'cuda:0' does not exist: this machine has cpu\n"
    )
    assert os.environ[VARIABLE] == "cuda"  # for the processes that a command starts


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - WITHOUT_A_MODEL))
def test_commands_that_run_a_model_have_the_option(command: str) -> None:
    assert "device" in command_function(command).__annotations__


def test_half_precision_is_for_accelerators_only() -> None:
    with half_precision(torch.device("cpu")):
        assert not torch.is_autocast_enabled("cpu")
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    with half_precision(torch.device("xpu")):
        assert torch.is_autocast_enabled("xpu")
        assert torch.get_autocast_dtype("xpu") == torch.float16


def test_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_workers(3) == 3
    with pytest.raises(ValueError, match="--workers must be a whole number of at least 0, got -1"):
        count_workers(-1)
    add_accelerators(monkeypatch, "cuda", 0)
    assert count_workers("auto") == 0
    add_accelerators(monkeypatch, "mps", 1)
    assert count_workers("auto") == 0
    add_accelerators(monkeypatch, "cuda", 2)
    monkeypatch.setattr("cenote.data.processes.available_cores", lambda: 12)
    assert count_workers("auto") == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert count_workers("auto") == 6


@pytest.mark.gpu
def test_inference_on_a_gpu() -> None:
    from cenote.predict.inference import Inference

    device, layer = default_device(), torch.nn.Linear(8, 4)
    images = torch.randn(6, 8)
    output = Inference(layer.to(device), device)(images)
    assert output.dtype == torch.float16 and output.device == device
    torch.testing.assert_close(output.float().cpu(), layer.cpu()(images), atol=0.02, rtol=0.02)


def test_an_image_text_model_is_moved_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from cenote.search.load import image_text_device, open_image_text

    meta = torch.device("meta")
    monkeypatch.setattr("cenote.search.load.default_device", lambda: meta)
    assert image_text_device(open_image_text("text-space")) == meta


def test_a_text_map_is_moved_to_a_device() -> None:
    from cenote.models.image_text import create_image_text
    from cenote.models.text_map import TextMap

    text_map = TextMap(create_image_text("text-space"), "a dog").to("meta")
    assert text_map.vectors(torch.zeros(4, 1000, device="meta")).is_meta
