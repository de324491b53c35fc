"""The tournament of all pools compared with the slowest single probe.

    python benchmarks/tournament.py [--images 256]

Both as the commands run them, on cached features: `cenote tournament` (three learning rates, three
seeds) and `cenote fit --freeze` (four learning rates, one seed) with each of the slowest pools. Also
counts the images that pass through the backbone. The ratio must stay below 8. Takes minutes on two
cores; `--backbone vit_tiny_patch16_224 --weights FILE` for a transformer, whose pools have similar
costs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cenote.backbones import Backbone
from cenote.data import Dataset, open_dataset
from cenote.pooling import create_pool, list_pools
from cenote.predict.feature_cache import FeatureCache
from cenote.predict.timing import best_times
from cenote.train.config import PROBE_RATES, OptimizationConfig
from cenote.train.configure import configure
from cenote.train.fit import fit
from cenote.train.tournament.run import TournamentConfig, run_tournament

BAR = 8.0


def slowest(dim: int, grid: tuple[int, int], count: int) -> list[str]:
    """Return the pools with the slowest training steps."""
    x = torch.randn(64, grid[0] * grid[1], dim)

    def step(pool: nn.Module) -> None:
        loss: Tensor = pool(x, grid).square().mean()
        if loss.requires_grad:
            loss.backward()

    pools = {name: create_pool(name, dim) for name in list_pools()}
    times = best_times({name: lambda pool=pool: step(pool) for name, pool in pools.items()}, 1)  # type: ignore[misc]
    return sorted(times, key=lambda name: -times[name])[:count]


def run(
    data: Dataset, backbone: str, weights: Path | None, epochs: int, candidates: int, boxes: int
) -> dict[str, Any]:
    settings = {"epochs": epochs, "batch": 128, "warmup": min(2.0, epochs / 5)}
    forwarded = 0
    forward = Backbone.forward

    def counted(self: Backbone, images: Tensor) -> Any:
        nonlocal forwarded
        forwarded += len(images)
        return forward(self, images)

    Backbone.forward = counted  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder), FeatureCache(Path(folder) / "cache")
        warm_up = TournamentConfig(
            backbone,
            weights,
            settings=OptimizationConfig(**settings),
            boxes=boxes,
            pools=("gap",),
            seeds=1,
            rates=(1e-3,),
        )  # type: ignore[arg-type]
        warm = run_tournament(data, root / "warm", warm_up, cache).report  # features of every view
        once = forwarded
        start = time.perf_counter()
        full = TournamentConfig(
            backbone, weights, settings=OptimizationConfig(**settings), boxes=boxes
        )  # type: ignore[arg-type]
        report = run_tournament(data, root / "tournament", full, cache).report
        tournament_seconds = time.perf_counter() - start
        again = forwarded - once
        probes = {}
        for pool in slowest(warm.dim, tuple(warm.grid), candidates):
            start = time.perf_counter()
            config = configure(
                "fit",
                backbone=backbone,
                pool=pool,
                weights=weights,
                freeze=True,
                settings=settings,
            )
            fit(data, root / f"probe-{pool}", config, cache)
            probes[pool] = time.perf_counter() - start
    Backbone.forward = forward  # type: ignore[method-assign]
    return {
        "candidates": len(report.standings),
        "tournament": tournament_seconds,
        "probes": probes,
        "once": once,
        "again": again,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="world/small")
    parser.add_argument("--images", type=int, default=256, help="images of the training split")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--candidates", type=int, default=2, help="how many slow pools are probed")
    parser.add_argument(
        "--boxes",
        type=int,
        default=0,
        help="images for the evaluation of maps, which a probe does not have",
    )
    args = parser.parse_args()
    data = open_dataset(args.data)
    shares = [
        (name, data.split(str(name)), args.images // (1 if name == "train" else 4))
        for name in data.splits
    ]
    rows = [int(i) for _, part, count in shares for i in part.rows[:count]]
    result = run(
        data.select(rows),
        args.backbone,
        args.weights,
        args.epochs,
        args.candidates,
        args.boxes,
    )
    slow, seconds = max(result["probes"].items(), key=lambda item: item[1])
    rates = f"{len(PROBE_RATES)} learning rates per probe"
    images = f"{args.images} training images"
    print(f"{args.backbone}, {images}, {args.epochs} epochs, {rates}")
    print(
        f"| tournament of {result['candidates']} s | slowest probe ({slow}) s | ratio | bar |\n|---|---|---|---|"
    )
    print(
        f"| {result['tournament']:.1f} | {seconds:.1f} | {result['tournament'] / seconds:.1f} | {BAR:g} |"
    )
    print(
        f"images through the backbone: {result['once']} for the features; {result['again']} in the tournament itself"
    )


if __name__ == "__main__":
    main()
