"""`cenote clip`: align the vectors of images and their texts, as CLIP does (Radford et al., 2021).

Texts are captions, or made of classes and domains.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..backbones import Features
from ..data import Dataset
from ..data.digests import digest_of
from ..data.image_texts import ImageTexts
from ..data.loading import Batch
from ..data.samplers import mix_seed
from ..data.splits import named_splits
from ..evaluate.validators import ImageTextValidator, selection_score
from ..models.frozen import FrozenBackbone
from ..models.image_text.small_clip import SmallClip, save_image_text
from ..models.image_text.text_encoder import Words
from ..predict.distributed import gathered, joined_rows, rank
from ..predict.embedding import EmbeddingSource
from ..predict.feature_cache import FeatureBatch, FeatureCache
from ..unit import unit
from .augment import build_augmentation
from .build import build_frozen, build_head, build_model, build_text_tower
from .checkpoint import can_resume, run_processes
from .config import OptimizationConfig, RunConfig
from .engine import Engine, Examples, Metrics, Task, load_batches
from .extraction import Extraction, Unreadable
from .reports import ClipReport
from .state import TrainState

NAME = "clip"
MAX_LOG_SCALE = math.log(100)  # CLIP's bound
SPELLED_EVERY = 10  # one text in ten is tokenized letter by letter
HELD_OUT = 10  # without a validation split, one image in ten is held out
logger = logging.getLogger(__name__)


class ClipModule(nn.Module):
    """Image and text encoder; returns the loss of the images and texts of all processes."""

    def __init__(self, model: SmallClip, texts: ImageTexts, seed: int) -> None:
        super().__init__()
        self.model, self.texts, self.seed, self.epoch = model, texts, seed, 0

    def no_weight_decay(self) -> set[str]:
        image = {f"model.image.{name}" for name in self.model.image.no_weight_decay()}
        return image | {f"model.text.{name}" for name in self.model.text.no_weight_decay()}

    def forward(self, batch: Examples) -> Tensor:
        images: list[int] = batch.labels.tolist()  # their positions in the data set
        drawn = [self.texts.draw(i, self.seed, self.epoch) for i in images]
        texts = list(dict.fromkeys(drawn))
        x, t = unit(embed_images(self.model, batch.inputs)), unit(self._embed_texts(texts))
        shares = gathered((images, texts))
        x = joined_rows(x, [len(share) for share, _ in shares])
        t = joined_rows(t, [len(share) for _, share in shares])
        positions = [i for share, _ in shares for i in share]
        rows: dict[int, int] = {}  # two processes may draw the same text: use its first row
        for row, text in enumerate(text for _, share in shares for text in share):
            rows.setdefault(text, row)
        truth = self.texts.truth(positions, list(rows)).to(x.device)
        return contrastive_loss(x, t[list(rows.values())], truth, self.model.scale.exp())

    def _embed_texts(self, texts: list[int]) -> Tensor:
        """Return (U, dim). Spelled texts, several times longer, are a batch of their own."""
        spelled = [
            mix_seed(self.seed, self.epoch, -1 - text) % SPELLED_EVERY == 0 for text in texts
        ]
        device, order, vectors = self.model.scale.device, list[int](), list[Tensor]()
        for spell in (False, True):
            places = [i for i, is_spelled in enumerate(spelled) if is_spelled == spell]
            if places:
                words = [self.texts.all[texts[i]] for i in places]
                ids = self.model.words.encode(words, [spell] * len(places))
                vectors.append(self.model.text(ids.to(device)))
                order += places
        return torch.cat(vectors)[torch.tensor(order, device=device).argsort()]


def embed_images(model: SmallClip, inputs: Tensor | Features) -> Tensor:
    """Return vectors of images or of their features, not normalized."""
    if isinstance(inputs, Features):
        return model.image.embed_features(inputs)
    return model.image.embed(inputs)


def contrastive_loss(images: Tensor, texts: Tensor, truth: Tensor, scale: Tensor) -> Tensor:
    """Compute CLIP's loss for texts that may describe several images of the batch.

    `images` (B, D) and distinct `texts` (U, D) are unit vectors; `truth` (B, U) is True where a
    text describes an image. Symmetric InfoNCE in which all texts of an image share its target
    equally, and all images of a text share that text's: equal captions are not negatives of each
    other. With one text per image and one image per text it is CLIP's loss.
    """
    logits = scale * images @ texts.T  # (B, U)
    targets = truth.to(logits.dtype)
    image_loss = -(logits.log_softmax(1) * targets).sum(1) / targets.sum(1)
    text_loss = -(logits.log_softmax(0) * targets).sum(0) / targets.sum(0)
    return (image_loss.mean() + text_loss.mean()) / 2


class Clip(Task):
    """Image and text encoder; `source` are the images to train on, or their cached features."""

    def __init__(
        self,
        model: SmallClip,
        source: EmbeddingSource,
        texts: ImageTexts,
        loader: Any,
        validator: ImageTextValidator,
        settings: OptimizationConfig,
        device: torch.device,
    ) -> None:
        self.source, self.loader, self.validator, self.device = source, loader, validator, device
        self.module = ClipModule(model, texts, settings.seed).to(self.device)
        self.states = [TrainState(NAME, self.module, settings)]

    def examples(self, batch: Batch | FeatureBatch) -> Examples:
        """Return the positions of the images as their labels."""
        return Examples(super().examples(batch).inputs, torch.as_tensor(batch.indices))

    def begin_step(self, epoch: float) -> None:
        self.module.epoch = int(epoch + 1e-9)

    @torch.no_grad()
    def end_step(self) -> None:
        self.module.model.scale.clamp_(0, MAX_LOG_SCALE)

    def validate(self) -> Metrics:
        module = self.states[0].evaluated
        assert isinstance(module, ClipModule)
        scores = self.validator(module.model)
        return {NAME: {"score": selection_score(scores), **scores}}


def train_clip(
    data: Dataset,
    folder: Path,
    config: RunConfig,
    cache: FeatureCache | None = None,
    resume: bool = False,
) -> ClipReport:
    """Train, save the model of the best epoch in `folder`, and evaluate it."""
    resume = can_resume(folder, resume)
    splits, texts = described_splits(data, config.options.texts)
    with run_processes(folder, resume, *splits.values()) as device:
        started = time.monotonic()
        sources: dict[str, EmbeddingSource] = {**splits}
        frozen = None
        if config.model.freeze:
            frozen = build_frozen(config, device)
            extract = Extraction(frozen, cache, config.train, folder)
            for name, dataset in splits.items():
                sources[name] = features = extract(dataset, name)
                splits[name] = features.dataset
                texts[name] = ImageTexts(features.dataset, config.options.texts)
        model = build_clip(config, Words.of(texts["train"].all), frozen)
        model.things = sorted(texts["train"].class_names) or model.words.vocabulary
        settings = replace(config.train, batch=min(config.train.batch, len(splits["train"])))
        transform = build_augmentation(config, model.image)
        loader = load_batches(sources["train"], transform, settings, drop_last=True)
        unreadable = Unreadable(folder, settings)
        validators = {
            name: ImageTextValidator(
                source, texts[name], settings.batch, settings.readers, name, unreadable
            )
            for name, source in sources.items()
            if name != "train"
        }
        task = Clip(
            model, sources["train"], texts["train"], loader, validators["val"], settings, device
        )
        fingerprint = _fingerprint(splits, texts)
        identity = {**config.identity(), "data": fingerprint}
        winner = Engine(task, settings, folder, identity).run(resume)
        winner.load_best()
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
            report.write(folder)
        return report


def build_clip(config: RunConfig, words: Words, frozen: FrozenBackbone | None = None) -> SmallClip:
    """Build image and text encoder; behind a `frozen` backbone only what follows it is new."""
    if frozen is None:
        image = build_model(config)
    else:
        torch.manual_seed(config.train.seed)
        image = frozen.create_model(build_head(config, frozen))
    return SmallClip(image, build_text_tower(config.options, words), words)


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
    train, val, test = named_splits(data)
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
    splits = {"train": train, "val": val, "test": test}
    return {name: dataset for name, dataset in splits.items() if dataset is not None}


def _fingerprint(splits: dict[str, Dataset], texts: dict[str, ImageTexts]) -> str:
    """Return a digest of the names and texts of the training and validation images."""
    names = [
        record.image.encode("utf-8", "surrogateescape")
        for name in ("train", "val")
        for record in splits[name]
    ]
    return digest_of(*names, *(texts[name].digest.encode() for name in ("train", "val"))).hex()
