"""Actions of the tests: wait until the page is idle, read a canvas, move a slider."""

from typing import Any

import pytest

from tests.browser import MISSING

BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"needs {' and '.join(MISSING)}: apt install chromium, pip install playwright",
    ),
]


def expect(what: Any) -> Any:
    """Playwright's, imported when a test runs: without it they are skipped, not broken."""
    from playwright.sync_api import expect as wait_for

    wait_for.set_options(timeout=60_000)  # a machine that does much else
    return wait_for(what)


def at_rest(page: Any) -> None:
    """The first answer is there: nothing on the stage is busy."""
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator(".stage canvas").first).not_to_have_js_property("width", 4)
    expect(page.locator("figcaption .status")).not_to_have_class("status busy")


def pixels(page: Any, selector: str = ".stage canvas") -> str:
    found: str = page.locator(selector).first.evaluate("canvas => canvas.toDataURL()")
    return found


def slide(page: Any, name: str, value: float, let_go: bool = True) -> None:
    """Move a slider as a hand does: many inputs, one change."""
    page.get_by_label(name, exact=True).evaluate(
        """(range, [value, letGo]) => {
          range.value = value;
          range.dispatchEvent(new Event("input", { bubbles: true }));
          if (letGo) range.dispatchEvent(new Event("change", { bubbles: true }));
        }""",
        [value, let_go],
    )


def paste(page: Any, content: bytes, kind: str = "image/jpeg") -> None:
    """A picture from the clipboard."""
    page.evaluate(
        """([bytes, kind]) => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(bytes)], "image", { type: kind }));
          document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
        }""",
        [list(content), kind],
    )


def overflow(page: Any) -> int:
    """Pixels that the page is wider than its window."""
    found: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return found
