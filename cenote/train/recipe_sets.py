"""One recipe for several data sets: what differs on each stands under `sets`."""

from __future__ import annotations

import dataclasses
from typing import Any

from .recipes import Recipe, _checked_data, _known, check_options, parse_settings

MAY_DIFFER = ("model", "train", "options", "cost", "paper")


def on_data(recipe: Recipe, data: str) -> Recipe:
    """The recipe as it is on this benchmark; on data that it does not name, as it stands."""
    if data not in recipe.sets:
        return recipe
    own: dict[str, Any] = recipe.sets[data]
    name = f"{recipe.name} on {data}"
    options = {**recipe.options, **own.get("options", {})}
    check_options(options, recipe.task, name)
    model = {**recipe.model, **own.get("model", {})}
    model["pool_options"] = {
        **recipe.model.get("pool_options", {}),
        **own.get("model", {}).get("pool_options", {}),
    }
    return dataclasses.replace(
        recipe,
        model=model,
        settings=parse_settings(own.get("train", {}), name, recipe.settings),
        options=options,
        data=data,
        cost={**recipe.cost, **own.get("cost", {})},
        paper={**recipe.paper, **own.get("paper", {})},
    )


def check_sets(recipe: Recipe) -> None:
    """Whatever is wrong is one sentence."""
    for data, own in recipe.sets.items():
        _checked_data(data, recipe.name)
        if not isinstance(own, dict):
            raise ValueError(f"{recipe.name}: 'sets.{data}' must hold keys, got {own!r}")
        _known(recipe.name, f"sets.{data}.", own, MAY_DIFFER)
        for key, value in own.items():
            if not isinstance(value, dict):
                raise ValueError(
                    f"{recipe.name}: 'sets.{data}.{key}' must hold keys, got {value!r}"
                )
        on_data(recipe, data)
