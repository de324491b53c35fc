"""Tournament in a real browser: the standings that results.json has, sorted as asked, and live while it runs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.web.browser.looking import BROWSER, expect

pytestmark = BROWSER


@pytest.fixture
def report(demo: Path) -> Any:
    return json.loads((demo / "tournament" / "results.json").read_text())


def names(page: Any) -> list[str]:
    """As they stand, without the marks behind them."""
    found = page.locator(".standings tbody th").all_inner_texts()
    return [re.sub(r"( =| ★)+$", "", name) for name in found]


def opened(page: Any, report: Any) -> None:
    page.goto("/tournament")
    expect(page.locator(".standings tbody tr")).to_have_count(len(report["standings"]))


def test_the_standings(page: Any, report: Any, keep: Any) -> None:
    opened(page, report)
    means = {row["name"]: row["mean"] for row in report["standings"]}
    assert [means[name] for name in names(page)] == sorted(means.values(), reverse=True)
    expect(page.locator(".lead")).to_have_text(report["recommendation"])
    best = page.locator(".standings .best").all_inner_texts()
    assert [text.startswith(report["recommended"]) for text in best] == [True]
    assert page.locator(".plot circle").count() == len(means)
    keep("tournament")


def test_sorted_by_keyboard(page: Any, report: Any) -> None:
    opened(page, report)
    head = page.get_by_role("columnheader", name="contender")
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert names(page) == sorted(row["name"] for row in report["standings"])
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    assert names(page) == sorted((row["name"] for row in report["standings"]), reverse=True)
    page.get_by_role("button", name="params").click()
    sizes = {row["name"]: row["parameters"] for row in report["standings"]}
    assert [sizes[name] for name in names(page)] == sorted(sizes.values(), reverse=True)


def test_live_while_it_runs(page: Any, report: Any) -> None:
    """Polled while it runs, no more when it is over."""
    rows = [
        {"name": n, "group": "g", "accuracy": [], "val": [v], "epoch": 1} for n, v in (("gap", 40.0), ("max", 55.0))
    ]
    state = {"name": "tiny", "running": True, "stage": "seed 1 of 2", "done": 3, "total": 9, "report": None}
    times: list[int] = []

    def answer(route: Any) -> None:
        times.append(1)
        over = len(times) > 2
        route.fulfill(json={**state, "contenders": rows, "running": not over, "report": report if over else None})

    page.route(re.compile("/api/tournament"), answer)
    page.goto("/tournament")
    expect(page.locator(".running")).to_contain_text("seed 1 of 2, 3 of 9")
    assert names(page) == ["max", "gap"]
    expect(page.locator(".standings tbody tr")).to_have_count(len(report["standings"]))
    expect(page.locator(".running")).to_be_hidden()
    assert len(times) == 3
