"""SimPool compared with GAP, CLS and the best pools of [SimPool Table 2], for two cores: docs/results.md.

    python examples/evidence/run.py OUT [--pacs FOLDER] [--seeds 3]

Every run is a `cenote fit`, evaluated as by `cenote evaluate --on classify,localize,background`. An
interrupted command resumes. Without the folder of PACS only the synthetic data set is used.
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
from cenote.data.files import write_atomically
from cenote.data.splits import split
from cenote.data.synthetic import World, write_world
from cenote.evaluate.background import background
from cenote.evaluate.classify import classify
from cenote.evaluate.wsol import localize
from cenote.models import load
from cenote.train.config import RunConfig
from cenote.train.configure import configure
from cenote.train.fit import fit
from cenote.train.recipes import load_recipe

HERE = Path(__file__).parent
# [SimPool Table 2]: the baselines, the best pool of each group, SimPool.
POOLS = ("gap", "cls", "ge", "slot", "cait", "simpool")
# One object per image, large enough for 64 pixels; a third of them in their home scene.
WORLD: dict[str, Any] = {
    "images": 1600,
    "size": 64,
    "classes": 6,
    "sizes": (0, 1, 2),
    "counts": (1, 0, 0, 0),
}
WORLD |= {"bias": 0.3, "test_bias": 0.3}
COLUMNS = {
    "accuracy": "accuracy",
    "boxes": "MaxBoxAccV2",
    "same": "Mixed-Same",
    "rand": "Mixed-Rand",
    "gap": "gap",
}


class Experiment(NamedTuple):
    """One table: the same data and network for every pool."""

    name: str
    data: Path
    recipe: str
    pools: tuple[str, ...] = POOLS

    def config(self, pool: str, seed: int) -> RunConfig:
        return configure("fit", load_recipe(HERE / self.recipe), pool=pool, seed=seed)


def experiments(world: Path, pacs: Path | None) -> Iterator[Experiment]:
    yield Experiment("the world, ResNet from scratch", world, "resnet.yaml")
    yield Experiment("the world, ViT from scratch", world, "vit.yaml")
    if pacs is not None:
        pools = ("gap", "cls", "simpool")  # within the hour
        yield Experiment("PACS, ResNet from scratch", pacs, "resnet.yaml", pools)
        yield Experiment("PACS, ViT from scratch", pacs, "vit.yaml", pools)


def run_once(experiment: Experiment, out: Path, pool: str, seed: int) -> dict[str, float]:
    """Train and evaluate once, or read the results."""
    folder = out / experiment.name.replace(", ", "-").replace(" ", "-") / f"{pool}-{seed}"
    path = folder / "scores.json"
    if not path.is_file():
        keep_memory()
        torch.set_num_threads(1)  # one core per run
        started = time.monotonic()
        if not (folder / "results.json").is_file():
            data = open_dataset(str(experiment.data))
            fit(data, folder, experiment.config(pool, seed), resume=folder.is_dir())
        scores = evaluate(experiment, folder, seed)
        print(
            f"{experiment.name}, {pool}, seed {seed}: {time.monotonic() - started:.0f} s",
            flush=True,
        )
        with write_atomically(path) as temporary:
            temporary.write_text(json.dumps(scores))
    return dict(json.loads(path.read_text()))


def evaluate(experiment: Experiment, folder: Path, seed: int) -> dict[str, Any]:
    parts = split(open_dataset(str(experiment.data)), seed=seed, quiet=True)
    test, model = parts.test or parts.val, load(folder)
    scores = {"accuracy": classify(model, test).accuracy}
    if any(record.boxes for record in test):
        # With thresholds chosen on validation images.
        chosen = localize(model, test, parts.val, resamples=0, cases=0).chosen
        scores |= {
            "boxes": chosen["max_box_acc_v2"]["score"],
            "centred": chosen["centred_box"]["score"],
        }
    if test.has_masks.any():
        shares = background(model, test, ("mixed_same", "mixed_rand")).accuracy
        scores |= {"same": shares["mixed_same"], "rand": shares["mixed_rand"]}
        scores["gap"] = scores["same"] - scores["rand"]
    return scores


def table(experiment: Experiment, rows: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """Return a Markdown table with one row per pool: mean and deviation over the seeds."""
    columns = [
        key
        for key in COLUMNS
        if all(key in scores for reports in rows.values() for scores in reports)
    ]
    yield f"**{experiment.name}**\n"
    if "boxes" in columns:
        fixed = fmean(scores["centred"] for reports in rows.values() for scores in reports)
        yield f"A fixed box in the centre: MaxBoxAccV2 {fixed:.1f}.\n"
    yield "| pool | " + " | ".join(COLUMNS[key] for key in columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for pool, reports in rows.items():
        yield (
            f"| {pool} | "
            + " | ".join(format_scores([scores[key] for scores in reports]) for key in columns)
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
    parser.add_argument("--pacs", type=Path, help="a folder that cenote data opens")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    args = parser.parse_args()
    world = args.out / "world"
    write_world(World.preset("small", **WORLD), world)
    started = time.monotonic()
    runs = [
        (experiment, pool, seed)
        for experiment in experiments(world, args.pacs)
        for pool in experiment.pools
        for seed in range(args.seeds)
        if pool != "cls" or experiment.recipe == "vit.yaml"
    ]
    tables: dict[Experiment, dict[str, list[dict[str, float]]]] = {}
    with ProcessPoolExecutor(args.jobs) as runners:
        jobs = [
            runners.submit(run_once, experiment, args.out, pool, seed)
            for experiment, pool, seed in runs
        ]
        for (experiment, pool, _), job in zip(runs, jobs, strict=True):
            tables.setdefault(experiment, {}).setdefault(pool, []).append(job.result())
    print(
        "\n".join(
            ["", *(line for experiment, rows in tables.items() for line in table(experiment, rows))]
        )
    )
    print(f"{args.seeds} seeds, {(time.monotonic() - started) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
