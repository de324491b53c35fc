"""Callbacks of a training run, and loggers: TensorBoard, W&B, MLflow, trackio."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ..extras import require

Metrics = Mapping[str, Mapping[str, float]]  # of each trained model by name
LoggerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]
NOT_IN_MLFLOW = re.compile(r"[^\w\-. :/]")  # characters that a name must not have
PROJECT = "cenote"  # the loggers' name for all runs


class Callback:
    """Receives what happens in a training run. Override the methods you need."""

    def on_start(self, folder: Path, settings: Mapping[str, object]) -> None:
        """Called before the first step, also of a resumed run."""

    def on_progress(self, stage: str, done: int, total: int) -> None:
        """Called after each batch of a stage such as "epoch 3/30", with numbers of images."""

    def on_epoch(self, epoch: int, metrics: Metrics) -> None:
        """Called after each epoch, counted from 1, with the metrics on validation images."""

    def on_end(self) -> None:
        """Called at the end of a run, also of one that was stopped."""


class TensorBoard(Callback):
    def on_start(self, folder: Path, settings: Mapping[str, object]) -> None:
        require("tensorboard", extra="tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))

    def on_epoch(self, epoch: int, metrics: Metrics) -> None:
        for name, value in flatten(metrics).items():
            self.writer.add_scalar(name, value, epoch)

    def on_end(self) -> None:
        self.writer.close()


class Wandb(Callback):
    """Weights & Biases; its own settings, such as WANDB_MODE=offline, apply."""

    module = "wandb"

    def on_start(self, folder: Path, settings: Mapping[str, object]) -> None:
        self.library = require(self.module, extra=self.module)
        self.library.init(project=PROJECT, name=folder.name, config=dict(settings))

    def on_epoch(self, epoch: int, metrics: Metrics) -> None:
        self.library.log(flatten(metrics), step=epoch)

    def on_end(self) -> None:
        self.library.finish()


class Trackio(Wandb):
    """Hugging Face's trackio, which has the functions of wandb and stores runs on this machine."""

    module = "trackio"


class MLflow(Callback):
    """MLflow; MLFLOW_TRACKING_URI names the server or the folder."""

    def on_start(self, folder: Path, settings: Mapping[str, object]) -> None:
        self.mlflow = require("mlflow", extra="mlflow")
        self.mlflow.set_experiment(PROJECT)
        self.mlflow.start_run(run_name=folder.name)
        self.mlflow.log_params(settings)

    def on_epoch(self, epoch: int, metrics: Metrics) -> None:
        values = {NOT_IN_MLFLOW.sub(" ", name): value for name, value in flatten(metrics).items()}
        self.mlflow.log_metrics(values, step=epoch)

    def on_end(self) -> None:
        self.mlflow.end_run()


LOGGERS: dict[LoggerName, type[Callback]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": MLflow,
    "trackio": Trackio,
}


def check_loggers(names: Iterable[LoggerName]) -> None:
    """Raise MissingExtra before the work begins if the package of a logger is not installed."""
    for name in names:
        if find_spec(name) is None:
            require(name, extra=name)


def flatten(metrics: Metrics) -> dict[str, float]:
    """Return the metrics by names such as "accuracy/simpool@0.001", or "accuracy" of one model."""
    if len(metrics) == 1:
        (values,) = metrics.values()
        return dict(values)
    return {
        f"{metric}/{name}": value
        for name, values in metrics.items()
        for metric, value in values.items()
    }


_callbacks: ContextVar[tuple[Callback, ...]] = ContextVar("_callbacks", default=())


@contextmanager
def use_callbacks(callbacks: Sequence[Callback]) -> Iterator[None]:
    """Call these callbacks in every training run that starts inside of this context."""
    token = _callbacks.set((*_callbacks.get(), *callbacks))
    try:
        yield
    finally:
        _callbacks.reset(token)


def current_callbacks() -> tuple[Callback, ...]:
    return _callbacks.get()
