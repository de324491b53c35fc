"""Changes of an encoder: stride, feature pyramid, last block, last norm, positions."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torchvision.ops import FeaturePyramidNetwork

from ..backbones import Backbone, Features, create_backbone
from ..backbones.families import LATE_BLOCKS
from ..options import check_choice, check_number
from .layers import Layers


def create_finer_backbone(
    name: str, gain: int, no_dilation: bool = False, **options: Any
) -> Backbone:
    """`create_backbone` with a map `gain` times finer: the last one or two stages keep their
    resolution, and dilation their receptive field (timm's output_stride, whose weights are the
    same).

    Every `gain`-th position of a ResNet's new map is a position of the old one. (Not quite for the
    d-variants at 4: timm does not dilate the average pooling in their shortcuts. Nor where a block
    looks at the whole map, as SE does.) `no_dilation` only sets strides to 1, as Choe et al. (2020)
    and [Beyond GAP Sec. 4.3] do: the last stages then see a smaller part of the image than the one
    that their weights were trained on.
    """
    check_choice("stride (times finer)", gain, (1, 2, 4))
    if gain == 1:
        if no_dilation:
            raise ValueError("no_dilation changes nothing without a stride of 2 or 4")
        return create_backbone(name, **options)
    backbone = _with_output_stride(name, 32 // gain, **options)
    if backbone is None:
        raise ValueError(
            f"the stride of '{name}' cannot be removed: ResNet, RegNet, ConvNeXt, EfficientNet and "
            "their kin can"
        )
    if no_dilation:
        _remove_dilation(backbone)
    return backbone


def _remove_dilation(backbone: Backbone) -> None:
    for layer in backbone.modules():
        if isinstance(layer, nn.Conv2d) and max(layer.dilation) > 1:
            if any(side % 2 == 0 for side in layer.kernel_size):
                raise ValueError(
                    f"'{backbone.name}' has an even kernel: --no-dilation is for ResNets and others "
                    "whose kernels are odd"
                )
            layer.dilation = (1, 1)
            if type(layer) is nn.Conv2d:  # timm's Conv2dSame computes its padding
                layer.padding = (layer.kernel_size[0] // 2, layer.kernel_size[1] // 2)


def _with_output_stride(name: str, stride: int, **options: Any) -> Backbone | None:
    """None where timm refuses or ignores the option."""
    try:
        backbone = create_backbone(name, **options, output_stride=stride)
    except (AssertionError, TypeError, NotImplementedError):
        return None
    except ValueError as error:
        if "output_stride" not in str(error):
            raise
        return None
    info: Any = getattr(backbone.model, "feature_info", None) or [{"reduction": None}]
    if info[-1]["reduction"] != stride:
        return None
    return backbone


def without_last_stride(backbone: Backbone) -> Backbone:
    """Return a copy with the same weights and a map twice as fine.

    Returns `backbone` itself where the architecture does not allow it or is unknown, or the map is
    fine already.
    """
    is_known = type(backbone) is Backbone and backbone.options is not None
    if not is_known or backbone.stride() != (32, 32):
        return backbone
    finer = _with_output_stride(backbone.name, 16, **(backbone.options or {}))
    if finer is None:
        return backbone
    model: Any = finer.model
    classifier = str(model.pretrained_cfg["classifier"]).partition(".")[0]  # head of head.fc
    head = f"model.{classifier}."  # not of the map; an attention pool has as many positions
    state = {name: x for name, x in backbone.state_dict().items() if not name.startswith(head)}
    missing, unexpected = finer.load_state_dict(state, strict=False)
    if unexpected or not all(key.startswith(head) for key in missing):
        return backbone  # its layers were changed after it was created
    finer.preprocessing = backbone.preprocessing
    return finer.to(next(backbone.parameters()).device)


LEVELS = ("P2", "P3", "P4", "P5")


class Pyramid(Backbone):
    """C2..C5 of a backbone, and torchvision's FeaturePyramidNetwork over them: `level` is its map,
    finer than the last stage and as deep.

    The backbone's own last norm and classifier do not fit the pyramid's channels and are dropped.
    """

    def __init__(self, backbone: Backbone, level: str, dim: int = 512) -> None:
        check_choice("fpn", level, LEVELS)
        check_number("fpn_dim", dim, whole=True, least=1)
        model: Any = backbone.model
        indices, channels = _stages(backbone)
        super().__init__(model, backbone.name, backbone.preprocessing)
        self.level, self.indices, self.dim = level, indices, dim
        model.prune_intermediate_layers(self.indices, prune_norm=True, prune_head=True)
        # Nobody would use finer levels than the chosen one: the pyramid starts at it. Nor the
        # output convolutions of the coarser levels.
        self.fpn = FeaturePyramidNetwork(channels[LEVELS.index(level) :], dim)
        for i in range(1, len(self.fpn.layer_blocks)):
            self.fpn.layer_blocks[i] = nn.Identity()

    @property
    def has_cls(self) -> bool:
        return False

    def classifier(self) -> nn.Linear | None:
        return None

    def final_norm(self) -> nn.Module | None:
        return None

    def forward(self, images: Tensor) -> Features:
        model: Any = self.model
        maps = model.forward_intermediates(images, indices=self.indices, intermediates_only=True)
        levels = maps[LEVELS.index(self.level) :]
        x = self.fpn(OrderedDict((str(i), m) for i, m in enumerate(levels)))["0"]  # (B, dim, H, W)
        return Features(x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3]))


def _stages(backbone: Backbone) -> tuple[list[int], list[int]]:
    """Which of timm's intermediate maps are C2..C5, and their channels."""
    model: Any = backbone.model
    info = list(getattr(model, "feature_info", None) or [])
    able = hasattr(model, "forward_intermediates") and hasattr(model, "prune_intermediate_layers")
    strides = [stage["reduction"] for stage in info][-4:]
    if not able or len(info) < 4 or strides[:2] != [4, 8] or sorted(strides) != strides:
        raise ValueError(
            f"'{backbone.name}' has no stages of stride 4, 8, 16 and 32 to build a pyramid on: "
            "ResNet, ConvNeXt, EfficientNet, Swin and their kin have"
        )
    return list(range(len(info) - 4, len(info))), [stage["num_chs"] for stage in info[-4:]]


