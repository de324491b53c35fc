"""Recipes to read: a table of all, or one in full."""

from __future__ import annotations

import dataclasses
from typing import Any

import yaml

from .config import OptimizationConfig
from .recipes import KEYS, Recipe, list_recipes, load_recipe

COLUMNS = ("recipe", "network", "pool", "data", "epochs", "batch", "the paper's figure")


def page(name: str) -> str:
    """Its opening (command, cost, figure), and everything that is not a default, as YAML."""
    recipe = load_recipe(name)
    content = {key: value for key, value in contents(recipe).items() if value}
    body = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
    return f"{recipe.name}\n\n{recipe.about}\n\n{body}".rstrip()


def contents(recipe: Recipe) -> dict[str, Any]:
    """The keys of the file, in its order; of the settings those that are no defaults."""
    default = dataclasses.asdict(OptimizationConfig())
    train = {
        key: value
        for key, value in dataclasses.asdict(recipe.settings).items()
        if value != default[key]
    }
    train |= {
        key: getattr(recipe.settings, key)
        for key in ("epochs", "batch", "lr", "optimizer", "weight_decay")
    }
    found: dict[str, Any] = {key: train if key == "train" else getattr(recipe, key) for key in KEYS}
    return found | {"left_out": list(recipe.left_out)}


def as_json(name: str = "") -> Any:
    if name:
        recipe = load_recipe(name)
        return {"name": recipe.name, "about": recipe.about, **contents(recipe)}
    return [
        {"name": recipe.name, **contents(recipe)} for recipe in map(load_recipe, list_recipes())
    ]


def table(style: str = "text") -> str:
    rows = [row(load_recipe(name)) for name in list_recipes()]
    if style == "markdown":
        marked = [
            COLUMNS,
            ["---"] * len(COLUMNS),
            *[[f"`{cells[0]}`", *cells[1:]] for cells in rows],
        ]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in marked)
    widths = [max(len(cells[k]) for cells in [COLUMNS, *rows]) for k in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in [COLUMNS, *rows]
    )


def row(recipe: Recipe) -> list[str]:
    settings = recipe.settings
    best = next(iter(recipe.paper.get("figures", {}).items()), ("", ""))
    return [
        recipe.name,
        recipe.model["backbone"],
        recipe.model.get("pool", "gap"),
        recipe.data,
        str(settings.epochs),
        str(settings.batch),
        f"{best[1]} ({best[0]})" if best[0] else "none printed",
    ]
