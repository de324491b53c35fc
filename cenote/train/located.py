"""How well a model's maps find the objects of some images: what an epoch or a trial is chosen by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..data import Dataset
from ..data.loading import load
from ..data.truth import boxes_of, mask_of, with_boxes
from ..data.with_size import WithSize
from ..metrics import BoxAccuracy, PixelPrecision, prepare_maps, resize_mask
from ..models import PooledModel
from ..models.class_map import ForwardPass, resolve_map_kind
from ..predict.distributed import gathered, rank, world
from .config import OptimizationConfig

WANTED = {"boxes": "boxes of their class", "pixels": "masks"}
Say = Callable[[str], None]


class Located:
    """MaxBoxAccV2 ("boxes") or PxAP ("pixels") of the maps for the true class, over all processes.

    Images are squeezed to a square, not cropped: a map covers all of its picture. Those without box or mask are left
    out; so are unreadable ones, and those whose box or mask is wrong: `say` gets a sentence about each, once.
    """

    def __init__(
        self,
        dataset: Dataset,
        settings: OptimizationConfig,
        device: torch.device,
        say: Say | None = None,
    ) -> None:
        self.by, self.device, self.say = settings.select, device, say
        self.bad: list[str] = []  # of all processes
        self.dataset = truth_of(dataset, self.by)
        if not len(self.dataset):
            raise ValueError(
                f"select={self.by} judges by localization, but the {len(dataset)} validation images of {dataset.name} "
                f"have no {WANTED[self.by]}: select=accuracy needs none"
            )
        self.batch, self.workers, self.kind = settings.batch, settings.workers, ""

    @torch.inference_mode()
    def counted(self, model: PooledModel) -> BoxAccuracy | PixelPrecision:
        """What all images together say, on every process."""
        model, own = model.eval(), model.backbone.preprocessing
        self.kind = self.kind or resolve_map_kind(model, "auto", own.size)
        counter = BoxAccuracy() if self.by == "boxes" else PixelPrecision()
        share = max(min(self.batch, len(self.dataset)) // world(), 1)
        several: dict[str, Any] = {"workers": self.workers, "rank": rank(), "world": world()}
        bad: list[str] = []
        for found in load(self.dataset, WithSize(own.whole()), share, **several):
            bad += [sentence for _, sentence in found.bad]
            if len(found.indices):
                images, sizes = found.images
                maps = ForwardPass(model, images.to(self.device), self.kind).maps(
                    found.labels.to(self.device)
                )
                ready = prepare_maps(maps.float().cpu(), own.size).numpy()
                bad += self._count(counter, ready, found.indices.tolist(), sizes.tolist())
        (total, told), *others = gathered((counter, bad))
        for other, more in others:
            total.merge(other)
            told += more
        self._tell(told)
        if not total.count:
            why = told[0] if told else f"they have no {WANTED[self.by]}"
            raise ValueError(
                f"select={self.by}: no image of {self.dataset.name} could be judged: {why}"
            )
        return total  # type: ignore[no-any-return]

    def __call__(self, model: PooledModel) -> float:
        """In percent."""
        return score_of(self.counted(model))

    def _count(
        self, counter: BoxAccuracy | PixelPrecision, maps: Any, which: list[int], sizes: Any
    ) -> list[str]:
        """Gives the sentences about those whose box or mask is wrong."""
        truth_of_one = boxes_of if isinstance(counter, BoxAccuracy) else mask_of
        good, truths, bad = [], [], []
        for k, (i, size) in enumerate(zip(which, sizes, strict=True)):
            try:
                truth = truth_of_one(self.dataset, i, size)
            except ValueError as error:  # BadImage is one
                bad.append(str(error))
                continue
            if truth is not None:
                good.append(k)
                truths.append(truth)
        names = [str(self.dataset.path(which[k])) for k in good]
        if isinstance(counter, BoxAccuracy):
            counter.add(maps[good], truths, [sizes[k] for k in good], names=names)
            return bad
        for one, mask, name in zip(maps[good], truths, names, strict=True):
            counter.add(one, resize_mask(mask, one.shape), name)
        return bad

    def _tell(self, sentences: list[str]) -> None:
        """Every epoch finds the same ones."""
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self.bad]
        self.bad += new
        if self.say is not None and rank() == 0:
            for sentence in new:
                self.say(f"left out of {self.by}: {sentence}")


def score_of(counted: BoxAccuracy | PixelPrecision) -> float:
    """In percent; for boxes at the thresholds that suit these images best."""
    result = counted.result()
    return 100 * (result if isinstance(result, float) else result.score)


def truth_of(dataset: Dataset, by: str) -> Dataset:
    """The images that can be judged so."""
    if by == "boxes":
        return with_boxes(dataset)
    if dataset.mask_codes.startswith("classes"):
        raise ValueError(
            f"the masks of {dataset.name} hold classes: select=pixels needs masks of one object each"
        )
    return dataset.select(dataset.has_masks)


def final_test(
    model: PooledModel,
    val: Dataset,
    test: Dataset,
    settings: OptimizationConfig,
    device: Any,
    say: Say | None = None,
) -> dict[str, Any]:
    """Localization on test, by what chose the model; boxes with the thresholds of val, and with test's own (oracle)."""
    if settings.select == "accuracy" or not len(truth_of(test, settings.select)):
        return {}
    located = Located(test, settings, device, say)
    found = located.counted(model)
    report: dict[str, Any] = {
        "map": resolve_map_kind(model, "auto", model.backbone.preprocessing.size)
    }
    report |= {"left_out": located.bad} if located.bad else {}
    if not isinstance(found, BoxAccuracy):
        return {"pixels": score_of(found), "bin_width": found.bin_width, **report}
    chosen = Located(val, settings, device, say).counted(model)
    assert isinstance(chosen, BoxAccuracy)
    honest = found.at(chosen.result().thresholds)
    report |= {"thresholds": honest.thresholds, "interval": found.interval, "boxed": found.count}
    return {"boxes": 100 * honest.score, "boxes_oracle": score_of(found), **report}
