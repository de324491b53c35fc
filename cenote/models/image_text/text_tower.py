"""A small text transformer: tokens -> one vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .words import PAD


class TextTower(nn.Module):
    """`tower(ids)`: (N, L) -> (N, dim). Words see each other both ways; the vector is the mean over
    them.
    """

    def __init__(
        self,
        tokens: int,
        dim: int,
        context: int = 48,
        width: int = 128,
        layers: int = 2,
        heads: int = 4,
    ) -> None:
        super().__init__()
        if min(tokens, dim, context, width, layers, heads) < 1 or width % heads:
            raise ValueError(
                f"a text transformer needs sizes from 1, and {heads} heads must share its width {width}"
            )
        self.options = {"context": context, "width": width, "layers": layers, "heads": heads}
        self.embedding = nn.Embedding(tokens, width)
        self.position = nn.Parameter(torch.empty(context, width))
        layer = nn.TransformerEncoderLayer(
            width,
            heads,
            4 * width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.projection = nn.Linear(width, dim, bias=False)
        for (
            block
        ) in self.blocks.layers:  # the encoder copies one layer: all of them would begin alike
            for module in block.modules():
                if isinstance(module, nn.Linear):
                    nn.init.xavier_uniform_(module.weight)
        nn.init.normal_(self.embedding.weight, std=0.1)
        nn.init.normal_(self.position, std=0.02)

    def no_weight_decay(self) -> set[str]:
        return {"position", "embedding.weight"}

    def forward(self, ids: Tensor) -> Tensor:
        is_token = (ids != PAD)[..., None]  # (N, L, 1)
        x = self.embedding(ids) + self.position[: ids.shape[1]]
        x = self.norm(self.blocks(x, src_key_padding_mask=~is_token[..., 0]))
        mean = (x * is_token).sum(1) / is_token.sum(1)  # (N, width)
        return self.projection(mean)
