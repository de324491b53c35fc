"""Training with a method of weakly supervised localization, or with DRLoc, beside a classifier."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..backbones import Features
from ..data import Dataset
from ..data.samplers import mix_seed
from ..evaluate.validators import LocalizationValidator
from ..losses import DRLoc
from ..models import PooledModel
from ..models.head import PoolAndHead
from ..models.wsol.ivr import InferiorValueRemoval
from ..models.wsol.registry import find_method
from ..predict.distributed import rank
from .config import OptimizationConfig
from .engine import Examples

PERCENTILES = range(0, 100, 10)  # that `ivr` chooses from; 0 is min-max
logger = logging.getLogger(__name__)


def check_classes(wsol: str | None, train: Dataset) -> None:
    """Raise ValueError if a method needs one class for each image, and images have several."""
    if wsol is not None and train.multi_label and find_method(wsol).needs_class:
        raise ValueError(f"--wsol {wsol} needs one class for each image of {train.name}")


def step_seed(settings: OptimizationConfig, epoch: float, steps: int) -> int:
    """Return the seed of a step, from the step alone: a resumed run draws the same numbers.

    Each process has its own.
    """
    return mix_seed(settings.seed, round(epoch * steps), rank()) >> 1


def classification_loss(
    module: nn.Module,
    inputs: Examples,
    criterion: Callable[[Tensor, Tensor], Tensor],
    seed: int,
    drloc: DRLoc | None = None,
) -> Tensor:
    """Return the loss of images, or of their features, with the model's method and DRLoc.

    All of it is computed inside of the forward pass of `module`, which may distribute the model.
    """
    model = getattr(module, "module", module)
    assert isinstance(model, PoolAndHead)
    method, images, labels = model.wsol, inputs.inputs, inputs.labels
    if method is None and drloc is None:
        return criterion(module(images), labels)
    rng = torch.Generator().manual_seed(seed)
    if method is not None and isinstance(images, Tensor):
        images = method.images(images, rng)

    def loss_of(features: Features) -> Tensor:
        if method is None:
            loss = criterion(model.classify(features), labels)
        else:
            loss = method.loss(model, features, labels, criterion, rng)
        if drloc is not None:
            loss = loss + drloc(features.tokens, features.grid, rng)
        return loss

    loss: Tensor = module(images, loss_of)
    return loss


def choose_percentile(model: PooledModel, val: Dataset, settings: OptimizationConfig) -> None:
    """Let `ivr` have the percentile that is best for the boxes of the validation images.

    With `select="pixels"` it is the best for their masks. Ties keep the lowest; without boxes
    nothing changes.
    """
    method = model.wsol
    if not isinstance(method, InferiorValueRemoval):
        return
    by = "pixels" if settings.select == "pixels" else "boxes"
    if by == "boxes" and not any(record.boxes for record in val):
        return
    validator = LocalizationValidator(val, by, settings.batch, settings.readers)
    scores: dict[int, float] = {}
    for percentile in PERCENTILES:
        method.percentile.fill_(percentile)
        scores[percentile] = validator(model)
    best = max(PERCENTILES, key=lambda percentile: scores[percentile])
    method.percentile.fill_(best)
    logger.info("percentile %d: %.1f by the %s of validation images", best, scores[best], by)
