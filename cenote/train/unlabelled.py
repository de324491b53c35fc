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
from ..data.transforms import MultiCrop
from ..models import PooledModel, create_model, save_model
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import begun
from .dino import Dino, DinoOptions
from .distributed import processes, rank
from .engine import Engine
from .fit import write_results
from .moco import Moco, MocoOptions
from .settings import Settings
from .splits import TRAIN, VAL

Say = Callable[[str], None]
# The papers' numbers; their rates are for 256 images a step.
DINO = Settings(epochs=100, batch=64, lr=5e-4, min_lr=1e-6, weight_decay=0.04, warmup=10)
MOCO = Settings(epochs=100, batch=64, lr=1.5e-4, weight_decay=0.1, warmup=10)
FEW = 100_000
METHODS: dict[str, tuple[Any, Any, Settings]] = {"dino": (Dino, DinoOptions, DINO), "moco": (Moco, MocoOptions, MOCO)}


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
    pool_options: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # fields of DinoOptions or MocoOptions
    settings: Settings = DINO

    def model(self) -> PooledModel:
        torch.manual_seed(self.settings.seed)
        model = create_model(
            self.backbone, self.pool, 0, tokens=self.tokens, img_size=self.size, pool_options=self.pool_options,
            **self.model_options,
        )  # fmt: skip
        if self.size is not None:
            own = model.backbone.preprocessing
            model.backbone.preprocessing = dataclasses.replace(own, size=self.size)
        return model

    def crops(self, model: PooledModel) -> MultiCrop:
        """The views of an image; MoCo has the two large ones alone."""
        own = model.backbone.preprocessing
        local = self.local if self.method == "dino" else 0
        patch = _patch(model)
        small = self.local_size or max(round(own.size * 3 / 7 / patch), 1) * patch
        return MultiCrop(own.size, small, local, self.scale, self.local_scale, own.mean, own.std)


def learn(data: Dataset, folder: Path, asked: Unlabelled, resume: bool = False, say: Say = print) -> dict[str, Any]:
    """Train, save the teacher of the best epoch in `folder`, and report."""
    if not resume and (folder / CHECKPOINT).exists():
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder")
    resume = resume and begun(folder)
    train, val = unlabelled_splits(data)
    settings = asked.settings
    with processes() as device:
        started = time.monotonic()
        model = asked.model()
        options = options_of(asked, len(train))
        task = METHODS[asked.method][0](model, train, val, settings, asked.crops(model), options, device)
        identity = {k: v for k, v in asdict(asked).items() if k != "settings"} | {"images": len(train)}
        Engine(task, settings, folder, say, identity).run(resume)
        (winner,) = task.contenders
        task.module.load_state_dict(winner.best)
        report: dict[str, Any] = {
            "method": asked.method,
            "backbone": asked.backbone,
            "pool": asked.pool,
            "epoch": winner.best_epoch + 1,
            "knn": winner.best_score if val is not None else None,
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

    DINO's temperature warms up in no more than a third of the epochs, and few images need fewer than 65,536 answers.
    """
    kind = METHODS[asked.method][1]
    known = [f.name for f in dataclasses.fields(kind)]
    for name in asked.options:
        if name not in known:
            raise ValueError(f"no option '{name}' of {asked.method}: {', '.join(known)}")
    options = kind(**asked.options)
    if not isinstance(options, DinoOptions):
        return options
    smaller: dict[str, Any] = {"warmup_t_epochs": min(options.warmup_t_epochs, asked.settings.epochs / 3)}
    if images < FEW:
        smaller["out"] = 4096
    return dataclasses.replace(options, **{name: v for name, v in smaller.items() if name not in asked.options})


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
