"""Every pool with what it costs and takes: the table of `cenote pools`, and one page per method."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from .base import Grid, Pool
from .cost import PoolCost, pool_cost
from .landscape import HEADINGS, landscape_rows
from .registry import create_pool, entry, list_pools, options

HEADS = ("name", "#", "what", "params", "MFLOPs", "published")
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
    if style not in ("text", "markdown"):
        raise ValueError(f"no style '{style}': text, markdown or json")
    table = [
        [str(row["name"]), str(row["group"]), _clip(row["what"], style), *_counts(row)]
        for row in rows
    ]
    notes = [NOTE.format(dim=dim, h=grid[0], w=grid[1])]
    notes += [f"{row['name']}: {row['problem']}" for row in rows if row["problem"]]
    if style == "markdown":
        return "\n".join([markdown_table(HEADS, table), "", *notes])
    return "\n".join([_text_table([list(HEADS), *table]), "", *notes])


def catalogue_row(name: str, dim: int, grid: Grid) -> dict[str, Any]:
    """What there is to know about one pool; `problem` says why it cannot be made at this size."""
    method = entry(name)
    cost: PoolCost | None = None
    problem = ""
    try:
        cost = pool_cost(name, dim, grid)
    except (
        ValueError
    ) as error:  # heads that do not divide dim, k larger than N: the other pools still count
        problem = str(error)
    return {
        "name": name,
        "group": method.group,
        "title": method.title,
        "what": what(method.cls),
        "source": method.source,
        "attention": not method.cls.no_attention,
        "options": {key: _default(parameter) for key, parameter in options(name).items()},
        **(
            asdict(cost)
            if cost
            else {"parameters": None, "flops": None, "flops_as_published": None}
        ),
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
    components = [
        (HEADINGS[key], f"`{row[key]}`")
        for key in HEADINGS
        if key not in ("group", "title") and row[key]
    ]
    listed = [(f"`{key}`", f"`{_default(p)!r}`") for key, p in options(name).items()]
    costs = []
    for dim, grid in sizes:
        cost = pool_cost(name, dim, grid)
        size = f"{dim} channels, {grid[0]}x{grid[1]}"
        costs.append(
            (
                size,
                f"{cost.parameters:,}",
                _millions(cost.flops),
                _millions(cost.flops_as_published),
            )
        )
    sections = [
        f"# {method.title} (`{name}`)",
        inspect.cleandoc(method.cls.__doc__ or ""),
        *([f"    {EQUATIONS[name]}"] if name in EQUATIONS else []),
        f"Group {method.group} of the landscape. Source: {method.source}.",
        *([f"![{_shown(method.cls)}]({picture})\n\n*{_shown(method.cls)}.*"] if picture else []),
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


def what(cls: type[Pool]) -> str:
    """Return the first paragraph of a pool's docstring as one line."""
    return " ".join(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].split())


def markdown_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (heads, *rows)]
    body = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([body[0], "|---" * len(lines[0]) + "|", *body[1:]])


def _shown(cls: type[Pool]) -> str:
    """Below the picture of docs/pictures.py."""
    map_kind = "the class activation map of the true class" if cls.no_attention else "its own map"
    return (
        f"Three pictures, and where it looks after a short training on a frozen network: {map_kind}"
    )


def _attention(cls: type[Pool]) -> str:
    if cls.no_attention:
        return f"It has no map of its own: {cls.no_attention}."
    shape = (
        "a distribution over positions"
        if cls.sums_to_one
        else "non-negative; it need not sum to one"
    )
    return f"`attend` gives one map per query: {shape}."


def _usage(name: str) -> str:
    pool = create_pool(name, 384)
    vectors = ("(2, " if pool.k == 1 else f"(2, {pool.k}, ") + f"{pool.out_dim})"
    lines = [
        "import torch, cenote",
        f'pool = cenote.create_pool("{name}", dim=384)',
        f"u = pool(torch.randn(2, 196, 384), grid=(14, 14))  # a ViT's tokens -> {vectors}",
        "u = pool.on_map(torch.randn(2, 384, 7, 7))  # a convolutional map -> the same",
    ]
    if not pool.no_attention:
        lines.append(
            "u, a = pool.attend(torch.randn(2, 196, 384), grid=(14, 14))  # and where it looked"
        )
    return "\n".join(lines)


def _default(parameter: inspect.Parameter) -> Any:
    return "required" if parameter.default is parameter.empty else parameter.default


def _counts(row: dict[str, Any]) -> list[str]:
    if row["problem"]:
        return ["-", "-", "-"]
    return [f"{row['parameters']:,}", _millions(row["flops"]), _millions(row["flops_as_published"])]


def _millions(count: int) -> str:
    return "0" if count == 0 else f"{count / 1e6:.3f}" if count < 1e6 else f"{count / 1e6:.2f}"


def _clip(text: str, style: str) -> str:
    return text if style == "markdown" or len(text) <= WHAT else text[: WHAT - 1].rstrip() + "…"


def _text_table(table: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for line in table:
        cells = [cell.ljust(width) for cell, width in zip(line[:3], widths[:3], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(line[3:], widths[3:], strict=True)]
        lines.append("  ".join(cells + right))
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
