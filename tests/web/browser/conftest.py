"""The server of the tests around here in a real browser: a page that must not complain or ask anyone else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.browser import Watched, open_browser, screenshot


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def context(browser: Any, server: Any) -> Iterator[Any]:
    size = {"width": 1280, "height": 900}
    context = browser.new_context(base_url=server.address, viewport=size, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    yield context
    context.close()


@pytest.fixture
def page(context: Any, server: Any) -> Iterator[Any]:
    """No console error but those that a test allows in `page.allowed`, and no request outside the server's origin."""
    page = context.new_page()
    page.allowed = []
    watched = Watched(page)
    yield page
    page.close()
    outside = [
        url for url in watched.requests if not url.startswith((server.address, "blob:", "data:"))
    ]
    assert not outside
    told = [
        error for error in watched.errors if not any(allowed in error for allowed in page.allowed)
    ]
    assert not told


@pytest.fixture
def keep(page: Any) -> Any:
    """keep("look"): a screenshot of the page as it is."""
    return lambda name: screenshot(page, f"web-{name}")


@pytest.fixture
def photograph(tmp_path: Path) -> Path:
    """Not one of the examples: a red square on a gradient."""
    image = Image.linear_gradient("L").resize((320, 240)).convert("RGB")
    image.paste((200, 30, 30), (120, 60, 220, 160))
    image.save(tmp_path / "photograph.jpg")
    return tmp_path / "photograph.jpg"
