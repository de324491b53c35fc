"""Every pool with its cost and options: the table of `cenote pools`, and one page per method."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..pooling import Pool, create_pool, landscape_rows, list_pools
from ..pooling.base import Grid
from ..pooling.cost import pool_cost
from ..pooling.landscape import HEADINGS, markdown_table
from ..pooling.registry import entry, options
from .table import align_columns

WHAT = 64  # columns of a terminal for the first line of a docstring
NOTE = (
    "MFLOPs: millions of multiply-adds for one image of {dim} channels on a {h}x{w} grid, as the layer runs; "
    "published: with the keys and values the papers write down. Products only: elementwise work is not counted."
)

# Of methods whose docstring says it in words; the others have theirs there. x_jc: channel c of
# feature j, of p.
EQUATIONS = {
    "gap": "u = Σ_j x_j / p",
    "max": "u_c = max_j x_jc",
    "gap+max": "u_c = Σ_j x_jc / p + max_j x_jc",
    "kmeans": "a_ij = 1 where i = argmin_i ‖x_j - u_i‖² and 0 elsewhere,  u_i ← Σ_j a_ij x_j / Σ_j a_ij",
    "weldon": "u_c = (mean of the top largest x_jc) + (mean of the low smallest x_jc),  over j",
}


def catalogue(dim: int, grid: Grid, style: str = "text") -> str:
    """All pools with their cost at this size, as "text", "markdown" or "json"
    (with options and sources).
    """
    rows = [catalogue_row(name, dim, grid) for name in list_pools()]
    if style == "json":
        return json.dumps(rows, ensure_ascii=False, indent=2, default=str)
    notes = [NOTE.format(dim=dim, h=grid[0], w=grid[1])]
    notes += [f"{row['name']}: {row['problem']}" for row in rows if row["problem"]]
    heads = ["name", "#", "what", "params", "MFLOPs", "published"]
    table = []
    for row in rows:
        counts = ["-", "-", "-"]
        if not row["problem"]:
            flops = _millions(row["flops"]), _millions(row["flops_as_published"])
            counts = [f"{row['parameters']:,}", *flops]
        what = row["what"] if style == "markdown" else _clip(row["what"])
        table.append([row["name"], str(row["group"]), what, *counts])
    if style == "markdown":
        return "\n".join([markdown_table(heads, table), "", *notes])
    heading, *lines = align_columns([heads, *table], words=(0, 1, 2)).split("\n")
    return "\n".join([heading, "-" * len(heading), *lines, "", *notes])


def catalogue_row(name: str, dim: int, grid: Grid) -> dict[str, Any]:
    """What there is to know about one pool; `problem` says why it cannot be made at this size."""
    method = entry(name)
    cost: dict[str, Any] = {"parameters": None, "flops": None, "flops_as_published": None}
    problem = ""
    try:
        cost = asdict(pool_cost(name, dim, grid))
    except ValueError as error:  # heads that do not divide dim, k larger than N
        problem = str(error)
    return {
        "name": name,
        "group": method.group,
        "title": method.title,
        "what": " ".join(_docstring(method.cls).partition("\n\n")[0].split()),
        "source": method.source,
        "attention": not method.cls.no_attention,
        "options": {key: _default(parameter) for key, parameter in options(name).items()},
        **cost,
        "problem": problem,
    }


def page(
    name: str,
    sizes: Iterable[tuple[int, Grid]] = ((384, (14, 14)), (2048, (7, 7))),
    picture: str | None = None,
) -> str:
    """One method in Markdown: what it is, where it looks, its row of the landscape, options, cost,
    usage, source.
    """
    method = entry(name)
    row = next(row for row in landscape_rows() if row["name"] == name)
    headings = {key: text for key, text in HEADINGS.items() if key not in ("group", "title")}
    components = [(text, f"`{row[key]}`") for key, text in headings.items() if row[key]]
    listed = [(f"`{key}`", f"`{_default(p)!r}`") for key, p in options(name).items()]
    costs = []
    for dim, grid in sizes:
        cost = pool_cost(name, dim, grid)
        flops = _millions(cost.flops), _millions(cost.flops_as_published)
        size = f"{dim} channels, {grid[0]}x{grid[1]}"
        costs.append((size, f"{cost.parameters:,}", *flops))
    sections = [f"# {method.title} (`{name}`)", _docstring(method.cls)]
    if name in EQUATIONS:
        sections.append(f"    {EQUATIONS[name]}")
    sections.append(f"Group {method.group} of the landscape. Source: {method.source}.")
    if picture:
        sections.append(f"![{_shown(method.cls)}]({picture})\n\n*{_shown(method.cls)}.*")
    sections += [
        "## Its row of the landscape",
        "With these components Algorithm 1 is this method: "
        "Z = f⁻¹(f(V) A), U = φ_U(Z), from A = h(s(K, Q)) [SimPool Eqs. 1-7].",
        markdown_table(("Component", "Here"), components),
        "## Options",
        markdown_table(("Option", "Default"), listed) if listed else "None.",
        "## Cost",
        markdown_table(("Feature map", "Parameters", "MFLOPs", "MFLOPs as published"), costs),
        "MFLOPs are millions of multiply-adds for one image; elementwise work is not counted.",
        "## Attention",
        _attention(method.cls),
        "## Use",
        f"```python\n{_usage(name)}\n```",
    ]
    return "\n\n".join(sections) + "\n"


def _docstring(cls: type[Pool]) -> str:
    return inspect.cleandoc(cls.__doc__ or "")


def _shown(cls: type[Pool]) -> str:
    """Below the picture of docs/pictures.py."""
    shown = "Three pictures, and where it looks after a short training on a frozen network: "
    if cls.no_attention:
        return shown + "the class activation map of the true class"
    return shown + "its own map"


def _attention(cls: type[Pool]) -> str:
    if cls.no_attention:
        return f"It has no map of its own: {cls.no_attention}. Use a class activation map."
    if cls.sums_to_one:
        return "`attend` gives one map per query: a distribution over positions."
    return "`attend` gives one map per query: non-negative; it need not sum to one."


def _usage(name: str) -> str:
    pool = create_pool(name, 384)
    shape = ", ".join(map(str, (2, *([pool.k] if pool.k > 1 else []), pool.out_dim)))
    lines = [
        "import torch, cenote",
        f'pool = cenote.create_pool("{name}", dim=384)',
        f"u = pool(torch.randn(2, 196, 384), grid=(14, 14))  # a ViT's tokens -> ({shape})",
        "u = pool.on_map(torch.randn(2, 384, 7, 7))  # a convolutional map -> the same",
    ]
    if not pool.no_attention:
        lines.append(
            "u, a = pool.attend(torch.randn(2, 196, 384), grid=(14, 14))  # and where it looked"
        )
    return "\n".join(lines)


def _default(parameter: inspect.Parameter) -> Any:
    return "required" if parameter.default is parameter.empty else parameter.default


def _millions(count: int) -> str:
    if count == 0:
        return "0"
    digits = 2 + (count < 1e6)
    return f"{count / 1e6:.{digits}f}"


def _clip(text: str) -> str:
    if len(text) <= WHAT:
        return text
    return text[: WHAT - 1].rstrip() + "…"
