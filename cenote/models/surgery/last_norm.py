"""Where the encoder's last LayerNorm stands: before the pool, behind it, or nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from .pyramid import Pyramid

if TYPE_CHECKING:
    from ..pooled import PooledModel


def place_norm(model: PooledModel, norm: str) -> None:
    """Put the encoder's last LayerNorm where `norm` says, and write down what "auto" came to."""
    encoder: Any = model.backbone.model
    inside, behind = model.backbone.final_norm(), _take_norm_behind(encoder)
    if isinstance(model.backbone, Pyramid):
        behind = None  # it was for the channels of the last stage, not for the pyramid's
    if norm == "auto":
        model.norm = "before" if inside is not None else "after" if behind is not None else "none"
    norm_layer = inside if inside is not None else behind
    if model.norm != "none" and norm_layer is None:
        raise ValueError(
            f"'{model.backbone.name}' has no final LayerNorm to put {norm} the pool: norm='none'"
        )
    if inside is not None and model.norm != "before":
        encoder.norm = nn.Identity()
    if model.norm == "after":
        assert norm_layer is not None
        if model.pool is not None and model.pool.out_dim != model.backbone.dim:
            raise ValueError(
                f"'{model.pool.name}' gives {model.pool.out_dim} channels, the last LayerNorm of "
                f"'{model.backbone.name}' is for {model.backbone.dim}: norm='none' or 'before'"
            )
        model.after = _on_vectors(norm_layer)
    elif model.norm == "before" and inside is None:
        raise ValueError(
            f"'{model.backbone.name}' normalises behind its pooling: norm='after' or 'none'"
        )


def _take_norm_behind(encoder: Any) -> nn.Module | None:
    """The norm that the encoder has behind its own pooling. It is taken out: there, nothing would
    use it.
    """
    taken_norm = None
    for holder, name in ((getattr(encoder, "head", None), "norm"), (encoder, "fc_norm")):
        norm = getattr(holder, name, None)  # ConvNeXt and others; ViTs made for average pooling
        if isinstance(norm, nn.Module) and not isinstance(norm, nn.Identity):
            taken_norm = norm
            setattr(holder, name, nn.Identity())
    return taken_norm


def _on_vectors(norm: nn.Module) -> nn.Module:
    """A norm over channels of maps, as one over the channels of vectors, with the same weights."""
    if not isinstance(norm, nn.LayerNorm):
        return norm
    copy = nn.LayerNorm(norm.normalized_shape, norm.eps, norm.elementwise_affine)
    copy.load_state_dict(norm.state_dict())
    return copy
