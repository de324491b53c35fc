"""Everything that decides the result of a run, and what it is compared by when it is resumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

from .optimizer import OptimizerName
from .schedules import ScheduleName

HARMLESS = (
    "workers",
    "checkpoint_minutes",
    "tensorboard",
    "wandb",
)  # they may change between kill and resume


@dataclass(frozen=True)
class OptimizationConfig:
    """How a run trains. Rates and batches are those of all processes together."""

    epochs: int = 100
    batch: int = 256  # images a step, over all processes
    lr: float = 1e-3
    optimizer: OptimizerName = "adamw"
    momentum: float = 0.9
    weight_decay: float = 0.05  # none on biases and other vectors
    layer_decay: float | None = None  # factor of the rate from each layer to the one before it
    schedule: ScheduleName = "cosine"
    warmup: float = 0.0  # epochs of a rate that grows linearly from zero
    min_lr: float = 0.0  # where the cosine ends
    step_every: float = 30.0  # epochs between two steps of the rate
    step_factor: float = 0.1
    plateau: int = (
        5  # epochs without a better score before the rate makes such a step, then as many again
    )
    patience: int | None = None  # epochs without a better score that end the run
    power: float = 0.9  # of the polynomial
    clip: float | None = None  # largest norm of all gradients together
    accumulate: int = 1  # parts of a batch that are computed one after the other
    amp: Literal["none", "bf16", "fp16"] = "none"
    ema: float | None = None  # decay of the moving average that is validated and kept
    smoothing: float = 0.0  # of the labels
    mixup: float = 0.0
    cutmix: float = 0.0
    sar: float = 0.0  # the weight of SAR's loss on attention; 0.01 in the paper
    sar_loss: Literal["entropy", "variation"] = (
        "entropy"  # spatial entropy (A 9), or its rival (A 14)
    )
    sar_schedule: Literal["constant", "cosine"] = (
        "constant"  # cosine: ten epochs of warm-up, then down to zero
    )
    select: Literal["accuracy", "boxes", "pixels"] = (
        "accuracy"  # which figure on validation keeps an epoch
    )
    seed: int = 0
    workers: int = 0  # processes that read images
    most_bad: float = 0.05  # share of unreadable images that stops a run
    checkpoint_minutes: float = 5.0
    tensorboard: bool = False
    wandb: bool = False

    def __post_init__(self) -> None:
        for name, least in {"epochs": 1, "batch": 1, "accumulate": 1, "lr": 0, "warmup": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name, hint in get_type_hints(OptimizationConfig).items():
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                raise ValueError(
                    f"{name} is one of {', '.join(get_args(hint))}, got {getattr(self, name)!r}"
                )
        for name in ("plateau", "patience"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is a number of epochs from 1, got {value}")
        if not 0 < self.step_factor <= 1:
            raise ValueError(
                f"step_factor is what a step leaves of the rate, above 0 and at most 1, got {self.step_factor}"
            )
        if self.batch % self.accumulate:
            raise ValueError(
                f"a batch of {self.batch} cannot be computed in {self.accumulate} equal parts"
            )


@dataclass(frozen=True)
class DinoConfig:
    """DINO's own numbers; rates, epochs and batches are the run's settings."""

    out: int = 65536
    hidden: int = 2048
    bottleneck: int = 256
    batch_norm: bool = False  # in the head
    fixed_length: bool = True  # of the last layer's rows
    momentum: float = 0.996  # of the teacher, to 1 by a cosine
    student_t: float = 0.1
    teacher_t: float = 0.07
    warmup_t: float = 0.04  # where the teacher's temperature begins
    warmup_t_epochs: float = 30.0
    centre_momentum: float = 0.9
    end_weight_decay: float = 0.4  # from the settings' weight_decay, by a cosine
    clip: float | None = 3.0  # the norm of each tensor's gradient
    freeze_last: float = 1.0  # epochs in which the head's last layer does not learn

    def __post_init__(self) -> None:
        least = {"out": 2, "hidden": 1, "bottleneck": 1}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"DINO's {name} is at least {value}, got {getattr(self, name)}")
        for name in ("student_t", "teacher_t", "warmup_t"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"DINO's {name} is a temperature above 0, got {getattr(self, name)}"
                )
        for name in ("momentum", "centre_momentum"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"DINO's {name} is from 0 to 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class MocoConfig:
    """MoCo-v3's own numbers; rates, epochs and batches are the run's settings."""

    out: int = 256
    hidden: int = 4096
    momentum: float = 0.99  # of the teacher, to 1 by a cosine
    temperature: float = 0.2
    freeze_patches: bool = (
        True  # a ViT's first projection stays random: it is where training becomes unstable
    )


def refuse_changes(before: dict[str, object], now: dict[str, object]) -> None:
    """A run goes on with what it began with, or not at all."""
    changed = [
        sentence
        for name, value in now.items()
        if name not in HARMLESS and name in before and before[name] != value
        for sentence in _differences(name, before[name], value)
    ]
    if changed:
        raise ValueError(f"a resumed run must keep its settings: {'; '.join(changed)}")


def _differences(name: str, before: object, now: object) -> list[str]:
    """Of groups of settings only those that differ."""
    if not (isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys()):
        return [f"{name} was {before!r} and is now {now!r}"]
    return [
        told
        for key in now
        if before[key] != now[key]
        for told in _differences(f"{name}.{key}", before[key], now[key])
    ]
