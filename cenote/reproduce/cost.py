"""What a table costs: images of its trainings, and hours at the speed measured on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from .run import Job

BATCH, STEPS = 8, 3
TRAINING = 3  # multiply-adds of a training step, in forward passes


@dataclass(frozen=True)
class Cost:
    trainings: int
    images: float  # epochs x images, over all trainings
    multiply_adds: float
    others: int  # commands without an estimate


def estimate(jobs: Iterable[Job], rows: int) -> Cost:
    """Add up the costs that the recipes declare; a tournament trains all `rows`.

    Multiply-adds are those of a recipe's network, whatever pool or stride a cell has.
    """
    from ..train.recipes import load_recipe

    trainings, images, multiply_adds, others = 0, 0.0, 0.0, 0
    for job in jobs:
        options = dict(zip(job.words, job.words[1:], strict=False))
        if "--recipe" not in options:
            others += 1
            continue
        recipe = load_recipe(options["--recipe"]).on(job.words[1].partition(":")[0])
        count = 1
        if job.words[0] == "tournament":
            count = rows
        epochs = float(options.get("--epochs", recipe.config.train.epochs))
        passed = count * epochs * recipe.cost["images"]
        trainings, images = trainings + count, images + passed
        multiply_adds += passed * recipe.multiply_adds
    return Cost(trainings, images, multiply_adds, others)


def measure_speed() -> float:
    """Return the multiply-adds per second of training steps of a ResNet-18 on this device."""
    import torch

    from ..device import default_device
    from ..models import create_model

    device = default_device()
    model = create_model("resnet18", pool="gap", pretrained=False, num_classes=10).to(device)
    images = torch.randn(BATCH, 3, 224, 224, device=device)
    for step in range(STEPS + 1):  # the first is not timed
        if step == 1:
            started = time.perf_counter()
        loss = model(images).square().sum()
        loss.backward()
        loss.item()  # waits for the device
    seconds = time.perf_counter() - started
    return STEPS * BATCH * TRAINING * 1.81e9 / seconds


def describe(cost: Cost, speed: float) -> str:
    """Return the cost in one or two sentences."""
    hours = cost.multiply_adds / speed / 3600
    text = (
        f"{cost.trainings} trainings of {cost.images / 1e6:,.3g} million images in all: "
        f"about {hours:,.0f} hours at the {speed / 1e9:,.0f} billion multiply-adds per second "
        "measured on this device."
    )
    if cost.others:
        text += f" {cost.others} other commands are not estimated."
    return text
