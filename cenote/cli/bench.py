"""`cenote bench pools` and `cenote bench models`: parse, measure, print."""

from __future__ import annotations

import json as to_json
import sys
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
    json: bool = False,
) -> None:
    """Time of pools or of whole models, interleaved in one process, as ratios to GAP and to rival layers.

    Args:
        what: What to measure: pools alone (with their memory), or whole models at inference.
        pools: Pools to measure (all by default).
        sizes: pools: batch sizes as BxCxHxW, e.g. 64x384x14x14 (the four of the docs by default).
        networks: models: the networks (by default ViT-S/16, ResNet-50 and ConvNeXt-S).
        batch: models: images at a time.
        rounds: Timed rounds, the best of which counts (by default 7 for pools, 20 for models).
        layout: pools: features as a ViT's tokens, or as a view of a CNN's map.
        json: Print JSON instead of tables.
    """
    if what == "pools":
        _pools(pools, sizes, 7 if rounds is None else rounds, layout, json)
    else:
        _models(networks, batch, 20 if rounds is None else rounds, json)


def _pools(
    pools: tuple[str, ...], sizes: tuple[str, ...], rounds: int, layout: str, json: bool
) -> None:
    from cenote.evaluate.pool_speed import SIZES, candidates, measure, parse_size, summary, table

    chosen, reports = candidates(pools), []
    for size in [parse_size(text) for text in sizes] or SIZES:
        print(f"measuring {'x'.join(map(str, size))} ...", file=sys.stderr)
        reports.append(measure(size, chosen, rounds, layout))
        if not json:
            print(table(reports[-1]), flush=True)
    if json:
        print(to_json.dumps(summary(reports, rounds, layout), indent=2))


def _models(networks: tuple[str, ...], batch: int, rounds: int, json: bool) -> None:
    from cenote.evaluate.model_speed import NETWORKS, measure, summary, table

    reports = []
    for network in networks or tuple(NETWORKS):
        print(f"measuring {network} ...", file=sys.stderr)
        reports.append(measure(network, batch, rounds))
        if not json:
            print(table(reports[-1]), flush=True)
    if json:
        print(to_json.dumps(summary(reports, rounds), indent=2))
