"""Does SAR make attention more coherent, with CLS and SimPool, supervised and DINO? For two cores.

    python examples/sar/run.py OUT [--seeds 3] [--pets FOLDER --weights FILE]

Every run is a `cenote fit` or a `cenote dino`, with and without `--sar 0.01`; CLS with SAR also has
its last block. On test images: accuracy or 10 nearest neighbours, attention Jaccard, spatial entropy
of the maps, MaxBoxAccV2 with thresholds chosen on validation images. Writes the maps of every head of
the first seed to OUT/heads-*.png and prints the tables of docs/results.md. An interrupted command
resumes.
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
from cenote.evaluate.probes import knn
from cenote.evaluate.wsol import localize
from cenote.losses import spatial_entropy
from cenote.models import PooledModel, load, save_model
from cenote.models.attention_maps import AttentionLogits
from cenote.report.sheet import stacked
from cenote.train.build import build_model
from cenote.train.configure import configure
from cenote.train.fit import fit
from cenote.train.recipes import load_recipe
from cenote.train.self_supervised import train_without_labels

HERE = Path(__file__).parent
SAR = 0.01  # [SAR Eq. 12]
# One object, which alone determines the class: attention should match its mask.
WORLD: dict[str, Any] = {
    "images": 1600,
    "size": 64,
    "classes": 6,
    "sizes": (0, 1, 2),
    "counts": (1, 0, 0, 0),
}
WORLD |= {"scenes": 4, "bias": 0.0, "distractors": 0}
# Without labels a network learns what crops share, the scene; here it depends on the class.
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


class Experiment(NamedTuple):
    """One table: the same data and training for every row."""

    name: str
    data: Path
    score: str  # the first column: "accuracy", or "10-NN" without labels
    recipe: str
    weights: Path | None = None  # initial weights
    epochs: int | None = None  # instead of the recipe's, for a quick trial

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


def train(experiment: Experiment, folder: Path, row: Row, seed: int) -> None:
    """Train a model, or resume its training."""
    data, recipe, resume = (
        open_dataset(str(experiment.data)),
        load_recipe(HERE / experiment.recipe),
        folder.is_dir(),
    )
    args: dict[str, Any] = {"seed": seed, "sar": SAR if row.kind == "sar" else 0.0}
    args |= {"epochs": experiment.epochs, "pool": row.pool}
    # A model that was pretrained with a full last block keeps it [SAR Sec. D.3].
    block = "sar" if row == ("cls", "sar") and experiment.weights is None else None
    if recipe.config.task != "dino":
        config = configure("fit", recipe, weights=experiment.weights, last_block=block, **args)
        fit(data, folder, config, resume=resume)
        return
    config = configure("dino", recipe, last_block=block, **args)
    if row.kind == "untrained":
        save_model(build_model(config), folder)
    else:
        train_without_labels(data, folder, config, resume=resume)


def run_once(experiment: Experiment, out: Path, row: Row, seed: int) -> dict[str, float]:
    """Train and evaluate once, or read the results."""
    folder = folder_of(experiment, out, row, seed)
    path = folder / "judged.json"
    if not path.is_file():
        keep_memory()
        torch.set_num_threads(1)  # one core per run
        started, results = time.monotonic(), folder / "results.json"
        if not results.is_file():
            train(experiment, folder, row, seed)
        scores = evaluate(experiment, folder, seed)
        if results.is_file():
            report = json.loads(results.read_text())
            scores |= {"epoch": report["epoch"], "seconds": report["seconds"]["training"]}
        print(
            f"{experiment.name}, {row.title}, seed {seed}: {time.monotonic() - started:.0f} s",
            flush=True,
        )
        with write_atomically(path) as temporary:
            temporary.write_text(json.dumps(scores))
    return dict(json.loads(path.read_text()))


def folder_of(experiment: Experiment, out: Path, row: Row, seed: int) -> Path:
    return (
        out
        / experiment.name.replace(", ", "-").replace(" ", "-")
        / "-".join(filter(None, (*row, str(seed))))
    )


def evaluate(experiment: Experiment, folder: Path, seed: int) -> dict[str, float]:
    parts = split(open_dataset(str(experiment.data)), seed=seed, quiet=True)
    test, model = parts.test or parts.val, load(folder)
    if model.head is None:  # trained without labels
        report = knn(model, parts.train, test)
        score = report.accuracy[10]
    else:
        score = classify(model, test).accuracy
    chosen = localize(model, test, parts.val, resamples=0, cases=0).chosen
    return {
        "score": score,
        "jaccard": jaccard(model, test, size=model.backbone.preprocessing.size).jaccard,
        "entropy": entropy_of_maps(model, test),
        "boxes": chosen["max_box_acc_v2"]["score"],
        "centred": chosen["centred_box"]["score"],
    }


@torch.no_grad()
def entropy_of_maps(model: PooledModel, dataset: Dataset) -> float:
    """Return the mean spatial entropy [SAR Eq. 9] over images and heads of the attention logits."""
    total, count = 0.0, 0
    for batch in batches(dataset, model.eval().backbone.preprocessing.whole(), 64):
        with AttentionLogits(model) as watched:
            model.embed(batch.images)
        total, count = (
            total + float(spatial_entropy(watched.last())) * len(batch.labels),
            count + len(batch.labels),
        )
    return total / count


def draw(experiment: Experiment, out: Path) -> Path:
    """Draw every head without and with SAR for one test image of up to six classes, first seed."""
    data = open_dataset(str(experiment.data))
    parts = split(data, seed=0, quiet=True)
    test = parts.test or parts.val
    labels = test.labels.tolist()
    positions = [labels.index(label) for label in sorted(set(labels))[:6]]
    sheets = []
    for pool, columns in (("cls", 2), ("simpool", 4)):
        rows = [Row(pool, kind) for kind in ("", "sar")]
        models = {row.title: load(folder_of(experiment, out, row, 0)) for row in rows}
        heading = f"{experiment.name}: {TITLES[pool]} without and with SAR, map by map; H: spatial entropy"
        sheets.append(draw_heads(models, test, positions, heading, columns=columns))
    path = out / f"heads-{folder_of(experiment, out, rows[0], 0).parent.name}.png"
    with write_atomically(path) as temporary:
        stacked(sheets).save(temporary)
    return path


def table(experiment: Experiment, rows: dict[Row, list[dict[str, float]]]) -> Iterator[str]:
    """Return a Markdown table of means and deviations over the seeds."""
    fixed = fmean(scores["centred"] for reports in rows.values() for scores in reports)
    yield f"**{experiment.name}**\n"
    yield f"A fixed box in the centre: MaxBoxAccV2 {fixed:.1f}.\n"
    yield " | ".join(["| ", experiment.score, *COLUMNS.values()]) + " |"
    yield "|---" * (len(COLUMNS) + 2) + "|"
    for row, reports in rows.items():
        cells = [
            format_scores([scores[key] for scores in reports if key in scores], key)
            for key in ("score", *COLUMNS)
        ]
        yield f"| {row.title} | " + " | ".join(cells) + " |"
    yield ""


def format_scores(values: list[float], key: str) -> str:
    digits = {"entropy": 2, "epoch": 0, "seconds": 0}.get(key, 1)
    if not values:
        return ""
    show_deviation = len(values) > 1 and digits
    return f"{fmean(values):.{digits}f}" + (
        f" ± {stdev(values):.{digits}f}" if show_deviation else ""
    )


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
    parser.add_argument("--epochs", type=int, help="instead of the recipes', for a quick trial")
    parser.add_argument("--images", type=int, help="images of each data set, for a quick trial")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    args = parser.parse_args()
    if (args.pets is None) != (args.weights is None):
        parser.error("--pets and --weights go together")
    world, scenes, started = args.out / "world", args.out / "scenes", time.monotonic()
    overrides = {} if args.images is None else {"images": args.images}
    write_world(World.preset("small", **WORLD | overrides), world)
    write_world(World.preset("domains", **SCENES | overrides), scenes)
    experiments = [
        Experiment("the world, supervised", world, "accuracy", "supervised.yaml"),
        Experiment("the world, DINO", scenes, "10-NN", "dino.yaml"),
    ]
    if args.pets is not None:
        experiments.append(
            Experiment("Pets, fine-tuned", args.pets, "accuracy", "pets.yaml", args.weights)
        )
    experiments = [experiment._replace(epochs=args.epochs) for experiment in experiments]
    runs = [
        (experiment, row, seed)
        for experiment in experiments
        for row in experiment.rows()
        for seed in range(args.seeds)
    ]
    tables: dict[Experiment, dict[Row, list[dict[str, float]]]] = {}
    with ProcessPoolExecutor(args.jobs) as runners:
        jobs = [
            runners.submit(run_once, experiment, args.out, row, seed)
            for experiment, row, seed in runs
        ]
        for (experiment, row, _), job in zip(runs, jobs, strict=True):
            tables.setdefault(experiment, {}).setdefault(row, []).append(job.result())
    print(
        "\n".join(
            ["", *(line for experiment, rows in tables.items() for line in table(experiment, rows))]
        )
    )
    for experiment in experiments:
        print(draw(experiment, args.out))
    print(f"{args.seeds} seeds, {(time.monotonic() - started) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
