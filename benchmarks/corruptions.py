"""Images per second of each corruption.

    python benchmarks/corruptions.py [--side 224] [--severity 3] [--rounds 3]

Compared with the package imagecorruptions, if it is installed (pip install --no-deps
imagecorruptions; OpenCV and scikit-image): both in one process with one thread, in turn, best of
the rounds. Its elastic transform differs, and its frost uses photographs. Takes half a minute,
nearly all of it for the package's glass blur.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the tests' way to load the old package

from cenote.data.corruptions import CORRUPTIONS, corrupt
from cenote.predict.timing import best_times
from tests.data.peer_corruptions import load_peer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    y, x = np.mgrid[: args.side, : args.side]
    smooth = np.stack(
        [128 + 100 * np.sin(x / 17), 255 * y / args.side, 90 + 60 * np.cos((x + y) / 11)], 2
    )
    image = np.clip(smooth + np.random.default_rng(0).normal(0, 9, smooth.shape), 0, 255).astype(
        np.uint8
    )
    peer = load_peer()
    if peer is None:
        print("imagecorruptions, OpenCV or scikit-image is not installed: ours alone")
    print("| corruption | Cenote images/s | imagecorruptions | ratio |\n|---|---|---|---|")
    ours = theirs = 0.0
    for name in CORRUPTIONS:
        calls = {"ours": partial(corrupt, image, name, args.severity)}
        if peer is not None:
            calls["theirs"] = partial(peer, image, args.severity, name)
        times = best_times(calls, args.rounds)
        ours += times["ours"]
        line = f"| {name} | {1 / times['ours']:.0f} "
        if peer is not None:
            theirs += times["theirs"]
            line += f"| {1 / times['theirs']:.1f} | {times['theirs'] / times['ours']:.1f}x |"
        print(line if peer is not None else line + "| | |", flush=True)
    end = f"| {theirs * 1e3:.0f} ms | {theirs / ours:.1f}x |" if peer is not None else "| | |"
    print(f"| all 15, one image | {ours * 1e3:.0f} ms {end}")


if __name__ == "__main__":
    main()
