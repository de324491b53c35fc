"""The model that a command's options ask for, and what must be said about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..backbones import create_backbone
from ..models import PooledModel
from ..models.pooled import assemble


class Opened(NamedTuple):
    model: PooledModel
    trained: bool  # False where the pool's weights are random: its classes mean nothing


def open_model(
    backbone: str = "lite0",
    weights: Path | None = None,
    pool: str | None = None,
    folder: Path | None = None,
    say: Callable[[str], None] = print,
) -> Opened:
    """A saved model, or a trained backbone with a pool; by default the pooling it was trained with."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if folder is not None:
        from ..models import load

        if pool is not None or weights is not None:
            raise ValueError("a saved model brings its own weights and pool: give --model alone")
        return Opened(load(folder).eval().to(device), True)
    base = create_backbone(backbone, pretrained=True, weights=weights)
    own = "cls" if base.has_cls and getattr(base.model, "global_pool", "") == "token" else "gap"
    model = assemble(base, pool or own, None).eval().to(device)
    trained = model.pool is None or not any(True for _ in model.pool.parameters())
    if not trained:
        say(
            f"note: the weights of '{pool}' are untrained (random): its map says little and no class is told. "
            "Train it and give --model FOLDER, or leave --pool out."
        )
    elif pool not in (None, own) and model.head is not None:
        say(
            f"note: the classifier of '{backbone}' was trained with '{own}': with '{pool}' its classes are a guess."
        )
    return Opened(model, trained)


def class_names(model: PooledModel) -> list[str] | None:
    """The model's own names, ImageNet's for a classifier of its size, else numbers; None without a head."""
    if model.head is None:
        return None
    count = model.head.classes
    if model.class_names is not None and len(model.class_names) == count:
        return list(model.class_names)
    from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset

    subset = "imagenet-1k" if count == 1000 else infer_imagenet_subset(model.backbone.model)
    info: Any = None if subset is None else ImageNetInfo(subset)
    if info is None or info.num_classes() != count:
        return [f"class {i}" for i in range(count)]
    return [info.index_to_description(i) for i in range(count)]
