"""The page as a whole: phones, dark colours, empty views, the worker's death, the API's page."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.web.browser.actions import BROWSER, at_rest, expect, overflow, paste

pytestmark = BROWSER
VIEWS = ("look", "compare", "search", "tournament")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_accessible(page: Any, view: str, keep: Any) -> None:
    """With a screen reader, with weak eyes, in both colour schemes, on a phone."""
    page.goto(f"/{view}")
    _settled(page, view)
    _check_names(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        _check_contrast(page, scheme)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 360, "height": 740})
    _settled(page, view)
    assert overflow(page) == 0
    keep(f"{view}-phone")


def _check_names(page: Any) -> None:
    """Every control has a name."""
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a[href], input, select, summary, img, canvas")]
          .filter((e) => e.checkVisibility() && !e.closest("[aria-hidden=true]") && !e.title
            && !e.getAttribute("aria-label") && !e.innerText?.trim()
            && !e.labels?.length && e.getAttribute("alt") === null && !e.querySelector("img[alt]:not([alt=''])"))
          .map((e) => e.outerHTML.slice(0, 120))"""
    )
    assert not nameless
    ids = page.evaluate("() => [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids)) and page.locator("h1").count() == 1


def _check_contrast(page: Any, scheme: str) -> None:
    """WCAG AA: 4.5 between the colours of text and background, wherever text stands on one colour."""
    pairs = page.evaluate(
        """() => [...document.querySelectorAll("body *")]
          .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())
            && !e.closest("svg, .away, .skip, option"))
          .map((e) => {
            const groundOf = (one) => getComputedStyle(one).backgroundColor;
            let at = e;
            while (at.parentElement && groundOf(at) === "rgba(0, 0, 0, 0)") at = at.parentElement;
            return [e.innerText.slice(0, 40), getComputedStyle(e).color, groundOf(at)];
          })"""
    )
    faint = [pair for pair in pairs if _contrast(*map(_colour, pair[1:])) < 4.5]
    assert len(pairs) > 15 and not faint, scheme


def test_dark_and_light(page: Any, keep: Any) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto("/look")
    at_rest(page)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    keep("look-dark")
    page.get_by_role("button", name="Use light colours").click()
    light = page.evaluate(ground)
    assert max(_colour(dark)) < 0.25 and min(_colour(light)) > 0.75
    page.reload()
    at_rest(page)
    assert page.evaluate(ground) == light  # it is remembered


def test_the_views_are_links(page: Any) -> None:
    page.goto("/")
    at_rest(page)
    page.get_by_role("link", name="Tournament").click()
    expect(page).to_have_url(re.compile("/tournament$"))
    expect(page.get_by_role("link", name="Tournament")).to_have_attribute("aria-current", "page")
    page.go_back()
    at_rest(page)
    assert page.get_by_role("link", name="Look").get_attribute("aria-current") == "page"


def test_a_photograph_comes_along(page: Any, photograph: Path) -> None:
    """From Look to Compare, to Search, past the tournament, and back."""
    page.goto("/look")
    at_rest(page)
    paste(page, photograph.read_bytes())
    expect(page).to_have_url(re.compile(r"/look\?photo=\w{32}$"))
    photo = page.url.rpartition("=")[2]
    page.get_by_role("link", name="Compare").click()
    expect(page).to_have_url(re.compile(rf"/compare\?photo={photo}$"))
    expect(page.locator(".tile.own[aria-pressed=true]")).to_be_visible()
    page.get_by_role("link", name="Search").click()
    expect(page).to_have_url(re.compile(rf"/search\?photo={photo}$"))
    expect(page.locator(".given img")).not_to_have_js_property("naturalWidth", 0)
    expect(page.locator("main > .status")).to_contain_text(re.compile(r"\bimage\b"))
    page.get_by_role("link", name="Tournament").click()
    expect(page).to_have_url(re.compile("/tournament$"))
    page.get_by_role("link", name="Look").click()
    expect(page).to_have_url(re.compile(rf"/look\?photo={photo}$"))
    at_rest(page)
    page.locator(".brand").click()  # from the beginning
    expect(page.get_by_role("link", name="Compare")).to_have_js_property("search", "")


@pytest.mark.slow  # test_serve.py kills a worker, test_search.py has the page wait for an answer
def test_the_worker_is_killed(page: Any, server: Any) -> None:
    """What is asked while another is starting is answered in the end."""
    page.allowed = ["status of 503"]
    page.goto("/look?model=gap")
    at_rest(page)
    (before,) = server.children()
    os.kill(before, signal.SIGKILL)
    page.get_by_label("Model", exact=True).select_option("simpool (gamma 1.25)")
    page.get_by_label("Threshold", exact=True).press("ArrowRight")
    expect(page).to_have_url(re.compile("model=simpool.*threshold="))
    at_rest(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    assert server.children() not in ([], [before])


def test_an_index_alone(page: Any, context: Any, keep: Any) -> None:
    """Without a model the page begins with Search, and the other views say what they need. Then the server is gone."""
    page.allowed = ["Failed to load resource"]

    def about(route: Any) -> None:
        served = {**route.fetch().json(), "models": [], "tournament": None, "report": False}
        route.fulfill(json=served)

    page.route(re.compile("/api/about"), about)
    page.goto("/")
    expect(page.locator(".result").first).to_be_visible()
    for view, thing in (("Look", "model"), ("Compare", "model"), ("Tournament", "tournament")):
        page.get_by_role("link", name=view).click()
        expect(page.locator(".lead")).to_contain_text(thing)
    context.set_offline(True)
    page.get_by_role("link", name="Search").click()
    expect(page.get_by_role("alert")).not_to_be_empty()
    keep("gone")


def test_the_api_has_a_page(page: Any, keep: Any) -> None:
    page.goto("/api")
    look = page.locator(".operation", has=page.locator("code", has_text=re.compile("^/api/look$")))
    expect(look).to_contain_text("GET")
    about = page.locator(
        ".operation", has=page.locator("code", has_text=re.compile("^/api/about$"))
    )
    about.get_by_text("Try it").click()
    about.get_by_role("button", name="Send").click()
    expect(about.locator("pre")).to_contain_text('"recommended"')
    keep("api")


def _settled(page: Any, view: str) -> None:
    if view in ("look", "compare"):
        at_rest(page)
    else:
        expect(page.locator(".result, .standings tbody tr").first).to_be_visible()


def _colour(text: str) -> list[float]:
    """Red, green and blue, 0 to 1, of what a browser computes: rgb(...) or color(srgb ...)."""
    scale = 1 if text.startswith("color") else 255
    return [float(part) / scale for part in re.findall(r"[\d.]+", text)[:3]]


def _contrast(first: list[float], second: list[float]) -> float:
    def luminance(colour: list[float]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
