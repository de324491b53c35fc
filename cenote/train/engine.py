"""The training loop of every task: epochs, steps, validation, checkpoints, resuming."""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..backbones import Features
from ..data import Dataset
from ..data.loading import load
from ..device import is_out_of_memory
from ..models import PooledModel, save_model
from ..predict.distributed import (
    any_process,
    device_of,
    distribute,
    gathered,
    rank,
    summed,
    without_gradient_sync,
    world,
)
from ..predict.embedding import EmbeddingSource
from ..predict.feature_cache import CachedFeatures, FeatureBatch, FeatureBatches
from ..predict.openvino_engine import only_pytorch
from ..progress import progress_bar
from .checkpoint import NAME, load_checkpoint, refuse_changes, save_checkpoint
from .config import OptimizationConfig
from .log import Interrupted, RunLog, Stopped
from .optimizer import lr_factor, out_of_patience
from .state import TrainState, active_states

CPU = torch.device("cpu")
AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}
SAVING_SHARE = 0.02  # of the time, for checkpoints
Metrics = dict[str, dict[str, float]]  # of each state by name
logger = logging.getLogger(__name__)


class Diverged(Stopped):
    """Every model has failed: the run cannot be resumed with these settings."""


class Examples(NamedTuple):
    """Examples of a step that run through the model together."""

    inputs: Any  # images (B, 3, H, W), or their features from a cache
    labels: Tensor  # (B, ...)

    def __len__(self) -> int:  # of images, not of fields
        return self.labels.shape[0]

    def chunk(self, chunks: int) -> list[Examples]:
        if not isinstance(self.inputs, Features):
            pairs = zip(self.inputs.chunk(chunks), self.labels.chunk(chunks), strict=True)
            return [Examples(*pair) for pair in pairs]
        tensors = self.inputs.tensors()
        parts = zip(*(x.chunk(chunks) for x in tensors.values()), strict=True)
        features = [self.inputs._replace(**dict(zip(tensors, x, strict=True))) for x in parts]
        pairs = zip(features, self.labels.chunk(chunks), strict=True)
        return [Examples(*pair) for pair in pairs]


class Task:
    """What is trained, on what, and how it is validated."""

    states: list[TrainState]
    source: EmbeddingSource  # what the loader reads: images, or their cached features
    loader: Any  # FeatureBatches or ImageLoader: one epoch per pass, the same after `seek(epoch)`
    device: torch.device = CPU

    def prepare(self, batch: Any, chunks: int) -> Sequence[Sized]:
        """Split a batch of the loader into equal micro-batches on the device.

        The result is empty if no image of the batch could be read.
        """
        return self.examples(batch).chunk(chunks) if len(batch.labels) else []

    def examples(self, batch: Any) -> Examples:
        """Return images or cached features, and labels, on the device."""
        labels = batch.labels.to(self.device)
        if isinstance(batch, FeatureBatch):
            return Examples(batch.features.to(self.device), labels)
        return Examples(batch.images.to(self.device, non_blocking=True), labels)

    def loss(self, module: nn.Module, inputs: Any) -> Tensor:
        """Return the mean loss of a micro-batch."""
        loss: Tensor = module(inputs)
        return loss

    def validate(self) -> Metrics:
        """Return the metrics of each active state; the best `score` selects the epoch."""
        return {}

    def saved_model(self) -> PooledModel:
        """Return the model of the current epoch, for `keep_epochs`."""
        raise NotImplementedError

    # Hooks that most tasks do not need.

    def begin_epoch(self, epoch: int) -> None:
        """Prepare an epoch; a run that resumes within it has what was saved instead."""

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


def dataset_of(source: EmbeddingSource) -> Dataset:
    return source.dataset if isinstance(source, CachedFeatures) else source


