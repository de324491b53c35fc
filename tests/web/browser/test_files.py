"""The page's files without a browser: what they name is there, nothing is inline or from elsewhere, one look."""

import re
from html.parser import HTMLParser

import pytest

from cenote.web.server import PAGES, STATIC, read_static

TEXTS = {
    name: content.decode() for name, content in read_static().items() if not name.endswith(".svg")
}


class Named(HTMLParser):
    """What a page refers to, and what its content policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []
        self.refused: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.refused += [
            f"{tag} {name}" for name in given if name == "style" or name.startswith("on")
        ]
        if tag == "style" or (tag == "script" and not given.get("src")):
            self.refused.append(tag)
        self.files += [
            value for name in ("src", "href") if (value := given.get(name)) and "/static/" in value
        ]


@pytest.mark.parametrize("name", ["index.html", "api.html"])
def test_a_page_names_files_that_are_there(name: str) -> None:
    parser = Named()
    parser.feed((STATIC / name).read_text())
    assert not parser.refused and len(parser.files) > 3
    for file in parser.files:
        assert file.removeprefix("/static/") in read_static(), file


def test_modules_name_what_is_there() -> None:
    """Every import is of a file and of a name that it exports."""
    for path in STATIC.glob("*.js"):
        for names, file in re.findall(
            r'^import (?:\* as \w+|\{([^}]*)\}) from "\./([^"]+)";', path.read_text(), re.M
        ):
            source = (STATIC / file).read_text()
            for name in filter(None, (part.strip() for part in names.split(","))):
                assert re.search(
                    rf"^export (?:async )?(?:const|function|class) {name}\b", source, re.M
                ), (path, name)
                assert len(re.findall(rf"\b{name}\b", path.read_text())) > 1, (
                    f"{path.name} does not use {name}"
                )


def test_every_view_has_a_module() -> None:
    views = re.findall(r'<a href="/(\w+)" data-view>', (STATIC / "index.html").read_text())
    assert ("/", *(f"/{view}" for view in views)) == PAGES
    for view in views:
        source = (STATIC / f"{view}.js").read_text()
        assert "export const title" in source and "export function enter" in source


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_comes_from_elsewhere(name: str) -> None:
    text = TEXTS[name].replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert not re.search(r"https?:|@import|\binnerHTML\b|\beval\(|//[a-z]+\.[a-z]+/", text)
