"""CLIP (Radford et al., 2021) at any size: align the vectors of images and their texts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...backbones import Features
from ...data import Dataset
from ...data.image_texts import ImageTexts
from ...data.loading import Batch
from ...data.samplers import mix_seed
from ...evaluate.image_text import ImageTextValidator, selection_score
from ...models.image_text.small_clip import SmallClip
from ...predict.distributed import gathered, joined_rows
from ...predict.feature_cache import FeatureBatch
from ...unit import unit
from ..config import OptimizationConfig
from ..engine import Task, file_names
from ..state import TrainState

NAME = "clip"
MAX_LOG_SCALE = math.log(100)  # CLIP's bound
SPELLED_EVERY = 10  # one text in ten is tokenized letter by letter


class ClipInputs(NamedTuple):
    inputs: Tensor | Features  # images, or features from a cache
    positions: list[int]  # in the data set

    def __len__(self) -> int:  # of images, not of fields
        return len(self.positions)


class ClipModule(nn.Module):
    """Image and text encoder; returns the loss of the images and texts of all processes."""

    def __init__(self, model: SmallClip, texts: ImageTexts, seed: int) -> None:
        super().__init__()
        self.model, self.texts, self.seed, self.epoch = model, texts, seed, 0

    def no_weight_decay(self) -> set[str]:
        image = {f"model.image.{name}" for name in self.model.image.no_weight_decay()}
        return image | {f"model.text.{name}" for name in self.model.text.no_weight_decay()}

    def forward(self, batch: ClipInputs) -> Tensor:
        drawn = [self.texts.draw(i, self.seed, self.epoch) for i in batch.positions]
        texts = list(dict.fromkeys(drawn))
        x, t = unit(embed_images(self.model, batch.inputs)), unit(self._embed_texts(texts))
        shares = gathered((batch.positions, texts))
        x = joined_rows(x, [len(images) for images, _ in shares])
        t = joined_rows(t, [len(share) for _, share in shares])
        positions = [i for images, _ in shares for i in images]
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
    """`train` holds the images of the loader, which reads them or their cached features."""

    def __init__(
        self,
        model: SmallClip,
        train: Dataset,
        texts: ImageTexts,
        loader: Any,
        validator: ImageTextValidator,
        settings: OptimizationConfig,
        device: torch.device | None = None,
    ) -> None:
        self.train, self.loader, self.validator = train, loader, validator
        self.device = device or torch.device("cpu")
        self.module = ClipModule(model, texts, settings.seed).to(self.device)
        self.states = [TrainState(NAME, self.module, settings)]

    def prepare(self, batch: Batch | FeatureBatch, chunks: int) -> list[ClipInputs]:
        if not len(batch.indices):
            return []
        inputs = batch.features if isinstance(batch, FeatureBatch) else batch.images
        return [ClipInputs(inputs.to(self.device), [int(i) for i in batch.indices])]

    def begin_step(self, epoch: float) -> None:
        self.module.epoch = int(epoch + 1e-9)

    def loss(self, module: nn.Module, inputs: ClipInputs) -> Tensor:
        loss: Tensor = module(inputs)
        return loss

    @torch.no_grad()
    def end_step(self) -> None:
        self.module.model.scale.clamp_(0, MAX_LOG_SCALE)

    def validate(self) -> dict[str, dict[str, float]]:
        module = self.states[0].evaluated
        assert isinstance(module, ClipModule)
        scores = self.validator(module.model)
        return {NAME: {"score": selection_score(scores), **scores}}

    def describe(self, batch: Batch | FeatureBatch) -> str:
        return file_names(self.train, [int(i) for i in batch.indices])
