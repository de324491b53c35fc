"""The overhead of a DINO training step beyond its forward and backward passes.

    python benchmarks/dino.py [--batch 8] [--profile]

The passes: the student and its head forward and backward on all crops, grouped by size, and the
teacher forward on the large crops. The whole step is that of the engine: loss, centre, clipping,
AdamW, update of the teacher. Both run in turn in one process on random crops; the overhead is the
median over rounds. ViT-S with 2 + 6 crops as published takes minutes; `--backbone vit_micro
--size 64 --local-size 24 --out 4096` takes seconds. `--profile` shows where the time is spent.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from cenote.allocator import keep_memory
from cenote.data import open_dataset
from cenote.data.loading import Batch
from cenote.train.augment import build_augmentation
from cenote.train.build import build_model
from cenote.train.config import DINO, DinoConfig
from cenote.train.configure import configure
from cenote.train.engine import Engine
from cenote.train.self_supervised import Dino, group_by_size

BAR = 5.0


class Bench:
    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        torch.manual_seed(0)
        data = open_dataset("world/tiny")  # its images are not used
        settings = replace(DINO, batch=args.batch)
        config = configure("dino", backbone=args.backbone, pool=args.pool, size=args.size)
        model = build_model(config)
        crops = build_augmentation(config, model)
        self.task = Dino(model, data, None, settings, crops, DinoConfig())
        self.engine = Engine(self.task, settings, folder)
        self.engine.epoch = 1  # the last layer of the head is trained
        sizes = [args.size] * 2 + [args.local_size] * args.local
        views = [torch.randn(args.batch, 3, size, size) for size in sizes]
        self.batch = Batch(
            views, torch.zeros(args.batch, dtype=torch.long), torch.arange(args.batch), [], []
        )
        self.crops = group_by_size(views)
        rows = len(sizes) * args.batch
        self.gradient = torch.randn(rows, args.out) / rows

    def passes(self) -> None:
        module = self.task.module.train()
        vectors = [module.student.embed(group).flatten(1) for group in self.crops.groups]
        student = module.head(torch.cat(vectors))
        with torch.no_grad():
            module.teacher_head(module.teacher.embed(self.crops.groups[0]).flatten(1))
        student.backward(self.gradient)
        for p in module.parameters():
            p.grad = None

    def whole(self) -> None:
        self.engine._train_step(self.batch)


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def profile_step(bench: Bench) -> dict[str, float]:
    """Return the seconds of one step outside the passes."""
    from cenote.train.tasks import dino

    durations: dict[str, float] = {}

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*args, **named)
            finally:
                durations[name] = durations.get(name, 0.0) + time.perf_counter() - started

        return run

    task, state = bench.task, bench.task.states[0]
    places = [(task, "prepare"), (task, "begin_step"), (task, "before_update"), (task, "end_step")]
    places += [
        (state, "step"),
        (state.optimizer, "step"),
        (dino, "dino_loss"),
        (bench.task.module, "update_teacher"),
    ]
    before = [(place, name, getattr(place, name), name in vars(place)) for place, name in places]
    for place, name, call, _ in before:
        setattr(
            place, name, timed(f"{getattr(place, '__name__', type(place).__name__)}.{name}", call)
        )
    bench.whole()
    for place, name, call, is_instance_attribute in before:
        setattr(place, name, call) if is_instance_attribute else delattr(place, name)
    return durations


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="vit_small_patch16_224")
    parser.add_argument("--pool", default="simpool")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--local-size", type=int, default=96)
    parser.add_argument("--local", type=int, default=6)
    parser.add_argument("--out", type=int, default=65536)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    keep_memory()  # as `cenote dino` does
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        pairs = []
        for i in range(args.rounds + 1):
            order = (
                (bench.passes, bench.whole) if i % 2 else (bench.whole, bench.passes)
            )  # neither always runs first
            times = {call.__name__: seconds(call) for call in order}
            pairs += [(times["passes"], times["whole"])] if i else []  # the first round warms up
        passes, whole = (min(column) for column in zip(*pairs, strict=True))
        share = median(100 * (b - a) / a for a, b in pairs)
        crops = f"2 x {args.size} + {args.local} x {args.local_size}"
        print(
            "| network | crops | batch | passes ms | whole step ms | overhead | best against best | bar |"
        )
        print("|---|---|---|---|---|---|---|---|")
        overhead = f"{share:.1f}% | {100 * (whole / passes - 1):.1f}%"
        cells = f"{1000 * passes:.0f} | {1000 * whole:.0f} | {overhead} | {BAR:g}%"
        print(f"| {args.backbone}, {args.pool} | {crops} | {args.batch} | {cells} |")
        if args.profile:
            for name, spent in sorted(profile_step(bench).items(), key=lambda item: -item[1]):
                print(
                    f"{name:32s} {1000 * spent:8.1f} ms  {100 * spent / passes:5.2f}% of the passes"
                )


if __name__ == "__main__":
    main()
