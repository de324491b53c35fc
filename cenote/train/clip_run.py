"""`cenote clip`: train an image-text model on captions, or on classes and domains."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data import Dataset
from ..data.digests import digest_of
from ..data.image_texts import ImageTexts
from ..data.loading import load
from ..data.splits import TEST, TRAIN, VAL
from ..evaluate.image_text import ImageTextValidator
from ..models.frozen import FrozenBackbone
from ..models.image_text.small_clip import SmallClip, save_image_text
from ..models.image_text.text_encoder import Words
from ..predict.distributed import processes, rank, world
from ..predict.feature_cache import CachedFeatures, FeatureBatches, FeatureCache
from .build import build_augmentation, build_frozen, build_head, build_model, build_text_tower
from .config import OptimizationConfig, RunConfig
from .engine import Engine
from .extraction import Extraction, Unreadable
from .fit import check_folder
from .reports import ClipReport, write_report
from .tasks.clip import Clip

logger = logging.getLogger(__name__)
HELD_OUT = 10  # without a validation split, one image in ten is held out


def train_clip(
    data: Dataset,
    folder: Path,
    config: RunConfig,
    cache: FeatureCache | None = None,
    resume: bool = False,
) -> ClipReport:
    """Train, save the model of the best epoch in `folder`, and evaluate it."""
    resume = check_folder(folder, resume)
    splits, texts = described_splits(data, config.options.texts)
    with processes() as device:
        started = time.monotonic()
        sources: dict[str, Dataset | CachedFeatures] = {**splits}
        frozen = None
        if config.model.freeze:
            frozen = build_frozen(config)
            frozen.backbone.to(device)
            extract = Extraction(frozen, cache, config.train, folder)
            for name, dataset in splits.items():
                sources[name] = features = extract(dataset, name)
                splits[name] = features.dataset
                texts[name] = ImageTexts(features.dataset, config.options.texts)
        model = build_clip(config, Words.of(texts["train"].all), frozen)
        model.things = sorted(texts["train"].class_names) or model.words.vocabulary
        settings = replace(config.train, batch=min(config.train.batch, len(splits["train"])))
        loader = _loader(sources["train"], config, model, settings)
        unreadable = Unreadable(folder, settings)
        validators = {
            name: ImageTextValidator(
                source, texts[name], settings.batch, settings.workers, name, unreadable
            )
            for name, source in sources.items()
            if name != "train"
        }
        task = Clip(
            model, splits["train"], texts["train"], loader, validators["val"], settings, device
        )
        fingerprint = _fingerprint(splits, texts)
        identity = {**config.identity(), "data": fingerprint}
        Engine(task, settings, folder, identity).run(resume)
        (winner,) = task.states
        task.module.load_state_dict(winner.best)
        if rank() == 0:
            save_image_text(model, folder)  # before the evaluation, which may fail
        scores = {
            name: {**validator(model), "images": validator.images or 0}
            for name, validator in validators.items()
        }
        report = ClipReport(
            backbone=config.model.backbone,
            pool=model.image.config["pool"],
            epoch=winner.best_epoch + 1,
            val=scores["val"],
            test=scores.get("test"),
            words=len(model.words.vocabulary),
            texts=len(texts["train"].all),
            identity=model.identity,
            seconds={"training": time.monotonic() - started},
            settings=asdict(settings),
            data=fingerprint,
        )
        if rank() == 0:
            write_report(folder, report)
        return report


def build_clip(config: RunConfig, words: Words, frozen: FrozenBackbone | None = None) -> SmallClip:
    """Build image and text encoder; behind a `frozen` backbone only what follows it is new."""
    if frozen is None:
        image = build_model(config)
    else:
        torch.manual_seed(config.train.seed)
        image = frozen.create_model(build_head(config, frozen))
    return SmallClip(image, build_text_tower(config.options, words), words)


def _loader(
    train: Dataset | CachedFeatures,
    config: RunConfig,
    model: SmallClip,
    settings: OptimizationConfig,
) -> Any:
    if not isinstance(train, Dataset):
        return FeatureBatches(train, settings.batch, shuffle=True, seed=settings.seed)
    return load(
        train,
        build_augmentation(config, model.image),
        max(settings.batch // world(), 1),
        settings.workers,
        shuffle=True,
        seed=settings.seed,
        drop_last=True,
        rank=rank(),
        world=world(),
    )


def described_splits(data: Dataset, kind: str) -> tuple[dict[str, Dataset], dict[str, ImageTexts]]:
    """Return the splits without images that have no text, and the texts of the others."""
    splits, texts = dict[str, Dataset](), dict[str, ImageTexts]()
    for name, dataset in clip_splits(data).items():
        described = ImageTexts(dataset, kind).described
        if len(described) < 2:
            raise ValueError(
                f"the {name} split of {data.name} needs two images with a caption, a class or a "
                "domain"
            )
        missing = len(dataset) - len(described)
        if missing:
            logger.info("%d of %d %s images have no text: left out", missing, len(dataset), name)
            dataset = dataset.select(described)
        splits[name], texts[name] = dataset, ImageTexts(dataset, kind)
    return splits, texts


def clip_splits(data: Dataset) -> dict[str, Dataset]:
    """Return the splits; without a validation split, the same tenth is held out everywhere."""
    train, val, test = (
        next((data.split(name) for name in names if name in data.splits), None)
        for names in (TRAIN, VAL, TEST)
    )
    if train is None:
        if any(name is not None for name in data.splits):
            names = ", ".join(map(str, data.splits))
            raise ValueError(f"{data.name} has splits {names}, but none to train on")
        train = data
    if val is None:
        keys = [
            digest_of(f"{record.image or i}".encode("utf-8", "surrogateescape"))
            for i, record in enumerate(train)
        ]
        held_out = np.zeros(len(train), bool)
        order = np.argsort(np.array(keys), kind="stable")
        held_out[order[: max(len(train) // HELD_OUT, 2)]] = True
        train, val = train.select(~held_out), train.select(held_out)
        logger.info("no validation split: %d training images are held out", len(val))
    splits = {"train": train, "val": val}
    return splits if test is None else {**splits, "test": test}


def _fingerprint(splits: dict[str, Dataset], texts: dict[str, ImageTexts]) -> str:
    """Return a digest of the names and texts of the training and validation images."""
    names = [
        record.image.encode("utf-8", "surrogateescape")
        for name in ("train", "val")
        for record in splits[name]
    ]
    return digest_of(*names, *(texts[name].digest.encode() for name in ("train", "val"))).hex()
