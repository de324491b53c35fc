"""How well a model's maps find the objects of some images: what an epoch or a trial is chosen by."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..data import Dataset
from ..data.loading import load
from ..data.truth import corners, own_boxes, with_boxes
from ..metrics import BoxAccuracy, PixelPrecision, prepare_maps, resize_mask
from ..models import PooledModel
from ..models.decided import Sight, settle_kind
from .distributed import gathered, rank, world
from .settings import Settings


class Located:
    """MaxBoxAccV2 ("boxes") or PxAP ("pixels") of the maps for the true class, over all processes.

    Images are squeezed to a square, not cropped: a map covers all of its picture. Those without box or mask are left
    out.
    """

    def __init__(self, dataset: Dataset, settings: Settings, device: torch.device) -> None:
        self.by, self.device = settings.select, device
        self.dataset = truth_of(dataset, self.by)
        if not len(self.dataset):
            what = "boxes of their class" if self.by == "boxes" else "masks"
            raise ValueError(
                f"select={self.by} judges by localization, but the {len(dataset)} validation images of {dataset.name} "
                f"have no {what}: select=accuracy needs none"
            )
        self.batch, self.workers, self.kind = settings.batch, settings.workers, ""

    @torch.inference_mode()
    def counted(self, model: PooledModel) -> BoxAccuracy | PixelPrecision:
        """What all images together say, on every process."""
        model, own = model.eval(), model.backbone.preprocessing
        self.kind = self.kind or settle_kind(model, "auto", own.size)
        counter = BoxAccuracy() if self.by == "boxes" else PixelPrecision()
        share = max(min(self.batch, len(self.dataset)) // world(), 1)
        several: dict[str, Any] = {"workers": self.workers, "rank": rank(), "world": world()}
        for found in load(self.dataset, WithSize(own.whole()), share, **several):
            if len(found.indices):
                images, sizes = found.images
                maps = Sight(model, images.to(self.device), self.kind).maps(found.labels.to(self.device))
                ready = prepare_maps(maps.float().cpu(), own.size).numpy()
                self._count(counter, ready, found.indices.tolist(), sizes.tolist())
        total, *others = gathered(counter)
        for other in others:
            total.merge(other)
        return total  # type: ignore[no-any-return]

    def __call__(self, model: PooledModel) -> float:
        """In percent."""
        return score_of(self.counted(model))

    def _count(self, counter: BoxAccuracy | PixelPrecision, maps: Any, which: list[int], sizes: list[Any]) -> None:
        names = [str(self.dataset.path(i)) for i in which]
        if isinstance(counter, BoxAccuracy):
            records = [self.dataset[i] for i in which]
            boxes = [corners(own_boxes(r.boxes, r.label), size) for r, size in zip(records, sizes, strict=True)]
            counter.add(maps, boxes, sizes, names=names)
            return
        for i, one, name in zip(which, maps, names, strict=True):
            mask = self.dataset.mask(i)
            if mask is not None:
                counter.add(one, resize_mask(mask, one.shape), name)


class WithSize:
    """A transform that also gives the width and height of the picture: boxes are in its pixels."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __call__(self, image: Any) -> tuple[Tensor, Tensor]:
        return self.transform(image), torch.tensor(image.size)


def score_of(counted: BoxAccuracy | PixelPrecision) -> float:
    """In percent; for boxes at the thresholds that suit these images best."""
    result = counted.result()
    return 100 * (result if isinstance(result, float) else result.score)


def truth_of(dataset: Dataset, by: str) -> Dataset:
    """The images that can be judged so."""
    if by == "boxes":
        return with_boxes(dataset)
    if dataset.mask_codes.startswith("classes"):
        raise ValueError(f"the masks of {dataset.name} hold classes: select=pixels needs masks of one object each")
    return dataset.select(dataset.has_masks)


def final_test(model: PooledModel, val: Dataset, test: Dataset, settings: Settings, device: Any) -> dict[str, Any]:
    """Localization on test, by what chose the model; boxes with the thresholds of val, and with test's own (oracle)."""
    if settings.select == "accuracy" or not len(truth_of(test, settings.select)):
        return {}
    found = Located(test, settings, device).counted(model)
    report: dict[str, Any] = {"map": settle_kind(model, "auto", model.backbone.preprocessing.size)}
    if not isinstance(found, BoxAccuracy):
        return {"pixels": score_of(found), "bin_width": found.bin_width, **report}
    chosen = Located(val, settings, device).counted(model)
    assert isinstance(chosen, BoxAccuracy)
    honest = found.at(chosen.result().thresholds)
    report |= {"thresholds": honest.thresholds, "interval": found.interval, "boxed": found.count}
    return {"boxes": 100 * honest.score, "boxes_oracle": score_of(found), **report}
