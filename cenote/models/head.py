"""What stands behind a backbone: pool, last norm, embedding, head, and the contract of a method of
weakly supervised localization; and the projections that self-supervised training takes away
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ..backbones import Backbone, Features
from ..metrics import prepare_maps
from ..options import check_choice, check_number
from ..pooling import Pool, create_pool
from ..pooling.batchnorm import BatchNorm
from ..pooling.own import OwnPool

Criterion = Callable[[Tensor, Tensor], Tensor]  # logits, labels -> mean loss
Then = Callable[[Features], Tensor]  # a function of features, run inside of a forward pass
HEADS = ("num_heads", "heads", "num_attention_heads")  # what layers call their number


def create_pool_for(
    backbone: Backbone, pool: str, options: Mapping[str, Any] | None = None
) -> Pool:
    """Create a pool of a backbone's features; SimPool has the paper's exponent by default."""
    options = dict(options or {})
    if pool == "simpool":
        options.setdefault("gamma", simpool_gamma(backbone))
    return create_pool(pool, backbone.dim, **options)


def simpool_gamma(backbone: Backbone) -> float:
    """Return 1.25 for transformers and 2 for convolutional networks [SimPool Sec. C.4]."""
    return 1.25 if is_transformer(backbone) else 2.0


def is_transformer(backbone: Backbone) -> bool:
    """Return whether a layer has attention heads."""
    return any(
        "pool" not in name and any(hasattr(layer, attribute) for attribute in HEADS)
        for name, layer in backbone.named_modules()
    )


class Head(nn.Module):
    """(B, D), or (B, k, D) for k pooled vectors -> logits (B, classes).

    combine="max": one linear layer on each vector, the largest of the k logits for each class;
    combine="concat": the k vectors in a row, projected to D, then the linear layer
    [SimPool Table 10]. norm="batch": BatchNorm without affine before the linear layer, as attentive
    probing does.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        k: int = 1,
        combine: Literal["max", "concat"] = "max",
        norm: Literal["batch"] | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_choice("combine", combine, ("max", "concat"))
        check_choice("the norm of a head", norm, (None, "batch"))
        self.dim, self.classes, self.k = dim, classes, k
        self.options = {"combine": combine, "head_norm": norm}  # as `create_model` calls them
        self.project = nn.Linear(k * dim, dim) if combine == "concat" and k > 1 else None
        self.norm = BatchNorm(dim, affine=False, eps=1e-6) if norm else None
        self.linear = nn.Linear(dim, classes, bias=bias)

    def forward(self, u: Tensor) -> Tensor:
        if u.ndim == 2 and self.k == 1:
            u = u[:, None]  # (B, k, D)
        if not torch.compiler.is_compiling() and u.shape[1:] != (self.k, self.dim):
            raise ValueError(f"a head of dim={self.dim}, k={self.k} got shape {tuple(u.shape)}")
        if self.project is not None:
            u = self.project(u.flatten(1))[:, None]  # (B, k, D) -> (B, 1, D)
        if self.norm is not None:
            # One image has no spread of its own, not even its k vectors, and the last batch of an
            # epoch may be one image: the statistics of earlier batches are the best estimate.
            lone = self.training and len(u) == 1
            u = (self.norm.settled if lone else self.norm)(u)
        return self.linear(u).amax(1)  # (B, k, classes) -> (B, classes)

    def settled(self, x: Tensor) -> Tensor:
        """Normalise by the running statistics: independent of the other images of the batch."""
        return x if self.norm is None else self.norm.settled(x)


class Embedding(nn.Module):
    """(B, D), or (B, k, D) for k pooled vectors in a row -> (B, embedding_dim), not normalised.

    norm="layer": a LayerNorm without weights on the pooled vector, before the linear layer, as
    ProxyNCA++ has it.
    """

    def __init__(self, dim: int, embedding_dim: int, norm: str | None = None) -> None:
        super().__init__()
        check_number("embedding_dim", embedding_dim, whole=True, least=1)
        check_choice("embedding_norm", norm, (None, "layer"))
        self.options = {"embedding_dim": embedding_dim, "embedding_norm": norm}
        self.norm: nn.Module = nn.Identity()
        if norm:
            self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.linear = nn.Linear(dim, embedding_dim)

    def forward(self, u: Tensor) -> Tensor:
        z: Tensor = self.linear(self.norm(u.flatten(1)))
        return z


class PoolAndHead(nn.Module):
    """Features -> vectors, maps and logits: what a model and a head on cached features share."""

    pool: Pool | None  # None: the CLS token is the vector
    # What is pooled: "patches", "all" of [CLS; patches], or "summary" tokens; "cls": no pool.
    tokens: str
    after: nn.Module  # the last LayerNorm, where it stands behind the pool
    embedding: nn.Module  # the linear layer behind that, where vectors are made to be compared
    head: Head | None
    wsol: WsolMethod | None  # a method of weakly supervised localization

    @property
    def label(self) -> str:
        """The pool's name for tables and pictures."""
        return "cls" if self.pool is None else self.pool.label

    def pool_features(self, features: Features) -> tuple[Tensor, Tensor | None]:
        """Vectors, and the pool's own maps (B, m, H, W) or None."""
        return self.pool_prepared(self.before_pool(features))

    def pool_prepared(self, features: Features) -> tuple[Tensor, Tensor | None]:
        """Pool features that `before_pool` has changed."""
        tokens, grid = features.tokens, features.grid
        if self.pool is None:
            assert features.cls is not None
            return features.cls, None
        if self.tokens == "all":
            u, a = self.pool.vectors_and_maps(self.pooled_tokens(features), None)
        else:
            u, a = self.pool.vectors_and_maps(tokens, grid)
        if a is not None:  # CLS has no place in the map
            a = a[..., -tokens.shape[1] :].unflatten(-1, grid)
        return u, a

    def before_pool(self, features: Features) -> Features:
        """Return the features that are pooled: those of the backbone, unless `wsol` changes them."""
        return features if self.wsol is None else self.wsol.neck(features)

    def pooled_tokens(self, features: Features) -> Tensor:
        """Return what is pooled, (B, N, D): the patches, or [CLS; patches]."""
        if self.tokens != "all":
            return features.tokens
        return features.all_tokens(registers=isinstance(self.pool, OwnPool))

    def refine(self, u: Tensor) -> Tensor:
        """Apply the last norm and the embedding to pooled vectors."""
        vectors: Tensor = self.embedding(self.after(u))
        return vectors

    def embed_features(self, features: Features) -> Tensor:
        """(B, D), or (B, k, D) for a pool of k vectors: what the head sees."""
        return self.refine(self.pool_features(features)[0])

    def classify(self, features: Features) -> Tensor:
        """Logits, or vectors without a head."""
        u = self.embed_features(features)
        return u if self.head is None else self.head(u)


