"""The tournament of all pools against the slowest single probe: `python benchmarks/tournament.py [--images 256]`.

Both as the commands run them, on features that are in the cache before either begins: `cenote tournament` (three rates
in the rehearsal, three seeds) and `cenote fit --freeze` (four rates, one seed) with each of the pools that take longest
in a step. Also counts the images that go through the backbone. The bar is 8. Minutes on two cores; `--backbone
vit_tiny_patch16_224 --weights FILE` for a transformer, whose pools are more alike in cost.
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
    """The pools whose training step takes longest, all measured in turn."""
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
    through = 0
    forward = Backbone.forward

    def counted(self: Backbone, images: Tensor) -> Any:
        nonlocal through
        through += len(images)
        return forward(self, images)

    Backbone.forward = counted  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder), FeatureCache(Path(folder) / "cache")
        game = TournamentConfig(
            backbone,
            weights,
            settings=OptimizationConfig(**settings),
            boxes=boxes,
            pools=("gap",),
            seeds=1,
            rates=(1e-3,),
        )  # type: ignore[arg-type]
        warm = run_tournament(data, root / "warm", game, cache).report  # features of every view
        once = through
        start = time.perf_counter()
        full = TournamentConfig(
            backbone, weights, settings=OptimizationConfig(**settings), boxes=boxes
        )  # type: ignore[arg-type]
        report = run_tournament(data, root / "tournament", full, cache).report
        whole = time.perf_counter() - start
        again = through - once
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
        "contenders": len(report.standings),
        "tournament": whole,
        "probes": probes,
        "once": once,
        "again": again,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="world/small")
    parser.add_argument("--images", type=int, default=256, help="of the training split")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--candidates", type=int, default=2, help="pools that may be the slowest")
    parser.add_argument(
        "--boxes", type=int, default=0, help="images on which maps are judged, which no probe does"
    )
    given = parser.parse_args()
    data = open_dataset(given.data)
    shares = [
        (name, data.split(str(name)), given.images // (1 if name == "train" else 4))
        for name in data.splits
    ]
    keep = [int(i) for _, part, count in shares for i in part.rows[:count]]
    found = run(
        data.select(keep),
        given.backbone,
        given.weights,
        given.epochs,
        given.candidates,
        given.boxes,
    )
    slow, seconds = max(found["probes"].items(), key=lambda item: item[1])
    print(
        f"{given.backbone}, {given.images} training images, {given.epochs} epochs, {len(PROBE_RATES)} rates a probe"
    )
    print(
        f"| tournament of {found['contenders']} s | slowest probe ({slow}) s | ratio | bar |\n|---|---|---|---|"
    )
    print(
        f"| {found['tournament']:.1f} | {seconds:.1f} | {found['tournament'] / seconds:.1f} | {BAR:g} |"
    )
    print(
        f"images through the backbone: {found['once']} for the features; {found['again']} in the tournament itself"
    )


if __name__ == "__main__":
    main()
