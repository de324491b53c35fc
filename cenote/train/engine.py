"""The training loop of every task: epochs, steps, validation, checkpoints, resuming."""

from __future__ import annotations

import dataclasses
import logging
import math
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..data import Dataset
from ..predict.distributed import (
    any_process,
    distribute,
    gathered,
    rank,
    summed,
    without_gradient_sync,
    world,
)
from .checkpoint import NAME, load_checkpoint, refuse_changes, save_checkpoint
from .config import OptimizationConfig
from .log import RunLog
from .schedules import Schedule, out_of_patience
from .state import TrainState, active_states, device_of

AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}
logger = logging.getLogger(__name__)


class Stopped(Exception):
    """The run ended early; the message says why and how to resume."""


class Diverged(Stopped):
    """Every model has failed: the run cannot be resumed with these settings."""


class EpochLoader(Protocol):
    """One epoch of batches per pass, the same ones for the same epoch."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def seek(self, epoch: int, batch: int = 0) -> None:
        """Start the next pass at this batch of this epoch."""


class MicroBatch(Protocol):
    """Images of a step that run through the model together, with their labels."""

    def __len__(self) -> int: ...


class Task:
    """What is trained, on what, and how it is validated."""

    states: list[TrainState]
    loader: EpochLoader

    def prepare(self, batch: Any, chunks: int) -> Sequence[MicroBatch]:
        """Split a batch of the loader into equal micro-batches on the device.

        The result is empty if no image of the batch could be read.
        """
        raise NotImplementedError

    def loss(self, module: nn.Module, inputs: Any) -> Tensor:
        """Return the mean loss of a micro-batch."""
        raise NotImplementedError

    def validate(self) -> dict[str, dict[str, float]]:
        """Return the metrics of each active state by name; the best `score` selects the epoch."""
        raise NotImplementedError

    def describe(self, batch: Any) -> str:
        """Return the files of a batch, for a message."""
        raise NotImplementedError

    # Hooks that most tasks do not need.

    def begin_step(self, epoch: float) -> None:
        """Update schedules before a step; 2.5 is half-way through the third epoch."""

    def before_update(self, module: nn.Module) -> None:
        """Change gradients before the optimizer uses them."""

    def end_step(self) -> None:
        """Run after the optimizer step."""

    def counts_for_patience(self) -> bool:
        """Return whether this epoch's score counts for patience and plateau (not in a warm-up)."""
        return True

    def warning(self) -> str | None:
        """Return a warning about this epoch, for problems that no metric shows."""
        return None


def too_many_unreadable(unreadable: int, images: int, settings: OptimizationConfig) -> bool:
    """Return whether a run must stop; ten unreadable images are always tolerated."""
    return unreadable > 10 and unreadable > settings.most_bad * images


def file_names(dataset: Dataset, positions: Sequence[int]) -> str:
    """Return the first three paths, for a message."""
    names = ", ".join(str(dataset.path(i)) for i in positions[:3])
    more = len(positions) - 3
    return f"{names} and {more} more" if more > 0 else names


def create_schedule(settings: OptimizationConfig) -> Schedule:
    return Schedule(
        settings.schedule,
        settings.epochs,
        settings.warmup,
        settings.min_lr / settings.lr if settings.lr else 0.0,
        settings.step_every,
        settings.step_factor,
        settings.power,
        settings.plateau,
    )


