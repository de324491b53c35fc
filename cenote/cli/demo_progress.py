"""One bar over all stages, with the time that is left; without a terminal, a line for each."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ._arguments import print_message
from .demo_stages import Stage

TRUST = 15.0  # seconds of work to see before this machine's speed counts as much as the known one


def pace(done: Sequence[tuple[float, float]]) -> float:
    """How many times longer this machine takes than known: (known, taken) seconds of stages that ended."""
    known, taken = sum(one for one, _ in done), sum(two for _, two in done)
    return (taken + TRUST) / (known + TRUST)


def remaining(now: float, elapsed: float, later: float, pace: float) -> float:
    """Seconds left: of the stage that runs (it was thought to take `now`) and of all `later` ones."""
    return max(now * pace - elapsed, 0.02 * now * pace) + later * pace


def clock(seconds: float) -> str:
    """1:05."""
    return f"{int(seconds + 0.5) // 60}:{int(seconds + 0.5) % 60:02d}"


class Progress:
    def __init__(self, stages: Sequence[Stage]) -> None:
        from tqdm import tqdm

        self.stages = list(stages)
        self.timed: list[tuple[float, float]] = []
        self.started = time.monotonic()
        self.place = 0
        form = "{desc} {percentage:3.0f}% |{bar}| {postfix}"
        total = sum(stage.seconds for stage in stages)
        self.bar = tqdm(
            total=total, bar_format=form, disable=None, file=sys.stderr, leave=False, mininterval=0
        )

    def begin(self, stage: Stage, command: str) -> None:
        self.place, self.started = self.stages.index(stage), time.monotonic()
        print_message(
            f"{self.place + 1}/{len(self.stages)} {stage.name}: {stage.about}\n    {command}"
        )
        self.bar.set_description_str(stage.name, refresh=False)
        self.tick()

    def tick(self) -> None:
        """Called all the time while a stage runs."""
        stage, elapsed, speed = (
            self.stages[self.place],
            time.monotonic() - self.started,
            pace(self.timed),
        )
        later = sum(one.seconds for one in self.stages[self.place + 1 :])
        left = remaining(stage.seconds, elapsed, later, speed)
        before = sum(one.seconds for one in self.stages[: self.place])
        self.bar.n = before + min(elapsed / speed, 0.98 * stage.seconds)
        self.bar.set_postfix_str(f"about {clock(left)} left", refresh=False)
        self.bar.refresh()

    def end(self, stage: Stage, record: Mapping[str, Any], before: bool = False) -> None:
        """`before`: it was done by an earlier demo."""
        if not record["resumed"]:  # what was stopped did some things twice
            self.timed.append((stage.seconds, record["seconds"]))
        if before:
            print_message(
                f"{self.stages.index(stage) + 1}/{len(self.stages)} {stage.name}: done already"
            )
        else:
            print_message(f"    done in {clock(record['seconds'])}")

    def close(self) -> None:
        self.bar.close()
