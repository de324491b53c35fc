"""Search in a real browser: by text, by image, by both, on from a result, and why it matched."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from cenote.search.map import points_inside
from cenote.web.search import MAX_CORNERS
from tests.web.browser.actions import BROWSER, expect, slide

pytestmark = BROWSER


def answered(page: Any) -> list[str]:
    """The names of what was found, once it is."""
    expect(page.locator("main > .status")).to_have_text(re.compile(r"\b\d+ .*\d+\.\d\d s"))
    return list(page.locator(".result .name").all_inner_texts())


def ask(page: Any, text: str) -> None:
    page.get_by_label("Text", exact=True).fill(text)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"text={text}"))


def test_a_first_search_is_answered(page: Any, keep: Any) -> None:
    page.goto("/search")
    assert len(answered(page)) == 24
    assert page.get_by_label("Text", exact=True).input_value()
    expect(page.locator(".result img").first).not_to_have_js_property("naturalWidth", 0)
    scores = [float(text) for text in page.locator(".result .number").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    keep("search")


def test_by_text_by_image_and_by_both(page: Any, photograph: Path) -> None:
    page.goto("/search")
    answered(page)
    ask(page, "boat")
    answered(page)
    expect(page.locator("main > .status")).to_contain_text(re.compile(r"\btext\b"))
    assert page.locator(".balance").is_hidden()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="An image").click()
    chooser.value.set_files(photograph)
    expect(page).to_have_url(re.compile("text=boat.*photo="))
    answered(page)
    expect(page.locator(".given img")).to_be_visible()
    expect(page.locator("main > .status")).to_contain_text(re.compile(r"\bfreedom\b"))
    slide(page, "Weight of the text", 0.8)
    expect(page).to_have_url(re.compile("weight=0.8"))
    expect(page.locator("main > .status")).to_contain_text(re.compile(r"\bweicom\b"))
    page.locator(".why summary").click()
    expect(page.locator(".why")).to_contain_text("80%")
    page.get_by_role("button", name="Auto").click()
    expect(page.locator("main > .status")).to_contain_text(re.compile(r"\bfreedom\b"))
    page.get_by_label("Text", exact=True).fill("")
    page.keyboard.press("Enter")
    expect(page.locator("main > .status")).to_contain_text(re.compile(r"\bimage\b"))


def test_words_that_match_are_shown(page: Any) -> None:
    page.goto("/search")
    answered(page)
    ask(page, "sketch")
    answered(page)
    expect(page.locator(".result .match").first).to_contain_text("sketch")
    page.locator(".result").first.click()
    expect(page.locator(".closer .facts ul")).to_contain_text("similarity")


def test_on_from_a_result(page: Any, context: Any) -> None:
    page.goto("/search?text=cat")
    answered(page)
    page.locator(".result").nth(2).click()
    closer = page.get_by_role("dialog")
    expect(closer).to_contain_text("3 of 24")
    page.keyboard.press("ArrowRight")
    expect(closer).to_contain_text("4 of 24")
    closer.get_by_role("button", name="Search with this image").click()
    expect(page).to_have_url(re.compile(r"/search\?entry=\d+$"))
    expect(page.locator("main > .status")).to_contain_text(re.compile(r"\bimage\b"))
    found = answered(page)
    other = context.new_page()
    other.goto(page.url)
    assert answered(other) == found
    page.locator(".result").first.click()
    page.get_by_role("dialog").get_by_role("button", name="add a text").click()
    expect(page.get_by_label("Text", exact=True)).to_be_focused()
    page.keyboard.type("sketch")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"entry=\d+&text=sketch"))
    answered(page)
    page.go_back()
    expect(page).to_have_url(re.compile(r"entry=\d+$"))
    answered(page)


def test_back_closes_a_result_and_nothing_else(page: Any) -> None:
    page.goto("/search?text=cat")
    answered(page)
    ask(page, "dog")
    found, dialog = answered(page), page.get_by_role("dialog")
    for way in (lambda: page.go_back(), lambda: page.keyboard.press("Escape")):
        page.locator(".result").first.click()
        expect(dialog).to_be_visible()
        way()
        expect(dialog).to_have_count(0)
        expect(page).to_have_url(re.compile(r"/search\?text=dog$"))
        assert answered(page) == found
    page.locator(".result").first.click()
    dialog.get_by_role("button", name="Search with this image").click()
    expect(page).to_have_url(re.compile(r"entry=\d+$"))
    answered(page)
    for text in ("dog", "cat"):  # one step each: the dialogs left none behind
        page.go_back()
        expect(page).to_have_url(re.compile(rf"/search\?text={text}$"))
        answered(page)


def test_a_result_can_be_looked_at(page: Any) -> None:
    page.goto("/search?text=dog")
    answered(page)
    page.locator(".result").first.click()
    page.get_by_role("button", name="Show in Look").click()
    expect(page).to_have_url(re.compile(r"/look\?photo=\w+"))
    expect(page.locator(".classes li")).to_have_count(5)


def test_filters_and_what_is_not_wanted(page: Any) -> None:
    page.goto("/search?text=cat")
    answered(page)
    page.get_by_text("Method and filters").click()
    some = page.get_by_label("Class", exact=True)
    name = some.locator("option").nth(1).get_attribute("value")
    some.select_option(name)
    expect(page).to_have_url(re.compile("class="))
    expect(page.locator(".answer[aria-busy]")).to_have_count(0)
    assert {text.split(" · ")[0] for text in answered(page)} == {name}
    page.get_by_label("Without", exact=True).fill("night")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("not=night"))
    answered(page)
    page.locator(".why summary").click()
    expect(page.locator(".why")).to_contain_text("night")


def test_what_cannot_be_asked_is_told(page: Any) -> None:
    page.allowed = ["status of 400"]
    page.goto("/search?text=cat&method=nonsense")
    expect(page.get_by_role("alert")).to_contain_text("'nonsense'")
    page.allowed.append("status of 404")
    page.goto("/search?entry=99999")
    expect(page.get_by_role("alert")).not_to_be_empty()
    for address in ("entry=first", "photo=zzz"):
        page.goto(f"/search?{address}")
        expect(page.get_by_role("alert")).not_to_be_empty()
    page.goto(f"/search?text={'cat ' * 200}&weight=much")
    answered(page)


def test_what_was_wrong_before_is_not_told_any_more(page: Any, tmp_path: Path) -> None:
    """Neither of a method, which the next question does not name again, nor of a file."""
    page.allowed = ["status of 400", "status of 415"]
    page.goto("/search?text=cat&method=nonsense")
    expect(page.get_by_role("alert")).to_be_visible()
    (tmp_path / "page.jpg").write_bytes(b"<html>no image</html>")
    page.locator(".picker input").set_input_files(tmp_path / "page.jpg")
    expect(page.locator(".picker.bad .hint")).to_be_visible()
    ask(page, "dog")
    answered(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".picker.bad")).to_have_count(0)
    expect(page.locator(".picker .hint")).to_be_empty()


def test_a_newer_question_cancels_the_older(page: Any) -> None:
    """The older answer, which comes later, is never shown."""
    page.goto("/search?text=cat")
    answered(page)
    held: list[Any] = []
    page.route(re.compile("/api/search.*text=slow"), lambda route: held.append(route))
    with page.expect_event("requestfailed") as failed:
        ask(page, "slow")
        ask(page, "dog")
    assert "text=slow" in failed.value.url
    answered(page)
    assert page.get_by_label("Text", exact=True).input_value() == "dog"


def test_a_full_queue_is_waited_for(page: Any) -> None:
    page.allowed = ["status of 503"]
    full = [True]

    def answer(route: Any) -> None:
        if full[0]:
            route.fulfill(
                status=503, headers={"retry-after": "0.2"}, json={"detail": "The queue is full."}
            )
        else:
            route.continue_()

    page.route(re.compile("/api/search"), answer)
    page.goto("/search?text=cat")
    expect(page.locator("main > .status")).to_contain_text("The queue is full.")
    full[0] = False
    answered(page)


def test_by_keyboard_alone(page: Any) -> None:
    page.goto("/search?text=cat")
    answered(page)
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.result')"):
            break
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("2 of 24")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.matches('.hit:nth-child(2) .result')")


def test_examples_are_marked_and_removed(page: Any, keep: Any) -> None:
    page.goto("/search?text=cat")
    answered(page)
    page.locator(".mark[title='More like this']").nth(1).click()
    expect(page).to_have_url(re.compile(r"text=cat&like=\d+$"))
    answered(page)
    page.locator(".mark[title='Not like this']").first.click()
    expect(page).to_have_url(re.compile(r"text=cat&like=\d+&unlike=\d+$"))
    answered(page)
    keep("search-examples")
    expect(page.locator(".examples .tile")).to_have_count(2)
    expect(page.locator(".split .of-examples")).to_be_visible()
    marked = re.findall(r"like=(\d+)", page.url)
    for entry in marked:
        expect(page.locator(f".result img[src*='/entries/{entry}?']")).to_have_count(0)
    page.locator(".why summary").click()
    expect(page.locator(".why")).to_contain_text("1 image that you like")
    page.get_by_label("Text", exact=True).fill("")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"search\?like=\d+&unlike=\d+$"))
    answered(page)
    page.locator(".examples .unlike .tile").click()
    expect(page).to_have_url(re.compile(r"search\?like=\d+$"))
    answered(page)
    page.locator(".result").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Not like this").click()
    expect(page).to_have_url(re.compile(r"search\?like=\d+&unlike=\d+$"))
    answered(page)


def test_a_search_is_saved_opened_and_deleted(page: Any) -> None:
    page.goto("/search?text=boat&domain=sketch")
    answered(page)
    page.get_by_label("Name of the search").fill("my boats")
    page.get_by_role("button", name="Save search").click()
    saved = page.get_by_role("button", name="my boats", exact=True)
    expect(saved).to_be_visible()
    page.goto("/search?text=cat")
    answered(page)
    saved.click()
    expect(page).to_have_url(re.compile(r"/search\?text=boat&domain=sketch$"))
    answered(page)
    page.get_by_role("button", name="Delete my boats").click()
    expect(saved).to_have_count(0)
    page.reload()
    answered(page)
    expect(saved).to_have_count(0)


def test_the_results_are_downloaded_as_a_table(page: Any) -> None:
    page.goto("/search?text=cat")
    names = answered(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) == 1 + len(names) and lines[0].startswith("rank,name,score")


def test_the_slider_searches_while_it_moves(page: Any, keep: Any) -> None:
    page.goto("/search?text=cat&entry=1")
    answered(page)
    expect(page.locator(".found li").first).to_be_visible()
    expect(page.locator(".split .of-text")).to_be_visible()
    keep("search-reasoning")
    slide(page, "Weight of the text", 0.7, let_go=False)
    expect(page).to_have_url(re.compile("weight=0.7"))
    expect(page.locator("main > .status")).to_contain_text(re.compile(r"\bweicom\b"))
    expect(page.locator(".split")).to_have_attribute("aria-label", re.compile("text 70%"))


def test_another_view_begins_at_its_top(page: Any) -> None:
    page.goto("/search?text=cat")
    answered(page)
    page.evaluate("scrollTo(0, 600)")
    page.locator("nav a[href*='compare']").dispatch_event("click")
    expect(page.locator("main h1")).to_be_visible()
    expect(page).to_have_url(re.compile("/compare"))
    assert page.evaluate("scrollY") == 0


def draw(page: Any, points: list[tuple[float, float]]) -> None:
    """Drag the pointer over the map; points are from 0 to 1."""
    box = page.locator(".plane").bounding_box()
    pixels = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*pixels[0])
    page.mouse.down()
    for pixel in pixels[1:]:
        page.mouse.move(*pixel)
    page.mouse.up()


def test_a_lasso_on_the_map_filters(page: Any, keep: Any) -> None:
    page.goto("/search")
    answered(page)
    page.locator(".index-map summary").click()
    expect(page.locator(".plane")).to_be_visible()
    angles = np.linspace(0, 2 * np.pi, 200)
    petals = 0.3 + 0.12 * np.cos(5 * angles)  # half of it left of the map
    draw(page, [*zip(0.1 + petals * np.cos(angles), 0.5 + petals * np.sin(angles), strict=True)])
    # Without a query, the image in the middle is one.
    expect(page).to_have_url(re.compile(r"region=0\.\d+%2C0\.\d+&.*entry=\d+"))
    selected = page.locator(".ground .status")
    expect(selected).to_contain_text("selected")
    count = re.match(r"\d+", selected.inner_text())
    assert count is not None and 0 < int(count[0]) < 48
    assert 20 < page.url.count("region=") <= 64
    expect(page.locator("main > .status")).to_contain_text(f"of {count[0]} image")
    keep("map")
    ask(page, "boat")
    expect(page.locator("main > .status")).to_contain_text(f"of {count[0]} image")
    url = page.url
    draw(page, [(0.5, 0.5), (0.504, 0.5)])  # a click
    draw(page, [(0, 0), (0.02, 0), (0.02, 0.02)])  # around no image
    assert page.url == url
    page.get_by_label("Name of the search").fill("left/boats")
    page.get_by_role("button", name="Save search").click()
    saved = page.get_by_role("button", name="left/boats", exact=True)
    expect(saved).to_be_visible()
    page.get_by_role("button", name="Clear selection").click()
    expect(page).not_to_have_url(re.compile("region"))
    expect(page.locator("main > .status")).to_contain_text("of 48 images")
    saved.click()
    expect(page.locator("main > .status")).to_contain_text(f"of {count[0]} image")
    expect(selected).to_have_text(f"{count[0]} images selected.")
    page.get_by_role("button", name="Delete left/boats").click()
    expect(saved).to_have_count(0)


def test_polygons_of_the_page_are_those_of_the_service(page: Any) -> None:
    """The same points are inside, and a simplified polygon keeps nearly the same."""
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 33)] * 2), -1).reshape(-1, 2)
    angles = np.linspace(0, 2 * np.pi, 500, endpoint=False)
    radius = 0.3 + 0.1 * np.sin(3 * angles) + 0.002 * rng.standard_normal(500)
    blob = 0.5 + radius[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)
    polygons = [rng.integers(0, 17, (8, 2)) / 16 for _ in range(20)] + [blob]
    page.goto("/search")
    inside, simplified = page.evaluate(
        """async ([points, polygons]) => {
          const { isInside, simplify, MAX_CORNERS } = await import("/static/polygon.js");
          return [polygons.map((polygon) => points.map((point) => isInside(point, polygon))),
            polygons.map((polygon) => simplify(polygon, MAX_CORNERS))];
        }""",
        [grid.tolist(), [polygon.tolist() for polygon in polygons]],
    )
    for polygon, flags in zip(polygons, inside, strict=True):
        assert flags == points_inside(grid, polygon).tolist()
    assert 30 < len(simplified[-1]) <= MAX_CORNERS
    kept = points_inside(grid, np.array(simplified[-1]))
    assert (kept != points_inside(grid, blob)).mean() < 0.01


def test_the_map_by_keyboard(page: Any) -> None:
    square = "&".join(f"region={corner}" for corner in ("0.2,0.2", "0.8,0.2", "0.8,0.8", "0.2,0.8"))
    page.goto(f"/search?text=bird&{square}")
    plane = page.locator(".plane")
    expect(plane).to_be_visible()
    expect(page.locator(".ground .status")).to_contain_text("selected")
    plane.focus()
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile(r"text=bird$"))
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".preview img")).to_be_visible()
    page.keyboard.down("Shift")
    for key in ["ArrowRight", "ArrowDown"] * 20:
        page.keyboard.press(key)
    page.keyboard.up("Shift")
    corners = ("0.48,0.5", "0.88,0.5", "0.88,0.9", "0.48,0.9")
    wanted = "".join(f"&region={corner}" for corner in corners).replace(",", "%2C")
    expect(page).to_have_url(re.compile(f"text=bird{re.escape(wanted)}"))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"entry=\d+"))
