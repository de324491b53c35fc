"""SAR's last block: the patches' way around the attention is closed [SAR Eqs. 10-11]."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ...backbones import Backbone
from ...backbones.families import LATE_BLOCKS

# Rows of Table 1(b): which of (skip around the MSA, LN before the MLP, skip around the MLP) the
# last block keeps. E and F are A and C trained with the spatial entropy loss, which is the task's
# business, not the block's.
ROWS = {
    "A": (True, True, True),
    "B": (False, True, True),
    "C": (False, False, True),
    "D": (False, False, False),
    "E": (True, True, True),
    "F": (False, False, True),
}


class LastBlock(nn.Module):
    """z' = MSA(LN(z)) (10), z = MLP(z') + z' (11), and the other rows of the table.

    The parts are those of a timm block, under the same names. LayerScale and drop path exist to
    weigh a branch against its skip connection, and go with it: alone they would only shrink the
    tokens, or erase them.
    """

    def __init__(self, block: Any, msa_skip: bool, norm: bool, mlp_skip: bool) -> None:
        super().__init__()
        self.msa_skip, self.mlp_skip = msa_skip, mlp_skip
        self.norm1, self.attn, self.mlp = block.norm1, block.attn, block.mlp
        self.norm2 = block.norm2 if norm else nn.Identity()
        self.drop_path1 = block.drop_path1 if msa_skip else nn.Identity()
        self.drop_path2 = block.drop_path2 if mlp_skip else nn.Identity()
        if hasattr(
            block, "ls1"
        ):  # ViT keeps LayerScale in a layer, BEiT and EVA in a parameter or None
            self.ls1 = block.ls1 if msa_skip else nn.Identity()
            self.ls2 = block.ls2 if mlp_skip else nn.Identity()
        else:
            self.gamma_1: Tensor | None = block.gamma_1 if msa_skip else None
            self.gamma_2: Tensor | None = block.gamma_2 if mlp_skip else None

    def forward(self, z: Tensor, **positions: Any) -> Tensor:
        msa = self.drop_path1(self._scaled(1, self.attn(self.norm1(z), **positions)))
        z = msa + z if self.msa_skip else msa  # (10)
        mlp = self.drop_path2(self._scaled(2, self.mlp(self.norm2(z))))
        return mlp + z if self.mlp_skip else mlp  # (11)

    def _scaled(self, which: int, x: Tensor) -> Tensor:
        if hasattr(self, "ls1"):
            return (self.ls1 if which == 1 else self.ls2)(x)
        gamma = self.gamma_1 if which == 1 else self.gamma_2
        return x if gamma is None else gamma * x


def replace_last_block(backbone: Backbone, row: str) -> None:
    """`row`: "sar", or a letter A-F of Table 1(b)."""
    letter = "C" if row == "sar" else row
    if letter not in ROWS:
        raise ValueError(
            f"last_block is 'sar' or a row of SAR's Table 1(b), {', '.join(ROWS)}, got '{row}'"
        )
    blocks: Any = getattr(backbone.model, "blocks", None)
    plain = (
        isinstance(blocks, nn.Sequential | nn.ModuleList)
        and len(blocks) > 0
        and _is_plain(blocks[-1])
    )
    if not plain or backbone.family in LATE_BLOCKS:
        raise ValueError(
            f"'{backbone.name}' does not end in a plain transformer block: last_block needs a ViT"
        )
    if ROWS[letter] != ROWS["A"]:
        blocks[-1] = LastBlock(blocks[-1], *ROWS[letter])


def _is_plain(block: nn.Module) -> bool:
    """LN, attention, LN, MLP, one after the other: timm's blocks of ViT, DeiT, DINOv2 and 3, BEiT
    and EVA.
    """
    has_layers = all(
        hasattr(block, n) for n in ("norm1", "attn", "norm2", "mlp", "drop_path1", "drop_path2")
    )
    scaled = hasattr(block, "ls1") or hasattr(block, "gamma_1")
    return has_layers and scaled and type(block).__name__ in ("Block", "EvaBlock")
