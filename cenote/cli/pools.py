"""`cenote pools`."""

import json
from typing import Annotated, Literal

import tyro

from ..pooling.catalogue import catalogue, catalogue_row, page
from ..pooling.cost import parse_grid


def run(
    name: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[POOL]", help_behavior_hint="(default: all)"),
    ] = "",
    dim: int = 384,
    grid: Annotated[str, tyro.conf.arg(metavar="HxW")] = "14x14",
    style: Literal["text", "markdown", "json"] = "text",
) -> None:
    """List every pool with its parameters and FLOPs, or show one pool: its row, options and source.

    Args:
        name: show only this pool, as a Markdown page or as JSON.
        dim: channels of the feature map.
        grid: height x width of the feature map.
        style: the format of the output.
    """
    if dim < 1:
        raise ValueError(f"--dim must be at least 1, got {dim}")
    size = (dim, parse_grid(grid))
    if name and style == "json":
        print(json.dumps(catalogue_row(name, *size), ensure_ascii=False, indent=2, default=str))
    else:
        print(page(name, [size]) if name else catalogue(*size, style))
