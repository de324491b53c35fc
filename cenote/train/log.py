"""Log of a training run: metrics.jsonl, one message per epoch, callbacks, unreadable images."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from ..data.files import write_text
from ..predict.distributed import rank
from .callbacks import LOGGERS, Callback, current_callbacks
from .config import OptimizationConfig

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """The run ended early; the message says why and how to resume."""


class Interrupted(Stopped):
    """The run was interrupted by SIGINT or SIGTERM, and its checkpoint is saved."""


class RunLog:
    """Only the first process writes."""

    def __init__(self, folder: Path, settings: OptimizationConfig) -> None:
        self.folder, self.settings = folder, settings
        self.metrics_file = folder / "metrics.jsonl"
        self.unreadable_file = folder / "unreadable.txt"
        self.unreadable: set[str] = set()
        self.callbacks: list[Callback] = []  # that have started
        if rank() == 0:
            folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start the loggers of the settings and the callbacks of `use_callbacks`."""
        if rank() > 0:
            return
        for callback in (*(LOGGERS[name]() for name in self.settings.log), *current_callbacks()):
            callback.on_start(self.folder, asdict(self.settings))
            self.callbacks.append(callback)

    def add_progress(self, stage: str, done: int, total: int) -> None:
        for callback in self.callbacks:
            callback.on_progress(stage, done, total)

    def add_epoch(
        self, epoch: int, speed: float, unreadable: int, results: dict[str, dict[str, float]]
    ) -> None:
        """Write the metrics of an epoch, counted from 1, and log those of the best state."""
        line = {
            "epoch": epoch,
            "images_per_second": round(speed, 1),
            "unreadable": unreadable,
            "results": results,
        }
        with open(self.metrics_file, "a") as file:
            file.write(json.dumps(line) + "\n")
        for callback in self.callbacks:
            callback.on_epoch(epoch, results)
        if results:
            name, best = max(
                results.items(), key=lambda item: item[1].get("score", -item[1]["loss"])
            )
            text = "  ".join(f"{metric} {value:.4g}" for metric, value in best.items())
            leader = f"{name}: " if len(results) > 1 else ""
            epochs = self.settings.epochs
            logger.info("epoch %d/%d  %s%s  %.0f images/s", epoch, epochs, leader, text, speed)

    def add_unreadable(self, message: str) -> bool:
        """Write the message about an unreadable image; return whether it is new."""
        if message in self.unreadable or rank() > 0:
            return False
        self.unreadable.add(message)
        with open(self.unreadable_file, "a") as file:
            file.write(message + "\n")
        return True

    def too_many_unreadable(self, unreadable: int, images: int) -> bool:
        """Return whether a run must stop; ten unreadable images are always tolerated."""
        return unreadable > 10 and unreadable > self.settings.most_bad * images

    def stop_unreadable(self, what: str) -> NoReturn:
        raise Stopped(f"{what} could not be read (they are listed in {self.unreadable_file})")

    def truncate(self, epoch: int) -> None:
        """Remove the metrics of epochs after `epoch`, which will be trained again."""
        if rank() > 0 or not self.metrics_file.exists():
            return
        lines = self.metrics_file.read_text().splitlines()
        text = "".join(f"{line}\n" for line in lines if _epoch(line) <= epoch)
        write_text(self.metrics_file, text)

    def close(self) -> None:
        for callback in self.callbacks:
            callback.on_end()


def write_results(folder: Path, report: Mapping[str, object]) -> None:
    """Write results.json."""
    write_text(folder / "results.json", json.dumps(report, indent=2) + "\n")


@contextmanager
def muted() -> Iterator[None]:
    """Suppress informational messages, for runs that are part of another command."""
    package = logging.getLogger("cenote")
    level = package.level
    package.setLevel(logging.WARNING)
    try:
        yield
    finally:
        package.setLevel(level)


def _epoch(line: str) -> int:
    try:
        return int(json.loads(line)["epoch"])
    except (ValueError, KeyError):  # a line that a kill cut off
        return sys.maxsize
