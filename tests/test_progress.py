"""Bars show images per second and the time that is left, on a terminal only."""

import io
import sys

import pytest

from cenote.progress import progress_bar, progress_of_total


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_rate_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar("maps", 400, ncols=80) as bar:
        bar.update(100)
        details = {**bar.format_dict, "rate": 0.5, "ncols": 80}
    line = bar.format_meter(**details)
    assert "100/400" in line and "0.50 images/s, 10:00 left" in line


def test_nothing_is_written_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with progress_bar("maps", 2) as bar, progress_of_total("images") as progress:
        bar.update(2)
        progress(1, 3)
    assert not capfd.readouterr().err


def test_a_bar_whose_total_is_known_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress_of_total("images") as progress:
        assert not terminal.getvalue()
        progress(8, 16)
        progress(16, 16)
    assert "/16" in terminal.getvalue()
