"""The report in a real browser: it sorts, slides, enlarges, darkens, fits a phone and prints; it asks for nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cenote.report.html import write_page
from tests.browser import Watched, needs_browser, open_browser, screenshot
from tests.report.html.pages import HOSTILE, whole_page

pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_page(folder, whole_page())
    return folder / "index.html"


class Opened:
    """A page in a window of its own; on leaving, it must not have complained or asked for anything."""

    def __init__(self, browser: Any, index: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.watched, self.index = Watched(self.page), index

    def __enter__(self) -> Any:
        self.page.goto(self.index.as_uri())
        return self.page

    def __exit__(self, kind: object, *rest: object) -> None:
        self.context.close()
        if kind is None:
            assert not self.watched.errors
            assert {url for url in self.watched.requests if not url.startswith("data:")} == {
                self.index.as_uri()
            }


def test_it_opens_from_a_file(browser: Any, index: Path, tmp_path: Path) -> None:
    with Opened(browser, index, viewport={"width": 1280, "height": 900}) as page:
        assert page.title() == "Page dog"
        page.evaluate(
            "document.querySelectorAll('img').forEach((image) => (image.loading = 'eager'))"
        )
        loaded = "[...document.images].every((image) => image.complete && image.naturalWidth > 0)"
        page.wait_for_function(loaded)
        screenshot(page, "report-light", full_page=True)


def test_a_hostile_page_runs_nothing(browser: Any, tmp_path: Path) -> None:
    write_page(tmp_path, whole_page(HOSTILE))
    with Opened(browser, tmp_path / "index.html") as page:
        page.on("dialog", lambda dialog: pytest.fail("a name was run"))
        assert page.locator("h1").inner_text() == f"Page {HOSTILE}"


def column(page: Any, place: int) -> list[str]:
    cells = page.locator("section[data-kind=table] tbody tr").all()
    return [row.locator("th, td").nth(place).inner_text() for row in cells]


def test_tables_are_sorted_by_keyboard(browser: Any, index: Path) -> None:
    with Opened(browser, index) as page:
        head = page.locator("section[data-kind=table] thead th").nth(1)
        assert head.get_attribute("aria-sort") == "none"
        head.locator("button").focus()
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        assert column(page, 1) == ["80.5", "71.5 ± 0.4", "9.25", ""]
        page.keyboard.press("Space")
        assert head.get_attribute("aria-sort") == "ascending"
        assert column(page, 1) == [
            "9.25",
            "71.5 ± 0.4",
            "80.5",
            "",
        ]  # what has no number stays last
        names = page.locator("section[data-kind=table] thead th").nth(0)
        names.locator("button").click()
        assert (
            column(page, 0) == ["a", "b", "c", "dog"] and head.get_attribute("aria-sort") == "none"
        )
        page.locator("section[data-kind=table] thead th button").nth(3).click()
        assert column(page, 3) == ["1.2M", "12,345", "3k", "900"]


def test_sliders_move_every_map(browser: Any, index: Path, tmp_path: Path) -> None:
    with Opened(browser, index) as page:
        shown = (
            "[...document.querySelectorAll('.veil')].map((veil) => getComputedStyle(veil)[{!r}])"
        )
        assert set(page.evaluate(shown.format("opacity"))) == {"0.88"}
        page.get_by_label("Overlay").focus()
        for _ in range(8):
            page.keyboard.press("ArrowLeft")
        assert (
            set(page.evaluate(shown.format("opacity"))) == {"0.8"}
            and page.locator("output").first.inner_text() == "80%"
        )
        assert set(page.evaluate(shown.format("filter"))) == {"none"}
        page.get_by_label("Threshold").fill("50")
        assert all("cut-filter" in one for one in page.evaluate(shown.format("filter")))
        page.get_by_label("heat").check()
        assert all("heat-filter" in one for one in page.evaluate(shown.format("filter")))
        screenshot(page, "report-maps")


def test_the_threshold_is_the_maps_own(browser: Any, index: Path, tmp_path: Path) -> None:
    """At full strength, half of the values lie in water as dark as it gets, the other half in plain light."""
    import numpy as np
    from PIL import Image

    with Opened(browser, index, viewport={"width": 900, "height": 900}) as page:
        tile = page.locator(".seen .shot").first
        before = np.asarray(
            Image.open(screenshot_of(tile, tmp_path / "before.png")).convert("L"), int
        )
        page.get_by_label("Overlay").fill("100")
        page.get_by_label("Threshold").fill("50")
        after = np.asarray(
            Image.open(screenshot_of(tile, tmp_path / "after.png")).convert("L"), int
        )
        page.get_by_label("Overlay").fill("0")
        plain = np.asarray(
            Image.open(screenshot_of(tile, tmp_path / "plain.png")).convert("L"), int
        )
    height, width = after.shape
    lit, dark = (
        (height // 5, width // 5),
        (4 * height // 5, 4 * width // 5),
    )  # the hill is at 0.2, 0.2
    assert abs(after[lit] - plain[lit]) <= 3 and after[dark] < 30 < plain[dark]
    assert after[dark] < before[dark] < plain[dark]


def screenshot_of(tile: Any, path: Path) -> Path:
    tile.screenshot(path=path)
    return path


def test_pictures_are_enlarged_and_left_again(browser: Any, index: Path) -> None:
    with Opened(browser, index) as page:
        buttons = page.locator(".row").first.locator(".enlarge")
        assert [one.get_attribute("tabindex") for one in buttons.all()] == ["0", "-1", "-1"]
        buttons.first.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        dialog = page.locator("dialog")
        assert dialog.is_visible() and dialog.locator("p").inner_text() == "dog · dog 0"
        page.keyboard.press("ArrowRight")
        assert dialog.locator("p").inner_text() == "gap · dog 0"
        page.keyboard.press("Escape")
        assert not dialog.is_visible()
        # The browser sends the event "close" later: wait for the focus.
        page.wait_for_function("document.activeElement.ariaLabel?.includes('gap')")


def test_dark_and_light(browser: Any, index: Path, tmp_path: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with Opened(browser, index, color_scheme="dark") as page:
        dark = page.evaluate(ground)
        screenshot(page, "report-dark")
        page.get_by_role("button", name="Light theme").click()
        light = page.evaluate(ground)
        assert (dark, light) == ("rgb(6, 22, 29)", "rgb(245, 248, 247)")
        page.reload()
        assert page.evaluate(ground) == light  # it is remembered


def test_a_phone_scrolls_one_way_only(browser: Any, index: Path, tmp_path: Path) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "has_touch": True}
    with Opened(browser, index, **phone) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        heights = page.evaluate(
            "[...document.querySelectorAll('.bars tbody th')].map((one) => one.clientHeight)"
        )
        assert max(heights) < 70  # names are broken between words, not between letters
        screenshot(page, "report-phone")
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_the_first_tab_skips_to_the_results(browser: Any, index: Path) -> None:
    with Opened(browser, index) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.getBoundingClientRect().left") == 0
        page.keyboard.press("Enter")
        page.wait_for_function("location.hash === '#results'")
        page.wait_for_function("document.activeElement.id === 'results'")


def test_the_command_is_copied(browser: Any, index: Path) -> None:
    with Opened(browser, index) as page:
        button = page.locator(".copy")
        name = button.inner_text()
        button.click()
        page.wait_for_function(
            "(name) => document.querySelector('.copy').textContent !== name", arg=name
        )


def test_it_prints(browser: Any, index: Path, tmp_path: Path) -> None:
    with Opened(browser, index, color_scheme="dark") as page:
        page.emulate_media(media="print")
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert not page.locator(".controls").is_visible() and not page.locator("nav").is_visible()
        page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF") and (
        tmp_path / "report.pdf"
    ).stat().st_size > 10_000


def test_it_is_read_without_its_script(browser: Any, index: Path) -> None:
    with Opened(browser, index, java_script_enabled=False) as page:
        text = page.locator("main").inner_text()
        assert (
            "71.5 ± 0.4" in text and "IoU 0.50" in text and page.locator(".veil").first.is_visible()
        )
        assert not page.locator(".controls, .theme, .copy").first.is_visible()
