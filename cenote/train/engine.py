"""One loop for every task: epochs, steps, checkpoints, and the same end whether or not it was interrupted."""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..data import Dataset
from ..predict.distributed import any_process, gathered, rank, spread, summed, waiting, world
from .checkpoint import load_checkpoint, save_checkpoint
from .config import OptimizationConfig, refuse_changes
from .log import RunLog
from .schedules import gave_up, rate_factor
from .state import TrainState, active_states, device_of

AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}
Say = Callable[[str], None]


class Stopped(Exception):
    """The run ended before its time; the sentence says why and how to go on."""


class Diverged(Stopped):
    """No contender is left: with these settings there is nothing to go on with."""


class Batches(Protocol):
    """One epoch of batches at a time, the same ones whenever it is asked for the same epoch."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def seek(self, epoch: int, batch: int = 0) -> None:
        """The next pass gives this epoch from this batch on."""


class Part(Protocol):
    """Some images of a step, and what is known of them."""

    def __len__(self) -> int: ...


class Task:
    """What is trained, on what, and how it is judged."""

    states: list[TrainState]
    loader: Any  # Batches

    def prepare(self, batch: Any, parts: int) -> Sequence[Part]:
        """A batch of the loader, on the device, in equal parts; none if nothing in it could be read."""
        raise NotImplementedError

    def loss(self, module: nn.Module, part: Any) -> Tensor:
        """The mean over the images of a part."""
        raise NotImplementedError

    def validate(self) -> dict[str, dict[str, float]]:
        """For each living contender by name its metrics, of which `score` decides what is kept."""
        raise NotImplementedError

    def describe(self, batch: Any) -> str:
        """The files of a batch, for a message."""
        raise NotImplementedError

    # What most tasks leave as it is.

    def begin_step(self, epoch: float) -> None:
        """Before a step, 2.5 being half-way through the third epoch: for what follows a schedule of its own."""

    def before_update(self, module: nn.Module) -> None:
        """The gradients of a step are whole and not yet used."""

    def end_step(self) -> None:
        """The weights have moved."""

    def settled(self) -> bool:
        """At the end of an epoch: whether its score counts for patience and the plateau, or all is yet to begin."""
        return True

    def warning(self) -> str | None:
        """At the end of an epoch: what goes wrong though every number is finite."""
        return None


def too_many_bad(bad: int, seen: int, settings: OptimizationConfig) -> bool:
    """A handful may be broken in any collection."""
    return bad > 10 and bad > settings.most_bad * seen


def files_of(dataset: Dataset, positions: Sequence[int]) -> str:
    """The first few, for a message."""
    paths = [str(dataset.path(i)) for i in positions]
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if paths[3:] else "")


class Engine:
    """`identity` is whatever else a resumed run must share with the one that was begun; `whole` is the folder that
    --resume names, where this run is a part of another."""

    def __init__(
        self,
        task: Task,
        settings: OptimizationConfig,
        folder: Path,
        say: Say = print,
        identity: dict[str, Any] | None = None,
        whole: Path | None = None,
    ) -> None:
        self.task, self.settings, self.folder, self.say = task, settings, folder, say
        self.identity, self.whole = identity or {}, whole or folder
        self.epoch = self.step = 0  # steps of this epoch that are done
        self.sums = torch.zeros(
            len(task.states), dtype=torch.float64
        )  # of losses, over the epoch's images
        self.images = self.bad = 0
        self.spread = [spread(contender.module) for contender in task.states]
        self.log = RunLog(folder, settings)
        self.saved = time.monotonic()

    def run(self, resume: bool = False) -> None:
        """Train to the end, or stop with a sentence and a checkpoint."""
        if resume:
            self._resume()
        else:
            self.log.forget_after(0)  # of a run that was killed before its first checkpoint
        with _interrupts() as interrupted:
            while not self._done():
                self._train_epoch(interrupted)
                self._end_epoch()
        self.log.close()

    def _train_epoch(self, interrupted: list[int]) -> None:
        loader, started = self.task.loader, time.monotonic()
        loader.seek(self.epoch, self.step)
        before = self.images
        with self.log.progress(self.epoch, len(loader), self.step) as advance:
            for batch in loader:
                self._count_bad(batch)
                self.train_step(batch)
                self.step += 1
                advance(self._leading_loss())
                if any_process(bool(interrupted)):
                    self._save()
                    raise Stopped(f"interrupted; it goes on with --resume -o {self.whole}")
                if self._due():
                    self._save()
        self.speed = (self.images - before) * world() / max(time.monotonic() - started, 1e-9)

    def train_step(self, batch: Any) -> None:
        """Update every contender that has not failed with one batch of the loader."""
        parts = self.task.prepare(batch, self.settings.accumulate)
        total = sum(len(part) for part in parts)
        if any_process(not total):  # they share gradients: all of them make a step, or none
            return
        self.images += total
        now = self.epoch + self.step / len(self.task.loader)
        self.task.begin_step(now)
        for place, contender in enumerate(self.task.states):
            if contender.failed is None:
                loss = self._backward(self.spread[place], contender, parts, total)
                factor = rate_factor(self.settings, now, contender.scores)
                # A step along gradients that are not finite would spoil the weights for good.
                if not math.isfinite(loss) or not contender.step(
                    factor, self.settings.clip, self.task.before_update
                ):
                    self._failed(contender, loss, batch)
                self.sums[place] += loss * total
        self.task.end_step()

    def _backward(
        self, module: nn.Module, contender: TrainState, parts: Sequence[Any], total: int
    ) -> float:
        module.train()
        found = torch.zeros(())
        for number, part in enumerate(parts, 1):
            last = number == len(parts)  # only then do the processes share their gradients
            with nullcontext() if last else waiting(module), self._precision(contender):
                loss = self.task.loss(module, part) * (len(part) / total)
                contender.scaler.scale(loss).backward()
            found = found + loss.detach().float().cpu()
        return float(found)

    def _precision(self, contender: TrainState) -> Any:
        if self.settings.amp == "none":
            return nullcontext()
        return torch.autocast(device_of(contender.module).type, AMP[self.settings.amp])

    def _failed(self, contender: TrainState, loss: float, batch: Any) -> None:
        what = f"the loss is {loss}" if not math.isfinite(loss) else "the gradients are not finite"
        contender.failed = f"{what} in epoch {self.epoch + 1}, step {self.step + 1}"
        contender.optimizer.zero_grad(set_to_none=True)
        if active_states(self.task.states):
            self.say(f"{contender.name}: {contender.failed}; the others go on")
            return
        last = (
            "the last checkpoint is whole"
            if (self.folder / "checkpoint.pt").exists()
            else "no checkpoint was made"
        )
        files = self.task.describe(batch)
        raise Diverged(
            f"{contender.failed}, with {files}; {last}; a smaller --lr or --clip 1 may help"
        )

    def _count_bad(self, batch: Any) -> None:
        for bad in getattr(batch, "bad", ()):
            self.bad += 1
            self.log.bad(bad.message)
        counts = summed(torch.tensor([self.bad, self.images + self.bad], dtype=torch.float64))
        bad_ones, seen = (int(count) for count in counts)
        if too_many_bad(bad_ones, seen, self.settings):
            self._save()
            raise Stopped(
                f"{bad_ones} of {seen} images could not be read (they are in {self.log.bad_file})"
            )

    def _leading_loss(self) -> float:
        losses = [
            float(s) for s, c in zip(self.sums, self.task.states, strict=True) if c.failed is None
        ]
        return min(losses, default=float("nan")) / max(self.images, 1)

    def _end_epoch(self) -> None:
        together = summed(
            torch.cat([self.sums, torch.tensor([self.images, self.bad], dtype=torch.float64)])
        )
        images = max(float(together[-2]), 1.0)
        results = gathered(self.task.validate())[
            0
        ]  # an ulp apart, one process would end and the others wait
        for place, contender in enumerate(self.task.states):
            if contender.failed is None:
                mine = results.setdefault(contender.name, {})
                mine["loss"] = float(together[place]) / images
                score = mine.get("score", -mine["loss"])
                contender.keep_if_best(score, self.epoch)
                if self.task.settled():
                    contender.scores.append(score)
                    self._tell_rate(contender)
        self.epoch, self.step = self.epoch + 1, 0
        self.sums, self.images, self.bad = torch.zeros_like(self.sums), 0, 0
        if rank() == 0:
            self.log.epoch(self.epoch, self.speed, int(together[-1]), results, self.say)
            if (warning := self.task.warning()) is not None:
                self.say(f"warning: {warning}")
            if self._done() and self.epoch < self.settings.epochs:
                self.say(f"no better score in {_epochs(self.settings.patience)}: it ends here")
        if self._due() or self._done():
            self._save()

    def _tell_rate(self, contender: TrainState) -> None:
        before, now = (
            rate_factor(self.settings, self.epoch + 1, s)
            for s in (contender.scores[:-1], contender.scores)
        )
        if self.settings.schedule == "plateau" and now < before and rank() == 0:
            who = f"{contender.name}: " if len(self.task.states) > 1 else ""
            waited = _epochs(self.settings.plateau)
            self.say(f"{who}no better score in {waited}: the rate falls to {contender.lr * now:g}")

    def _done(self) -> bool:
        """All epochs are trained, or nobody who is left has gained anything for too long."""
        patience = self.settings.patience
        return self.epoch >= self.settings.epochs or all(
            gave_up(contender.scores, patience) for contender in active_states(self.task.states)
        )

    def _due(self) -> bool:
        """Not after every epoch: those of a probe are shorter than the writing. The processes decide together."""
        return any_process(time.monotonic() - self.saved >= 60 * self.settings.checkpoint_minutes)

    def _save(self) -> None:
        self.saved = time.monotonic()
        state = {
            "settings": dataclasses.asdict(self.settings),
            "identity": self.identity,
            "epoch": self.epoch,
            "step": self.step,
            "sums": self.sums,
            "images": self.images,
            "bad": self.bad,
            "contenders": {c.name: c.state() for c in self.task.states},
        }
        try:
            save_checkpoint(self.folder, state)
        except OSError as error:
            raise Stopped(
                f"no checkpoint could be written ({error}); the one before it is whole"
            ) from error

    def _resume(self) -> None:
        state = load_checkpoint(self.folder)
        for left in self.folder.glob(".checkpoint.*.pt"):  # what a kill cut off
            left.unlink(missing_ok=True)
        refuse_changes(
            state["settings"] | state["identity"], dataclasses.asdict(self.settings) | self.identity
        )
        here, there = {c.name for c in self.task.states}, set(state["contenders"])
        if here != there:
            raise ValueError(
                f"a resumed run must keep its contenders: {', '.join(sorted(here ^ there))} differ"
            )
        for contender in self.task.states:
            contender.restore(state["contenders"][contender.name])
        self.epoch, self.step, self.images, self.bad = (
            state[k] for k in ("epoch", "step", "images", "bad")
        )
        self.sums = state["sums"]
        self.log.forget_after(self.epoch)


def _epochs(count: int | None) -> str:
    return "one epoch" if count == 1 else f"{count} epochs"


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Ctrl-C and a polite kill are noted and heeded after the step; a second one ends at once."""
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us handles signals
        yield noted
        return
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
