"""`cenote bench pools` and `cenote bench models`: parse, measure, print."""

from __future__ import annotations

import json as to_json
import sys
from functools import partial
from typing import Annotated, Literal

import tyro


def run(
    what: Annotated[Literal["pools", "models"], tyro.conf.Positional] = "pools",
    /,
    pools: tuple[str, ...] = (),
    sizes: tuple[str, ...] = (),
    networks: tuple[str, ...] = (),
    batch: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: 4)")
    ] = None,
    rounds: Annotated[
        int | None,
        tyro.conf.arg(metavar="N", help_behavior_hint="(default: 7 for pools, 20 for models)"),
    ] = None,
    layout: Annotated[
        Literal["tokens", "map"] | None,
        tyro.conf.arg(metavar="{tokens,map}", help_behavior_hint="(default: tokens)"),
    ] = None,
    busy: int = 0,
    json: bool = False,
) -> None:
    """Measure the time of pools or of whole models, as ratios to GAP and to other implementations.

    All of them run in turn in one process.

    Args:
        what: What to measure: pools alone (with their memory), or whole models at inference.
        pools: Pools to measure (by default all, and for models those of SimPool's Table 8).
        sizes: pools: batch sizes as BxCxHxW, e.g. 64x384x14x14 (the four of the docs by default).
        networks: models: names in timm (by default the four of SimPool's Table 8).
        batch: models: images per batch.
        rounds: Timed rounds, the best of which counts.
        layout: pools: features as a ViT's tokens, or as a view of a CNN's map.
        busy: Other processes that use the cores meanwhile, one core each.
        json: Print JSON instead of tables.
    """
    from cenote.evaluate import speed
    from cenote.predict.timing import busy_neighbours

    of_pools, of_models = {"sizes": sizes, "layout": layout}, {"networks": networks, "batch": batch}
    for option, value in (of_pools if what == "models" else of_models).items():
        if value not in ((), None):
            raise ValueError(f"cenote bench {what} does not use --{option}: leave it out")
    for option, value in (("rounds", rounds), ("batch", batch)):
        if value is not None and value < 1:
            raise ValueError(f"--{option} must be at least 1, got {value}")
    if what == "pools":
        rounds, layout = rounds or 7, layout or "tokens"
        measured = speed.measured_pools(pools)
        batches = [speed.parse_size(text) for text in sizes] or list(speed.SIZES)
        runs = {
            "x".join(map(str, size)): partial(speed.measure_pools, size, measured, rounds, layout)
            for size in batches
        }
        table, settings, key = speed.pool_table, {"layout": layout}, "sizes"
    else:
        rounds = rounds or 20
        runs = {
            name: partial(speed.measure_network, name, batch or 4, rounds, pools)
            for name in networks or tuple(speed.TABLE_8)
        }
        table, settings, key = speed.network_table, {}, "networks"
    reports = []
    for name, run_measurement in runs.items():
        print(f"measuring {name} ...", file=sys.stderr)
        with busy_neighbours(busy):
            reports.append(run_measurement())
        if not json:
            print(table(reports[-1]), flush=True)
    if json:
        report = {**speed.machine(), "rounds": rounds, "busy": busy, **settings, key: reports}
        print(to_json.dumps(report, indent=2))
