"""Every test has a cache of its own and a wide terminal, in which no message is wrapped."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def fixed_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CENOTE_DEBUG", raising=False)
