"""Metric learning on unseen classes at a scale for two cores: docs/results.md.

    python examples/metric/run.py OUT [--cub FOLDER] [--seeds 3] [--only collages]

Three losses, plain and with Metrix; Metrix compared with other ways to mix [Dissertation Table 2.4];
six pools with Proxy Anchor; the collages of [GSP Sec. 2.2 of the supplement] (contrastive, 128
prototypes, mu = 0.2, eps = 10, the zero-shot loss at 0.5). Every run is a `cenote metric`. An
interrupted command resumes. Without the folder of CUB only the synthetic data set is used.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch

from cenote.allocator import keep_memory
from cenote.data import open_dataset
from cenote.data.synthetic import World, write_world
from cenote.train.configure import configure
from cenote.train.metric_run import train_metric

LOSSES = ("contrastive", "multi-similarity", "proxy-anchor")
POOLS: dict[str, dict[str, Any]] = {
    "gap": {},
    "max": {},
    "gem": {},
    "simpool": {},
    "gsp": {},
    "gsp, zero-shot": {"zero_shot": 0.1},
}
# [Dissertation Table 2.4]. i-mix mixes images, which is impossible with cached features.
BASELINES: dict[str, dict[str, Any]] = {
    "contrastive + i-mix": {"rival": "i-mix"},
    "contrastive + MoCHi, neg-neg": {"rival": "mochi", "mix_options": {"pairs": "neg-neg"}},
    "contrastive + MoCHi, anc-neg": {"rival": "mochi", "mix_options": {"pairs": "anc-neg"}},
    "proxy-anchor + Proxy Synthesis": {"rival": "proxy-synthesis"},
}
GSP_OPTIONS = {"prototypes": 128, "mu": 0.2, "eps": 10.0}
# For collages: the pool, its options and the weight of the zero-shot loss.
TILE_POOLS: dict[str, tuple[str, dict[str, Any], float]] = {
    "gap": ("gap", {}, 0.0),
    "max": ("max", {}, 0.0),
    "gem": ("gem", {}, 0.0),
    "simpool": ("simpool", {}, 0.0),
    "gap, zero-shot": (
        "gsp",
        GSP_OPTIONS | {"mu": 1.0},
        0.5,
    ),  # with mu = 1 GSP takes everything [GSP Table 1]
    "gsp": ("gsp", GSP_OPTIONS, 0.0),
    "gsp, zero-shot": ("gsp", GSP_OPTIONS, 0.5),
    "gsp, local": (
        "gsp",
        GSP_OPTIONS | {"local": 128},
        0.0,
    ),  # embedded before pooling [GSP]
    "gsp, local, zero-shot": ("gsp", GSP_OPTIONS | {"local": 128}, 0.5),
}
# Thirty classes, one large object in each image: half for training and validation, half for test.
KINDS: dict[str, Any] = {
    "images": 2400,
    "size": 64,
    "classes": 30,
    "scenes": 4,
    "bias": 0.0,
    "distractors": 0,
}
KINDS |= {"counts": (1, 0, 0, 0), "sizes": (0, 0, 1)}
TILES: dict[str, Any] = {"images": 3200, "size": 128}
SCRATCH = {"backbone": "resnet_micro", "pool": "gap", "scratch": True}
FROZEN = {"backbone": "lite0", "freeze": True}
COLUMNS = {"recall@1": "Recall@1", "r_precision": "RP", "map@r": "MAP@R"}


class Experiment(NamedTuple):
    table: str
    row: str
    data: Path
    model: dict[str, Any]
    options: dict[str, Any]
    settings: dict[str, Any]


def losses(*places: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each loss plain, with Metrix and with other ways to mix, as options of `cenote metric`."""
    for loss in LOSSES:
        yield loss, {"loss": loss, "dim": 128}
        for where in places:
            yield f"{loss} + Metrix/{where}", {"loss": loss, "dim": 128, "metrix": (where,)}
        for row, rival in BASELINES.items():
            if row.startswith(loss) and ("input" in places or rival["rival"] != "i-mix"):
                yield row, {"loss": loss, "dim": 128, **rival}


