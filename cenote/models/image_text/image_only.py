"""Vectors of images alone, by any backbone or saved model: search by image, without texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ...backbones import Features, create_backbone
from ...backbones.preprocessing import Transform
from ...unit import unit
from ..own import default_pool
from ..pooled import Assembly, PooledModel, assemble, load
from .interface import Box, identity_of


class ImageEncoder(nn.Module):
    """The image side of a model: vectors of length one by a `PooledModel`."""

    def __init__(self, image: PooledModel, name: str) -> None:
        super().__init__()
        self.image, self.name, self.dim = image, name, image.vector_dim

    def transform(self, scaled_decoding: bool = False) -> Transform:
        preprocessing = self.image.backbone.preprocessing
        return replace(preprocessing, scaled_decoding=scaled_decoding).transform()

    @torch.no_grad()
    def embed_images(self, pixels: Tensor) -> Tensor:
        return self.embed_output(self.image_network(pixels))

    @property
    def image_network(self) -> nn.Module:
        return self.image.backbone

    def embed_output(self, output: Features) -> Tensor:
        return unit(self.image.embed_features(output).flatten(1))  # several vectors are one

    @property
    def local_network(self) -> nn.Module:
        return self.image_network

    def embed_local_output(self, output: Features) -> tuple[Tensor, Tensor]:
        features = output.tokens.transpose(1, 2).unflatten(2, output.grid)
        return self.embed_output(output), features

    def visible_box(self, width: int, height: int) -> Box:
        return self.image.backbone.preprocessing.visible_box(width, height)


class ImageOnly(ImageEncoder):
    """A model that has no text encoder."""

    @property
    def identity(self) -> str:
        name = f"image/{self.image.config['backbone']}/{self.image.config['pool']}"
        return identity_of(name, self.image, self.image.backbone.preprocessing)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        raise ValueError(
            f"'{self.name}' embeds images, not texts: search by image, or make an index with "
            "text-space or open_clip/MODEL/WEIGHTS"
        )


def load_image_only(folder: str | Path) -> ImageOnly:
    """Load a saved model, such as a run of `cenote fit`."""
    return _freeze(load(folder), Path(folder).resolve().name)


def create_image_only(backbone: str, weights: str | None = None) -> ImageOnly:
    """Create a pretrained backbone, or one with local weights, with its `default_pool`."""
    base = create_backbone(backbone, pretrained=True, weights=weights)
    pool = default_pool(base)
    return _freeze(assemble(base, pool, 0, Assembly(keep_cls=True)), backbone)


def _freeze(image: PooledModel, name: str) -> ImageOnly:
    return ImageOnly(image, name).eval().requires_grad_(False)
