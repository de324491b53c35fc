"""The page as a whole: phones, dark colours, rooms without anything in them, the worker's death, the API's page."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Watched, screenshot
from tests.web.browser.looking import BROWSER, at_rest, expect, overflow, paste
from tests.web.conftest import serve

pytestmark = BROWSER
ROOMS = ("look", "compare", "search", "tournament")


@pytest.mark.parametrize("room", ROOMS)
def test_on_a_phone(page: Any, room: str, keep: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"/{room}")
    _settled(page, room)
    assert overflow(page) == 0
    keep(f"{room}-phone")


@pytest.mark.parametrize("room", ROOMS)
def test_every_control_has_a_name(page: Any, room: str) -> None:
    page.goto(f"/{room}")
    _settled(page, room)
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


@pytest.mark.parametrize("room", ROOMS)
def test_words_can_be_read(page: Any, room: str) -> None:
    """WCAG AA: 4.5 between ink and ground, wherever words stand on one colour."""
    page.goto(f"/{room}")
    _settled(page, room)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
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


def test_the_rooms_are_links(page: Any) -> None:
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
    expect(page.locator("main > .status")).to_contain_text("by image")
    page.get_by_role("link", name="Tournament").click()
    expect(page).to_have_url(re.compile("/tournament$"))
    page.get_by_role("link", name="Look").click()
    expect(page).to_have_url(re.compile(rf"/look\?photo={photo}$"))
    at_rest(page)
    page.locator(".brand").click()  # from the beginning
    expect(page.get_by_role("link", name="Compare")).to_have_js_property("search", "")


def test_the_worker_is_killed(page: Any, server: Any) -> None:
    """What is asked while another is starting is answered in the end."""
    page.allowed = ["status of 503"]
    page.goto("/look?model=gap")
    at_rest(page)
    (before,) = server.children()
    os.kill(before, signal.SIGKILL)
    page.get_by_label("Model", exact=True).select_option("simpool")
    page.get_by_label("Threshold", exact=True).press("ArrowRight")
    expect(page.get_by_text(re.compile("^As you chose it"))).to_be_visible()
    at_rest(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    assert server.children() not in ([], [before])


def test_an_index_alone(browser: Any, demo: Path, tmp_path: Path) -> None:
    """Without a model the page begins with Search, and the other rooms say what they need."""
    alone = serve(tmp_path, "--index", demo / "index")
    try:
        page = browser.new_page(base_url=alone.address)
        watched = Watched(page)
        page.goto("/")
        expect(page.locator(".result").first).to_be_visible()
        for room, words in (("Look", "No model"), ("Compare", "No model"), ("Tournament", "No tournament")):
            page.get_by_role("link", name=room).click()
            expect(page.locator(".lead")).to_contain_text(f"{words} is served here")
        alone.stop()
        page.get_by_role("link", name="Search").click()  # now nobody answers
        expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
        screenshot(page, "web-gone", tmp_path)
        assert not [error for error in watched.errors if not error.startswith("Failed to load resource")]
        page.close()
    finally:
        alone.stop()


def test_the_api_has_a_page(page: Any, keep: Any) -> None:
    page.goto("/api")
    look = page.locator(".operation", has=page.locator("code", has_text=re.compile("^/api/look$")))
    expect(look).to_contain_text("GET")
    about = page.locator(".operation", has=page.locator("code", has_text=re.compile("^/api/about$")))
    about.get_by_text("Try it").click()
    about.get_by_role("button", name="Ask").click()
    expect(about.locator("pre")).to_contain_text('"recommended"')
    keep("api")


def _settled(page: Any, room: str) -> None:
    if room in ("look", "compare"):
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
