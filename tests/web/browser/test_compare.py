"""Compare in a real browser: two models on the same photographs, the divider, and their agreement."""

import re
from typing import Any

import pytest

from tests.web.browser.actions import BROWSER, at_rest, expect, slide

pytestmark = BROWSER
SUMMARY = re.compile(r"^\D+\d+\D+\d+%")  # of all photographs; before: "3 of 8 ..."


def test_two_contenders(page: Any, keep: Any, context: Any) -> None:
    page.goto("/compare?a=gap&b=simpool+(gamma+1.25)")
    at_rest(page)
    pairs = page.locator(".pair")
    expect(page.locator("h2 + p[role=status]")).to_have_text(SUMMARY)
    assert pairs.count() == page.locator(".tile").count() > 1
    keep("compare")
    left, middle = _wiped(page, 1), _wiped(page, 0.5)
    right = _wiped(page, 0)
    assert len({left, middle, right}) == 3
    page.get_by_role("button", name="Swap").click()
    expect(page).to_have_url(re.compile("a=simpool.*&b=gap"))
    at_rest(page)
    assert _wiped(page, 0) == left  # what was on the left is on the right
    pairs.first.locator(".card").first.click()
    expect(page).to_have_url(re.compile(r"/look\?photo=\w+&model=simpool"))
    at_rest(page)


def test_a_model_agrees_with_itself(page: Any) -> None:
    page.goto("/compare?a=simpool+(gamma+1.25)&b=simpool+(gamma+1.25)")
    at_rest(page)
    expect(page.locator(".agreement")).to_have_text("100%")
    expect(page.locator("h2 + p[role=status]")).to_have_text(re.compile(r"^\D+\d+\D+\b100%"))


def test_a_photograph_that_is_gone(page: Any) -> None:
    """The examples are still compared, and another photograph is shown as ever."""
    page.goto("/compare?photo=zzz")
    expect(page.get_by_role("alert")).not_to_be_empty()
    expect(page.locator("figure")).to_be_hidden()
    expect(page.locator("h2 + p[role=status]")).to_have_text(SUMMARY)
    page.locator(".tile").first.click()
    at_rest(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator("figure")).to_be_visible()


def test_agreement_is_the_mass_in_common(page: Any) -> None:
    """sum min(a, b), on one grid and on two, against numbers that a hand can add up."""
    page.goto("/compare")
    found = page.evaluate(
        """async () => {
          const { agreement } = await import("/static/maps.js");
          const map = (weights) => ({ rows: weights.length, columns: weights[0].length, weights });
          const even = map([[0.25, 0.25], [0.25, 0.25]]);
          return [
            agreement(even, map([[1, 0], [0, 0]])),
            agreement(map([[0.5, 0.5]]), map([[0.1, 0.9]])),
            agreement(even, map([[1]])),
            agreement(map([[0.5, 0.5]]), map([[0, 0, 1]])),
          ];
        }"""
    )
    # The last: halves of a line become 1/3, 1/3, 1/3 of it; the third third has all of the other.
    assert found == pytest.approx([0.25, 0.6, 1.0, 1 / 3])


def _wiped(page: Any, share: float) -> int:
    """A number for the pixels of the picture, but for its edges, where the line of the wipe stands."""
    slide(page, "Divider", share)
    found: int = page.locator(".stage canvas").evaluate(
        """canvas => {
          const { data } = canvas.getContext("2d").getImageData(8, 0, canvas.width - 16, canvas.height);
          let sum = 7;
          for (const value of data) sum = (31 * sum + value) >>> 0;
          return sum;
        }"""
    )
    return found
