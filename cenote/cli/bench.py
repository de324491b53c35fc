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
    batch: int = 4,
    rounds: int | None = None,
    layout: Literal["tokens", "map"] = "tokens",
    busy: int = 0,
    json: bool = False,
) -> None:
    """Measure the time of pools or of whole models, as ratios to GAP and to other implementations.

    All of them run in turn in one process.

    Args:
        what: What to measure: pools alone (with their memory), or whole models at inference.
        pools: Pools to measure (all by default).
        sizes: pools: batch sizes as BxCxHxW, e.g. 64x384x14x14 (the four of the docs by default).
        networks: models: the networks (by default ViT-S/16, ResNet-50 and ConvNeXt-S).
        batch: models: images per batch.
        rounds: Timed rounds, the best of which counts (by default 7 for pools, 20 for models).
        layout: pools: features as a ViT's tokens, or as a view of a CNN's map.
        busy: Other processes that use the cores meanwhile, one core each.
        json: Print JSON instead of tables.
    """
    from cenote.evaluate import speed
    from cenote.predict.timing import busy_neighbours

    if what == "pools":
        if rounds is None:
            rounds = 7
        measured = speed.measured_pools(pools)
        batches = [speed.parse_size(text) for text in sizes] or list(speed.SIZES)
        runs = {
            "x".join(map(str, size)): partial(speed.measure_pools, size, measured, rounds, layout)
            for size in batches
        }
        table, settings, key = speed.pool_table, {"layout": layout}, "sizes"
    else:
        if rounds is None:
            rounds = 20
        names = networks or tuple(speed.NETWORKS)
        runs = {name: partial(speed.measure_network, name, batch, rounds) for name in names}
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
