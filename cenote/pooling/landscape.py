"""[SimPool Table 1; Dissertation Table 3.1], printed from the methods' own declarations."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..options import check_choice
from .registry import ENTRIES, create_pool, list_pools

HEADINGS = {
    "group": "#",
    "title": "Method",
    "category": "Cat",
    "iterative": "Iter",
    "k": "k",
    "init": "U⁰",
    "phi_q": "φ_Q(U)",
    "phi_k": "φ_K(X)",
    "similarity": "s(x,y)",
    "attention": "A",
    "phi_v": "φ_V(X)",
    "f": "f(x)",
    "phi_x": "φ_X(X)",
    "phi_u": "φ_U(Z)",
}
LEGEND = (
    "Cat: used in category-level tasks; Iter: iterative; *: simplified; π_A: average; σ: sigmoid; "
    "σ₁, σ₂: softmax over queries, over positions; η₂: ℓ1 normalisation over positions; η²: ℓ2 normalisation; "
    "g_m: m heads; [U;X]: tokens of both."
)
DIM = 48  # any width that every method's default heads divide: only the labels are read


def landscape_rows() -> list[dict[str, str]]:
    """One dict per method, column -> text."""
    rows = []
    for name in list_pools():
        entry, pool = ENTRIES[name], create_pool(name, DIM, **ENTRIES[name].cls.published)
        algorithm = pool.algorithm()
        rows.append(
            {
                "name": name,
                "group": str(entry.group),
                "title": entry.title + "*" * entry.simplified,
                "category": "✓" * entry.category,
                "iterative": "✓" * (algorithm.iterations > 1),
                "k": "k" if pool.k > 1 else "1",
                **algorithm.labels(),
                "source": entry.source,
            }
        )
    return rows


def landscape(style: str = "text") -> str:
    """The landscape of pooling methods as "text", "markdown" or "json"."""
    check_choice("style", style, ("text", "markdown", "json"))
    rows = landscape_rows()
    if style == "json":
        return json.dumps(rows, ensure_ascii=False, indent=2)
    table = [list(HEADINGS.values())] + [[row[key] for key in HEADINGS] for row in rows]
    if style == "markdown":
        return f"{markdown_table(table[0], table[1:])}\n\n{LEGEND}"
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    heading, *lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]
    rule = "-" * max(map(len, (heading, *lines)))
    out, group = [heading], ""
    for line, row in zip(lines, rows, strict=True):
        if row["group"] != group:
            out.append(rule)
        group = row["group"]
        out.append(line)
    return "\n".join([*out, rule, LEGEND])


def markdown_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (heads, *rows)]
    heading, *lines = [f"| {' | '.join(line)} |" for line in cells]
    return "\n".join([heading, "|---" * len(cells[0]) + "|", *lines])
