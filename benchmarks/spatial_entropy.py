"""The spatial entropy loss compared with labelling each map, and the cost of SAR in a training step.

    python benchmarks/spatial_entropy.py [--rounds 5] [--backbone vit_small_patch16_224 --batch 16]

Value and gradient, in turn, best of the rounds. The baseline labels each map with OpenCV and makes
a mask of each component, as the released program does. Then a training step of a CLS model without
and with the loss, in turn in one process: forward, backward, AdamW; the overhead is the median over
rounds. Needs opencv-python-headless. Takes minutes; `--batch 0` skips the training step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cenote.allocator import keep_memory
from cenote.losses import spatial_entropy
from cenote.models import create_model
from cenote.predict.timing import best_times
from cenote.train.config import OptimizationConfig
from cenote.train.sar import SarLoss
from cenote.train.state import TrainState

SHAPES = ((64, 6, 14, 14), (16, 6, 56, 56))
BAR, SHARE_BAR = 8, 5.0


def map_by_map(maps: Tensor) -> Tensor:
    values = []
    for s in maps.flatten(0, 1):
        b = torch.relu(s - s.mean())
        count, numbers = cv2.connectedComponents((b > 0).numpy().astype(np.uint8), connectivity=8)
        shares = (
            torch.stack([(b * torch.from_numpy(numbers == j)).sum() for j in range(1, count)])
            / b.sum()
        )
        values.append(-(shares * shares.log()).sum())
    return torch.stack(values).mean()


def loss_alone(rounds: int) -> None:
    print("| maps | map by map ms | Cenote ms | ratio | bar |\n|---|---|---|---|---|")
    for shape in SHAPES:
        torch.manual_seed(0)
        maps = torch.randn(shape, requires_grad=True)
        assert torch.allclose(map_by_map(maps), spatial_entropy(maps), atol=1e-5)
        durations = best_times(
            {
                "rival": lambda m=maps: map_by_map(m).backward(),  # type: ignore[misc]
                "own": lambda m=maps: spatial_entropy(m).backward(),  # type: ignore[misc]
            },
            rounds,
        )
        cells = " | ".join(f"{1000 * durations[name]:.1f}" for name in ("rival", "own"))
        print(
            f"| {'x'.join(map(str, shape))} | {cells} | {durations['rival'] / durations['own']:.1f} | {BAR} |"
        )


def training_step(backbone: str, batch: int, rounds: int) -> None:
    torch.manual_seed(0)
    settings = OptimizationConfig(sar=0.01)
    model = create_model(backbone, "cls", 1000).train()
    state, sar = TrainState("model", model, settings), SarLoss(model, settings)
    side = model.backbone.preprocessing.size
    images, labels = torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))

    def plain() -> None:
        F.cross_entropy(model(images), labels).backward()
        state.step(1.0, None)

    def with_sar() -> None:
        with sar.watch() as seen:
            loss = F.cross_entropy(model(images), labels)
        (loss + sar(seen)).backward()
        state.step(1.0, None)

    pairs = []
    for i in range(rounds + 1):
        order = (plain, with_sar) if i % 2 else (with_sar, plain)  # neither always runs first
        times = {step: seconds(step) for step in order}
        pairs += [(times[plain], times[with_sar])] if i else []  # the first round warms up
    without, with_loss = (min(column) for column in zip(*pairs, strict=True))
    share = median(100 * (b - a) / a for a, b in pairs)
    print("\n| step of | batch | without ms | with SAR ms | SAR adds | best against best | bar |")
    print("|---" * 7 + "|")
    cells = f"{share:.1f}% | {100 * (with_loss / without - 1):.1f}% | {SHARE_BAR:g}%"
    print(f"| {backbone} | {batch} | {1000 * without:.0f} | {1000 * with_loss:.0f} | {cells} |")


def seconds(step: Callable[[], None]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--backbone", default="vit_small_patch16_224")
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    keep_memory()  # as `cenote fit` does
    loss_alone(args.rounds)
    if args.batch:
        training_step(args.backbone, args.batch, args.rounds)


if __name__ == "__main__":
    main()