class Engine:
    """Trains the states of a task.

    A resumed run must have the same `settings` and `identity`. `resume_folder` is the folder to
    pass to --resume, if it is not `folder`.
    """

    def __init__(
        self,
        task: Task,
        settings: OptimizationConfig,
        folder: Path,
        identity: dict[str, Any] | None = None,
        resume_folder: Path | None = None,
    ) -> None:
        self.task, self.settings, self.folder = task, settings, folder
        self.identity, self.resume_folder = identity or {}, resume_folder or folder
        self.schedule = create_schedule(settings)
        self.epoch = self.step = 0  # completed epochs, and completed steps of the current one
        self.loss_sums = torch.zeros(len(task.states), dtype=torch.float64)  # over `images`
        self.images = self.unreadable = 0  # of the current epoch
        self.modules = [distribute(state.module) for state in task.states]
        self.log = RunLog(folder, settings)
        self.saved_at = time.monotonic()

    def run(self, resume: bool = False) -> None:
        """Train to the end, or raise `Stopped` with a checkpoint saved."""
        if resume:
            self._resume()
        else:
            self.log.truncate(0)  # of a run that was killed before its first checkpoint
        with _catch_interrupts() as interrupts:
            while not self._done():
                self._train_epoch(interrupts)
                self._end_epoch()
        self.log.close()

    def _train_epoch(self, interrupts: list[int]) -> None:
        loader, started, images = self.task.loader, time.monotonic(), self.images
        loader.seek(self.epoch, self.step)
        with self.log.progress(self.epoch, len(loader), self.step) as advance:
            for batch in loader:
                self._count_unreadable(batch)
                self.train_step(batch)
                self.step += 1
                advance(self._lowest_loss())
                if any_process(bool(interrupts)):
                    self._save()
                    raise Stopped(f"interrupted; continue with --resume -o {self.resume_folder}")
                if self._checkpoint_due():
                    self._save()
        seconds = max(time.monotonic() - started, 1e-9)
        self.speed = (self.images - images) * world() / seconds

    def train_step(self, batch: Any) -> None:
        """Update every active state with one batch of the loader."""
        micro_batches = self.task.prepare(batch, self.settings.accumulate)
        images = sum(len(inputs) for inputs in micro_batches)
        if any_process(not images):  # gradients are shared: all processes make a step, or none
            return
        self.images += images
        epoch = self.epoch + self.step / len(self.task.loader)
        self.task.begin_step(epoch)
        for i, state in enumerate(self.task.states):
            if state.failed is None:
                loss = self._backward(self.modules[i], state, micro_batches, images)
                factor = self.schedule.factor(epoch, state.scores)
                # A step along gradients that are not finite would ruin the weights.
                if not math.isfinite(loss) or not state.step(
                    factor, self.settings.clip, self.task.before_update
                ):
                    self._fail(state, loss, batch)
                self.loss_sums[i] += loss * images
        self.task.end_step()

    def _backward(
        self, module: nn.Module, state: TrainState, micro_batches: Sequence[Any], images: int
    ) -> float:
        module.train()
        total = torch.zeros(())
        for number, inputs in enumerate(micro_batches, 1):
            # Processes share their gradients once, after the last micro-batch.
            sync = nullcontext() if number == len(micro_batches) else without_gradient_sync(module)
            with sync, self._autocast(state):
                loss = self.task.loss(module, inputs) * (len(inputs) / images)
                state.scaler.scale(loss).backward()
            total = total + loss.detach().float().cpu()
        return float(total)

    def _autocast(self, state: TrainState) -> Any:
        if self.settings.amp == "none":
            return nullcontext()
        return torch.autocast(device_of(state.module).type, AMP[self.settings.amp])

    def _fail(self, state: TrainState, loss: float, batch: Any) -> None:
        """Remove a state from training; raise if it was the last one."""
        problem = "the gradients are not finite"
        if not math.isfinite(loss):
            problem = f"the loss is {loss}"
        state.failed = f"{problem} in epoch {self.epoch + 1}, step {self.step + 1}"
        state.optimizer.zero_grad(set_to_none=True)
        if active_states(self.task.states):
            logger.info("%s: %s; the others continue", state.name, state.failed)
            return
        checkpoint = "no checkpoint was saved"
        if (self.folder / NAME).exists():
            checkpoint = "the last checkpoint is intact"
        raise Diverged(
            f"{state.failed}, with {self.task.describe(batch)}; {checkpoint}; "
            "try a smaller --lr or --clip 1"
        )

    def _count_unreadable(self, batch: Any) -> None:
        for bad in getattr(batch, "bad", ()):
            self.unreadable += 1
            self.log.add_unreadable(bad.message)
        counts = torch.tensor([self.unreadable, self.images + self.unreadable], dtype=torch.float64)
        unreadable, images = (int(count) for count in summed(counts))
        if too_many_unreadable(unreadable, images, self.settings):
            self._save()
            raise Stopped(
                f"{unreadable} of {images} images could not be read "
                f"(they are listed in {self.log.unreadable_file})"
            )

    def _lowest_loss(self) -> float:
        sums = zip(self.loss_sums.tolist(), self.task.states, strict=True)
        losses = [total for total, state in sums if state.failed is None]
        return min(losses, default=float("nan")) / max(self.images, 1)

    def _end_epoch(self) -> None:
        counts = torch.tensor([self.images, self.unreadable], dtype=torch.float64)
        *loss_sums, images, unreadable = summed(torch.cat([self.loss_sums, counts])).tolist()
        # All use the first process's metrics: with other rounding, one might stop and others wait.
        results = gathered(self.task.validate())[0]
        for state, loss_sum in zip(self.task.states, loss_sums, strict=True):
            if state.failed is None:
                metrics = results.setdefault(state.name, {})
                metrics["loss"] = loss_sum / max(images, 1.0)
                score = metrics.get("score", -metrics["loss"])
                state.keep_if_best(score, self.epoch, metrics)
                if self.task.counts_for_patience():
                    state.scores.append(score)
                    self._log_plateau(state)
        self.epoch, self.step = self.epoch + 1, 0
        self.loss_sums, self.images, self.unreadable = torch.zeros_like(self.loss_sums), 0, 0
        if rank() == 0:
            self.log.add_epoch(self.epoch, self.speed, int(unreadable), results)
            if (warning := self.task.warning()) is not None:
                logger.warning("warning: %s", warning)
            if self._done() and self.epoch < self.settings.epochs:
                logger.info("no better score in %s: stopping", _epochs(self.settings.patience))
        if self._checkpoint_due() or self._done():
            self._save()

    def _log_plateau(self, state: TrainState) -> None:
        before, after = (
            self.schedule.factor(self.epoch + 1, scores)
            for scores in (state.scores[:-1], state.scores)
        )
        if self.settings.schedule == "plateau" and after < before:
            name = f"{state.name}: " if len(self.task.states) > 1 else ""
            epochs = _epochs(self.settings.plateau)
            lr = state.lr * after
            logger.info("%sno better score in %s: learning rate is now %g", name, epochs, lr)

    def _done(self) -> bool:
        patience = self.settings.patience
        return self.epoch >= self.settings.epochs or all(
            out_of_patience(state.scores, patience) for state in active_states(self.task.states)
        )

    def _checkpoint_due(self) -> bool:
        """Return whether enough time has passed: an epoch of a probe is shorter than a save."""
        minutes = (time.monotonic() - self.saved_at) / 60
        return any_process(minutes >= self.settings.checkpoint_minutes)

    def _save(self) -> None:
        self.saved_at = time.monotonic()
        checkpoint = {
            "settings": dataclasses.asdict(self.settings),
            "identity": self.identity,
            "epoch": self.epoch,
            "step": self.step,
            "sums": self.loss_sums,
            "images": self.images,
            "bad": self.unreadable,
            "contenders": {state.name: state.state_dict() for state in self.task.states},
        }
        try:
            save_checkpoint(self.folder, checkpoint)
        except OSError as error:
            raise Stopped(
                f"the checkpoint could not be written ({error}); the previous one is intact"
            ) from error

    def _resume(self) -> None:
        checkpoint = load_checkpoint(self.folder)
        for path in self.folder.glob(".checkpoint.*.pt"):  # temporary files of a killed process
            path.unlink(missing_ok=True)
        refuse_changes(
            checkpoint["settings"] | checkpoint["identity"],
            dataclasses.asdict(self.settings) | self.identity,
        )
        saved = checkpoint["contenders"]
        changed = {state.name for state in self.task.states} ^ set(saved)
        if changed:
            raise ValueError(
                f"a resumed run must train the same models: {', '.join(sorted(changed))} differ"
            )
        for state in self.task.states:
            state.load_state_dict(saved[state.name])
        self.epoch, self.step = checkpoint["epoch"], checkpoint["step"]
        self.images, self.unreadable = checkpoint["images"], checkpoint["bad"]
        self.loss_sums = checkpoint["sums"]
        self.log.truncate(self.epoch)


def _epochs(count: int | None) -> str:
    return "one epoch" if count == 1 else f"{count} epochs"


@contextmanager
def _catch_interrupts() -> Iterator[list[int]]:
    """Yield a list that receives the first SIGINT or SIGTERM; a second one interrupts at once."""
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    try:
        previous = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, where signals are handled
        yield received
        return
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
