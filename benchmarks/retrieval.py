"""Retrieval scores compared with pytorch-metric-learning.

    python benchmarks/retrieval.py [--rows 60000] [--rounds 1]

60,000 vectors of 512 dimensions in 11,316 classes, as in Stanford Online Products:
`retrieval_scores` compared with `AccuracyCalculator(k="max_bin_count")`, which searches with faiss.
Each runs in its own process, in turn. Seconds are those of the call; memory is the peak of the
process, libraries and vectors included. Needs pytorch-metric-learning and faiss-cpu. Takes minutes
on two cores; `--rows 6000` takes seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

BAR, MEMORY_BAR = 2, 5
THEIRS = {
    "precision_at_1": "p@1",
    "r_precision": "r_precision",
    "mean_average_precision_at_r": "map@r",
}
PROCESS_STATUS = Path("/proc/self/status")


def ours(x: Any, labels: Any) -> dict[str, float]:
    from cenote.metrics import retrieval_scores

    return retrieval_scores(x, labels)


def pytorch_metric_learning(x: Any, labels: Any) -> dict[str, float]:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    calculator = AccuracyCalculator(include=tuple(THEIRS), k="max_bin_count")
    result = calculator.get_accuracy(x, labels)
    return {key: result[name] for name, key in THEIRS.items()}


LIBRARIES = {"Cenote": ours, "pytorch-metric-learning": pytorch_metric_learning}


def measure(name: str, folder: Path) -> None:
    """Measure one library; runs in its own process."""
    import torch

    x, labels = (
        torch.from_numpy(np.load(folder / f"{part}.npy")) for part in ("vectors", "labels")
    )
    few = torch.randn(200, x.shape[1]), torch.arange(200) // 4
    LIBRARIES[name](*few)  # imports, threads
    before, wall, cpu = peak(), time.perf_counter(), time.process_time()
    scores = LIBRARIES[name](x, labels)
    spent = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    print(json.dumps({**spent, "peak": peak(), "before": before, "scores": scores}))


def peak() -> float:
    """Return megabytes; getrusage would include the program that started this process."""
    if PROCESS_STATUS.exists():
        line = next(
            line for line in PROCESS_STATUS.read_text().splitlines() if line.startswith("VmHWM")
        )
        return int(line.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 1024
    )


def write_data(folder: Path, rows: int, dim: int, classes: int) -> None:
    """Write noisy clusters of different sizes in random order."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, rows)
    centres = rng.standard_normal((classes, dim), np.float32)
    vectors = centres[labels] + 2.2 * rng.standard_normal((rows, dim), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)  # the calculator compares by distance
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "labels.npy", labels)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--classes", type=int, help="default: 5.3 rows per class")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=LIBRARIES)
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        return measure(args.measure[0], Path(args.measure[1]))
    classes = args.classes or max(1, round(args.rows * 11_316 / 60_000))
    names = [args.only] if args.only else list(LIBRARIES)
    best: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as folder:
        write_data(Path(folder), args.rows, args.dim, classes)
        for turn in range(args.rounds):
            for name in names if turn % 2 == 0 else names[::-1]:
                command = [sys.executable, __file__, "--measure", name, folder]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
                if done.returncode:
                    raise SystemExit(f"{name} failed with exit code {done.returncode}, see above")
                result = json.loads(done.stdout.splitlines()[-1])
                if name not in best or result["seconds"] < best[name]["seconds"]:
                    best[name] = result
    print(f"{args.rows} x {args.dim}, {classes} classes, best of {args.rounds}")
    print("| | seconds | CPU seconds | peak MB | before the call |\n|---|---|---|---|---|")
    for name, result in best.items():
        times = f"{result['seconds']:.1f} | {result['cpu']:.1f}"
        print(f"| {name} | {times} | {result['peak']:.0f} | {result['before']:.0f} |")
    cenote_result = best.get("Cenote")
    print(
        "  ".join(
            f"{key} {value:.6f}"
            for key, value in (cenote_result or best[names[0]])["scores"].items()
        )
    )
    if cenote_result and len(best) == 2:
        rival = best["pytorch-metric-learning"]
        difference = max(
            abs(cenote_result["scores"][key] - value) for key, value in rival["scores"].items()
        )
        print(f"largest difference of a score: {difference:.1e}")
        speed = rival["seconds"] / cenote_result["seconds"]
        memory = rival["peak"] / cenote_result["peak"]
        print(f"faster {speed:.1f}x (bar {BAR}), memory 1/{memory:.1f} (bar 1/{MEMORY_BAR})")


if __name__ == "__main__":
    main()
