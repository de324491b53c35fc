"""Write a page as index.html and page.json, and read it back from page.json."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from ...data.files import write_atomically
from .blocks import Page
from .render import render

HTML, JSON = "index.html", "page.json"


def write_page(folder: Path, page: Page) -> list[str]:
    """Write index.html and page.json, each atomically; return their names."""
    for name, text in ((JSON, to_json(page)), (HTML, render(page))):
        with write_atomically(folder / name) as temporary:
            # A file name can have bytes that are not text; each becomes a question mark.
            temporary.write_bytes(text.encode("utf-8", "replace"))
    return [HTML, JSON]


def to_json(page: Page) -> str:
    """Return the page as JSON; NaN and infinity, which JSON does not have, become null."""
    values = json.loads(json.dumps(asdict(page)), parse_constant=lambda name: None)
    return json.dumps(values, ensure_ascii=False)


def read_page(folder: Path) -> Page:
    """Read the page that `write_page` wrote."""
    from pydantic import TypeAdapter, ValidationError

    path = Path(folder) / JSON
    try:
        return TypeAdapter(Page).validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise ValueError(
            f"{path} is not a page, create the report again: {place}: {problem['msg']}"
        ) from error
