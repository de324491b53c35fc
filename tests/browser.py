"""A real browser for the tests of pages: Debian's chromium through Playwright; without them the tests are skipped."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
MISSING = [
    name
    for name, there in (
        ("chromium", CHROMIUM),
        ("playwright", importlib.util.find_spec("playwright")),
    )
    if there is None
]


needs_browser = pytest.mark.browser  # of a test, or of a file: pytestmark = needs_browser


@contextmanager
def open_browser() -> Iterator[Any]:
    """Playwright's browser; `with open_browser() as browser: page = browser.new_page()`."""
    if MISSING:
        pytest.skip(f"needs {' and '.join(MISSING)}: apt install chromium, pip install playwright")
    from playwright.sync_api import sync_playwright

    # /dev/shm is small in containers, and root has no sandbox there.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """Records the errors and the requests of a page, from its first moment."""

    def __init__(self, page: Any) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on(
            "console",
            lambda message: self.errors.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))


def screenshot(page: Any, name: str, **options: Any) -> None:
    """Write NAME.png to the folder CENOTE_SCREENSHOTS, if that is set (CI sets it)."""
    if folder := os.environ.get("CENOTE_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", **options)
