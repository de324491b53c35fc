"""`cenote dino` and `cenote moco`: images in, a model that never saw a label out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..data import Dataset
from ..data.splits import TRAIN, VAL
from ..data.transforms import MultiCrop
from ..models import PooledModel, create_model, save_model
from ..predict.distributed import processes, rank
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import can_resume
from .choices import given_only
from .config import DinoConfig, MocoConfig, OptimizationConfig
from .engine import Engine
from .log import write_results
from .recipes import Recipe, parse_fields, parse_settings
from .tasks.dino import Dino
from .tasks.moco import Moco

Say = Callable[[str], None]
# The papers' numbers; their rates are for 256 images a step.
DINO = OptimizationConfig(epochs=100, batch=64, lr=5e-4, min_lr=1e-6, weight_decay=0.04, warmup=10)
MOCO = OptimizationConfig(epochs=100, batch=64, lr=1.5e-4, weight_decay=0.1, warmup=10)
FEW = 100_000  # images
SHORT = 10_000  # steps
METHODS: dict[str, tuple[Any, Any, OptimizationConfig]] = {
    "dino": (Dino, DinoConfig, DINO),
    "moco": (Moco, MocoConfig, MOCO),
}


@dataclass(frozen=True)
class Unlabelled:
    """What was asked for."""

    method: str = "dino"  # or moco
    backbone: str = "vit_micro"
    pool: str = "simpool"
    tokens: str = "patches"
    size: int | None = None  # of large crops: the backbone's own
    local_size: int | None = None  # of small ones: three sevenths of that, in whole patches
    local: int = 6
    scale: tuple[float, float] = (0.25, 1.0)
    local_scale: tuple[float, float] = (0.05, 0.25)
    model_options: dict[str, Any] = field(default_factory=dict)
    preprocessing: dict[str, Any] = field(
        default_factory=dict
    )  # where the backbone's own is not wanted
    pool_options: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # fields of DinoConfig or MocoConfig
    settings: OptimizationConfig = DINO

    def model(self) -> PooledModel:
        torch.manual_seed(self.settings.seed)
        model = create_model(
            self.backbone, self.pool, 0, tokens=self.tokens, img_size=self.size, pool_options=self.pool_options,
            **self.model_options,
        )  # fmt: skip
        own = model.backbone.preprocessing
        model.backbone.preprocessing = dataclasses.replace(
            own, **{**self.preprocessing, "size": self.size or own.size}
        )
        return model

    def crops(self, model: PooledModel) -> MultiCrop:
        """The views of an image; MoCo has the two large ones alone."""
        own = model.backbone.preprocessing
        local = self.local if self.method == "dino" else 0
        patch = _patch(model)
        small = self.local_size or max(round(own.size * 3 / 7 / patch), 1) * patch
        return MultiCrop(own.size, small, local, self.scale, self.local_scale, own.mean, own.std)


def asked_for(
    method: str, settings: dict[str, Any], recipe: Recipe | None = None, **given: Any
) -> Unlabelled:
    """Return the options: what is given comes before the recipe's, that before the method's own.

    The method's rate is for 256 images and grows with the batch beyond them; a recipe's is for its own batch and stays.
    Another pool leaves the recipe's options of the pool behind.
    """
    given = given_only(given)
    base: OptimizationConfig = METHODS[method][2]
    if recipe is None:
        chosen = parse_settings(settings, method, base)
        own: dict[str, Any] = {
            "warmup": min(base.warmup, chosen.epochs / 10),
            "lr": base.lr * max(chosen.batch / 256, 1),
        }
        chosen = dataclasses.replace(
            chosen, **{key: value for key, value in own.items() if key not in settings}
        )
        return Unlabelled(method, **given, settings=chosen)
    if recipe.command != method:
        raise ValueError(
            f"{recipe.name} is for another command: cenote {recipe.command} --recipe {recipe.name}"
        )
    if recipe.start is not None:
        raise ValueError(
            f"{recipe.name}: cenote {method} begins with a network of its own, so leave out 'start'"
        )
    fields: dict[str, Any] = {
        key: recipe.model[key] for key in ("backbone", "pool", "tokens") if key in recipe.model
    }
    fields |= {
        k: tuple(v) if isinstance(v, list) else v for k, v in recipe.augment.items() if k != "kind"
    }
    fields["model_options"] = {
        k: v for k, v in recipe.model.items() if k not in (*fields, "pool_options", "img_size")
    }
    same = given.get("pool", recipe.model.get("pool")) == recipe.model.get("pool")
    pool_options = (recipe.model.get("pool_options", {}) if same else {}) | given.pop(
        "pool_options", {}
    )
    fields["model_options"] |= given.pop("model_options", {})
    options = recipe.options | given.pop("options", {})
    return Unlabelled(
        method, **{**fields, **given}, pool_options=pool_options, options=options, preprocessing=recipe.preprocessing,
        settings=parse_settings(settings, recipe.name, recipe.settings),
    )  # fmt: skip


def learn(
    data: Dataset, folder: Path, asked: Unlabelled, resume: bool = False, say: Say = print
) -> dict[str, Any]:
    """Train, save the teacher of the best epoch in `folder`, and report."""
    if not resume and (folder / CHECKPOINT).exists():
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder")
    resume = resume and can_resume(folder)
    train, val = unlabelled_splits(data)
    settings = asked.settings
    with processes() as device:
        started = time.monotonic()
        model = asked.model()
        options = options_of(asked, len(train))
        task = METHODS[asked.method][0](
            model, train, val, settings, asked.crops(model), options, device
        )
        if rank() == 0 and (told := _adapted(asked, options)):
            say(f"a small run: {told}")
        untrained = (
            None if task.knn is None or resume else task.knn(task.teacher)
        )  # what learning is seen against
        if untrained is not None and rank() == 0:
            say(
                f"before training  {'  '.join(f'{name} {value:.4g}' for name, value in untrained.items())}"
            )
        identity = {k: v for k, v in asdict(asked).items() if k != "settings"} | {
            "images": len(train)
        }
        Engine(task, settings, folder, identity).run(resume)
        if task.knn is not None and untrained is None:
            untrained = task.knn(asked.model().to(device))
        (winner,) = task.states
        task.module.load_state_dict(winner.best)
        report: dict[str, Any] = {
            "method": asked.method,
            "backbone": asked.backbone,
            "pool": asked.pool,
            "epoch": winner.best_epoch + 1,
            "knn": winner.best_score if val is not None else None,
            "knn_untrained": None if untrained is None else next(iter(untrained.values())),
            "images": len(train),
            "options": asdict(options),
            "seconds": {"training": time.monotonic() - started},
            "settings": asdict(settings),
        }
        if rank() == 0:
            save_model(task.teacher, folder)
            write_results(folder, report)
        return report


def options_of(asked: Unlabelled, images: int) -> Any:
    """The method's own, checked; what is left open is the paper's, but for runs that are much smaller than its.

    DINO's temperature warms up in no more than a third of the epochs. Few images need fewer than 65,536 answers, and a
    narrower head. In a short run the teacher remembers no more than a tenth of it, its temperature stays low, the last
    layer waits for a hundredth of the epochs, and the head is one that learns quickly: 256 answers, BatchNorm (without
    both, `vit_micro` hardly climbs in ten epochs of the world).
    """
    kind = METHODS[asked.method][1]
    known = [f.name for f in dataclasses.fields(kind)]
    for name in asked.options:
        if name not in known:
            raise ValueError(f"no option '{name}' of {asked.method}: {', '.join(known)}")
    options = parse_fields(kind(), asked.options, asked.method, "options.")
    if not isinstance(options, DinoConfig):
        return options
    epochs = asked.settings.epochs
    smaller: dict[str, Any] = {"warmup_t_epochs": min(options.warmup_t_epochs, epochs / 3)}
    if images < FEW:
        smaller |= {"out": 4096, "hidden": 512}
    if (steps := epochs * (images // asked.settings.batch)) < SHORT:
        smaller |= {"out": 256, "bottleneck": 64, "batch_norm": True, "teacher_t": options.warmup_t}
        smaller["momentum"] = min(options.momentum, 1 - 1 / max(steps / 10, 2))
        smaller["freeze_last"] = min(options.freeze_last, epochs / 100)
    return dataclasses.replace(
        options, **{name: v for name, v in smaller.items() if name not in asked.options}
    )


def _adapted(asked: Unlabelled, options: Any) -> str:
    """What was chosen neither by the user nor by the paper."""
    paper, now = asdict(type(options)()), asdict(options)
    changed = [name for name in now if now[name] != paper[name] and name not in asked.options]
    return ", ".join(f"{name} {_short(now[name])} for {_short(paper[name])}" for name in changed)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def unlabelled_splits(data: Dataset) -> tuple[Dataset, Dataset | None]:
    """Images to learn from, classes or not, and labelled ones to judge by, where there are any apart from those."""
    names = data.splits
    train = next((data.split(name) for name in TRAIN if name in names), data)
    val = next((data.split(name) for name in (*VAL, "test") if name in names), None)
    if val is None or not (val.labels >= 0).any() or not (train.labels >= 0).any():
        return train, None
    return train, val


def _patch(model: PooledModel) -> int:
    patches = getattr(model.backbone.model, "patch_embed", None)
    size = getattr(patches, "patch_size", 32)
    return int(size[0] if isinstance(size, tuple) else size)
