"""What a run leaves to read: metrics.jsonl, one console line an epoch, the names of unreadable images."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..data.files import write_atomically
from ..extras import require
from ..predict.distributed import rank
from .config import OptimizationConfig

Results = dict[str, dict[str, float]]


class RunLog:
    def __init__(self, folder: Path, settings: OptimizationConfig) -> None:
        self.folder, self.settings = folder, settings
        self.metrics, self.bad_file = folder / "metrics.jsonl", folder / "unreadable.txt"
        self.named: set[str] = set()
        self.board: Any = None
        self.wandb: Any = None
        if rank() > 0:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if settings.tensorboard:
            require("tensorboard", extra="log")
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"))
        if settings.wandb:
            self.wandb = require("wandb", extra="log").init(
                dir=str(folder), name=folder.name, resume="allow"
            )

    def epoch(
        self, epoch: int, speed: float, bad: int, results: Results, say: Callable[[str], None]
    ) -> None:
        """Write an epoch down, the first being 1."""
        line = {
            "epoch": epoch,
            "images_per_second": round(speed, 1),
            "unreadable": bad,
            "results": results,
        }
        with open(self.metrics, "a") as file:
            file.write(json.dumps(line) + "\n")
        flat = {
            f"{metric}/{name}": value
            for name, found in results.items()
            for metric, value in found.items()
        }
        if self.board is not None:
            for name, value in flat.items():
                self.board.add_scalar(name, value, epoch)
        if self.wandb is not None:
            self.wandb.log(flat, step=epoch)
        if results:
            name, best = max(
                results.items(), key=lambda item: item[1].get("score", -item[1]["loss"])
            )
            told = "  ".join(f"{metric} {value:.4g}" for metric, value in best.items())
            leader = f"{name}: " if len(results) > 1 else ""
            say(f"epoch {epoch}/{self.settings.epochs}  {leader}{told}  {speed:.0f} images/s")

    def bad(self, sentence: str) -> None:
        """Each file once."""
        if sentence not in self.named and rank() == 0:
            self.named.add(sentence)
            with open(self.bad_file, "a") as file:
                file.write(sentence + "\n")

    def forget_after(self, epoch: int) -> None:
        """Drop lines of epochs that are trained again."""
        if rank() > 0 or not self.metrics.exists():
            return
        lines = [line for line in self.metrics.read_text().splitlines() if _epoch(line) <= epoch]
        with write_atomically(self.metrics) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines))

    @contextmanager
    def progress(self, epoch: int, steps: int, done: int) -> Iterator[Callable[[float], None]]:
        """A bar for one epoch, where somebody is looking."""
        from tqdm import tqdm

        title, silent = f"epoch {epoch + 1}/{self.settings.epochs}", True if rank() > 0 else None
        with tqdm(
            total=steps,
            initial=done,
            desc=title,
            unit="step",
            disable=silent,
            leave=False,
            file=sys.stderr,
        ) as bar:

            def advance(loss: float) -> None:
                bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
                bar.update()

            yield advance

    def close(self) -> None:
        if self.board is not None:
            self.board.close()
        if self.wandb is not None:
            self.wandb.finish()


def _epoch(line: str) -> int:
    try:
        return int(json.loads(line)["epoch"])
    except (ValueError, KeyError):  # the line that a kill cut off
        return sys.maxsize
