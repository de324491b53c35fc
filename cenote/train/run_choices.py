"""Training that begins where a saved run ended: all of its weights but the head's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..models import PooledModel, create_model, load, load_released
from .choices import Choices, given_only


@dataclass(frozen=True)
class RunChoices(Choices):
    """`weights` is the folder of a saved model. What is not asked for is as it was there."""

    def model(self, classes: int) -> PooledModel:
        assert self.weights is not None
        torch.manual_seed(self.training().seed)
        saved = load(self.weights)
        arguments = saved.config | {
            "pool": self.pool,
            "tokens": self.tokens,
            "pool_options": self.pool_options,
        }
        arguments |= {
            "backbone": self.backbone,
            "stride": self.stride,
            "fpn": self.fpn,
            "num_classes": classes,
        }
        arguments["keep_cls"] = self.keep_cls
        model = create_model(**arguments)
        own = saved.backbone.preprocessing
        model.backbone.preprocessing = dataclasses.replace(own, size=self.size or own.size)
        begin_with(model, self.weights, saved)
        return model


def choices_from_run(folder: Path, **changed: Any) -> RunChoices:
    """Fields of `Choices` that are not given are the run's. Another pool leaves its options behind."""
    given = given_only(changed)
    if given.get("freeze") or given.get("scratch"):
        raise ValueError(
            f"{folder} is a saved model, from which all weights are trained on: leave out --freeze and --scratch "
            "(--freeze takes the file of a backbone's weights)"
        )
    own = load(folder).config
    pool = given.get("pool", own["pool"])
    if given.get("last_block", own.get("last_block")) != own.get("last_block"):
        raise ValueError(
            f"{folder} is trained on with the last block that it has: leave out --last-block (A, D.3)"
        )
    kept = ("backbone", "tokens", "stride", "fpn", "last_block", "keep_cls")
    fields: dict[str, Any] = {key: own[key] for key in kept if key in own}
    fields |= {"pool": pool, "weights": folder}
    options = {
        **(own["pool_options"] if pool == own["pool"] else {}),
        **given.pop("pool_options", {}),
    }
    return RunChoices(**{**fields, **given}, pool_options=options)


def begin_with(model: PooledModel, weights: Path, saved: PooledModel | None = None) -> None:
    """All but the head, from the folder of a run or from the authors' checkpoint."""
    if not weights.is_dir():
        load_released(model, weights)
        return
    own = model.state_dict()
    every = (saved or load(weights)).state_dict()
    found = {name: value for name, value in every.items() if not name.startswith("head.")}
    wrong = [
        n
        for n in own
        if not n.startswith("head.") and (n not in found or found[n].shape != own[n].shape)
    ]
    if wrong or len(found) != sum(not n.startswith("head.") for n in own):
        name = wrong[0] if wrong else next(n for n in found if n not in own)
        raise ValueError(
            f"{weights} holds another model than the one that is asked for: {name} differs"
        )
    model.load_state_dict(found, strict=False)
