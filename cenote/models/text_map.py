"""Maps of where a text is in an image, with an image-text model and without training.

Every position of the image encoder's last feature map gets a vector of its own in the space of the
texts, and the map is its similarity with the text. A pool is given each position alone. A CLS token
is not pooled from positions; there the last block computes correlative self-attention (SCLIP, Wang
et al., 2024), and its output without skip connection and MLP takes the place of CLS, as the value
path of MaskCLIP (Zhou et al., 2022) does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..pooling.attention_hook import CorrelativeAttention
from .attention_maps import fused, refuse_differential
from .image_text import ImageText, PositionEncoder, Vocabulary
from .pooled import PooledModel

CONTRASTS = 100  # at most, texts whose mean is subtracted


class TextMap(PooledModel):
    """An image encoder whose maps, of kind "text", show where `text` is.

    The similarity is that of the text minus the mean similarity of other texts: what every text has
    in common with a position says nothing about this one.
    """

    direction: Tensor

    def __init__(self, model: ImageText, text: str) -> None:
        if not isinstance(model, PositionEncoder):
            raise ValueError(f"'{model.name}' has no vectors of positions, which --text needs")
        encoder, vectors, embed_texts = model.position_encoder()
        super().__init__(encoder.backbone, encoder.pool, None, encoder.tokens, encoder.norm)
        self.encoder, self.vectors, self.text = encoder, vectors, text
        self.image_text = model  # whose tensors `vectors` uses: they move to a device, too
        contrasts = embed_texts(contrast_texts(model))
        self.register_buffer("direction", embed_texts([text])[0] - contrasts.mean(0))
        self.config = encoder.config

    def map_kinds(self) -> list[str]:
        return ["text"]

    @torch.no_grad()
    def attend(self, images: Tensor, kind: str = "auto", **options: Any) -> Tensor:
        """Return maps (B, 1, H, W): how much more similar to the text than to other texts."""
        if kind not in ("auto", "text"):
            raise ValueError(f"the map of a text is of kind 'text', got '{kind}'")
        tokens, grid = position_tokens(self.encoder, images)
        positions = tokens.flatten(0, 1)  # (B N, D), each in the place of all tokens of an image
        registers = positions[:, None].expand(-1, self.backbone.registers, -1)
        features = Features(positions[:, None], (1, 1), positions, registers)
        output = self.encoder.classify(features)
        similarities = self.vectors(output) @ self.direction  # (B N)
        return similarities.view(len(images), 1, *grid)


def position_tokens(model: PooledModel, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Return what is pooled of each position, (B, N, D), or for a CLS model stands for CLS."""
    if model.pool is not None:
        features = model.features(images)
    else:
        features = correlative_features(model.backbone, images)
    return features.tokens, features.grid


def correlative_features(backbone: Backbone, images: Tensor) -> Features:
    """Return features whose last block is its correlative self-attention alone."""
    refuse_differential(backbone)
    blocks: Any = getattr(backbone.model, "blocks", None)
    block: Any = blocks[-1] if isinstance(blocks, nn.Sequential | nn.ModuleList) else None
    if not isinstance(getattr(block, "attn", None), nn.Module):
        raise ValueError(
            f"'{backbone.name}' is not a stack of transformer blocks: its CLS token has no map of a"
            " text"
        )
    scale = getattr(block, "ls1", nn.Identity())
    outputs: list[Tensor] = []

    def attend(attn: Any, args: Any, kwargs: Any, output: Tensor) -> None:
        with CorrelativeAttention():
            outputs.append(attn.forward(*args, **kwargs))

    def replace_output(block: nn.Module, args: Any, output: Tensor) -> Tensor:
        attention: Tensor = scale(outputs.pop())
        return attention

    handles = [
        block.attn.register_forward_hook(attend, with_kwargs=True),
        block.register_forward_hook(replace_output),
    ]
    try:
        with fused(backbone):
            features: Features = backbone(images)
    finally:
        for handle in handles:
            handle.remove()
    return features


def contrast_texts(model: ImageText) -> Sequence[str]:
    """Return names of what the model knows, or of ImageNet's classes, evenly spaced."""
    if isinstance(model, Vocabulary):
        names = list(model.known_names)
    else:
        from timm.data.imagenet_info import ImageNetInfo

        names = [names.split(",")[0] for names in ImageNetInfo().label_descriptions()]
    return names[:: -(-len(names) // CONTRASTS)]