class WsolMethod(nn.Module):
    """A part of a model beside pool and head, which trains and is saved with it.

    In training a method changes the images (`images`) or the loss (`loss`); always, the features
    before they are pooled (`neck`); of class activation maps, the weights (`class_weights`), the
    classifiers whose maps are joined (`branches`), or how maps are scaled to [0, 1] (`scores`).
    """

    name: ClassVar[str] = ""  # set by the registry
    pool: ClassVar[str] = "gap"  # if none is given
    changes_images: ClassVar[bool] = False  # then features cannot be computed once
    needs_class: ClassVar[bool] = False  # one for each image, to train
    needs_cam: ClassVar[bool] = True

    def __init__(self, model: PoolAndHead) -> None:
        super().__init__()
        self.options: dict[str, Any] = {}  # that were given, to create the method again

    def images(self, images: Tensor, rng: torch.Generator) -> Tensor:
        """Change images (B, 3, H, W) of a training step; 0 is the mean colour."""
        return images

    def neck(self, features: Features) -> Features:
        """Change the features that are pooled, in training and afterwards."""
        return features

    def loss(
        self,
        model: PoolAndHead,
        features: Features,
        labels: Tensor,
        criterion: Criterion,
        rng: torch.Generator,
    ) -> Tensor:
        """Return the loss of a training step from the features of the backbone."""
        return criterion(model.classify(features), labels)

    def class_weights(self, w: Tensor) -> Tensor:
        """Change the weights (B, D) of each image's class for its class activation map."""
        return w

    def branches(
        self, model: PoolAndHead, features: Features
    ) -> list[tuple[PoolAndHead, Features]]:
        """Return the classifiers with their features; of several the largest map counts."""
        return [(model, features)]

    def scores(self, maps: Tensor, size: int) -> Tensor:
        """Resize class activation maps (..., h, w) to (..., size, size) and scale them to [0, 1]."""
        return prepare_maps(maps, size)


class DinoHead(nn.Module):
    """DINO's: an MLP, l2, and a last layer whose rows have a length of their own, or length one
    (`fixed_length`).

    Checkpoints of the old weight norm (`weight_g`, `weight_v`) and of the parametrised one both
    load.
    """

    def __init__(
        self,
        dim: int,
        out: int = 65536,
        hidden: int = 2048,
        bottleneck: int = 256,
        layers: int = 3,
        batch_norm: bool = False,
        fixed_length: bool = True,
    ) -> None:
        super().__init__()
        sizes = [dim, *[hidden] * (layers - 1), bottleneck]
        self.mlp = _mlp(sizes, nn.GELU, batch_norm)
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                # Random biases would exceed what a narrow layer makes of its input.
                nn.init.zeros_(layer.bias)
        self.last_layer = weight_norm(nn.Linear(bottleneck, out, bias=False))
        length = self.last_layer.parametrizations.weight.original0
        nn.init.ones_(length)
        length.requires_grad_(not fixed_length)
        self.register_load_state_dict_pre_hook(_new_names)  # type: ignore[no-untyped-call]

    def forward(self, u: Tensor) -> Tensor:
        logits: Tensor = self.last_layer(F.normalize(self.mlp(u), dim=-1))
        return logits


class MocoHead(nn.Sequential):
    """MoCo-v3's projector and predictor: linear layers and BatchNorm, the last without affine."""

    def __init__(
        self,
        dim: int,
        out: int = 256,
        hidden: int = 4096,
        layers: int = 3,
        last_norm: bool = True,
    ) -> None:
        sizes = [dim, *[hidden] * (layers - 1), out]
        steps = list(_mlp(sizes, nn.ReLU, True, bias=False))
        if last_norm:
            steps.append(nn.BatchNorm1d(out, affine=False))
        super().__init__(*steps)


def _mlp(
    sizes: list[int], activation: type[nn.Module], batch_norm: bool, bias: bool = True
) -> nn.Sequential:
    """Linear layers with an activation, and perhaps a BatchNorm, between them."""
    steps: list[nn.Module] = []
    for place, (before, after) in enumerate(pairwise(sizes)):
        steps.append(nn.Linear(before, after, bias=bias))
        if place < len(sizes) - 2:
            steps += [nn.BatchNorm1d(after)] * batch_norm + [activation()]
    return nn.Sequential(*steps)


def _new_names(module: nn.Module, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
    for old, new in (("weight_g", "original0"), ("weight_v", "original1")):
        if (name := f"{prefix}last_layer.{old}") in state:
            state[f"{prefix}last_layer.parametrizations.weight.{new}"] = state.pop(name)
