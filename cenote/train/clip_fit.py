"""`cenote clip`: images with captions, or with classes and domains, in; an image-text model out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset
from ..data.digests import digest_of
from ..data.image_texts import ImageTexts
from ..data.loading import load
from ..data.splits import TEST, TRAIN, VAL
from ..evaluate.image_text import ImageTextValidator
from ..models.image_text.saving import save_image_text
from ..models.image_text.small import SmallClip
from ..models.image_text.words import Words
from ..predict.distributed import processes, rank, world
from ..predict.feature_batches import FeatureBatches
from ..predict.feature_cache import CachedFeatures, FeatureCache
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import can_resume
from .clip_choices import ClipChoices
from .config import OptimizationConfig
from .engine import Engine
from .extraction import Extraction, Unreadable
from .log import write_results
from .tasks.clip import Clip

Say = Callable[[str], None]
HELD = 10  # one image in so many is held out where there is no validation split


def learn_clip(
    data: Dataset,
    folder: Path,
    choices: ClipChoices,
    cache: FeatureCache | None = None,
    resume: bool = False,
    say: Say = print,
) -> dict[str, Any]:
    """Train as chosen, save the model of the best epoch in `folder`, judge it, and report."""
    choices.check()
    settings = choices.settings
    if not resume and (folder / CHECKPOINT).exists():
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder")
    resume = resume and can_resume(folder)
    parts = {name: part for name, part in clip_splits(data, say).items() if part is not None}
    texts = {}
    for name, part in parts.items():
        texts[name] = ImageTexts(part, choices.texts)
        if len(described := texts[name].described) < len(part):
            told = f"{len(part) - len(described)} of {len(part)} images of the {name} split"
            say(f"{told} have nothing said of them: left out")
            parts[name] = part.select(described)
            texts[name] = ImageTexts(parts[name], choices.texts)
        if len(described) < 2:
            raise ValueError(
                f"the {name} split of {data.name} has no two images with a caption, a class or a domain"
            )
    with processes() as device:
        started = time.monotonic()
        sources: dict[str, Dataset | CachedFeatures] = {**parts}
        frozen = None
        if choices.freeze:
            frozen = choices.frozen()
            frozen.backbone.to(device)
            extract = Extraction(frozen, cache, settings, folder)
            for name, part in parts.items():
                sources[name] = found = extract(part, name)
                parts[name], texts[name] = found.dataset, ImageTexts(found.dataset, choices.texts)
        model = choices.model(Words.of(texts["train"].all), frozen)
        model.things = sorted(texts["train"].class_names) or model.words.vocabulary
        settings = dataclasses.replace(settings, batch=min(settings.batch, len(parts["train"])))
        loader = _loader(sources["train"], choices, model, settings)
        unreadable = Unreadable(folder, settings)
        judges = {
            name: ImageTextValidator(
                source, texts[name], settings.batch, settings.workers, name, unreadable
            )
            for name, source in sources.items()
            if name != "train"
        }
        task = Clip(model, parts["train"], texts["train"], loader, judges["val"], settings, device)
        asked = {key: value for key, value in asdict(choices).items() if key != "settings"}
        identity = {**asked, "weights": str(choices.weights), "data": _fingerprint(parts, texts)}
        Engine(task, settings, folder, identity).run(resume)
        (winner,) = task.states
        task.module.load_state_dict(winner.best)
        if rank() == 0:
            save_image_text(model, folder)  # whatever judging may stumble over
        report: dict[str, Any] = {
            "task": "clip",
            "backbone": choices.backbone,
            "pool": model.image.config["pool"],
            "epoch": winner.best_epoch + 1,
            **{name: {**judge(model), "images": judge.images} for name, judge in judges.items()},
            "words": len(model.words.vocabulary),
            "texts": len(texts["train"].all),
            "identity": model.identity,
            "seconds": {"training": time.monotonic() - started},
            "settings": asdict(settings),
            "data": identity["data"],
        }
        if rank() == 0:
            write_results(folder, report)
        return report


def _loader(
    train: Dataset | CachedFeatures,
    choices: ClipChoices,
    model: SmallClip,
    settings: OptimizationConfig,
) -> Any:
    if not isinstance(train, Dataset):
        return FeatureBatches(train, settings.batch, shuffle=True, seed=settings.seed)
    return load(
        train, choices.augmentation(model), max(settings.batch // world(), 1), settings.workers, shuffle=True,
        seed=settings.seed, drop_last=True, rank=rank(), world=world(),
    )  # fmt: skip


def clip_splits(data: Dataset, say: Say) -> dict[str, Dataset | None]:
    """The data's own; where there is no validation split, a tenth of the training images, the same on every machine."""
    train, val, test = (
        next((data.split(name) for name in names if name in data.splits), None)
        for names in (TRAIN, VAL, TEST)
    )
    if train is None:
        if any(name is not None for name in data.splits):
            raise ValueError(
                f"{data.name} has splits {', '.join(map(str, data.splits))}, but none to train on"
            )
        train = data
    if val is None:
        keys = [
            digest_of(f"{record.image or i}".encode("utf-8", "surrogateescape"))
            for i, record in enumerate(train)
        ]
        held = np.zeros(len(train), bool)
        held[np.argsort(np.array(keys), kind="stable")[: max(len(train) // HELD, 2)]] = True
        train, val = train.select(~held), train.select(held)
        say(f"no validation split: {len(val)} images of the training split are held out")
    return {"train": train, "val": val, "test": test}


def _fingerprint(parts: dict[str, Dataset], texts: dict[str, ImageTexts]) -> str:
    """Of names and texts of the images to train and to validate on."""
    names = [
        record.image.encode("utf-8", "surrogateescape")
        for name in ("train", "val")
        for record in parts[name]
    ]
    return digest_of(*names, *(texts[name].digest.encode() for name in ("train", "val"))).hex()
