"""What an index names contacts no host, unless the user allows it."""

import socket
from pathlib import Path
from typing import Any

import pytest

from cenote.offline import offline
from cenote.search.index import EntryImages
from cenote.search.load import load_model
from cenote.search.local_store import LocalStore
from cenote.search.store import ImageEntry, IndexDescription

NAMES = (
    "timm/resnet18",
    "open_clip/ViT-B-32/openai",
    "open_clip/RN50/yfcc15m",
    "timm/hf-hub:evil/x",
)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Connections that were tried. The caches of the hub and of torch are empty."""
    tried: list[Any] = []

    def lookup(*arguments: Any, **options: Any) -> Any:
        tried.append(arguments)
        raise OSError("no network in a test")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return tried


@pytest.mark.parametrize("name", NAMES)
def test_the_model_of_an_index(name: str, tmp_path: Path, connections: list[Any]) -> None:
    if name.startswith("open_clip"):
        pytest.importorskip("open_clip")
    store = LocalStore.open(tmp_path / "ix", IndexDescription(name, "x", 8))
    with pytest.raises(ValueError, match=r"this machine.*CENOTE_ONLINE=1"):
        load_model(store)
    assert not connections


@pytest.mark.parametrize(
    "source", ["hf:evil/x", "wds:https://evil.example/x.tar", "parquet:s3://evil/x"]
)
def test_the_images_of_an_index(source: str, connections: list[Any]) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(ValueError, match="CENOTE_ONLINE=1"):
        EntryImages()(ImageEntry(f"{source}:0", "d", source=source))
    assert not connections


def test_the_user_may_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with offline("hf:x"):
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    monkeypatch.setenv("CENOTE_ONLINE", "1")
    with offline("s3://bucket"):
        assert not constants.HF_HUB_OFFLINE
