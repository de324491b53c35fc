"""`cenote losses` prints the ten rows in every style."""

import json

import pytest
import tyro

from cenote.cli.listings import losses
from cenote.losses import list_metric_losses


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    tyro.cli(losses, args=list(argv))
    return capsys.readouterr().out


def test_every_loss_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    text, markdown = printed(capsys), printed(capsys, "--style", "markdown")
    rows = json.loads(printed(capsys, "--style", "json"))
    assert [row["name"] for row in rows] == list_metric_losses() and len(rows) == 10
    for name in list_metric_losses():
        assert f"\n{name} " in text and f"\n| {name} |" in markdown
    assert "beta=18, gamma=75, m=0.77" in text and "beta=32, gamma=32, m=0.1" in text
    (row,) = (row for row in rows if row["name"] == "multi-similarity")
    assert (row["sigma_pos"], row["rho_neg"]) == ("log(1+x)/β", "exp(γ(s-m))")
    assert max(map(len, text.splitlines())) < 150
