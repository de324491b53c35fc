"""A recipe in miniature: the same training, all sizes small, for tests and for a first try."""

from __future__ import annotations

import dataclasses
from typing import Any

from .recipes import UNLABELLED, Recipe

EPOCHS, BATCH, PARTS = 2, 16, 2
# The smallest network of each family that is still one of it. `depth` is create_model's: blocks less than twelve.
SMALL: dict[str, dict[str, Any]] = {
    "resnet": {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]},
    "convnext": {"depths": [1, 1, 1, 1], "dims": [8, 8, 16, 16]},
    "vit": {"embed_dim": 24, "num_heads": 2, "depth": -10},
    "deit": {"embed_dim": 24, "num_heads": 2, "depth": -10},
}
HEADS = {"out": 64, "hidden": 32, "bottleneck": 16}  # what DINO and MoCo put behind the vector
SPANS = ("warmup_t_epochs", "freeze_last")  # in epochs
# Of metric learning. A tiny world has classes for one model, not for the fair protocol's four.
FEWER = {
    "dim": 16,
    "xbm": 24,
    "xbm_after": 2,
    "classes_per_batch": 3,
    "warm_up": 0.5,
    "epoch_steps": 4,
}
ONE = {"protocol": "conventional", "repeats": 1}


def scaled_down(recipe: Recipe, size: int = 64) -> Recipe:
    """Sizes only: optimizer, schedule, augmentation and loss stay. Trained weights do not fit and go.

    The rate of SGD and LARS goes with the batch (0.4 is for a thousand images, not for sixteen); AdamW's stays.
    """
    settings, epochs = recipe.settings, recipe.settings.epochs
    rate = BATCH / settings.batch if settings.optimizer in ("sgd", "momentum", "lars") else 1.0
    family = next((name for name in SMALL if recipe.model["backbone"].startswith(name)), None)
    if family is None:
        raise ValueError(
            f"{recipe.name}: '{recipe.model['backbone']}' has no small twin ({', '.join(SMALL)} have)"
        )
    model = recipe.model | SMALL[family] | {"pretrained": False}
    if family in ("vit", "deit"):
        model["img_size"] = size
    if model.get("fpn"):
        model["fpn_dim"] = 16
    augment = recipe.augment | {"size": size}
    if recipe.augment.get("kind") == "wsol":
        augment["resize"] = round(size * 256 / 224)
    options = dict(recipe.options)
    if recipe.task in UNLABELLED:
        augment["local_size"] = size // 2
        options |= {
            name: width
            for name, width in HEADS.items()
            if name != "bottleneck" or recipe.task == "dino"
        }
        options |= {name: options[name] * EPOCHS / epochs for name in SPANS if name in options}
    if recipe.task == "metric":
        options |= {name: least for name, least in FEWER.items() if options.get(name)} | ONE
        if model.get("pool") == "gsp":
            model["pool_options"] = {**model.get("pool_options", {}), "prototypes": 8}
    return dataclasses.replace(
        recipe,
        model=model,
        augment=augment,
        options=options,
        settings=dataclasses.replace(
            settings,
            epochs=EPOCHS,
            batch=BATCH,
            lr=settings.lr * rate,
            accumulate=min(settings.accumulate, PARTS),
            warmup=settings.warmup * EPOCHS / epochs,
            step_every=settings.step_every * EPOCHS / epochs,
            patience=None,  # longer than all of it, and a tiny world has no classes to hold out
        ),
        data="world/tiny",
        sets={},
        start=None,
        scaled=True,
    )
