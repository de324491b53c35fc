"""The three short examples run on a folder, take the embedded world where none is named, and stay short."""

from pathlib import Path
from typing import Any

import pytest

import cenote
from tests.docs.reading import ROOT
from tests.docs.running import release_memory, script
from tests.docs.shrinking import MICRO

SHORT = {
    "choose_a_pool": ("results.json", "table.md", "pictures.jpg", "model.safetensors"),
    "boxes_without_labels": ("boxes.jpg",),
    "search_photos": ("text.jpg", "composed.jpg", "index/index.json"),
}


@pytest.mark.parametrize("name", SHORT)
def test_an_example_runs_on_a_folder(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = "photos" if name == "choose_a_pool" else "photos/images/cat"
    words = ["python", f"examples/{name}.py", photos, "-o", "out"]
    if name == "choose_a_pool":
        shorten(monkeypatch)
    release_memory()
    assert script(words, monkeypatch) == 0
    for file in SHORT[name]:
        assert (folder / "out" / file).stat().st_size > 100
    assert "out" in capsys.readouterr().out


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small backbone, two pools, one learning rate, one seed and one epoch, instead of lite0, 4, 3, 2 and 10."""
    small = {
        "backbone": MICRO["--backbone"],
        "weights": MICRO["--weights"],
        "pools": ["gap", "simpool"],
        "lr": [3e-3],
        "seeds": 1,
        "epochs": 1,
    }
    tournament = cenote.tournament

    def short_tournament(data: str, out: Path, **options: Any) -> cenote.Tournament:
        return tournament(data, out, **(options | small))

    monkeypatch.setattr(cenote, "tournament", short_tournament)


@pytest.mark.parametrize("name", SHORT)
def test_an_example_is_short_and_needs_no_argument(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert 'nargs="?", default="world/tiny"' in text
