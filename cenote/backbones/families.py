"""Everything special about a family of timm's models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

# A map or a sequence of tokens, and class tokens (B, P, D) that are not in front of them.
Read = tuple[Tensor, Tensor | None]


def family_of(model: Any) -> str:
    """Return the timm module that defines the model's class."""
    return type(model).__module__.rpartition(".")[2]


def num_channels(model: Any) -> int:
    if family_of(model) == "crossvit":
        return int(model.embed_dim[-1])
    if family_of(model) == "efficientvim":
        return int(model.feature_info[-1]["num_chs"])
    return int(model.num_features)


def last_map(model: Any, images: Tensor) -> Read:
    options = {"indices": 1, "output_fmt": "NCHW", "intermediates_only": True}
    return model.forward_intermediates(images, **options)[0], None


def map_and_cls(model: Any, images: Tensor) -> Read:
    cls, (feature_map,) = model.forward_intermediates(images, indices=1, output_fmt="NCHW")
    return feature_map, cls


def last_scale(model: Any, images: Tensor) -> Read:
    out = model.forward_features(images)
    if isinstance(out, list):
        out = out[-1]
    return out, None


def last_scale_first(model: Any, images: Tensor) -> Read:
    return model.forward_features(images)[-1].transpose(1, 2), None  # (B, D, N) -> (B, N, D)


# Families whose `forward_features` is not one map or one sequence in reading order.
READERS: dict[str, Callable[[Any, Tensor], Read]] = {
    "hiera": last_map,  # its tokens are in the order of its mask units, not of the picture
    "pit": map_and_cls,  # returns the CLS token alone
    "coat": last_scale,  # several scales: the last one, with its own CLS token
    "crossvit": last_scale,  # two branches: the wider one, of the coarser patches
    "efficientvim": last_scale_first,  # the hidden states of all stages, then the map
}
STRIDES: dict[str, Callable[[Any], float]] = {
    "coat": lambda model: 32,
    # The branch sees the image resized to a multiple of its patches.
    "crossvit": lambda model: (
        model.img_size[0] * model.patch_embed[-1].patch_size[0] / model.img_size_scaled[-1][0]
    ),
}
# Language models' encoders merge k x k patches into one token, where they end in a projection: the
# attribute k.
MERGES = {
    "qwen3_vit": "merge_size",
    "gemma4_vit": "pooling_kernel_size",
    "deepseek_vit": "downsample_ratio",
}

# What a family calls its class tokens; the sequence starts with them.
CLASS_TOKENS = {"coat": ("cls_token4",), "crossvit": ("cls_token_1",)}
# CLS enters at the end, in blocks of its own, and leaves with them: the attribute, and what stands
# there then.
LATE_BLOCKS: dict[str, tuple[str, Any]] = {
    "cait": ("blocks_token_only", ()),
    "xcit": ("cls_attn_blocks", ()),
    "volo": ("post_network", None),
}
# The code of these asks whether there is a CLS token; elsewhere it becomes a sequence of no tokens.
CLS_OPTIONAL = {"vision_transformer", "eva", "mvitv2", "naflexvit", "vision_transformer_relpos"}
CLS_STAYS = {
    "tnt": "its blocks add pixels to the tokens behind the first",
    "coat": "its convolutions take the tokens behind the first as the map",
    "crossvit": "its branches speak to each other through their CLS tokens",
}