def experiments(kinds: Path, tiles: Path, cub: Path | None) -> Iterator[Experiment]:
    settings = {"epochs": 8, "batch": 64, "warmup": 1, "weight_decay": 0.01}
    for row, options in losses("input", "feature", "embed"):
        yield Experiment("The world, ResNet from scratch", row, kinds, SCRATCH, options, settings)
    probe = {"epochs": 15, "batch": 64}
    real = {} if cub is None else {"CUB, frozen lite0": cub}
    for table, data in real.items():
        for row, options in losses("feature", "embed"):
            yield Experiment(table, row, data, {**FROZEN, "pool": "gap"}, options, probe)
    for table, data in {
        **{f"{name}, pools": data for name, data in real.items()},
        "The world, frozen lite0": kinds,
    }.items():
        for row, options in POOLS.items():
            pool = row.partition(",")[0]
            yield Experiment(
                table,
                row,
                data,
                {**FROZEN, "pool": pool},
                {"loss": "proxy-anchor", "dim": 128, **options},
                probe,
            )
    for row, (pool, pool_options, weight) in TILE_POOLS.items():
        model = {
            **FROZEN,
            "pool": pool,
            "pool_options": pool_options,
            "size": 256,
        }  # a tile has 4 x 4 tokens
        options = {"loss": "contrastive", "dim": 128, "zero_shot": weight}
        yield Experiment(
            "Collages, frozen lite0", row, tiles, model, options, {"epochs": 30, "batch": 64}
        )


def run_once(experiment: Experiment, out: Path, seed: int) -> dict[str, float]:
    """Train and evaluate once, or read the results."""
    name = (
        f"{experiment.table}/{experiment.row}-{seed}".replace(", ", "-")
        .replace(" ", "-")
        .replace("Metrix/", "")
    )
    folder = out / name
    path = folder / "results.json"
    if not path.is_file():
        keep_memory()
        torch.set_num_threads(1)  # one core per run
        started = time.monotonic()
        settings = {**experiment.settings, "seed": seed}
        config = configure(
            "metric", **experiment.model, options=experiment.options, settings=settings
        )
        train_metric(open_dataset(str(experiment.data)), folder, config, resume=folder.is_dir())
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    return dict(json.loads(path.read_text())["test"])


def tables(scores: dict[tuple[str, str], list[dict[str, float]]]) -> Iterator[str]:
    """Yield Markdown tables: mean and deviation over the seeds in percent."""
    for table in dict.fromkeys(table for table, _ in scores):
        yield f"**{table}**\n"
        yield "| | " + " | ".join(COLUMNS.values()) + " |"
        yield "|---" * (len(COLUMNS) + 1) + "|"
        for (where, row), reports in scores.items():
            if where == table:
                yield (
                    f"| {row} | "
                    + " | ".join(
                        format_scores([report[key] for report in reports]) for key in COLUMNS
                    )
                    + " |"
                )
        yield ""


def format_scores(values: list[float]) -> str:
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--cub", type=Path, help="a folder of fine-grained classes that cenote data opens"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument(
        "--only", default="", help="the tables or rows that have this in their name"
    )
    args = parser.parse_args()
    kinds, tiles = args.out / "kinds", args.out / "tiles"
    write_world(World.preset("small", **KINDS), kinds)
    write_world(World.preset("collage", **TILES), tiles)
    started = time.monotonic()
    all_experiments, only = experiments(kinds, tiles, args.cub), args.only.lower()
    selected = [
        experiment
        for experiment in all_experiments
        if only in f"{experiment.table}: {experiment.row}".lower()
    ]
    if not selected:
        parser.error(f"no table and no row has '{args.only}' in its name")
    runs = [(experiment, seed) for experiment in selected for seed in range(args.seeds)]
    scores: dict[tuple[str, str], list[dict[str, float]]] = {}
    with ProcessPoolExecutor(args.jobs) as runners:
        jobs = [runners.submit(run_once, experiment, args.out, seed) for experiment, seed in runs]
        for (experiment, _), job in zip(runs, jobs, strict=True):
            scores.setdefault((experiment.table, experiment.row), []).append(job.result())
    print("\n".join(["", *tables(scores)]))
    print(f"{args.seeds} seeds, {(time.monotonic() - started) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
