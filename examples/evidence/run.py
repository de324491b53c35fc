"""SimPool against GAP, CLS and the winners of SimPool's Table 2, at a scale for two cores: docs/results.md.

    python examples/evidence/run.py OUT [--pacs FOLDER] [--pets FOLDER] [--seeds 3]

Every run is a `cenote fit`, judged as `cenote evaluate --on classify,localize,background` does it. Killed, it goes on
where it was. Without the folders of PACS and Oxford-IIIT Pets only the embedded world is played.
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
POOLS = (
    "gap",
    "cls",
    "ge",
    "slot",
    "cait",
    "simpool",
)  # S Table 2: each group's winner between baseline and SimPool
# Objects not too small for 64 pixels, one of a class in an image; a third of them at home in their scene.
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


class Match(NamedTuple):
    """One table: the same data and network for every pool."""

    name: str
    data: Path
    recipe: str | None  # None: a frozen lite0
    pools: tuple[str, ...] = POOLS

    def config(self, pool: str, seed: int) -> RunConfig:
        if self.recipe is None:
            return configure("fit", pool=pool, freeze=True, lr=(1e-3, 1e-2), seed=seed, epochs=10)
        return configure("fit", load_recipe(HERE / self.recipe), pool=pool, seed=seed)


def matches(drawn: Path, pacs: Path | None, pets: Path | None, slow: bool) -> Iterator[Match]:
    yield Match("the world, ResNet from scratch", drawn, "resnet.yaml")
    yield Match("the world, ViT from scratch", drawn, "vit.yaml")
    if pacs is not None:
        few = ("gap", "cls", "simpool")  # within the hour
        yield Match("PACS, ResNet from scratch", pacs, "resnet.yaml", few)
        yield Match("PACS, ViT from scratch", pacs, "vit.yaml", few)
    quick = tuple(pool for pool in POOLS if pool != "slot")
    yield Match("the world, frozen lite0", drawn, None, POOLS if slow else quick)
    if pets is not None:
        yield Match("Pets, frozen lite0", pets, None, quick)


def play(match: Match, out: Path, pool: str, seed: int) -> dict[str, float]:
    """Train and judge once; what was done before is read."""
    folder = out / match.name.replace(", ", "-").replace(" ", "-") / f"{pool}-{seed}"
    path = folder / "judged.json"
    if not path.is_file():
        keep_memory()
        torch.set_num_threads(1)  # each run has a core of its own
        started = time.monotonic()
        if not (folder / "results.json").is_file():
            data = open_dataset(str(match.data))
            fit(data, folder, match.config(pool, seed), resume=folder.is_dir())
        found = judge(match, folder, seed)
        print(f"{match.name}, {pool}, seed {seed}: {time.monotonic() - started:.0f} s", flush=True)
        with write_atomically(path) as temporary:
            temporary.write_text(json.dumps(found))
    return dict(json.loads(path.read_text()))


def judge(match: Match, folder: Path, seed: int) -> dict[str, Any]:
    parts = split(open_dataset(str(match.data)), seed=seed, quiet=True)
    test, model = parts.test or parts.val, load(folder)
    found = {"accuracy": classify(model, test).accuracy}
    if any(record.boxes for record in test):
        # With the thresholds that the validation images chose.
        chosen = localize(model, test, parts.val, resamples=0, cases=0).chosen
        found |= {
            "boxes": chosen["max_box_acc_v2"]["score"],
            "centred": chosen["centred_box"]["score"],
        }
    if test.has_masks.any():
        shares = background(model, test, ("mixed_same", "mixed_rand")).accuracy
        found |= {"same": shares["mixed_same"], "rand": shares["mixed_rand"]}
        found["gap"] = found["same"] - found["rand"]
    return found


def table(match: Match, rows: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """A row for each pool, the mean and deviation over the seeds."""
    columns = [
        key
        for key in COLUMNS
        if all(key in found for several in rows.values() for found in several)
    ]
    yield f"**{match.name}**\n"
    if "boxes" in columns:
        fixed = fmean(found["centred"] for several in rows.values() for found in several)
        yield f"A fixed box in the middle, which sees nothing: MaxBoxAccV2 {fixed:.1f}.\n"
    yield "| pool | " + " | ".join(COLUMNS[key] for key in columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for pool, several in rows.items():
        yield (
            f"| {pool} | "
            + " | ".join(spread([found[key] for found in several]) for key in columns)
            + " |"
        )
    yield ""


def spread(values: list[float]) -> str:
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--pacs", type=Path, help="a folder that cenote data opens")
    parser.add_argument("--pets", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument(
        "--slow", action="store_true", help="also Slot over frozen lite0: ten minutes a run"
    )
    given = parser.parse_args()
    drawn = given.out / "world"
    write_world(World.preset("small", **WORLD), drawn)
    begun = time.monotonic()
    games = [
        (match, pool, seed)
        for match in matches(drawn, given.pacs, given.pets, given.slow)
        for pool in match.pools
        for seed in range(given.seeds)
        if pool != "cls" or match.recipe == "vit.yaml"
    ]
    tables: dict[Match, dict[str, list[dict[str, float]]]] = {}
    with ProcessPoolExecutor(given.jobs) as runners:
        jobs = [runners.submit(play, match, given.out, pool, seed) for match, pool, seed in games]
        for (match, pool, _), job in zip(games, jobs, strict=True):
            tables.setdefault(match, {}).setdefault(pool, []).append(job.result())
    print("\n".join(["", *(line for match, rows in tables.items() for line in table(match, rows))]))
    print(f"{given.seeds} seeds, {(time.monotonic() - begun) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
