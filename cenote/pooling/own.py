"""The pooling that an encoder was trained with, and what follows it up to the classifier."""

from __future__ import annotations

import copy
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from .attention_hook import AttentionCall, AttentionHook
from .base import Grid, Pool

# Of the features that the encoder hands to its head: (B, N, D), (B, D, N), (B, D, H, W), ...
Layout = Literal["tokens", "NCL", "NCHW", "NHWC"]


class OwnPool(Pool):
    """The head of an encoder without its classifier: `forward_head(x, pre_logits=True)` of timm.

    `head` is what `take_head` returns. Of the encoder's tokens in front of the patches the pool
    takes the first `prefix`; the head ignores the next `unused`. Of a head that pools several maps
    `widths` are the channels of those before the last; the last of the `prefix` tokens are vectors
    of these. An attention pool has one map per attention head.
    """

    name = "own"

    def __init__(
        self,
        dim: int,
        head: nn.Module,
        layout: Layout = "tokens",
        prefix: int = 0,
        unused: int = 0,
        widths: tuple[int, ...] = (),
    ) -> None:
        super().__init__(dim)
        self.head, self.layout, self.prefix, self.unused = head, layout, prefix, unused
        self.widths = widths
        self.needs_grid = layout in ("NCHW", "NHWC")
        self.permutation_invariant = False
        self.frozen = False
        self.hook = AttentionHook(_as_it_is)

    def freeze(self) -> None:
        """Keep the weights and statistics as they are."""
        self.frozen, self.options = True, {"frozen": True}
        self.requires_grad_(False).train(self.training)

    def inspect(self, x: Tensor, grid: Grid) -> None:
        """Find out from features x (B, prefix + H W, D) how long the vector is, and the map."""
        calls = self._run(x, grid)[1]
        u, a = self.pool(x, grid)
        self.out_dim = u.shape[-1]
        self.no_attention = ""
        if a is None:
            self.no_attention = "it does not attend over the positions"
        self.sums_to_one = a is not None and calls[0].k.shape[-2] == grid[0] * grid[1]

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor | None]:
        u, calls = self._run(x, grid)
        n = x.shape[1] - self.prefix
        if len(calls) != 1 or calls[0].k.shape[-2] < n:
            return u[:, None], None
        a = calls[0].scores(self._queries()).softmax(-1)  # (B, heads, queries, keys)
        return u[:, None], a[..., -n:].mean(2)

    def _run(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, list[AttentionCall]]:
        """Return the vectors (B, D') and the attention of the head."""
        head: Any = self.head
        features = self._features_of_head(x, grid)
        # Dynamo does not trace the creation of a hook, and threads must not share one.
        hook = self.hook if torch.compiler.is_compiling() else AttentionHook(_as_it_is)
        with hook:
            u: Tensor = head.forward_head(features, pre_logits=True)
        calls = list(hook.seen)
        hook.seen.clear()
        return u.flatten(1), calls

    def _features_of_head(self, x: Tensor, grid: Grid | None) -> Tensor | list[Tensor]:
        """Return what the encoder hands to its head."""
        prefix, patches = x[:, : self.prefix], x[:, self.prefix :]
        if self.widths:
            cls, vectors = prefix.tensor_split([self.prefix - len(self.widths)], 1)
            # Twice, since a head takes the first token, or the mean of all, or of all but the first.
            maps = [
                vectors[:, [i, i], :width]  # (B, 2, D_i)
                for i, width in enumerate(self.widths)
            ]
            maps.append(torch.cat([cls, patches], 1))
            return [m.mT for m in maps] if self.layout == "NCL" else maps
        if self.layout == "tokens":
            unused = x.new_zeros(x.shape[0], self.unused, x.shape[2])
            return torch.cat([prefix, unused, patches], 1)
        assert grid is not None
        x = x.unflatten(1, grid)  # (B, H, W, D)
        return x.permute(0, 3, 1, 2) if self.layout == "NCHW" else x

    def _queries(self) -> slice:
        """Return the queries that make the vector: the first, or all if their mean is taken."""
        pooled = (getattr(layer, "pool", None) for layer in self.head.modules())
        return slice(None) if "avg" in pooled else slice(0, 1)

    def train(self, mode: bool = True) -> Self:
        """Set the mode; the statistics of a frozen head do not change."""
        super().train(mode)
        self.head.train(mode and not self.frozen)
        return self


def _as_it_is(call: AttentionCall) -> AttentionCall:
    return call


def take_head(model: nn.Module, x: Tensor | list[Tensor]) -> tuple[nn.Module, Tensor]:
    """Copy the layers with which `forward_head` makes a vector of features x, and no others.

    Also return the gradient of the vector with respect to the last features, which tells those that
    count.
    """
    called: set[nn.Module] = set()
    handles = [m.register_forward_pre_hook(lambda m, _: called.add(m)) for m in model.modules()]
    trained = [p for p in model.parameters() if p.requires_grad]
    maps = [m.detach().clone().requires_grad_() for m in ([x] if isinstance(x, Tensor) else x)]
    forward_head: Any = model.forward_head
    try:
        with torch.enable_grad():
            parameters = list(model.requires_grad_().parameters())
            u: Tensor = forward_head(maps[0] if isinstance(x, Tensor) else maps, pre_logits=True)
            direction = torch.randn(u.shape, dtype=u.dtype, device=u.device)
            inputs = [maps[-1], *parameters]
            grads = torch.autograd.grad(u, inputs, direction, allow_unused=True)
    finally:
        model.requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_()
        for handle in handles:
            handle.remove()
    used = {p for p, grad in zip(parameters, grads[1:], strict=True) if grad is not None}

    def strip(module: nn.Module, inner: bool = True) -> nn.Module:
        """Return a copy in which layers that were not used are `nn.Identity`."""
        children = {n: strip(child, module is not model) for n, child in module.named_children()}
        tensors = {n: p if p in used else None for n, p in module.named_parameters(recurse=False)}
        is_used = module in called or any(p in used for p in module.parameters())
        is_constant = inner and not any(True for _ in module.parameters())  # such as rotations
        if module is not model and not is_used and not is_constant:
            return nn.Identity()
        stripped = copy.copy(module)
        vars(stripped)["_modules"] = module._modules | children
        vars(stripped)["_parameters"] = module._parameters | tensors
        if module is model:
            vars(stripped)["_buffers"] = dict.fromkeys(module._buffers)
        return stripped

    return copy.deepcopy(strip(model)).requires_grad_(), grads[0]
