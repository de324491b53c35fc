"""The spatial entropy loss against a labelling map by map: `python benchmarks/spatial_entropy.py [--rounds 5]`.

Value and gradient of both, in turn, the best of the rounds. The rival labels each map with OpenCV and makes a mask of
each component, as the released program does. Needs opencv-python-headless. Seconds.
"""

from __future__ import annotations

import argparse

import cv2
import numpy as np
import torch
from torch import Tensor

from cenote.evaluate.speed import best_times
from cenote.losses import spatial_entropy

SHAPES = ((64, 6, 14, 14), (16, 6, 56, 56))
BAR = 8


def map_by_map(maps: Tensor) -> Tensor:
    values = []
    for s in maps.flatten(0, 1):
        b = torch.relu(s - s.mean())
        count, numbers = cv2.connectedComponents((b > 0).numpy().astype(np.uint8), connectivity=8)
        shares = torch.stack([(b * torch.from_numpy(numbers == j)).sum() for j in range(1, count)]) / b.sum()
        values.append(-(shares * shares.log()).sum())
    return torch.stack(values).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("| maps | map by map ms | Cenote ms | ratio | bar |\n|---|---|---|---|---|")
    for shape in SHAPES:
        torch.manual_seed(0)
        maps = torch.randn(shape, requires_grad=True)
        assert torch.allclose(map_by_map(maps), spatial_entropy(maps), atol=1e-5)
        found = best_times(
            {
                "rival": lambda m=maps: map_by_map(m).backward(),  # type: ignore[misc]
                "own": lambda m=maps: spatial_entropy(m).backward(),  # type: ignore[misc]
            },
            rounds,
        )
        told = " | ".join(f"{1000 * found[name]:.1f}" for name in ("rival", "own"))
        print(f"| {'x'.join(map(str, shape))} | {told} | {found['rival'] / found['own']:.1f} | {BAR} |")


if __name__ == "__main__":
    main()
