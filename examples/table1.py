"""Table 1 of "Beyond Global Average Pooling" at a small scale: pools x finer maps x Cutout, seeds.

    python examples/table1.py DATA -o runs/table1

DATA has classes and boxes (CUB, a synthetic data set). EfficientNet-Lite0 is fine-tuned for a few
epochs on small images; the epoch is chosen by MaxBoxAccV2 on validation. The numbers are those of
the test split: with thresholds chosen on validation, and in brackets with thresholds chosen on test.
Each cell is a separate run; an interrupted command resumes.
"""

import argparse
import itertools
import json
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from cenote.allocator import keep_memory
from cenote.data import open_dataset
from cenote.train.configure import configure
from cenote.train.fit import fit
from cenote.train.recipes import parse_recipe

POOLS = ("gap", "max", "glsep")
NETWORKS = {"2x": {"stride": 2}, "4x": {"stride": 4}, "FPN P2": {"fpn": "P2"}, "FPN P3": {"fpn": "P3"},
            "FPN P4": {"fpn": "P4"}}  # fmt: skip
CUTOUTS = {"no Cutout": 0.0, "Cutout": 0.25}
RATES = {"gap": 1e-3, "max": 1e-3, "glsep": 3e-4}  # GLSEP needs the smallest [Pooling for WSOL]
RECIPE = """
model: {{backbone: lite0, pretrained: true, fpn_dim: 64}}
train: {{epochs: {epochs}, batch: 16, weight_decay: 0.05, warmup: 0.5, clip: 1.0, select: boxes}}
augment: {{kind: wsol, size: {size}, resize: {resize}}}
data: cub
paper: {{}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--classes", type=int, default=20, help="use the first N classes")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cells", type=int, default=None, help="stop after N trainings")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trainings at a time")
    args = parser.parse_args()
    cells = list(itertools.product(range(args.seeds), NETWORKS, POOLS, CUTOUTS))[: args.cells]
    reports: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    with ProcessPoolExecutor(args.jobs) as runners:
        for (_, *cell), test in zip(
            cells, runners.map(train_cell, itertools.repeat(args), cells), strict=True
        ):
            reports.setdefault(tuple(cell), []).append(test)
    print(table(reports))


def train_cell(args: argparse.Namespace, cell: tuple[int, str, str, str]) -> dict[str, float]:
    """Train and evaluate one cell, or read its results."""
    seed, network, pool, cutout = cell
    folder = args.out / f"{pool}-{network}-{cutout}-{seed}".replace(" ", "_")
    if not (folder / "results.json").exists():
        keep_memory()
        torch.set_num_threads(1)  # one core per training
        started, data = time.monotonic(), open_dataset(args.data)
        data = data.select((data.labels >= 0) & (data.labels < args.classes))
        text = RECIPE.format(
            epochs=args.epochs, size=args.size, resize=round(args.size * 256 / 224)
        )
        config = configure(
            "fit",
            parse_recipe(text, "table1"),
            pool=pool,
            cutout=CUTOUTS[cutout],
            lr=(RATES[pool],),
            seed=seed,
            **NETWORKS[network],
        )
        fit(data, folder, config, resume=folder.is_dir())
        (folder / "checkpoint.pt").unlink(missing_ok=True)
        (folder / "model.safetensors").unlink(missing_ok=True)  # ninety models would fill a disk
        print(f"{folder.name}: {time.monotonic() - started:.0f} s", flush=True)
    reports: dict[str, float] = json.loads((folder / "results.json").read_text())["test"]
    return reports


def table(reports: dict[tuple[str, str, str], list[dict[str, float]]]) -> str:
    """Return a Markdown table of MaxBoxAccV2 without and with Cutout for each network and pool."""
    lines = [f"| network | pool | {' | '.join(CUTOUTS)} | accuracy |", "|---|---|---|---|---|"]
    for network, pool in itertools.product(NETWORKS, POOLS):
        rows = [reports.get((network, pool, cutout), []) for cutout in CUTOUTS]
        if any(rows):
            accuracies = [report["accuracy"] for row in rows for report in row]
            lines.append(
                f"| {network} | {pool} | {' | '.join(map(cell, rows))} | {statistics.mean(accuracies):.1f} |"
            )
    return "\n".join(lines)


def cell(reports: list[dict[str, float]]) -> str:
    if not reports:
        return "-"
    scores = [report["boxes"] for report in reports]
    oracle = statistics.mean(report["boxes_oracle"] for report in reports)
    deviation = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.1f}{deviation} ({oracle:.1f})"


if __name__ == "__main__":
    main()
