"""docs/papers.md has a row for every table and every figure of the five papers, and each row says something."""

import re

import pytest

from tests.docs.reading import ROOT

PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")


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


def rows(section: str) -> dict[str, list[str]]:
    """The first cell of each row, which may name several, to the other cells."""
    _, _, rest = PAGE.partition(f"\n## {section}")
    found = {}
    for line in re.split(r"\n## ", rest)[0].splitlines():
        if line.startswith("| ") and not line.startswith("| In the paper"):
            first, *others = [cell.strip() for cell in line.strip("|").split(" | ")]
            for name in first.split(", "):
                found[name.strip()] = others
    return found


@pytest.mark.parametrize("section", CONTENTS)
def test_every_table_and_figure_has_its_row(section: str) -> None:
    found = rows(section)
    assert list(found) and set(found) == set(CONTENTS[section])
    for name, (what, here, *where) in found.items():
        assert what and here and where, name
        assert "`" in here or "not here" in here.lower(), (
            f"{name}: neither a command or function nor a reason"
        )
