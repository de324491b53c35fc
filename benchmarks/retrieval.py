"""Retrieval scores against pytorch-metric-learning: `python benchmarks/retrieval.py [--rows 60000] [--rounds 1]`.

60,000 vectors of 512 dimensions in 11,316 classes, as Stanford Online Products has them: `retrieval_scores` against
`AccuracyCalculator(k="max_bin_count")` with its own search, which is that of faiss. Each runs in a process of its own,
in turn; seconds are those of the call, memory is the most that the whole process held, libraries and vectors included.
Needs pytorch-metric-learning and faiss-cpu. Minutes on two cores at full size; `--rows 6000` takes seconds.
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
TELLS_PEAK = Path("/proc/self/status")


def ours(x: Any, labels: Any) -> dict[str, float]:
    from cenote.metrics import retrieval_scores

    return retrieval_scores(x, labels)


def pytorch_metric_learning(x: Any, labels: Any) -> dict[str, float]:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    calculator = AccuracyCalculator(include=tuple(THEIRS), k="max_bin_count")
    found = calculator.get_accuracy(x, labels)
    return {own: found[name] for name, own in THEIRS.items()}


RIVALS = {"Cenote": ours, "pytorch-metric-learning": pytorch_metric_learning}


def measure(name: str, folder: Path) -> None:
    """In a process of its own."""
    import torch

    x, labels = (
        torch.from_numpy(np.load(folder / f"{part}.npy")) for part in ("vectors", "labels")
    )
    few = torch.randn(200, x.shape[1]), torch.arange(200) // 4
    RIVALS[name](*few)  # imports, threads
    before, wall, cpu = peak(), time.perf_counter(), time.process_time()
    scores = RIVALS[name](x, labels)
    spent = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    print(json.dumps({**spent, "peak": peak(), "before": before, "scores": scores}))


def peak() -> float:
    """Megabytes; the kernel counts from the start of this program, getrusage also the one that started it."""
    if TELLS_PEAK.exists():
        line = next(
            line for line in TELLS_PEAK.read_text().splitlines() if line.startswith("VmHWM")
        )
        return int(line.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 1024
    )


def write_data(folder: Path, rows: int, dim: int, classes: int) -> None:
    """Noisy clusters in random order, of sizes that differ, some of one member."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, classes, rows)
    centres = draw.standard_normal((classes, dim), np.float32)
    vectors = centres[labels] + 2.2 * draw.standard_normal((rows, dim), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)  # the calculator compares by distance
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "labels.npy", labels)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--classes", type=int, help="as many as would make classes of 5.3")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=RIVALS)
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        return measure(asked.measure[0], Path(asked.measure[1]))
    classes = asked.classes or max(1, round(asked.rows * 11_316 / 60_000))
    names = [asked.only] if asked.only else list(RIVALS)
    best: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as folder:
        write_data(Path(folder), asked.rows, asked.dim, classes)
        for turn in range(asked.rounds):
            for name in names if turn % 2 == 0 else names[::-1]:
                command = [sys.executable, __file__, "--measure", name, folder]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
                if done.returncode:
                    raise SystemExit(f"{name} ended with {done.returncode}: see above")
                found = json.loads(done.stdout.splitlines()[-1])
                if name not in best or found["seconds"] < best[name]["seconds"]:
                    best[name] = found
    print(f"{asked.rows} x {asked.dim}, {classes} classes, best of {asked.rounds}")
    print("| | seconds | CPU seconds | peak MB | before the call |\n|---|---|---|---|---|")
    for name, found in best.items():
        print(
            f"| {name} | {found['seconds']:.1f} | {found['cpu']:.1f} | {found['peak']:.0f} | {found['before']:.0f} |"
        )
    own = best.get("Cenote")
    print(
        "  ".join(f"{key} {value:.6f}" for key, value in (own or best[names[0]])["scores"].items())
    )
    if own and len(best) == 2:
        rival = best["pytorch-metric-learning"]
        apart = max(abs(own["scores"][key] - value) for key, value in rival["scores"].items())
        print(f"largest difference of a score: {apart:.1e}")
        print(f"faster {rival['seconds'] / own['seconds']:.1f}x (bar {BAR}), memory 1/{rival['peak'] / own['peak']:.1f}"
              f" (bar 1/{MEMORY_BAR})")  # fmt: skip


if __name__ == "__main__":
    main()
