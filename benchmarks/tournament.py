"""The default tournament: its time, and what the learning rates of the pools cost.

    python benchmarks/tournament.py [--data FOLDER] [--images 500] [--rounds 2]

Runs the tournament with one factor of the learning rate for the matrices of the pools, which costs as
much as one learning rate for pool and head, and with all of them, in turn; the features are computed
before. Also counts the images that the backbone computes. The ratio must stay below 1.5.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from cenote.data import Dataset, open_dataset
from cenote.predict import feature_cache
from cenote.train.config import PROBE
from cenote.train.recipes import read_fields
from cenote.train.tournament.run import TournamentConfig, run_tournament

BAR = 1.5


def measure(data: Dataset, config: TournamentConfig, folder: Path, rounds: int) -> dict[str, Any]:
    """Return the best seconds of both tournaments, of the features, and the forwarded images."""
    forwarded, forward = 0, feature_cache.run_frozen

    def counted(network: nn.Module, images: Tensor) -> Any:
        nonlocal forwarded
        forwarded += len(images)
        return forward(network, images)

    feature_cache.run_frozen = counted
    fields = vars(config)
    quick = {
        "pools": ("gap",),
        "seeds": 1,
        "rates": (1e-3,),
        "settings": read_fields(PROBE, {"epochs": 1}, ""),
    }
    start = time.perf_counter()
    run_tournament(data, folder / "features", TournamentConfig(**fields | quick))
    seconds, once = {"features": time.perf_counter() - start}, forwarded
    variants = {
        "one factor": TournamentConfig(**fields | {"pool_lr_factors": (0.1,)}),
        "all": config,
    }
    for number in range(rounds):
        for name, variant in variants.items():
            start = time.perf_counter()
            report = run_tournament(data, folder / f"{name}-{number}", variant).report
            elapsed = time.perf_counter() - start
            seconds[name] = min(seconds.get(name, elapsed), elapsed)
    feature_cache.run_frozen = forward
    candidates = len(report.standings)
    return {"seconds": seconds, "candidates": candidates, "once": once, "again": forwarded - once}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="world/small")
    parser.add_argument("--images", type=int, default=500, help="of all splits together")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--weights", type=Path)
    args = parser.parse_args()
    data = open_dataset(args.data)
    rows = np.sort(np.random.default_rng(0).permutation(len(data))[: args.images])
    settings = read_fields(PROBE, {"epochs": args.epochs, "warmup": min(2.0, args.epochs / 5)}, "")
    config = TournamentConfig(args.backbone, args.weights, settings=settings)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CENOTE_CACHE"] = str(Path(folder) / "cache")
        result = measure(data.select(rows), config, Path(folder), args.rounds)
    seconds = result["seconds"]
    print(
        f"{args.backbone}, {len(rows)} images, {result['candidates']} candidates, {args.epochs} epochs"
    )
    print("| features, s | one factor, s | all factors, s | ratio | bar |\n|---|---|---|---|---|")
    times = " | ".join(f"{seconds[name]:.0f}" for name in ("features", "one factor", "all"))
    print(f"| {times} | {seconds['all'] / seconds['one factor']:.2f} | {BAR:g} |")
    print(
        f"images through the backbone: {result['once']} for the features, {result['again']} later"
    )


if __name__ == "__main__":
    main()