# Rows of SAR's Table 1(b): which of (skip around the MSA, LN before the MLP, skip around the MLP)
# the last block keeps. E and F are A and C trained with the spatial entropy loss, which is the
# task's business, not the block's.
ROWS = {
    "sar": (False, False, True),
    "A": (True, True, True),
    "B": (False, True, True),
    "C": (False, False, True),
    "D": (False, False, False),
    "E": (True, True, True),
    "F": (False, False, True),
}


class LastBlock(nn.Module):
    """SAR's last block, where the patches' way around the attention is closed [SAR Eqs. 10-11]:
    z' = MSA(LN(z)) (10), z = MLP(z') + z' (11), and the other rows of the table.

    The parts are those of a timm block, under the same names. LayerScale and drop path exist to
    weigh a branch against its skip connection, and go with it: alone they would only shrink the
    tokens, or erase them.
    """

    def __init__(self, block: Any, msa_skip: bool, norm: bool, mlp_skip: bool) -> None:
        super().__init__()
        self.msa_skip, self.mlp_skip = msa_skip, mlp_skip
        self.norm1, self.attn, self.mlp = block.norm1, block.attn, block.mlp
        self.norm2 = _kept(block.norm2, norm)
        self.drop_path1 = _kept(block.drop_path1, msa_skip)
        self.drop_path2 = _kept(block.drop_path2, mlp_skip)
        if hasattr(block, "ls1"):  # ViT: LayerScale is a layer
            self.ls1, self.ls2 = _kept(block.ls1, msa_skip), _kept(block.ls2, mlp_skip)
        else:  # BEiT and EVA: a parameter or None
            self.gamma_1: Tensor | None = block.gamma_1 if msa_skip else None
            self.gamma_2: Tensor | None = block.gamma_2 if mlp_skip else None

    def forward(self, z: Tensor, **positions: Any) -> Tensor:
        msa = self.drop_path1(self._scaled(1, self.attn(self.norm1(z), **positions)))
        z = msa + z if self.msa_skip else msa  # (10)
        mlp = self.drop_path2(self._scaled(2, self.mlp(self.norm2(z))))
        return mlp + z if self.mlp_skip else mlp  # (11)

    def _scaled(self, which: int, x: Tensor) -> Tensor:
        if hasattr(self, "ls1"):
            x = getattr(self, f"ls{which}")(x)
        elif (gamma := getattr(self, f"gamma_{which}")) is not None:
            x = gamma * x
        return x


def _kept(layer: nn.Module, keep: bool) -> nn.Module:
    return layer if keep else nn.Identity()


def replace_last_block(backbone: Backbone, row: str) -> None:
    """`row`: "sar", or a letter A-F of Table 1(b)."""
    check_choice("last_block", row, ROWS)
    blocks: Any = getattr(backbone.model, "blocks", None)
    is_list = isinstance(blocks, nn.Sequential | nn.ModuleList) and len(blocks) > 0
    if not is_list or not _is_plain(blocks[-1]) or backbone.family in LATE_BLOCKS:
        raise ValueError(
            f"'{backbone.name}' does not end in a plain transformer block: last_block needs a ViT"
        )
    if ROWS[row] != ROWS["A"]:
        blocks[-1] = LastBlock(blocks[-1], *ROWS[row])


def _is_plain(block: nn.Module) -> bool:
    """LN, attention, LN, MLP in turn: timm's blocks of ViT, DeiT, DINOv2 and 3, BEiT and EVA."""
    layers = ("norm1", "attn", "norm2", "mlp", "drop_path1", "drop_path2")
    scaled = hasattr(block, "ls1") or hasattr(block, "gamma_1")
    is_known = type(block).__name__ in ("Block", "EvaBlock")
    return is_known and scaled and all(hasattr(block, name) for name in layers)


