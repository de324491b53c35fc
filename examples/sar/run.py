"""Does SAR hold attention together, with CLS and with SimPool, supervised and DINO? At a scale for two cores.

    python examples/sar/run.py OUT [--seeds 3] [--pets FOLDER --weights FILE]

Every run is a `cenote fit` or a `cenote dino`, with and without `--sar 0.01`. CLS with SAR has its last block as well.
On test images: accuracy, or 10 nearest neighbours; attention Jaccard; the spatial entropy of the maps; MaxBoxAccV2 with
thresholds that validation images chose. Writes the maps of every head of the first seed to OUT/heads-*.png, and prints
the tables of docs/results.md. Killed, it goes on where it was.
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
from heads import draw_heads

from cenote.allocator import keep_memory
from cenote.data import Dataset, open_dataset, write_atomically
from cenote.data.loading import load as batches
from cenote.data.splits import split
from cenote.data.synthetic import World, write_world
from cenote.evaluate.classify import classify
from cenote.evaluate.jaccard import jaccard
from cenote.evaluate.knn import knn
from cenote.evaluate.wsol import localize
from cenote.losses import spatial_entropy
from cenote.models import PooledModel, load, save_model
from cenote.models.attention_logits import AttentionLogits
from cenote.report.sheet import stacked
from cenote.train.build import build_model
from cenote.train.configure import configure
from cenote.train.fit import fit
from cenote.train.recipes import load_recipe
from cenote.train.self_supervised import train_without_labels

HERE = Path(__file__).parent
SAR = 0.01  # A 12
# One object, which alone tells the class: what attention should find is what the mask shows.
WORLD: dict[str, Any] = {
    "images": 1600,
    "size": 64,
    "classes": 6,
    "sizes": (0, 1, 2),
    "counts": (1, 0, 0, 0),
}
WORLD |= {"scenes": 4, "bias": 0.0, "distractors": 0}
# Without labels a network learns what crops share, which is the scene: here it goes with the class, across six styles.
SCENES: dict[str, Any] = {
    "images": 2000,
    "size": 64,
    "classes": 12,
    "sizes": (0, 1, 2),
    "counts": (1, 0, 0, 0),
}
SCENES |= {"bias": 0.9, "test_bias": 0.9, "distractors": 0}
TITLES = {"cls": "CLS", "simpool": "SimPool"}
COLUMNS = {"jaccard": "Jaccard", "entropy": "spatial entropy", "boxes": "MaxBoxAccV2"}
COLUMNS |= {"epoch": "epoch kept", "seconds": "seconds"}


class Match(NamedTuple):
    """One table: the same data and training for every row."""

    name: str
    data: Path
    score: str  # what is told first: "accuracy", or "10-NN" of what never saw a label
    recipe: str
    weights: Path | None = None  # to begin with
    epochs: int | None = None  # other than the recipe's, to try it out

    def rows(self) -> list[Row]:
        rows = [Row(pool, kind) for pool in TITLES for kind in ("", "sar")]
        return (
            rows if self.score == "accuracy" else [Row(pool, "untrained") for pool in TITLES] + rows
        )


class Row(NamedTuple):
    pool: str
    kind: str  # "", "sar" or "untrained"

    @property
    def title(self) -> str:
        return TITLES[self.pool] + {"": "", "sar": " + SAR", "untrained": ", untrained"}[self.kind]


def train(match: Match, folder: Path, row: Row, seed: int) -> None:
    """What was begun goes on."""
    data, recipe, again = (
        open_dataset(str(match.data)),
        load_recipe(HERE / match.recipe),
        folder.is_dir(),
    )
    given: dict[str, Any] = {"seed": seed, "sar": SAR if row.kind == "sar" else 0.0}
    given |= {"epochs": match.epochs, "pool": row.pool}
    # What was trained with a whole last block is fine-tuned with it (A, D.3).
    block = "sar" if row == ("cls", "sar") and match.weights is None else None
    if recipe.config.task != "dino":
        config = configure("fit", recipe, weights=match.weights, last_block=block, **given)
        fit(data, folder, config, resume=again)
        return
    config = configure("dino", recipe, last_block=block, **given)
    if row.kind == "untrained":
        save_model(build_model(config), folder)
    else:
        train_without_labels(data, folder, config, resume=again)


def play(match: Match, out: Path, row: Row, seed: int) -> dict[str, float]:
    """Train and judge once; what was done before is read."""
    folder = folder_of(match, out, row, seed)
    path = folder / "judged.json"
    if not path.is_file():
        keep_memory()
        torch.set_num_threads(1)  # each run has a core of its own
        started, results = time.monotonic(), folder / "results.json"
        if not results.is_file():
            train(match, folder, row, seed)
        found = judge(match, folder, seed)
        if results.is_file():
            report = json.loads(results.read_text())
            found |= {"epoch": report["epoch"], "seconds": report["seconds"]["training"]}
        print(
            f"{match.name}, {row.title}, seed {seed}: {time.monotonic() - started:.0f} s",
            flush=True,
        )
        with write_atomically(path) as temporary:
            temporary.write_text(json.dumps(found))
    return dict(json.loads(path.read_text()))


def folder_of(match: Match, out: Path, row: Row, seed: int) -> Path:
    return (
        out
        / match.name.replace(", ", "-").replace(" ", "-")
        / "-".join(filter(None, (*row, str(seed))))
    )


def judge(match: Match, folder: Path, seed: int) -> dict[str, float]:
    parts = split(open_dataset(str(match.data)), seed=seed, quiet=True)
    test, model = parts.test or parts.val, load(folder)
    if model.head is None:  # trained without labels
        report = knn(model, parts.train, test)
        score = report.accuracy[10]
    else:
        score = classify(model, test).accuracy
    chosen = localize(model, test, parts.val, resamples=0, cases=0).chosen
    return {
        "score": score,
        "jaccard": jaccard(model, test, size=model.backbone.preprocessing.size)["jaccard"],
        "entropy": entropy_of_maps(model, test),
        "boxes": chosen["max_box_acc_v2"]["score"],
        "centred": chosen["centred_box"]["score"],
    }


@torch.no_grad()
def entropy_of_maps(model: PooledModel, dataset: Dataset) -> float:
    """(A 9), the mean over whole images and heads, of what the softmax is given."""
    total, count = 0.0, 0
    for batch in batches(dataset, model.eval().backbone.preprocessing.whole(), 64):
        with AttentionLogits(model) as seen:
            model.embed(batch.images)
        total, count = (
            total + float(spatial_entropy(seen.last())) * len(batch.labels),
            count + len(batch.labels),
        )
    return total / count


def draw(match: Match, out: Path) -> Path:
    """The first test image of each class, up to six; every head without and with SAR, of the first seed."""
    data = open_dataset(str(match.data))
    parts = split(data, seed=0, quiet=True)
    test = parts.test or parts.val
    labels = test.labels.tolist()
    positions = [labels.index(label) for label in sorted(set(labels))[:6]]
    sheets = []
    for pool, wide in (("cls", 2), ("simpool", 4)):
        rows = [Row(pool, kind) for kind in ("", "sar")]
        models = {row.title: load(folder_of(match, out, row, 0)) for row in rows}
        heading = (
            f"{match.name}: {TITLES[pool]} without and with SAR, map by map; H: spatial entropy"
        )
        sheets.append(draw_heads(models, test, positions, heading, columns=wide))
    path = out / f"heads-{folder_of(match, out, rows[0], 0).parent.name}.png"
    with write_atomically(path) as temporary:
        stacked(sheets).save(temporary)
    return path


def table(match: Match, rows: dict[Row, list[dict[str, float]]]) -> Iterator[str]:
    """The mean and deviation over the seeds."""
    fixed = fmean(found["centred"] for several in rows.values() for found in several)
    yield f"**{match.name}**\n"
    yield f"A fixed box in the middle, which sees nothing: MaxBoxAccV2 {fixed:.1f}.\n"
    yield " | ".join(["| ", match.score, *COLUMNS.values()]) + " |"
    yield "|---" * (len(COLUMNS) + 2) + "|"
    for row, several in rows.items():
        told = [
            spread([found[key] for found in several if key in found], key)
            for key in ("score", *COLUMNS)
        ]
        yield f"| {row.title} | " + " | ".join(told) + " |"
    yield ""


def spread(values: list[float], key: str) -> str:
    digits = {"entropy": 2, "epoch": 0, "seconds": 0}.get(key, 1)
    if not values:
        return ""
    noted = len(values) > 1 and digits
    return f"{fmean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if noted else "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--pets", type=Path, help="a folder of Oxford-IIIT Pets that cenote data opens"
    )
    parser.add_argument(
        "--weights",
        type=Path,
        help="of timm's vit_tiny_patch16_224, which is fine-tuned on the pets",
    )
    parser.add_argument("--epochs", type=int, help="other than the recipes', to try it out")
    parser.add_argument("--images", type=int, help="of each world, to try it out")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    given = parser.parse_args()
    if (given.pets is None) != (given.weights is None):
        parser.error("--pets and --weights go together")
    drawn, scenes, begun = given.out / "world", given.out / "scenes", time.monotonic()
    few = {} if given.images is None else {"images": given.images}
    write_world(World.preset("small", **WORLD | few), drawn)
    write_world(World.preset("domains", **SCENES | few), scenes)
    matches = [
        Match("the world, supervised", drawn, "accuracy", "supervised.yaml"),
        Match("the world, DINO", scenes, "10-NN", "dino.yaml"),
    ]
    if given.pets is not None:
        matches.append(
            Match("Pets, fine-tuned", given.pets, "accuracy", "pets.yaml", given.weights)
        )
    matches = [match._replace(epochs=given.epochs) for match in matches]
    games = [
        (match, row, seed)
        for match in matches
        for row in match.rows()
        for seed in range(given.seeds)
    ]
    tables: dict[Match, dict[Row, list[dict[str, float]]]] = {}
    with ProcessPoolExecutor(given.jobs) as runners:
        jobs = [runners.submit(play, match, given.out, row, seed) for match, row, seed in games]
        for (match, row, _), job in zip(games, jobs, strict=True):
            tables.setdefault(match, {}).setdefault(row, []).append(job.result())
    print("\n".join(["", *(line for match, rows in tables.items() for line in table(match, rows))]))
    for match in matches:
        print(draw(match, given.out))
    print(f"{given.seeds} seeds, {(time.monotonic() - begun) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
