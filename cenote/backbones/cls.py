"""Class tokens: find them, and remove them from the encoder, not only from its output."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .families import CLASS_TOKENS, CLS_OPTIONAL, CLS_STAYS, LATE_BLOCKS, family_of
from .transformers_encoder import TransformersEncoder


def class_tokens(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the CLS token, and DeiT's distillation token behind it, by name."""
    if isinstance(model, TransformersEncoder):
        return model.class_tokens()
    holder = _holder(model)
    names = CLASS_TOKENS.get(family_of(model), ("cls_token", "dist_token"))
    tokens = {name: getattr(holder, name, None) for name in names}
    return {name: token for name, token in tokens.items() if isinstance(token, nn.Parameter)}


def remove_class_tokens(model: Any, name: str) -> None:
    """Remove CLS from the attention of the patch tokens. Registers and all else stay."""
    family, holder, tokens = family_of(model), _holder(model), class_tokens(model)
    if not tokens:
        return
    if isinstance(model, TransformersEncoder):
        model.remove_class_tokens()
        return
    if family in CLS_STAYS:
        reason = f"the CLS token of '{name}' cannot be removed, {CLS_STAYS[family]}"
        raise ValueError(f"{reason}: keep_cls=True leaves it in")
    removed = sum(token.shape[1] for token in tokens.values())
    _cut_positions(model, removed)
    for token_name, token in tokens.items():
        delattr(holder, token_name)
        if family in CLS_OPTIONAL:
            setattr(holder, token_name, None)
        else:  # `cat` with no tokens changes nothing
            holder.register_buffer(token_name, token.detach()[:, :0].clone(), persistent=False)
    if family in LATE_BLOCKS:
        attribute, nothing = LATE_BLOCKS[family]
        setattr(model, attribute, nn.ModuleList() if nothing == () else nothing)
    for module in model.modules():
        _update_counts(module, removed)
    if isinstance(getattr(model, "patch_embed", None), nn.Module):
        model.patch_embed.register_forward_hook(_in_order)


def _in_order(module: nn.Module, given: Any, out: Any) -> Any:
    """Copy the transposed map of the patch embedding, as joining CLS to the patches did.

    Without the copy every block would be slower than the token made it.
    """
    if isinstance(out, torch.Tensor):
        out = out.contiguous()
    return out


def _holder(model: Any) -> Any:
    return getattr(model, "embeds", model)  # NaFlexViT keeps its tokens in a module of their own


def _cut_positions(model: Any, removed: int) -> None:
    """Remove the rows of CLS from position embeddings of [CLS; patches], if there are any."""
    positions = getattr(model, "pos_embed", None)
    if not isinstance(positions, nn.Parameter) or positions.ndim != 3:
        return
    if getattr(model, "no_embed_class", False):
        return
    if positions.shape[1] > model.patch_embed.num_patches:
        model.pos_embed = nn.Parameter(positions.detach()[:, removed:].clone())


def _update_counts(module: Any, removed: int) -> None:
    """Update modules that count tokens: rotary attention, MViT's pooling, relative positions."""
    if getattr(module, "num_prefix_tokens", 0):
        module.num_prefix_tokens -= removed
    for flag in ("has_class_token", "has_cls_token"):
        if getattr(module, flag, False):
            setattr(module, flag, False)
    index = getattr(module, "relative_position_index", None)
    if isinstance(index, torch.Tensor) and hasattr(module, "relative_position_bias_table"):
        _cut_relative_positions(module, index)
    if getattr(module, "prefix_tokens", 0):
        module.prefix_tokens = 0


def _cut_relative_positions(module: Any, index: torch.Tensor) -> None:
    """The bias between all pairs of [CLS; patches] becomes the one between patches."""
    n = module.window_size[0] * module.window_size[1]
    if index.numel() != (n + 1) ** 2:
        return  # positions of patches alone
    module.relative_position_index = index.view(n + 1, n + 1)[1:, 1:].contiguous()
    if hasattr(module, "bias_shape"):  # vision_transformer_relpos
        module.relative_position_index = module.relative_position_index.flatten()
        module.bias_shape = (n, n, module.bias_shape[-1])
    else:  # BEiT asks the window for its area, always adds one for CLS, and uses it for nothing else
        module.window_size, module.window_area = (n - 1, 1), n - 1
