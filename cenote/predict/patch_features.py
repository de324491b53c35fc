"""What objects are discovered from, image by image: keys and an attention map of whole pictures of any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn

from ..backbones import Preprocessing
from ..data import Dataset
from ..data.loading import UnreadableImage, load
from ..data.with_size import WithSize
from ..models import PooledModel
from ..models.attend import possible
from ..models.attention_hooks import backbone_of
from ..models.attention_maps import cls_attention, last_keys
from ..models.cam import minmax

LARGEST = 640  # short side, where no other is asked for: the number of pairs of patches grows with its fourth power


class Look(NamedTuple):
    position: int  # in the data set
    size: tuple[int, int]  # (w, h) of the image
    grid: tuple[int, int]
    keys: Tensor | None  # (N, D)
    attention: Tensor | None  # (H, W), non-negative


@dataclass(frozen=True)
class Sides:
    """Width and height as the model sees a picture: its own, or `short` for the short one; whole strides.

    A picture below `least` is enlarged: of 64 pixels a stride of 32 makes four patches, among which nothing is found.
    """

    stride: tuple[int, int]  # down, across
    short: int | None = None
    fixed: int | None = None  # of a model that takes nothing else
    least: int = 1  # of the short side

    def __call__(self, size: tuple[int, int]) -> tuple[int, int]:
        if self.fixed is not None:
            return self.fixed, self.fixed
        short = self.short or min(max(min(size), self.least), LARGEST)
        scale = short / min(size)
        down, across = self.stride
        # No side beyond four times the other: a picture of 10 x 10,000 pixels is squeezed rather than endless.
        width, height = (min(side * scale, 4 * short) for side in size)
        return max(1, round(width / across)) * across, max(1, round(height / down)) * down


@dataclass(frozen=True)
class Whole:
    """A picture for the model, not cropped."""

    preprocessing: Preprocessing
    sides: Sides

    def __call__(self, image: Image.Image) -> Tensor:
        width, height = self.sides(image.size)
        pixels: Tensor = self.preprocessing.whole((height, width))(image)
        return pixels


class Looker:
    """Reads a model; what it cannot do shows before the first image.

    `source` is where keys come from (`last_keys`); `head` is one map of several, None their mean. `centre` takes the
    mean over an image's patches off their keys; None does so for features without a sign, such as behind a ReLU,
    among which nothing is unlike anything.
    """

    def __init__(
        self,
        model: nn.Module,
        keys: bool,
        attention: bool,
        size: int | None = None,
        source: str = "auto",
        head: int | None = None,
        centre: bool | None = None,
    ) -> None:
        self.model, self.source, self.head, self.centre = model.eval(), source, head, centre
        self.wants_keys, self.wants_attention = keys, attention
        self.found_source: str | None = None  # where keys came from
        backbone = backbone_of(model)
        self.device, self.preprocessing = next(model.parameters()).device, backbone.preprocessing
        down, across = (max(1, round(side)) for side in backbone.stride())
        if size is not None and not down <= size <= 4096:
            raise ValueError(
                f"size, of the short side, is from {down} (one patch) to 4096 pixels, got {size}"
            )
        self.kind = _kind(model) if attention else None
        self.sides = Sides((down, across), size, least=self.preprocessing.size)
        try:
            self._rehearse(*self.sides((4 * down, 3 * across)))
        except ValueError as error:
            own = self.preprocessing.size
            try:
                self._rehearse(own, own)
            except ValueError:
                raise error from None
            self.sides = Sides((down, across), fixed=own)

    def __call__(self, dataset: Dataset, workers: int = 0) -> Iterator[Look | UnreadableImage]:
        for batch in load(
            dataset, WithSize(Whole(self.preprocessing, self.sides)), batch=1, workers=workers
        ):
            yield from batch.bad
            for position in batch.indices.tolist():
                pixels, ((width, height),) = batch.images
                yield self._look(pixels.to(self.device), position, (int(width), int(height)))

    @torch.inference_mode()
    def _look(self, pixels: Tensor, position: int, size: tuple[int, int]) -> Look:
        keys = attention = None
        if self.wants_keys:
            values, grid, self.found_source = last_keys(self.model, pixels, self.source)
            keys = values[0].float().cpu()
            if self.centre or (self.centre is None and bool((keys >= 0).all())):
                keys = keys - keys.mean(0)
        if self.wants_attention:
            attention = self._attention(pixels).float().cpu()
            grid = (attention.shape[0], attention.shape[1])
        return Look(position, size, grid, keys, attention)

    def _attention(self, pixels: Tensor) -> Tensor:
        """(H, W): what speaks for something; where nothing does, above the lowest."""
        if isinstance(self.model, PooledModel):
            options: dict[str, Any] = {"heads": "all"} if self.kind == "cls" else {}
            maps = self.model.attend(pixels, self.kind or "auto", **options)[0]
        else:
            maps = cls_attention(self.model, pixels, heads="all")[0]
        if self.head is not None and not 0 <= self.head < len(maps):
            raise ValueError(
                f"this model gives {len(maps)} map(s) an image: there is no head {self.head}"
            )
        one = maps.mean(0) if self.head is None else maps[self.head]
        positive = one.clamp_min(0)
        return positive if one.isnan().any() or positive.sum() > 0 else minmax(one)

    def _rehearse(self, width: int, height: int) -> None:
        self._look(torch.zeros(1, 3, height, width, device=self.device), 0, (width, height))


def _kind(model: nn.Module) -> str:
    """Which map of the model's is its attention."""
    if not isinstance(model, PooledModel):
        return "cls"
    able = possible(model)
    if not able:
        raise ValueError(
            "this model has no attention map: it has neither a pool that attends, nor CLS, nor a head"
        )
    return able[0]