def load_batches(
    source: EmbeddingSource,
    transform: Any,
    settings: OptimizationConfig,
    shuffle: bool = True,
    drop_last: bool = False,
) -> Any:
    """Return a loader of this process's share of each batch of images or cached features.

    The last batch, which may be smaller, is also dropped if processes need shares of one size.
    """
    if isinstance(source, CachedFeatures):
        return FeatureBatches(source, settings.batch, shuffle, settings.seed)
    return load(
        source,
        transform,
        max(min(settings.batch, len(source)) // world(), 1),
        settings.readers,
        shuffle,
        settings.seed,
        drop_last=drop_last or (shuffle and world() > 1),
        rank=rank(),
        world=world(),
    )


class Engine:
    """Trains the states of a task.

    A resumed run must have the same `settings` and `identity`.
    """

    def __init__(
        self,
        task: Task,
        settings: OptimizationConfig,
        folder: Path,
        identity: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.task, self.settings, self.folder = task, settings, folder
        self.identity = dict(identity)
        self.epoch = self.step = 0  # completed epochs, and completed steps of the current one
        self.loss_sums = torch.zeros(len(task.states), dtype=torch.float64)  # over `images`
        self.images = self.unreadable = 0  # of the current epoch
        self.modules = [distribute(state.module) for state in task.states]
        self.log = RunLog(folder, settings)
        self.saved_at, self.save_seconds = time.monotonic(), 0.0
        self.never_saved = True

    def run(self, resume: bool = False) -> TrainState:
        """Train to the end and return the best state, or raise `Stopped` with a checkpoint saved.

        Ties between states keep the smaller learning rate.
        """
        if resume:
            self._resume()
        else:
            self.log.truncate(0)  # of a run that was killed before its first checkpoint
        try:
            self.log.start()
            with _catch_interrupts() as interrupts:
                while not self._done():
                    self._train_epoch(interrupts)
                    self._end_epoch()
        finally:
            self.log.close()
        states = active_states(self.task.states)
        if not states:
            raise Diverged("; ".join(f"{state.name}: {state.failed}" for state in self.task.states))
        return max(states, key=lambda state: (state.best_score, -state.lr))

    def _train_epoch(self, interrupts: list[int]) -> None:
        loader, started, trained = self.task.loader, time.monotonic(), self.images
        images = len(dataset_of(self.task.source))
        if not self.step:
            self.task.begin_epoch(self.epoch)
        loader.seek(self.epoch, self.step)
        name, size = f"epoch {self.epoch + 1}/{self.settings.epochs}", self.settings.batch
        # The loader counts batches, `unit_scale` makes them images.
        bar = progress_bar(name, len(loader), hidden=rank() > 0, initial=self.step, unit_scale=size)
        with bar:
            for batch in loader:
                self._count_unreadable(batch)
                try:
                    self.train_step(batch)
                except RuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    raise Stopped(
                        f"{self.task.device} ran out of memory in a step of {self.settings.batch} "
                        "images: give a smaller --batch, or --settings accumulate=2, which computes"
                        " a step in two parts"
                    ) from None
                self.step += 1
                bar.set_postfix_str(f"loss {self._lowest_loss():.4g}", refresh=False)
                bar.update()
                self.log.add_progress(name, min(self.step * size, images), images)
                if any_process(bool(interrupts)):
                    self._save()
                    raise Interrupted(f"interrupted; the checkpoint is in {self.folder}")
                if self._checkpoint_due():
                    self._save()
        seconds = max(time.monotonic() - started, 1e-9)
        self.speed = (self.images - trained) * world() / seconds

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
                factor = lr_factor(self.settings, epoch, state.scores)
                # A step along gradients that are not finite would ruin the weights.
                if not math.isfinite(loss) or not state.step(
                    factor, self.settings.clip, self.task.before_update
                ):
                    self._fail(state, loss, batch)
                self.loss_sums[i] += loss * images
        self.task.end_step()

    def _backward(
        self, module: nn.Module, state: TrainState, micro_batches: Sequence[Sized], images: int
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
        raise Diverged(
            f"{state.failed}, with {self._file_names(batch)}; {self._last_checkpoint()}; "
            "try a smaller --lr or --settings clip=1"
        )

    def _last_checkpoint(self) -> str:
        if (self.folder / NAME).exists():
            return "the last checkpoint is intact"
        return "no checkpoint was saved"

    def _file_names(self, batch: Any) -> str:
        """Return the first three paths of a batch."""
        dataset = dataset_of(self.task.source)
        names = ", ".join(str(dataset.path(int(i))) for i in batch.indices[:3])
        if len(batch.indices) > 3:
            names += f" and {len(batch.indices) - 3} more"
        return names

    def _count_unreadable(self, batch: Any) -> None:
        for bad in getattr(batch, "bad", ()):
            self.unreadable += 1
            if self.log.add_unreadable(bad.message):
                logger.warning("left out: %s", bad.message)
        counts = torch.tensor([self.unreadable, self.images + self.unreadable], dtype=torch.float64)
        unreadable, images = (int(count) for count in summed(counts))
        if self.log.too_many_unreadable(unreadable, images):
            self._save()
            self.log.stop_unreadable(f"{unreadable} of {images} images")

    def _lowest_loss(self) -> float:
        sums = zip(self.loss_sums.tolist(), self.task.states, strict=True)
        losses = [total for total, state in sums if state.failed is None]
        return min(losses, default=float("nan")) / max(self.images, 1)

    def _end_epoch(self) -> None:
        counts = torch.tensor([self.images, self.unreadable], dtype=torch.float64)
        *loss_sums, images, unreadable = summed(torch.cat([self.loss_sums, counts])).tolist()
        # All use the first process's metrics: with other rounding, one might stop and others wait.
        with only_pytorch():  # converting a network for one epoch does not pay
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
        if rank() == 0 and self.epoch in self.settings.keep_epochs:
            save_model(self.task.saved_model(), self.folder / f"epoch-{self.epoch}")
        if rank() == 0:
            self.log.add_epoch(self.epoch, self.speed, int(unreadable), results)
            if (warning := self.task.warning()) is not None:
                logger.warning("warning: %s", warning)
            if self._done() and self.epoch < self.settings.epochs:
                logger.info("no better score in %s: stopping", _epochs(self.settings.patience))
        if self.never_saved or self._checkpoint_due() or self._done():
            self._save()

    def _log_plateau(self, state: TrainState) -> None:
        before, after = (
            lr_factor(self.settings, self.epoch + 1, scores)
            for scores in (state.scores[:-1], state.scores)
        )
        if self.settings.schedule == "plateau" and after < before:
            epochs, lr = _epochs(self.settings.plateau), state.lr * after
            message = f"no better score in {epochs}: learning rate is now {lr:g}"
            if len(self.task.states) > 1:
                message = f"{state.name}: {message}"
            logger.info(message)

    def _done(self) -> bool:
        patience = self.settings.patience
        return self.epoch >= self.settings.epochs or all(
            out_of_patience(state.scores, patience) for state in active_states(self.task.states)
        )

    def _checkpoint_due(self) -> bool:
        """Return whether enough time has passed; saving takes at most 2% of the time.

        With `checkpoint_minutes` 0, every step is saved.
        """
        seconds, minutes = time.monotonic() - self.saved_at, self.settings.checkpoint_minutes
        due = minutes == 0 or seconds >= max(60 * minutes, self.save_seconds / SAVING_SHARE)
        return any_process(due)

    def _save(self) -> None:
        started = time.monotonic()
        checkpoint = {
            "settings": asdict(self.settings),
            "identity": self.identity,
            "epoch": self.epoch,
            "step": self.step,
            "sums": self.loss_sums,
            "images": self.images,
            "bad": self.unreadable,
            "machine": machine(),
            "contenders": {state.name: state.state_dict() for state in self.task.states},
        }
        try:
            save_checkpoint(self.folder, checkpoint)
        except OSError as error:
            raise Stopped(
                f"the checkpoint could not be written ({error}); {self._last_checkpoint()}"
            ) from error
        self.saved_at, self.never_saved = time.monotonic(), False
        self.save_seconds = self.saved_at - started

    def _resume(self) -> None:
        checkpoint = load_checkpoint(self.folder)
        saved, states = checkpoint["contenders"], {state.name: state for state in self.task.states}
        refuse_changes(
            {**checkpoint["settings"], **checkpoint["identity"], "models": sorted(saved)},
            {**asdict(self.settings), **self.identity, "models": sorted(states)},
        )
        for name, state in states.items():
            state.load_state_dict(saved[name])
        before, now = checkpoint.get("machine", machine()), machine()
        for name, value in now.items():
            if before[name] != value:
                logger.info(
                    "the run began with %s %s and resumes with %s: rounding may differ from an "
                    "uninterrupted run's",
                    *(before[name], name, value),
                )
        self.never_saved = False
        self.epoch, self.step = checkpoint["epoch"], checkpoint["step"]
        self.images, self.unreadable = checkpoint["images"], checkpoint["bad"]
        self.loss_sums = checkpoint["sums"]
        self.log.truncate(self.epoch)


def machine() -> dict[str, object]:
    """Return what changes the rounding of sums on a CPU."""
    return {
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


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
        previous = {}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
