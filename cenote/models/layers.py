"""Features of several layers of an encoder: blocks of a ViT, or stages of other networks."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..backbones import Backbone, Features


class Layers(Backbone):
    """The outputs of chosen layers, counted from 1, each behind the last norm of a ViT.

    The channels of the layers' tokens are concatenated, CLS tokens included: every position keeps
    its place, and a pool has one map. With `summary` every layer becomes two tokens instead, its
    CLS token and the mean of its patch tokens [Ciernik et al. 2026], on a grid of layers x 2; or
    one, the mean, where there is no CLS token. Narrower stages are padded with zeros, as theirs.
    Layers behind the last chosen one are removed.
    """

    def __init__(self, backbone: Backbone, layers: Sequence[int], summary: bool = False) -> None:
        super().__init__(backbone.model, backbone.name, backbone.preprocessing)
        self.source = backbone.source
        model: Any = backbone.model
        if not hasattr(model, "prune_intermediate_layers"):
            raise ValueError(
                f"timm does not give the layers of '{backbone.name}': leave out feature_layers (--layers)"
            )
        count = len(model.prune_intermediate_layers(None, prune_head=False))  # removes nothing
        self.layers, self.summary = sorted(set(layers)), summary
        for layer in self.layers:
            if not 1 <= layer <= count:
                raise ValueError(f"'{backbone.name}' has layers 1 to {count}, got layer {layer}")
        options = inspect.signature(model.forward_intermediates).parameters
        # CLS enters some families behind the layers.
        self.layers_have_cls = backbone.has_cls and "return_prefix_tokens" in options
        self.indices = [layer - 1 for layer in self.layers]
        model.prune_intermediate_layers(self.indices, prune_head=True)
        described = list(model.feature_info)  # blocks that were added to a ViT are as its last one
        infos = [described[min(i, len(described) - 1)] for i in self.indices]
        if not summary and len({info["reduction"] for info in infos}) > 1:
            raise ValueError(
                f"the layers {self.layers} of '{backbone.name}' have maps of different sizes, whose "
                "channels cannot be concatenated: fpn='P3' (--fpn P3) joins stages, "
                "tokens='summary' (--tokens summary) their means"
            )
        widths = [info["num_chs"] for info in infos]
        self.dim = max(widths) if summary else sum(widths)

    def extra_repr(self) -> str:
        return f"layers={self.layers}, summary={self.summary}"

    @property
    def has_cls(self) -> bool:
        """Whether features have a CLS token beside the tokens; summary tokens include those."""
        return self.layers_have_cls and not self.summary

    def classifier(self) -> nn.Linear | None:
        return None  # it was for the last layer

    def _read(self, images: Tensor, size: tuple[int, int]) -> Features:
        model: Any = self.model
        has_norm = self.final_norm() is not None
        options = {"indices": self.indices, "norm": has_norm, "intermediates_only": True}
        cls = []  # (B, D) of each layer
        if self.layers_have_cls:
            pairs = model.forward_intermediates(images, **options, return_prefix_tokens=True)
            maps, cls = [x for x, _ in pairs], [prefix[:, 0] for _, prefix in pairs]
        else:
            maps = model.forward_intermediates(images, **options)  # (B, D, H, W)
        if self.summary:
            means = [x.mean((2, 3)) for x in maps]
            vectors = [v for pair in zip(cls, means, strict=True) for v in pair] if cls else means
            padded = [pad(v, (0, self.dim - v.shape[1])) for v in vectors]
            return Features(torch.stack(padded, 1), (len(maps), len(vectors) // len(maps)))
        x = torch.cat(maps, 1)  # (B, L D, H, W)
        features = Features(x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3]))
        return features._replace(cls=torch.cat(cls, 1)) if cls else features
