"""Commands that print a table: `cenote landscape`, `losses`, `pools`, `recipes` and `models`."""

from __future__ import annotations

import json
import os
from typing import Annotated, Literal

import tyro

Style = Annotated[
    Literal["text", "markdown", "json"], tyro.conf.arg(help="the format of the output")
]
Name = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="[NAME]", help_behavior_hint="(default: all)"),
]


def landscape(style: Style = "text") -> None:
    """Print the landscape of pooling methods [SimPool Table 1] from their declarations."""
    from .. import pooling

    print(pooling.landscape(style))


def losses(style: Style = "text") -> None:
    """Print the losses of metric learning, five small functions each, from their declarations."""
    from ..losses.catalogue import loss_table

    print(loss_table(style))


def pools(
    name: Name = "",
    dim: int = 384,
    grid: Annotated[str, tyro.conf.arg(metavar="HxW")] = "14x14",
    style: Style = "text",
) -> None:
    """List every pool with its parameters and FLOPs, or show one pool: its row, options and source.

    Args:
        name: show only this pool, as a Markdown page or as JSON.
        dim: channels of the feature map.
        grid: height x width of the feature map.
    """
    from ..pooling.cost import parse_grid
    from ..report.pools import catalogue, catalogue_row, page

    if dim < 1:
        raise ValueError(f"--dim must be at least 1, got {dim}")
    size = (dim, parse_grid(grid))
    if not name:
        print(catalogue(*size, style))
    elif style == "json":
        print(json.dumps(catalogue_row(name, *size), ensure_ascii=False, indent=2, default=str))
    else:
        print(page(name, [size]))


def recipes(name: Name = "", style: Style = "text") -> None:
    """List the papers' settings by name, or show one recipe in full with its command.

    Args:
        name: show this recipe only: a name of the list, or a YAML file of your own.
    """
    from ..train.recipes import recipe_page, recipe_table, recipes_json

    if style == "json":
        print(json.dumps(recipes_json(name), indent=2, ensure_ascii=False))
    elif name:
        print(recipe_page(name))
    else:
        print(recipe_table(style))


def models(
    pattern: Name = "",
    check: bool = False,
    all: bool = False,
    jobs: int = os.cpu_count() or 1,
    style: Style = "text",
) -> None:
    """List the backbones, timm's families with the result of the last check, or check them now.

    Args:
        pattern: check the architectures or the family of this name, e.g. 'vit_*' (implies --check).
        check: run the smallest architecture of every family, or those that match.
        all: check every architecture by its shapes only; takes some minutes.
        jobs: how many architectures are checked at a time.
    """
    from ..backbones.survey import checks_table, families_table, select, survey

    if not (pattern or check or all):
        print(families_table(style))
        return
    from ..progress import progress_bar

    names, unit = select(pattern, all), "architectures"
    results = survey(names, not all, jobs)
    checks = progress_bar("checking", len(names), unit, iterable=results, delay=1)
    print(checks_table(list(checks), style))
