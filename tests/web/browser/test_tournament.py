"""Tournament in a real browser: the standings that results.json has, sorted as asked, and live while it runs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.web.browser.actions import BROWSER, expect

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
    expect(
        page.get_by_role("link", name="The full report")
    ).to_be_hidden()  # nobody has written one here
    keep("tournament")


def test_the_recommended_model_is_shown_above_the_table(page: Any, report: Any) -> None:
    opened(page, report)
    expect(page.locator(".winner h2")).to_contain_text(report["recommended"])
    expect(page.locator(".winner .card").last).to_contain_text("%")
    top = [page.locator(part).bounding_box()["y"] for part in (".lead", ".winner", ".standings")]
    assert top == sorted(top)
    page.locator(".winner .card").first.click()
    expect(page).to_have_url(re.compile(r"/look\?photo=\w+&model="))


def test_sorted_by_keyboard(page: Any, report: Any) -> None:
    opened(page, report)
    head = page.get_by_role("columnheader", name="candidate")
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
    """Polled while it runs, also when nothing changes for long, and no more when it is over."""
    rows = [
        {"name": n, "group": "g", "accuracy": [], "val": [v], "epoch": 1}
        for n, v in (("gap", 40.0), ("max", 55.0))
    ]
    state: dict[str, Any] = {
        "name": "tiny",
        "running": True,
        "stage": "seed 1 of 2",
        "done": 3,
        "total": 9,
        "report": None,
        "page": False,
    }
    reports: list[Any] = []  # told

    def answer(route: Any) -> None:
        reports.append(state["report"])
        route.fulfill(json={**state, "contenders": rows})

    page.clock.install()
    page.route(re.compile("/api/tournament"), answer)
    page.goto("/tournament")
    expect(page.locator(".running")).to_contain_text("seed 1 of 2, 3 of 9")
    assert names(page) == ["max", "gap"]
    state |= {"running": False, "stage": "no change for 7 minutes"}
    page.clock.fast_forward(3_000)
    expect(page.locator(".lead")).to_contain_text("o change for 7 minutes")
    expect(page.get_by_role("link", name="The full report")).to_be_hidden()
    state |= {"stage": "finished", "report": report}
    page.clock.fast_forward(16_000)
    expect(page.locator(".standings tbody tr")).to_have_count(len(report["standings"]))
    expect(page.locator(".running")).to_be_hidden()
    expect(
        page.get_by_role("link", name="The full report")
    ).to_be_hidden()  # its pictures are still being made
    state |= {"page": True}
    page.clock.fast_forward(16_000)
    expect(page.get_by_role("link", name="The full report")).to_be_visible()
    page.clock.fast_forward(60_000)
    page.goto("/look")  # whatever was asked until now has been heard
    assert sum(each is not None for each in reports) == 2


def test_the_report_in_its_sandbox(page: Any, demo: Path, server: Any) -> None:
    """Its own script runs; nothing it does is this page's."""
    made = demo / "index.html"
    made.write_text(
        "<title>r</title><p id=said>quiet</p><script>said.textContent = self.origin</script>"
    )
    try:
        with server.client() as client:
            while not client.get("/api/tournament").json()[
                "page"
            ]:  # the server looks again after a second
                page.wait_for_timeout(100)
        page.goto("/tournament")
        page.get_by_role("link", name="The full report").click()
        expect(page.locator("#said")).to_have_text("null")
    finally:
        made.unlink()
