"""A recipe as what `cenote fit` takes, with the user's own choices in the place of the recipe's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..data import Dataset
from ..data.transforms import wsol_train_transform
from ..models import PooledModel, create_model
from .augment import augmentation
from .choices import Choices, given_only
from .config import OptimizationConfig
from .recipes import Recipe, parse_settings
from .run_choices import begin_with
from .tasks.supervised import JSD_VIEWS, Jsd, Supervised, join_batch_norms


@dataclass(frozen=True)
class RecipeChoices(Choices):
    recipe: Recipe | None = None

    @property
    def chosen(self) -> Recipe:
        assert self.recipe is not None
        return self.recipe

    def training(self) -> OptimizationConfig:
        rate = {"lr": self.rates[0]} if self.rates else {}
        return parse_settings({**self.settings, **rate}, self.chosen.name, self.chosen.settings)

    def model(self, classes: int) -> PooledModel:
        recipe = self.chosen
        if recipe.start is not None and self.weights is None:
            raise ValueError(
                f"{recipe.name} begins with a trained model: give it by --weights, the folder of a run of "
                f"{recipe.start}, or its authors' checkpoint"
            )
        torch.manual_seed(self.training().seed)
        changed = {
            "pool": self.pool,
            "tokens": self.tokens,
            "pool_options": self.pool_options,
            "num_classes": classes,
        }
        changed |= {"stride": self.stride, "fpn": self.fpn, "last_block": self.last_block}
        changed |= {"keep_cls": self.keep_cls}
        arguments = recipe.model | {"backbone": self.backbone} | changed
        if self.size is not None:
            arguments["img_size"] = self.size
        begins = self.weights is not None and (recipe.start is not None or self.weights.is_dir())
        if self.weights is not None:
            arguments |= (
                {"pretrained": False} if begins else {"pretrained": False, "weights": self.weights}
            )
        model = create_model(**arguments)
        own = model.backbone.preprocessing
        size = self.size or recipe.augment.get("size", own.size)
        model.backbone.preprocessing = dataclasses.replace(
            own, **{**recipe.preprocessing, "size": size}
        )
        if self.weights is not None and begins:
            begin_with(model, self.weights)
        if recipe.task == "head":
            freeze_all_but_head(model)
        return model

    def augmentation(self, model: PooledModel) -> Any:
        own = model.backbone.preprocessing
        options = {key: value for key, value in self.chosen.augment.items() if key != "kind"} | {
            "size": own.size
        }
        if self.chosen.augment.get("kind") == "wsol":
            return wsol_train_transform(
                mean=own.mean, std=own.std, **(options | {"cutout": self.cutout})
            )
        views = JSD_VIEWS if self.chosen.task == "jsd" else 1
        return augmentation(mean=own.mean, std=own.std, views=views, **options)

    def task(
        self,
        model: PooledModel,
        train: Dataset,
        val: Dataset,
        transform: Any,
        device: torch.device | None = None,
    ) -> Supervised:
        """What the engine is to train."""
        kind = Jsd if self.chosen.task == "jsd" else Supervised
        return kind(model, train, val, self.training(), transform, device=device)

    def finish(self, model: PooledModel) -> None:
        """Take out of the trained model what was there for training alone."""
        join_batch_norms(model)


def choices_of(recipe: Recipe, **changed: Any) -> RecipeChoices:
    """Fields of `Choices` that are not given, or None, are the recipe's. Another pool leaves its options behind."""
    if recipe.command != "fit":
        raise ValueError(
            f"{recipe.name} trains without cenote fit: cenote {recipe.command} --recipe {recipe.name}"
        )
    given = given_only(changed)
    own = recipe.model
    if given.get("freeze") or given.get("scratch"):
        raise ValueError(
            f"{recipe.name} says itself what is trained and from where: leave out freeze and scratch"
        )
    pool = given.get("pool", own.get("pool", "gap"))
    fields: dict[str, Any] = {
        "backbone": own["backbone"],
        "pool": pool,
        "tokens": own.get("tokens", "patches"),
        "pool_options": {
            **(own.get("pool_options", {}) if pool == own.get("pool", "gap") else {}),
            **given.pop("pool_options", {}),
        },
        "scratch": not own.get("pretrained", False) and recipe.start is None,
        "stride": own.get("stride", 1),
        "fpn": own.get("fpn"),
        "last_block": own.get("last_block"),
        "keep_cls": own.get("keep_cls", False),
        "cutout": recipe.augment.get("cutout", 0.0),
    }
    if given.get("cutout") and recipe.augment.get("kind") != "wsol":
        raise ValueError(
            f"{recipe.name} has an augmentation of its own, without Cutout: leave out cutout"
        )
    return RecipeChoices(**{**fields, **given}, recipe=recipe)


def freeze_all_but_head(model: PooledModel) -> None:
    """Backbone, pool and last norm keep their weights, and their BatchNorm its statistics, whatever mode is set."""
    for part in (model.backbone, model.pool, model.after):
        if isinstance(part, nn.Module):
            part.requires_grad_(False).eval()
            # The engine calls train() on the whole model, which would wake them.
            object.__setattr__(part, "train", lambda mode=True, part=part: part)
