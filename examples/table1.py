"""The form of Table 1 of "Beyond Global Average Pooling" at a small scale: pools x finer maps x Cutout, several seeds.

    python examples/table1.py DATA -o runs/table1

DATA has classes and boxes (CUB, a world). EfficientNet-Lite0 is fine-tuned for a few epochs on small pictures; the
epoch is chosen by MaxBoxAccV2 on validation, and the figures are of the test split: with the thresholds that
validation chose, and in brackets with test's own. Each cell is a run of its own: after a kill, the same command goes
on.
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
RATES = {"gap": 1e-3, "max": 1e-3, "glsep": 3e-4}  # GLSEP wants the smallest, the paper says
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
    parser.add_argument(
        "--classes", type=int, default=20, help="the first so many classes of the data"
    )
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cells", type=int, default=None, help="stop after so many trainings")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trainings at a time")
    asked = parser.parse_args()
    cells = list(itertools.product(range(asked.seeds), NETWORKS, POOLS, CUTOUTS))[: asked.cells]
    found: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    with ProcessPoolExecutor(asked.jobs) as runners:
        for (_, *cell), test in zip(
            cells, runners.map(play, itertools.repeat(asked), cells), strict=True
        ):
            found.setdefault(tuple(cell), []).append(test)
    print(table(found))


def play(asked: argparse.Namespace, cell: tuple[int, str, str, str]) -> dict[str, float]:
    """Train and judge once; what was done before is read."""
    seed, network, pool, cutout = cell
    folder = asked.out / f"{pool}-{network}-{cutout}-{seed}".replace(" ", "_")
    if not (folder / "results.json").exists():
        keep_memory()
        torch.set_num_threads(1)  # each training has a core of its own
        started, data = time.monotonic(), open_dataset(asked.data)
        data = data.select((data.labels >= 0) & (data.labels < asked.classes))
        text = RECIPE.format(
            epochs=asked.epochs, size=asked.size, resize=round(asked.size * 256 / 224)
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
        (folder / "model.safetensors").unlink(missing_ok=True)  # ninety of them would fill a disk
        print(f"{folder.name}: {time.monotonic() - started:.0f} s", flush=True)
    found: dict[str, float] = json.loads((folder / "results.json").read_text())["test"]
    return found


def table(found: dict[tuple[str, str, str], list[dict[str, float]]]) -> str:
    """Markdown: a row for each network and pool, MaxBoxAccV2 without and with Cutout."""
    lines = [f"| network | pool | {' | '.join(CUTOUTS)} | accuracy |", "|---|---|---|---|---|"]
    for network, pool in itertools.product(NETWORKS, POOLS):
        rows = [found.get((network, pool, cutout), []) for cutout in CUTOUTS]
        if any(rows):
            right = [report["accuracy"] for row in rows for report in row]
            lines.append(
                f"| {network} | {pool} | {' | '.join(map(cell, rows))} | {statistics.mean(right):.1f} |"
            )
    return "\n".join(lines)


def cell(reports: list[dict[str, float]]) -> str:
    if not reports:
        return "-"
    honest = [report["boxes"] for report in reports]
    oracle = statistics.mean(report["boxes_oracle"] for report in reports)
    deviation = f" ± {statistics.stdev(honest):.1f}" if len(honest) > 1 else ""
    return f"{statistics.mean(honest):.1f}{deviation} ({oracle:.1f})"


if __name__ == "__main__":
    main()
