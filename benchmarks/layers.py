"""Probes of one layer and of several layers of a frozen ViT of 12 blocks, on real images.

    python benchmarks/layers.py --weights vit_tiny.safetensors shared/data/rsscn7 shared/data/pacs

Each probe is `cenote fit --freeze` with the options of its row. Data without a test split are split by
every seed: half of each class is tested.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from cenote.data import open_dataset
from cenote.data.splits import Splits, split
from cenote.train.configure import configure
from cenote.train.fit import fit
from cenote.train.reports import FitReport

FOUR, ALL = (3, 6, 9, 12), tuple(range(1, 13))
ROWS: dict[str, dict[str, Any]] = {
    "cls": {"pool": "cls"},
    "fusion by cae, 4 layers": {"pool": "cae", "layers": FOUR, "tokens": "summary"},
    "fusion by cae, 12 layers": {"pool": "cae", "layers": ALL, "tokens": "summary"},
    "fusion by ep, 12 layers": {"pool": "ep", "layers": ALL, "tokens": "summary"},
    "simpool": {"pool": "simpool"},
    "simpool, 4 layers": {"pool": "simpool", "layers": FOUR},
    "simpool, 12 layers": {"pool": "simpool", "layers": ALL},
    "fusion by simpool, 4 layers": {"pool": "simpool", "layers": FOUR, "tokens": "summary"},
}
SLOW_POOL = {"pool_lr_factor": 0.03}  # the default with --freeze for all other tokens
ROWS["fusion by cae, 4 layers, slow"] = {**ROWS["fusion by cae, 4 layers"], **SLOW_POOL}
ROWS["fusion by cae, 12 layers, slow"] = {**ROWS["fusion by cae, 12 layers"], **SLOW_POOL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--backbone", default="vit_tiny_patch16_224")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    args = parser.parse_args()
    for data in args.data:
        for row in args.rows:
            options = {"backbone": args.backbone, "weights": args.weights, **ROWS[row]}
            reports = [_fit(data, options, seed) for seed in range(args.seeds)]
            accuracies = [(report.test or {})["accuracy"] for report in reports]
            result = {
                "data": Path(data).name,
                "probe": row,
                "test": [round(accuracy, 2) for accuracy in accuracies],
                "mean": round(mean(accuracies), 2),
                "deviation": round(stdev(accuracies), 2),
                "layers": reports[0].layers,
            }
            print(json.dumps(result), flush=True)


def _fit(data: str, options: dict[str, Any], seed: int) -> FitReport:
    config = configure("fit", freeze=True, seed=seed, **options)
    with tempfile.TemporaryDirectory() as folder:
        return fit(_splits(data, seed), Path(folder), config, object_map=False)


def _splits(data: str, seed: int) -> Splits:
    dataset = open_dataset(data)
    splits = split(dataset, seed=seed, quiet=True)
    if splits.test is not None:
        return splits
    halves = split(dataset, 0.5, seed, quiet=True)
    return split(halves.train, seed=seed, quiet=True)._replace(test=halves.val)


if __name__ == "__main__":
    main()
