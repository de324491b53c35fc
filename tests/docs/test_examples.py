"""The three short examples run on a folder, take the embedded world where none is named, and stay short."""

from pathlib import Path

import pytest

from tests.docs.reading import ROOT
from tests.docs.running import script

SHORT = {
    "choose_a_pool": ("results.json", "table.md", "pictures.jpg", "model.safetensors"),
    "boxes_without_labels": ("boxes.jpg",),
    "search_photos": ("text.jpg", "composed.jpg", "index/index.json"),
}


@pytest.mark.parametrize("name", SHORT)
def test_an_example_runs_on_a_folder(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = "photos/images/cat" if name == "boxes_without_labels" else "photos"
    words = ["python", f"examples/{name}.py", photos, "-o", "out"]
    if name == "choose_a_pool":  # the rehearsal of three rates and two seeds of ten epochs are the reader's
        shorten(monkeypatch)
    assert script(words, monkeypatch) == 0
    for file in SHORT[name]:
        assert (folder / "out" / file).stat().st_size > 100
    assert "out" in capsys.readouterr().out


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    from cenote.train import tournament

    whole = tournament.Game
    monkeypatch.setattr(tournament, "Game", lambda *a, **k: whole(*a, **{**k, "seeds": 1, "rates": (3e-3,)}))


@pytest.mark.parametrize("name", SHORT)
def test_an_example_is_short_and_needs_no_argument(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert 'nargs="?", default="world/tiny"' in text
