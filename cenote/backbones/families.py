"""Everything special about a family of timm's models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import timm
import torch
from torch import Tensor
from torch.nn.functional import pad

# A map or a sequence of tokens, and the tokens (B, P, D) before the patches if not in front of them.
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
    if isinstance(out, Tensor):  # CoaT-Lite
        return out, None
    *others, last = out
    is_average = model.global_pool == "avg"
    vectors = [x[:, 1:].mean(1) if is_average else x[:, 0] for x in others]
    return last[:, 1:], torch.cat([last[:, :1], _as_tokens(vectors, last.shape[2])], 1)


def last_map_of_stages(model: Any, images: Tensor) -> Read:
    *others, last = model.forward_features(images)  # (B, D, N)
    return last.transpose(1, 2), _as_tokens([x.mean(2) for x in others], last.shape[1])


def _as_tokens(vectors: list[Tensor], dim: int) -> Tensor:
    """Return the vectors, padded with zeros to dim channels, (B, R, D)."""
    return torch.stack([pad(vector, (0, dim - vector.shape[1])) for vector in vectors], 1)


# Families whose `forward_features` is not one map or one sequence in reading order. Of several maps
# the others become a vector each, of which the model's own pooling makes use.
READERS: dict[str, Callable[[Any, Tensor], Read]] = {
    "hiera": last_map,  # its tokens are in the order of its mask units, not of the picture
    "pit": map_and_cls,  # returns the CLS token alone
    "coat": last_scale,  # several scales, each with its own CLS token
    "crossvit": last_scale,  # two branches, the last of which has coarser patches and is wider
    "efficientvim": last_map_of_stages,  # the hidden states of all stages, then the map
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


def projects_to_texts(model: Any, dim: int) -> bool:
    """Return whether the last layer of a timm model, of `dim` outputs, is not a classifier but a projection.

    timm has the projection of CLIP and PE-Core to the space of their texts in the classifier's
    place. They are known by timm's weights of the architecture, of which those that were fine-tuned
    on ImageNet ("ft_in1k") do have classes.
    """
    architecture = (getattr(model, "pretrained_cfg", None) or {}).get("architecture", "")
    names = timm.list_pretrained(f"{architecture}.*") if architecture else []
    with_texts = [n for n in names if ("clip" in n or "pe_core" in n) and "ft_in" not in n]
    return any(timm.get_pretrained_cfg_value(n, "num_classes") == dim for n in with_texts)
