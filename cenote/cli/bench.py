"""`cenote bench pools`: parse, measure, print."""

from __future__ import annotations

import json as to_json
import sys
from typing import Annotated, Literal

import tyro


def run(
    what: Annotated[Literal["pools"], tyro.conf.Positional] = "pools",
    /,
    pools: tuple[str, ...] = (),
    sizes: tuple[str, ...] = (),
    rounds: int = 7,
    layout: Literal["tokens", "map"] = "tokens",
    json: bool = False,
) -> None:
    """Time and memory of pools, interleaved in one process, as ratios to GAP and to rival layers.

    Args:
        what: What to measure.
        pools: Pools to measure (all by default).
        sizes: Batch sizes as BxCxHxW, e.g. 64x384x14x14 (the four of the docs by default).
        rounds: Timed rounds; the best of them counts.
        layout: Features as a ViT's tokens, or as a view of a CNN's map.
        json: Print JSON instead of tables.
    """
    from cenote.evaluate.pool_speed import SIZES, candidates, measure, parse_size, summary, table

    chosen, reports = candidates(pools), []
    for size in [parse_size(text) for text in sizes] or SIZES:
        print(f"measuring {'x'.join(map(str, size))} ...", file=sys.stderr)
        reports.append(measure(size, chosen, rounds, layout))
        if not json:
            print(table(reports[-1]), flush=True)
    if json:
        print(to_json.dumps(summary(reports, rounds, layout), indent=2))
