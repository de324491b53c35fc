"""CLIP (Radford et al., 2021) at any size: images and what is said of them draw together."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...backbones import Features
from ...data import Dataset
from ...data.image_texts import ImageTexts
from ...data.loading import Batch
from ...data.samplers import mix_seed
from ...models.image_text.small import SmallClip
from ...predict.distributed import gathered, joined_rows
from ...predict.feature_batches import FeatureBatch
from ...unit import unit
from ..clip_judge import ClipJudge, score_of
from ..config import OptimizationConfig
from ..engine import Task, files_of
from ..state import TrainState

NAME = "clip"
MOST = math.log(100)  # CLIP's bound of the scale
SPELLED = 10  # one text in so many is read letter by letter


class ClipInputs(NamedTuple):
    inputs: Tensor | Features  # images, or features from a cache
    positions: list[int]

    def __len__(self) -> int:  # of images, not of fields
        return len(self.positions)


class ClipModule(nn.Module):
    """Its output is the loss of all processes' images and texts together, the same on each of them."""

    def __init__(self, model: SmallClip, texts: ImageTexts, seed: int) -> None:
        super().__init__()
        self.model, self.texts, self.seed, self.epoch = model, texts, seed, 0

    def no_weight_decay(self) -> set[str]:
        image = {f"model.image.{name}" for name in self.model.image.no_weight_decay()}
        return image | {f"model.text.{name}" for name in self.model.text.no_weight_decay()}

    def forward(self, part: ClipInputs) -> Tensor:
        model = self.model
        own = list(
            dict.fromkeys(self.texts.drawn(i, self.seed, self.epoch) for i in part.positions)
        )
        x, t = unit(embedded(model, part.inputs)), unit(self._read(own))
        everyones = gathered((part.positions, own))
        positions = [i for images, _ in everyones for i in images]
        chosen = [i for _, texts in everyones for i in texts]
        x = joined_rows(x, [len(images) for images, _ in everyones])
        t = joined_rows(t, [len(texts) for _, texts in everyones])
        first = {
            text: place for place, text in reversed(list(enumerate(chosen)))
        }  # two processes may draw one text
        distinct = sorted(first, key=first.__getitem__)
        t = t[[first[text] for text in distinct]]
        truth = self.texts.truth(positions, distinct).to(x.device)
        return contrastive_loss(x, t, truth, model.scale.exp())

    def _read(self, texts: list[int]) -> Tensor:
        """(U, dim). What is spelled is several times longer: by itself, or all texts would be padded to its length."""
        spelled = [mix_seed(self.seed, self.epoch, -1 - text) % SPELLED == 0 for text in texts]
        places = {how: [i for i, one in enumerate(spelled) if one == how] for how in (False, True)}
        device, found = self.model.scale.device, []
        for how, some in places.items():
            if some:
                ids = self.model.words.encode(
                    [self.texts.all[texts[i]] for i in some], [how] * len(some)
                )
                found.append(self.model.text(ids.to(device)))
        order = torch.tensor(places[False] + places[True], device=device)
        return torch.cat(found)[order.argsort()]


def embedded(model: SmallClip, inputs: Tensor | Features) -> Tensor:
    """Of images or of their features, not yet of length one."""
    return (
        model.image.embed_features(inputs)
        if isinstance(inputs, Features)
        else model.image.embed(inputs)
    )


class Clip(Task):
    """`train` holds the images of the loader, which reads them or their features; `judge` is asked every epoch."""

    def __init__(
        self,
        model: SmallClip,
        train: Dataset,
        texts: ImageTexts,
        loader: object,
        judge: ClipJudge,
        settings: OptimizationConfig,
        device: torch.device | None = None,
    ) -> None:
        self.train, self.loader, self.judge, self.settings = train, loader, judge, settings
        self.device = device or torch.device("cpu")
        self.module = ClipModule(model, texts, settings.seed).to(self.device)
        self.states = [TrainState(NAME, self.module, settings)]

    def prepare(self, batch: Batch | FeatureBatch, parts: int) -> list[ClipInputs]:
        if not len(batch.indices):
            return []
        inputs = batch.features if isinstance(batch, FeatureBatch) else batch.images
        return [ClipInputs(inputs.to(self.device), [int(i) for i in batch.indices])]

    def begin_step(self, epoch: float) -> None:
        self.module.epoch = int(epoch + 1e-9)

    def loss(self, module: nn.Module, part: ClipInputs) -> Tensor:
        found: Tensor = module(part)
        return found

    @torch.no_grad()
    def end_step(self) -> None:
        self.module.model.scale.clamp_(0, MOST)

    def validate(self) -> dict[str, dict[str, float]]:
        module = self.states[0].judged
        assert isinstance(module, ClipModule)
        found = self.judge(module.model)
        return {NAME: {"score": score_of(found), **found}}

    def describe(self, batch: Batch | FeatureBatch) -> str:
        return files_of(self.train, [int(i) for i in batch.indices])


def contrastive_loss(images: Tensor, texts: Tensor, truth: Tensor, scale: Tensor) -> Tensor:
    """`images` (B, D), distinct `texts` (U, D), unit rows; `truth` (B, U): what is true of what.

    The symmetric InfoNCE. All texts that are true of an image share its target equally, all images that a text is true
    of share that text's: equal captions, and a caption that fits a neighbour too, are not each other's negatives. With
    one true text for each image and one image for each text it is CLIP's loss.
    """
    logits = scale * images @ texts.T  # (B, U)
    wanted = truth.to(logits.dtype)
    of_images = -(logits.log_softmax(1) * wanted).sum(1) / wanted.sum(1)
    of_texts = -(logits.log_softmax(0) * wanted).sum(0) / wanted.sum(0)
    return (of_images.mean() + of_texts.mean()) / 2
