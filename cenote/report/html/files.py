"""index.html and page.json in a folder, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...data.files import write_atomically
from .page import Page
from .reading import block_of, made, plain, plain_block
from .render import render

HTML, JSON = "index.html", "page.json"


def write_page(folder: Path, page: Page) -> list[str]:
    """Both files, each whole or not at all; their names."""
    told = {
        **plain({**vars(page), "blocks": ()}),
        "blocks": [plain_block(block) for block in page.blocks],
    }
    for name, content in (
        (JSON, json.dumps(told, ensure_ascii=False, allow_nan=False)),
        (HTML, render(page)),
    ):
        with write_atomically(folder / name) as temporary:
            # A name on disk can hold bytes that are no text; a question mark stands for each.
            temporary.write_bytes(content.encode("utf-8", "replace"))
    return [HTML, JSON]


def read_page(folder: Path) -> Page:
    """The page that `write_page` wrote there."""
    path = Path(folder) / JSON
    try:
        value: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(
            f"{path} is not there: a report is written by the command that makes the results"
        ) from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON, make the report again: {error}") from error
    try:
        return _page(value)
    except ValueError as error:
        raise ValueError(f"{path} is no page, make the report again: {error}") from error


def _page(value: Any) -> Page:
    if not isinstance(value, dict) or not isinstance(value.get("blocks"), list):
        raise ValueError("it has no list of blocks")
    blocks = tuple(block_of(block, f"blocks[{i}]") for i, block in enumerate(value["blocks"]))
    versions = value.get("made_with", {})
    if not isinstance(versions, dict):
        raise ValueError("made_with is not an object")
    return Page(
        made(str, value.get("title"), "title"),
        made(str, value.get("lead"), "lead"),
        blocks,
        made(str, value.get("command", ""), "command"),
        made(float | None, value.get("seconds"), "seconds"),
        {str(key): str(one) for key, one in versions.items()},
    )
