"""Extract the keys and an attention map of whole images of any size."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from ...backbones import Preprocessing
from ...data import Dataset
from ...data.images import full_size
from ...data.loading import UnreadableImage, load
from ...models import PooledModel
from ...models.attention_maps import backbone_of, cls_attention, last_keys
from ...models.cam import minmax
from ...models.surgery import use_dino_positions
from ..distributed import device_of
from ..input_size import InputSize, stride_of, supported_size
from ..maps import WithSize
from .base import PatchFeatures

MAX_SIZE = 4096  # pixels


@dataclass(frozen=True)
class PatchTransform:
    """Resize a whole image for keys and attention: to whole patches, or padded to them.

    The padding of the published LOST: zeros, the mean colour, to the right and below.
    """

    preprocessing: Preprocessing
    input_size: InputSize
    pad: bool = False

    @property
    def min_side(self) -> int | None:
        return self.preprocessing.min_side(self.input_size.max_short_side)

    def __call__(self, image: Image.Image) -> Tensor:
        width, height = self.resized(full_size(image))
        pixels = self.preprocessing.whole((height, width))(image)
        if not self.pad:
            return pixels
        down, across = self.input_size.stride
        return F.pad(pixels, (0, -width % across, 0, -height % down))

    def resized(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the width and height of an image of this size before padding."""
        if not self.pad:
            return self.input_size(size)
        width, height = self.input_size.scaled(size)
        return max(1, round(width)), max(1, round(height))


class PatchFeatureExtractor:
    """Extract patch features image by image; a model that cannot is refused at construction.

    `size` is that of the short side. `source` is where keys come from (`last_keys`); `head` is one
    of several maps, None their mean. `centre` subtracts the mean over an image's patches from its
    keys. `pad` pads images to whole patches, as the published LOST does, instead of resizing them.
    `dino_positions` resamples the position embeddings of a ViT as the DINO program does, in a copy
    of the model.
    """

    def __init__(
        self,
        model: nn.Module,
        keys: bool,
        attention: bool,
        size: int | None = None,
        source: str = "auto",
        head: int | None = None,
        centre: bool = False,
        pad: bool = False,
        dino_positions: bool = False,
    ) -> None:
        if dino_positions:
            model = copy.deepcopy(model)
            use_dino_positions(backbone_of(model))
        self.model, self.source, self.head, self.centre = model.eval(), source, head, centre
        self.needs_keys, self.needs_attention = keys, attention
        self.key_source: str | None = None  # where keys came from
        self.map_kind = attention_kind(model) if attention else None
        backbone = backbone_of(model)
        self.preprocessing, stride = backbone.preprocessing, stride_of(backbone)
        if size is not None and not stride[0] <= size <= MAX_SIZE:
            raise ValueError(
                f"size, of the short side, must be from {stride[0]} (one patch) to {MAX_SIZE}"
                f" pixels, got {size}"
            )
        minimum = 1 if pad else self.preprocessing.size
        input_size = InputSize(stride, size, short_side=True, minimum=minimum)
        if keys or attention:
            input_size, _ = supported_size(backbone, input_size, self.extract)
        if pad and input_size.fixed is not None:
            square = f"{input_size.fixed} x {input_size.fixed}"
            raise ValueError(
                f"'{backbone.name}' takes {square} pixels only, to which images are resized: they"
                " cannot be padded"
            )
        self.transform = PatchTransform(self.preprocessing, input_size, pad)

    def __call__(
        self, dataset: Dataset, workers: int = 0
    ) -> Iterator[PatchFeatures | UnreadableImage]:
        for batch in load(dataset, WithSize(self.transform), batch=1, workers=workers):
            yield from batch.bad
            for position in batch.indices.tolist():
                pixels, ((width, height),) = batch.images
                size = (int(width), int(height))
                resized = self.transform.resized(size)
                features = self.extract(pixels.to(device_of(self.model)))
                extent = (
                    size[0] * pixels.shape[-1] / resized[0],
                    size[1] * pixels.shape[-2] / resized[1],
                )
                yield features._replace(position=position, size=size, extent=extent)

    @torch.inference_mode()
    def extract(self, pixels: Tensor) -> PatchFeatures:
        """Extract the features of one image (1, 3, h, w)."""
        keys = attention = None
        grid = (0, 0)
        if self.needs_keys:
            values, grid, self.key_source = last_keys(self.model, pixels, self.source)
            keys = values[0].float().cpu()
            if self.centre:
                keys = keys - keys.mean(0)
        if self.needs_attention:
            attention = self._attention(pixels).float().cpu()
            grid = (attention.shape[0], attention.shape[1])
        return PatchFeatures(0, (0, 0), grid, keys, attention)

    def _attention(self, pixels: Tensor) -> Tensor:
        """Return (H, W): the positive values; if there are none, the values above the lowest."""
        maps = head_maps(self.model, pixels, self.map_kind or "auto")
        if self.head is not None and not 0 <= self.head < len(maps):
            raise ValueError(
                f"this model gives {len(maps)} map(s) an image, counted from 0: got --head {self.head}"
            )
        attention = maps.mean(0) if self.head is None else maps[self.head]
        positive = attention.clamp_min(0)
        return positive if attention.isnan().any() or positive.sum() > 0 else minmax(attention)


def attention_kind(model: nn.Module) -> str:
    """Return the kind of map that is the model's attention."""
    if not isinstance(model, PooledModel):
        return "cls"
    kinds = model.map_kinds()
    if not kinds:
        raise ValueError(
            "this model has no attention map: neither an attention pool, nor CLS, nor a head"
        )
    return kinds[0]


def head_maps(model: nn.Module, pixels: Tensor, kind: str) -> Tensor:
    """Return the maps (heads, H, W) of one image: CLS attention of a bare backbone."""
    if not isinstance(model, PooledModel):
        return cls_attention(model, pixels, heads="all")[0]
    options: dict[str, Any] = {"heads": "all"} if kind == "cls" else {}
    return model.attend(pixels, kind, **options)[0]
