"""A vision model of Hugging Face transformers with the interface of timm's models."""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASS_TOKENS = ("cls_token", "class_embedding", "distillation_token")
REMEDY = "use a ViT, a Swin or a convolutional network, or timm's name of the architecture"


class Patches(NamedTuple):
    """What a `Backbone` reads of timm's patch embedding."""

    img_size: tuple[int, int]
    patch_size: tuple[int, int]


class TransformersEncoder(nn.Module):
    """`forward_features` gives `last_hidden_state`, `forward_head` makes `pooler_output` of it.

    One image is run to find out the layout of the features and what follows them. `has_own_pooling`
    is False if `forward_head` cannot reproduce `pooler_output`.
    """

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.encoder, self.name, config = model, name, model.config
        self.takes_patches = config.model_type == "siglip2_vision_model"
        self.image_size = _image_size(config)
        stride = getattr(config, "patch_stride", None)  # of Hiera, whose patches overlap
        self.patch_size = _pair(stride or getattr(config, "patch_size", None) or 1)
        # Swin merges 2 x 2 patches behind every stage but the last.
        self.merged = 2 ** (len(getattr(config, "depths", [1])) - 1)
        self.options = {}
        if "interpolate_pos_encoding" in inspect.signature(model.forward).parameters:
            self.options["interpolate_pos_encoding"] = True
        embeddings: Any = getattr(model, "embeddings", None)
        if getattr(embeddings, "mask_token", None) is not None:
            embeddings.mask_token = None  # which only masked images use
        self.num_prefix_tokens = len(self.class_tokens())
        self.pools_cls = self.num_prefix_tokens > 0
        if isinstance(registers := getattr(embeddings, "register_tokens", None), Tensor):
            self.num_prefix_tokens += registers.shape[1]
        self.pooler: nn.Module | None = None
        self.fc_norm: nn.Module = nn.Identity()
        out, vector_norms = self._run_one_image()
        x = out.last_hidden_state
        self.num_features, stride = self._layout(x)
        self.feature_info = [{"num_chs": self.num_features, "reduction": stride}]
        if x.ndim == 3:
            self.patch_embed = Patches(self.image_size, self.patch_size)
        self._take_pooling(vector_norms)
        pooler_output = getattr(out, "pooler_output", None)
        self.has_own_pooling = pooler_output is None or self._gives(pooler_output, x)

    @torch.no_grad()
    def _run_one_image(self) -> tuple[Any, list[str]]:
        """Return the model's output, and the names of the LayerNorms applied to vectors."""
        names: list[str] = []
        handles = [
            layer.register_forward_hook(
                lambda layer, inputs, out, name=name: names.append(name) if out.ndim == 2 else None
            )
            for name, layer in self.encoder.named_children()
            if isinstance(layer, nn.LayerNorm)
        ]
        training = self.training
        images = torch.randn(1, 3, *self.image_size, generator=torch.Generator().manual_seed(0))
        try:
            out = self.eval()._run(images)
            spatial = isinstance(out.last_hidden_state, Tensor) and out.last_hidden_state.ndim > 2
        except Exception as error:  # a model that is not for single images may raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"'{self.name}' gives no features of images alone ({reason[:200]}): {REMEDY}"
            ) from error
        finally:
            self.train(training)
            for handle in handles:
                handle.remove()
        if not spatial:
            raise ValueError(f"'{self.name}' has no spatial tokens: {REMEDY}")
        return out, names

    def _layout(self, x: Tensor) -> tuple[int, int]:
        """Return the channels and the stride of a map (B, D, H, W), or of tokens (B, N, D)."""
        height, width = self.image_size
        if x.ndim == 4:
            return x.shape[1], round(height / x.shape[2])
        h, w = (side * self.merged for side in self.patch_size)
        patches = x.shape[1] - self.num_prefix_tokens
        if patches in ((height // h) * (width // w), math.ceil(height / h) * math.ceil(width / w)):
            return x.shape[2], h
        raise ValueError(
            f"'{self.name}' gives {x.shape[1]} tokens for {height}x{width} pixels, which are not "
            f"the positions of a grid: {REMEDY}"
        )

    def _take_pooling(self, vector_norms: list[str]) -> None:
        """Take the trained pooler, and a norm behind the pooling, out of the encoder."""
        model: Any = self.encoder
        for name in ("head", "pooler"):
            pooler: Any = getattr(model, name, None)
            if isinstance(pooler, nn.Module) and any(True for _ in pooler.parameters()):
                self.pooler = pooler
                setattr(model, name, _Nothing())
                attention = getattr(pooler, "attention", None)
                if isinstance(attention, nn.MultiheadAttention):
                    pooler.attention = _PoolingAttention(attention)
        for name in vector_norms:
            self.fc_norm = getattr(model, name)
            setattr(model, name, nn.Identity())

    @torch.no_grad()
    def _gives(self, pooler_output: Tensor, x: Tensor) -> bool:
        vector, expected = self.forward_head(x), pooler_output.flatten(1)
        return vector.shape == expected.shape and torch.allclose(vector, expected, 1e-3, 1e-4)

    def _run(self, images: Tensor) -> Any:
        if not self.takes_patches:
            return self.encoder(images, **self.options)
        (p, _), (height, width) = self.patch_size, images.shape[-2:]
        rows, columns = height // p, width // p
        x = images[..., : rows * p, : columns * p].reshape(-1, 3, rows, p, columns, p)
        x = x.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)  # (B, N, p p 3)
        mask = torch.ones(x.shape[:2], dtype=torch.int32, device=x.device)
        # On the CPU, since transformers reads the numbers.
        shapes = torch.tensor([[rows, columns]], device="cpu")  # of all images
        return self.encoder(x, mask, shapes)

    def forward_features(self, images: Tensor) -> Tensor:
        x: Tensor = self._run(images).last_hidden_state
        return x

    def forward_head(self, x: Tensor, pre_logits: bool = True) -> Tensor:
        if self.pooler is not None:
            x = self.pooler(x)
        elif x.ndim == 4:
            x = x.mean((2, 3))
        elif self.pools_cls:
            x = x[:, 0]
        else:
            x = x.mean(1)
        vector: Tensor = self.fc_norm(x)
        return vector

    def get_classifier(self) -> nn.Module:
        return nn.Identity()

    def reset_classifier(self, num_classes: int, global_pool: str = "") -> None:
        self.pooler = None

    def no_weight_decay(self) -> set[str]:
        kinds = (*CLASS_TOKENS, "register_tokens", "position_embedding")
        return {name for name, _ in self.named_parameters() if any(kind in name for kind in kinds)}

    def class_tokens(self) -> dict[str, nn.Parameter]:
        """Return the CLS token, and DeiT's distillation token behind it, by name."""
        embeddings = getattr(self.encoder, "embeddings", None)
        tokens = {name: getattr(embeddings, name, None) for name in CLASS_TOKENS}
        return {name: token for name, token in tokens.items() if isinstance(token, nn.Parameter)}

    def remove_class_tokens(self) -> None:
        """Remove the class tokens between the embeddings and the first block."""
        if any("relative_position" in name for name, _ in self.encoder.named_parameters()):
            raise ValueError(
                f"the CLS token of '{self.name}' cannot be removed, its relative positions include "
                "it: keep_cls=True leaves it in"
            )
        embeddings: Any = self.encoder.embeddings
        tokens = self.class_tokens()
        for name, token in tokens.items():
            delattr(embeddings, name)
            embeddings.register_buffer(name, token.detach(), persistent=False)
        embeddings.register_forward_hook(partial(_drop_first, len(tokens)))
        self.num_prefix_tokens -= len(tokens)


def _drop_first(count: int, layer: nn.Module, inputs: Any, out: Any) -> Any:
    """Drop the first tokens of the embeddings, which some models return in a tuple."""
    if isinstance(out, tuple):
        return out[0][:, count:], *out[1:]
    return out[:, count:]


class _Nothing(nn.Module):
    """Replaces the pooler of an encoder: `pooler_output` is None."""

    def forward(self, *inputs: Any) -> None:
        return None


class _PoolingAttention(nn.Module):
    """nn.MultiheadAttention through `scaled_dot_product_attention`, where maps are read."""

    def __init__(self, layer: nn.MultiheadAttention) -> None:
        super().__init__()
        self.num_heads = layer.num_heads
        self.in_proj_weight, self.in_proj_bias = layer.in_proj_weight, layer.in_proj_bias
        self.out_proj = layer.out_proj

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None
    ) -> tuple[Tensor, None]:
        projections = zip(self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True)
        q, k, v = (
            F.linear(x, weight, bias).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
            for x, (weight, bias) in zip((query, key, value), projections, strict=True)
        )  # (B, heads, N, d)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(x.transpose(1, 2).flatten(2)), None


def _image_size(config: Any) -> tuple[int, int]:
    if config.model_type == "siglip2_vision_model":  # has positions, for images of any shape
        return _pair(math.isqrt(config.num_patches) * config.patch_size)
    return _pair(getattr(config, "image_size", None) or 224)


def _pair(sides: Any) -> tuple[int, int]:
    if isinstance(sides, int):
        return sides, sides
    return sides[0], sides[1]
