"""Attention Jaccard (VOC12): how well the maps of a model's heads fit segmented objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ..data import BadImage, Dataset
from ..metrics import AttentionJaccard, mass_mask, resize_mask
from ..models.attention_maps import backbone_of
from ..predict.discovery.patch_features import attention_kind, head_maps
from ..predict.distributed import device_of
from ..predict.embedding import Loading
from ..predict.input_size import stride_of
from .protocol import Evaluation, Figure, Protocol, Report, count_images, left_out

SHARE = 0.6  # of a map's mass that its mask contains
SIZE = 480  # of the images of a network that was trained with images of 224 pixels


@dataclass
class JaccardReport(Report):
    """Both Jaccard indices in percent; `jaccard_compat` counts void pixels as the released script does."""

    jaccard: float
    jaccard_compat: float
    images: int
    without_object: int
    size: int
    unreadable: list[str]

    def table(self, split: str) -> str:
        images = f"{count_images(self.images)} of {split}"
        if self.without_object:
            images += f", {self.without_object} others have no object"
        score = f"attention Jaccard {self.jaccard:.2f} at {self.size} pixels"
        compat = f"{self.jaccard_compat:.2f} with void pixels, as the released script counts"
        return "\n".join([*left_out(self.unreadable), f"{images}: {score} ({compat})"])

    def figures(self) -> list[Figure]:
        return [Figure("attention Jaccard", self.jaccard, f"% of {self.images} images")]


class Jaccard(Protocol[JaccardReport], name="jaccard"):
    def run(self, evaluation: Evaluation) -> JaccardReport:
        model, test = evaluation.model, evaluation.test
        with evaluation.loading("jaccard", int(test.has_masks.sum())) as loading:
            size = round(SIZE / 224 * model.backbone.preprocessing.size)
            return jaccard(model, test, size, loading)


@torch.inference_mode()
def jaccard(
    model: nn.Module, dataset: Dataset, size: int = SIZE, loading: Loading = Loading()
) -> JaccardReport:
    """Compute it over the images with an object in their mask, resized to a square.

    Each head's mask is what contains SHARE of its map, in patches; per class the best head
    counts, then the mean over classes, then over images.
    """
    model = model.eval()
    backbone, device = backbone_of(model), device_of(model)
    down, across = stride_of(backbone)
    transform = backbone.preprocessing.whole(
        (round(size / down) * down, round(size / across) * across)
    )
    kind = attention_kind(model)
    masked = np.flatnonzero(dataset.has_masks).tolist()
    if not masked:
        raise ValueError(f"attention Jaccard needs masks: {dataset.name} has none")
    score, compat = AttentionJaccard(), AttentionJaccard(compat=True)
    bad, empty = list[str](), 0
    for i in masked:
        loading.advance(1)
        try:
            image, target = dataset.image(i), dataset.mask(i)
        except BadImage as error:
            bad.append(str(error))
            continue
        if target is None or not ((target != 0) & (target != 255)).any():
            empty += 1
            continue
        maps = head_maps(model, transform(image)[None].to(device), kind).float().cpu()
        if not maps.isfinite().all():
            bad.append(f"{dataset.path(i)}: its attention is NaN or infinite")
            continue
        # Negative values of a class activation map count against the class.
        heads = mass_mask(maps.clamp_min(0), SHARE).numpy()  # (heads, H, W)
        resized = [resize_mask(mask, size) for mask in heads]
        for each in (score, compat):
            each.add(resized, resize_mask(target, size), str(dataset.path(i)))
    if not score.count:
        reason = next(iter(bad), "no mask has an object")
        raise ValueError(f"no image of {dataset.name} could be evaluated: {reason}")
    return JaccardReport(
        jaccard=100 * score.result(),
        jaccard_compat=100 * compat.result(),
        images=score.count,
        without_object=empty,
        size=size,
        unreadable=bad,
    )
