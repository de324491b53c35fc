"""`cenote models`."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import tyro


def run(
    pattern: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[PATTERN]", help_behavior_hint="(default: every family)"),
    ] = "",
    check: bool = False,
    all: bool = False,
    jobs: int = os.cpu_count() or 1,
    style: Literal["text", "markdown", "json"] = "text",
) -> None:
    """List the backbones, timm's families with the result of the last check, or check them now.

    Args:
        pattern: check the architectures or the family of this name, e.g. 'vit_*' (implies --check).
        check: run the smallest architecture of every family, or those that match.
        all: check every architecture by its shapes only; takes some minutes.
        jobs: how many architectures are checked at a time.
        style: the format of the table.
    """
    from cenote.backbones.survey import checks_table, families_table, select, survey

    if not (pattern or check or all):
        print(families_table(style))
        return
    from tqdm import tqdm

    names = select(pattern, all)
    checks = list(
        tqdm(survey(names, not all, jobs), total=len(names), unit="architecture", delay=1)
    )
    print(checks_table(checks, style))