@torch.no_grad()
def fix_positions(backbone: Backbone) -> None:
    """Replace learned position embeddings (1, prefix + H W, D) by fixed ones, as MoCo-v3 does.

    Quarters of the channels are sine and cosine of the row, then of the column, in wavelengths from
    2 pi to 10,000 times as much; CLS has zeros. Encoders with other positions are not changed.
    """
    encoder: Any = backbone.model
    positions = getattr(encoder, "pos_embed", None)
    grid = getattr(getattr(encoder, "patch_embed", None), "grid_size", None)
    if not isinstance(positions, nn.Parameter) or positions.ndim != 3 or grid is None:
        return
    patches, dim = grid[0] * grid[1], positions.shape[2]
    if positions.shape[1] < patches or dim % 4:
        return
    omega = 10_000 ** -(torch.arange(dim // 4) / (dim // 4))
    row, column = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    angles = [place.reshape(-1, 1) * omega for place in (row, column)]  # (H W, D / 4)
    waves = torch.cat([f(angle) for angle in angles for f in (torch.sin, torch.cos)], 1)
    positions.zero_()[0, -patches:] = waves.to(positions)
    positions.requires_grad_(False)


def place_norm(backbone: Backbone, norm: str, out_dim: int) -> tuple[str, nn.Module]:
    """Put the encoder's last LayerNorm where `norm` says: "before" the pool, "after" it, or "none".

    Return what "auto" came to, and the norm behind a pool of `out_dim` channels.
    """
    encoder: Any = backbone.model
    inside, behind = backbone.final_norm(), take_norm_behind(encoder)
    if isinstance(backbone, Pyramid | Layers):
        behind = None  # it was for the channels of the last stage, not for those of the features
    norm_layer, places = inside or behind, ["none"]
    if norm_layer is not None:
        places.insert(0, "after")
    if inside is not None:
        places.insert(0, "before")
    if norm == "auto":
        norm = places[0]
    if norm not in places:
        raise ValueError(
            f"'{backbone.name}' has no final LayerNorm to put {norm} the pool: "
            f"norm={' or '.join(map(repr, places))}"
        )
    if inside is not None and norm != "before":
        encoder.norm = nn.Identity()
    if norm != "after":
        return norm, nn.Identity()
    if out_dim != backbone.dim:
        raise ValueError(
            f"the pool gives {out_dim} channels, the last LayerNorm of '{backbone.name}' is for "
            f"{backbone.dim}: norm='none' or 'before'"
        )
    assert norm_layer is not None
    return norm, on_vectors(norm_layer)


def take_norm_behind(encoder: Any) -> nn.Module | None:
    """Take out the norm that the encoder has behind its own pooling, where nothing would use it."""
    taken_norm = None
    for holder, name in ((getattr(encoder, "head", None), "norm"), (encoder, "fc_norm")):
        norm = getattr(holder, name, None)  # ConvNeXt and others; ViTs made for average pooling
        if isinstance(norm, nn.Module) and not isinstance(norm, nn.Identity):
            taken_norm = norm
            setattr(holder, name, nn.Identity())
    return taken_norm


def on_vectors(norm: nn.Module) -> nn.Module:
    """A norm over channels of maps, as one over the channels of vectors, with the same weights."""
    if not isinstance(norm, nn.LayerNorm):
        return norm
    copy = nn.LayerNorm(norm.normalized_shape, norm.eps, norm.elementwise_affine)
    copy.load_state_dict(norm.state_dict())
    return copy


def use_dino_positions(backbone: Backbone) -> None:
    """Resample the position embeddings of a ViT for other image sizes as DINO's program does.

    From m to n positions it is bicubic at a scale of (n + 0.1) / m, without smoothing; timm's scale
    is n / m, with smoothing. SimPool's DINO program counts a CLS token that its network does not
    have, and so resamples at the size of the embeddings, too: without a CLS token this does the
    same.
    """
    encoder = backbone.model
    if not (
        isinstance(encoder, VisionTransformer)
        and encoder.dynamic_img_size
        and encoder.pos_embed is not None
        and encoder.reg_token is None
        and not encoder.no_embed_class
    ):
        raise ValueError(f"'{backbone.name}' has other position embeddings than a ViT of DINO")
    encoder._pos_embed = partial(_add_dino_positions, encoder)  # type: ignore[method-assign]


def _add_dino_positions(encoder: Any, x: Tensor) -> Tensor:
    """(B, H, W, D) of patches -> (B, N, D) with CLS and positions."""
    positions, cls = encoder.pos_embed, encoder.cls_token
    old, new = encoder.patch_embed.grid_size, (x.shape[1], x.shape[2])
    if cls is None or old != new:
        count = encoder.num_prefix_tokens
        maps = positions[:, count:].unflatten(1, old).permute(0, 3, 1, 2)  # (1, D, h, w)
        scale = [(n + 0.1) / m for n, m in zip(new, old, strict=True)]
        maps = interpolate(maps, scale_factor=scale, mode="bicubic")
        positions = torch.cat([positions[:, :count], maps.flatten(2).transpose(1, 2)], 1)
    tokens = x.flatten(1, 2)
    if cls is not None:
        tokens = torch.cat([cls.expand(len(tokens), -1, -1), tokens], 1)
    result: Tensor = encoder.pos_drop(tokens + positions)
    return result
