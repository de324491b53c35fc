"""What a table costs: images of its trainings, and hours at the speed measured on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .run import Job

BATCH, STEPS = 8, 3
TRAINING = 3  # multiply-adds of a training step, in forward passes
COMMANDS = ("fit", "metric", "dino", "moco")


@dataclass(frozen=True)
class Cost:
    trainings: int = 0
    images: float = 0.0  # epochs x images, over all trainings
    multiply_adds: float | None = 0.0  # None: a training has not the network of a recipe
    unestimated: int = 0  # commands without an estimate


def estimate(jobs: Iterable[Job], images: Mapping[str, int]) -> Cost:
    """Add up the trainings; `images` has the training images of data sets.

    Others have the images of the recipe. Multiply-adds are those of a recipe's network, whatever
    pool or stride a cell has.
    """
    from ..train.recipes import load_recipe

    trainings, passes, unestimated = 0, 0.0, 0
    multiply_adds: float | None = 0.0
    for job in jobs:
        if job.words[0] not in COMMANDS:
            unestimated += 1
            continue
        options = dict(zip(job.words, job.words[1:], strict=False))
        data, epochs, count, per_image = job.words[1], 0, 0, None
        if "--recipe" in options:
            recipe = load_recipe(options["--recipe"]).on(data.partition(":")[0])
            epochs, count = recipe.config.train.epochs, recipe.cost["images"]
            if "--backbone" not in options:
                per_image = recipe.multiply_adds
        passed = float(options.get("--epochs", epochs)) * images.get(data, count)
        trainings, passes = trainings + 1, passes + passed
        if multiply_adds is not None:
            multiply_adds = None if per_image is None else multiply_adds + passed * per_image
    return Cost(trainings, passes, multiply_adds, unestimated)


def count_training_images(data: str) -> int:
    """Return the images of the training split, or all; raise an error if DATA is not a data set."""
    from ..data import open_dataset
    from ..data.splits import TRAIN

    dataset = open_dataset(data)
    return sum(dataset.splits.get(name, 0) for name in TRAIN) or len(dataset)


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


def describe(cost: Cost) -> str:
    """Return the cost in one to three sentences."""
    images = f"{cost.images:,.0f}"
    if cost.images >= 1e6:
        images = f"{cost.images / 1e6:,.3g} million"
    trainings = f"{cost.trainings:,} training" + "s" * (cost.trainings != 1)
    text = f"{trainings} of {images} images in all"
    if cost.multiply_adds:
        speed = measure_speed()
        text += (
            f": about {cost.multiply_adds / speed / 3600:,.0f} hours at the {speed / 1e9:,.0f} "
            "billion multiply-adds per second measured on this device"
        )
    if cost.unestimated:
        text += f"; other commands: {cost.unestimated:,}, not estimated"
    return f"{text}."
