"""A real browser for the tests of pages: Debian's chromium through Playwright, skipped where one of them is missing."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = [
    name
    for name, there in (("chromium", CHROMIUM), ("playwright", importlib.util.find_spec("playwright")))
    if there is None
]


needs_browser = pytest.mark.browser  # of a test, or of a file: pytestmark = needs_browser


@contextmanager
def open_browser() -> Iterator[Any]:
    """Playwright's browser; `with open_browser() as browser: page = browser.new_page()`."""
    if MISSING:
        pytest.skip(f"needs {' and '.join(MISSING)}")
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
    """What a page complained about and what it asked for, from its first moment."""

    def __init__(self, page: Any) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))


def screenshot(page: Any, name: str, folder: Path, **options: Any) -> Path:
    """NAME.png in CENOTE_SCREENSHOTS where that is set, else in `folder`."""
    where = Path(os.environ.get("CENOTE_SCREENSHOTS") or folder)
    where.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=where / f"{name}.png", **options)
    return where / f"{name}.png"
