"""`cenote recipes` and `cenote recipes NAME`: parse, read, print."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import tyro


def run(
    name: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[NAME]", help_behavior_hint="(default: all)"),
    ] = "",
    style: Literal["text", "markdown", "json"] = "text",
) -> None:
    """The papers' settings by name, or one recipe in full with its command.

    Args:
        name: show this recipe only: a name of the list, or a YAML file of your own.
        style: how to print it.
    """
    from cenote.train.recipes import recipe_page, recipe_table, recipes_json

    if style == "json":
        print(json.dumps(recipes_json(name), indent=2, ensure_ascii=False))
    else:
        print(recipe_page(name) if name else recipe_table(style))
