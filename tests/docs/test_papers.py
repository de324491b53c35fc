"""Every table and every figure of the five papers is declared, and has a row in docs/papers.md."""

import pytest

from cenote.reproduce import PAPERS, Paper, load_paper
from cenote.reproduce.papers import list_items
from tests.docs.reading import ROOT


def numbered(kind: str, last: int, prefix: str = "") -> list[str]:
    return [f"{kind} {prefix}{number}" for number in range(1, last + 1)]


# As the papers count them; 003 prints no Table 9 and no Table 10.
CONTENTS = {
    "SimPool": numbered("Table", 10) + numbered("Table", 5, "C") + numbered("Figure", 3) + numbered("Figure", 9, "C"),
    "Dissertation": numbered("Table", 6, "2.") + numbered("Figure", 5, "2.")
    + numbered("Table", 12, "3.") + numbered("Figure", 12, "3.")
    + numbered("Table", 7, "4.") + numbered("Figure", 7, "4.")
    + numbered("Table", 3, "5.") + numbered("Figure", 3, "5."),
    "GSP": numbered("Table", 5) + numbered("Figure", 9),
    "SAR": [name for name in numbered("Table", 11) if name not in ("Table 9", "Table 10")] + numbered("Figure", 8),
    "Beyond GAP": numbered("Table", 2) + numbered("Figure", 3),
}  # fmt: skip


@pytest.mark.parametrize(
    "paper", [load_paper(name) for name in PAPERS], ids=lambda paper: paper.title
)
def test_every_table_and_figure_is_declared(paper: Paper) -> None:
    titles = [title for item in paper.items.values() for title in item.title.split(", ")]
    assert sorted(titles) == sorted(CONTENTS[paper.title])
    for item in paper.items.values():
        assert item.commands or item.same_as or "`" in item.here or "not here" in item.here, item


def test_the_page_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    for item in list_items():
        assert f"\n| {item.title} | {item.shows} | " in page
