"""A page is one sound file: nothing is fetched, no name becomes markup, page.json gives it back whole."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cenote.report.blocks import Page, Picture, Text, made_with
from cenote.report.html import format_duration, read_page, render, section_name, write_page
from tests.report.html.pages import HOSTILE, Parsed, whole_page


@pytest.fixture(scope="module", params=["dog", HOSTILE], ids=["plain", "hostile"])
def parsed(request: pytest.FixtureRequest) -> Parsed:
    return Parsed(render(whole_page(request.param)))


def test_it_is_sound(parsed: Parsed) -> None:
    assert not parsed.open and not parsed.unbalanced
    names = parsed.values("id")
    assert len(names) == len(set(names))
    for attribute in ("for", "aria-labelledby"):
        assert parsed.values(attribute) and set(parsed.values(attribute)) <= set(names)
    inside = [href[1:] for href in parsed.values("href") if href.startswith("#")]
    assert inside and set(inside) <= set(names)


def test_headings_and_landmarks(parsed: Parsed) -> None:
    levels = [int(tag[1]) for tag, _ in parsed.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for landmark in ("header", "nav", "main", "footer"):
        assert len(parsed.all(landmark)) == 1
    assert parsed.all("html")[0]["lang"] == "en" and parsed.all("a")[0]["href"] == "#results"


def test_every_picture_has_words(parsed: Parsed) -> None:
    assert parsed.all("img") and all(image.get("alt") for image in parsed.all("img"))
    assert all(
        one.get("role") == "img" or one.get("aria-hidden") == "true" for one in parsed.all("svg")
    )


def test_nothing_is_fetched(parsed: Parsed) -> None:
    for attribute in ("src", "href", "srcset", "action", "poster", "data", "xlink:href"):
        assert all(re.match(r"data:|#", value) for value in parsed.values(attribute)), attribute
    style = "".join(words for tag, words in parsed.words if tag == "style")
    style += " ".join(parsed.values("style"))
    script = "".join(words for tag, words in parsed.words if tag == "script")
    assert "@import" not in style and "@font-face" not in style and len(script) > 1000
    assert all(
        re.match(r"""['"]?(data:|#)""", url) for url in re.findall(r"url\(\s*([^)]*)", style)
    )
    assert not re.search(
        r"fetch\(|XMLHttpRequest|import\(|^import |WebSocket|sendBeacon|https?:",
        script,
        re.MULTILINE,
    )


def test_names_stay_words() -> None:
    plain, hostile = Parsed(render(whole_page("dog"))), Parsed(render(whole_page(HOSTILE)))
    # Not one element more, but for lines from points to names that are too long to be beside them.
    plain_tags, hostile_tags = (
        [tag for tag, _ in page.tags if tag not in ("g", "path")] for page in (plain, hostile)
    )
    assert plain_tags == hostile_tags
    assert len(hostile.all("script")) == 1
    assert not [
        name for _, attributes in hostile.tags for name in attributes if name.startswith("on")
    ]
    assert hostile.text("script", "style").count(HOSTILE) > 20
    assert "\x00" not in render(Page("a\x00b", "", ()))


@pytest.mark.parametrize("address", ["https://example.org/a.png", "a.jpg", "data:text/html;base64,AAAA", "javascript:1",
                                     "data:image/svg+xml;base64,AAAA", "data:image/png;base64,AA)evil"])  # fmt: skip
def test_a_picture_that_is_an_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_page(tmp_path, Page("t", "l", (Picture("p", address, "alt"),)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["dog", HOSTILE, "ünï ✓ 犬"])
def test_page_json_gives_it_back(name: str, tmp_path: Path) -> None:
    page = whole_page(name)
    assert write_page(tmp_path, page) == ["index.html", "page.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "page.json"]
    again = read_page(tmp_path)
    assert again == page and render(again) == (tmp_path / "index.html").read_text(encoding="utf-8")


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    write_page(
        tmp_path, Page("a\udcffb", "", ())
    )  # as os.listdir gives a file name that is not UTF-8
    assert read_page(tmp_path).title == "a?b" and "a?b" in (tmp_path / "index.html").read_text(
        encoding="utf-8"
    )


def test_what_was_there_stays_when_the_new_page_fails(tmp_path: Path) -> None:
    write_page(tmp_path, Page("before", "", ()))
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(OSError):
        write_page(
            tmp_path, Page("after", "", (Picture("p", "data:image/png;base64,AAAA", "alt"),))
        )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda page: page.pop("title"), r"\btitle\b"),
        (lambda page: page["blocks"][0].update(kind="poem"), "'poem'"),
        (lambda page: page["blocks"][2]["points"][3].update(x=True), r"points\.3\.x\b"),
        (lambda page: page["blocks"][4]["photos"][0]["predicted"][0].pop(), r"predicted\.0\b"),
    ],
)
def test_a_broken_page_is_refused(damage: Any, sentence: str, tmp_path: Path) -> None:
    write_page(tmp_path, whole_page())
    value = json.loads((tmp_path / "page.json").read_text())
    damage(value)
    (tmp_path / "page.json").write_text(json.dumps(value))
    with pytest.raises(ValueError, match=sentence):
        read_page(tmp_path)


def test_numbers_that_json_has_not(tmp_path: Path) -> None:
    page = replace(whole_page(), seconds=float("nan"))
    write_page(tmp_path, page)
    assert read_page(tmp_path).seconds is None


def test_how_it_was_made_is_told() -> None:
    assert list(made_with()) == ["cenote", "torch", "timm", "python", "platform", "threads"]
    words = Parsed(render(Page("t", "l", (), "cenote data x", 3725.0))).text("script", "style")
    assert "cenote data x" in words and "1 h 2 min" in words and made_with()["torch"] in words
    assert [format_duration(s) for s in (0.04, 59.9, 75.4, 3600)] == [
        "0.0 s",
        "59.9 s",
        "1 min 15 s",
        "1 h 0 min",
    ]


def test_addresses_of_sections() -> None:
    assert section_name(1, "A b!") == "part-1-a-b" and section_name(2, "犬") == "part-2"
    assert Parsed(render(Page("t", "l", (Text("x", ()), Text("x", ()))))).values("data-kind") == [
        "text",
        "text",
    ]
