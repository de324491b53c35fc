"""The three short examples run on a folder, take the embedded world where none is named, and stay short."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cenote.train.config import OptimizationConfig
from cenote.train.tournament.run import TournamentConfig
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
    from cenote.train.tournament import run as tournament

    def short_config(
        backbone: str, settings: OptimizationConfig, **options: Any
    ) -> TournamentConfig:
        options |= {"pools": ("gap", "simpool"), "seeds": 1, "rates": (3e-3,)}
        settings = replace(settings, epochs=1, warmup=0.0)
        return TournamentConfig(
            MICRO["--backbone"], Path(MICRO["--weights"]), settings=settings, **options
        )

    monkeypatch.setattr(tournament, "TournamentConfig", short_config)


@pytest.mark.parametrize("name", SHORT)
def test_an_example_is_short_and_needs_no_argument(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert 'nargs="?", default="world/tiny"' in text
