"""The contract of a pool: tokens `(B, N, D)` in, vector(s) out, and the map on request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..options import check_choice, check_number
from .framework import Algorithm

Grid = tuple[int, int]


class NoAttention(TypeError):
    """Raised by `attend` of a pool that has no attention of its own."""


class Pool(nn.Module):
    """Base class of all pools: feature map -> vector(s).

    A method overrides `algorithm` (its row of Table 1) and, where a faster form exists, `pool` (the
    layer users get); the tests prove the two equal.
    """

    name: ClassVar[str] = ""  # set by the registry
    no_attention: str = ""  # the reason why the pool has no map
    sums_to_one: bool = False  # each map is a distribution over positions
    permutation_invariant: bool = True  # the order of the tokens does not matter
    needs_grid: bool = False  # the layer uses neighbouring positions
    published: ClassVar[Mapping[str, Any]] = {}  # the paper's options that are not the defaults
    checkpoint_names: ClassVar[dict[str, str]] = {}  # prefix in published checkpoints -> here
    optional_parameters: ClassVar[tuple[str, ...]] = ()  # created when a checkpoint has them

    def __init__(self, dim: int, k: int = 1, out_dim: int | None = None) -> None:
        super().__init__()
        if out_dim is None:
            out_dim = dim
        self.check_whole(dim=dim, k=k, out_dim=out_dim)
        self.dim, self.k, self.out_dim = dim, k, out_dim
        self.in_dim = dim
        self.local: nn.Module = nn.Identity()  # see `embed_positions`
        self.min_tokens = 1
        self.check_finite = False
        self.options: dict[str, Any] = {}  # of `create_pool`, to create the pool again

    def embed_positions(self, in_dim: int) -> None:
        """Map features of `in_dim` channels to `dim`, position by position, before pooling.

        The networks of [GSP Sec. 4.4] do so with every pool; `create_pool(..., local=128)` calls it.
        """
        self.in_dim, self.local = in_dim, nn.Linear(in_dim, self.dim)

    @property
    def label(self) -> str:
        """The name for tables and pictures, with the options that make it another method."""
        return self.name

    def algorithm(self) -> Algorithm:
        """Return this method as an instance of Algorithm 1, with this pool's parameters."""
        raise NotImplementedError

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor | None]:
        """(B, N, D) -> vectors (B, k, D'), maps (B, queries, N) or None."""
        return self.algorithm().run(x, grid)

    def forward(self, x: Tensor, grid: Grid | None = None) -> Tensor:
        """Tokens (B, N, D) -> (B, D'), or (B, k, D') for a pool of k > 1 vectors."""
        return self.vectors_and_maps(x, grid)[0]

    def attend(self, x: Tensor, grid: Grid | None = None) -> tuple[Tensor, Tensor]:
        """Return the vectors and the attention: (B, queries, H, W), or (B, queries, N) without a
        grid.

        There is one map per query: k vectors, or the m heads of one vector [SimPool Eq. B49].
        """
        if self.no_attention:
            raise NoAttention(f"'{self.name}' has no attention map of its own: {self.no_attention}")
        u, a = self.vectors_and_maps(x, grid)
        assert a is not None
        if grid is not None:
            a = a.unflatten(-1, grid)
        return u, a

    def on_map(self, x: Tensor) -> Tensor:
        """`forward` for a feature map (B, C, H, W)."""
        return self(*as_tokens(x))

    def attend_on_map(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`attend` for a feature map (B, C, H, W)."""
        return self.attend(*as_tokens(x))

    def vectors_and_maps(self, x: Tensor, grid: Grid | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the vectors, and the maps (B, queries, N) if this pool has any."""
        if not torch.compiler.is_compiling():
            self.check_input(x, grid)
        # Powers, exponentials and variances overflow in half precision: a pool computes in float32
        # unless its own weights are in half precision as well.
        input_dtype, weight = x.dtype, next(self.parameters(), None)
        x = x.to(torch.promote_types(x.dtype, torch.float32 if weight is None else weight.dtype))
        if torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, enabled=False):
                u, a = self.pool(self.local(x), grid)
        else:
            u, a = self.pool(self.local(x), grid)
            if weight is None:  # a network in half precision continues in half precision
                u = u.to(input_dtype)
        if self.no_attention:  # weights that are not a map: uniform or negative
            a = None
        if self.k == 1:
            u = u.squeeze(1)
        return u, a

    def check_positive(self, **options: object) -> None:
        """Raise ValueError unless every option is a number above zero."""
        for option, value in options.items():
            if not (isinstance(value, Real) and float(value) > 0):
                raise ValueError(f"'{self.name}': {option} must be a number above 0, got {value!r}")

    def check_whole(self, **options: object) -> None:
        """Raise ValueError unless every option is an integer above zero."""
        for option, value in options.items():
            check_number(f"'{self.name}': {option}", value, whole=True, least=1)

    def check_choice(self, option: str, value: str, choices: Collection[str]) -> None:
        """Raise ValueError unless the option is one of the choices."""
        check_choice(f"'{self.name}': {option}", value, choices)

    def check_grid(self, option: str, grid: object) -> None:
        """Raise ValueError unless it is a height and a width."""
        if not is_grid(grid):
            raise ValueError(f"'{self.name}': {option} is (height, width), got {grid!r}")

    def check_input(self, x: Tensor, grid: Grid | None) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"'{self.name}' takes tokens (B, N, D), got a {type(x).__name__}")
        if problem := self._input_problem(x, grid):
            raise ValueError(f"'{self.name}' {problem}")

    def _input_problem(self, x: Tensor, grid: Grid | None) -> str:
        if x.ndim == 4:
            return f"takes tokens (B, N, D); for a map {tuple(x.shape)} call pool.on_map(x)"
        if x.ndim != 3:
            return f"takes tokens (B, N, D), got shape {tuple(x.shape)}"
        n = x.shape[1]
        if x.shape[2] != self.in_dim:
            hint = " (channels first? call pool.on_map on the map)" if n == self.in_dim else ""
            return f"was created with dim={self.in_dim}, the tokens have {x.shape[2]}{hint}"
        if not x.is_floating_point():
            return f"takes floating point features, got {x.dtype}"
        weight = next((p for p in self.parameters() if p.ndim), None)  # a scalar suits any dtype
        if weight is not None and torch.promote_types(x.dtype, weight.dtype) != weight.dtype:
            remedy = f"call pool.to({x.dtype}) or x.to({weight.dtype})"
            return f"has weights of {weight.dtype}, the tokens are {x.dtype}: {remedy}"
        if grid is None and self.needs_grid:
            return "uses neighbouring positions: pass the grid, pool(x, grid=(H, W))"
        if grid is not None and not is_grid(grid):
            return f"takes a grid (height, width) of integers above 0, got {grid!r}"
        if grid is not None and grid[0] * grid[1] != n:
            return f"got {n} tokens, but grid {grid[0]}x{grid[1]} has {grid[0] * grid[1]} positions"
        if n < self.min_tokens:
            return f"needs at least {self.min_tokens} tokens, got {n}"
        if self.check_finite and not (finite := x.isfinite().flatten(1).all(1)).all():
            images = (~finite).nonzero().flatten().tolist()
            return f"got NaN or infinite features in image(s) {images} of the batch"
        return ""

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        for published, ours in self.checkpoint_names.items():
            for name in [n for n in state_dict if n.startswith(prefix + published)]:
                renamed = prefix + ours + name.removeprefix(prefix + published)
                state_dict[renamed] = state_dict.pop(name)
        for name in self.optional_parameters:
            if prefix + name in state_dict and getattr(self, name) is None:
                value = state_dict[prefix + name].to(next(self.parameters()))
                setattr(self, name, nn.Parameter(value))
        super()._load_from_state_dict(state_dict, prefix, *args)


class MixablePool(Pool):
    """A pool whose vectors of mixed maps can be computed without building the maps, for Metrix."""

    def pool_mixed(self, x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        """Compute what `mixed` returns, for x in float32 or wider."""
        raise NotImplementedError

    def mixed(self, x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        """Return `forward` of the maps lam x_b + (1 - lam) x_c, which are never built.

        b and c (M,) are rows of x (B, N, D); lam is (M,).
        """
        self.check_input(x, None)
        if not b.shape == c.shape == lam.shape == (len(b),):
            shapes = [tuple(t.shape) for t in (b, c, lam)]
            raise ValueError(f"'{self.name}' mixes pairs: b, c and lam must be (M,), got {shapes}")
        embedded = self.local(x.to(torch.promote_types(x.dtype, torch.float32)))
        u = self.pool_mixed(embedded, b, c, lam)
        return u if torch.is_autocast_enabled(x.device.type) else u.to(x.dtype)  # like `forward`


class OnMap(nn.Module):
    """A pool as a layer over feature maps, for networks that end in (B, C, H, W)."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        return self.pool.on_map(x)


def is_grid(grid: object) -> bool:
    """Return whether it is a height and a width. (Sizes are tensors while torch.jit traces.)"""
    if not isinstance(grid, tuple | list) or len(grid) != 2:
        return False
    return all(isinstance(size, Integral | Tensor) and int(size) > 0 for size in grid)


def as_tokens(x: Tensor) -> tuple[Tensor, Grid]:
    """(B, C, H, W) -> tokens (B, H*W, C), a view, and their grid."""
    if not isinstance(x, Tensor) or x.ndim != 4:
        shape = getattr(x, "shape", type(x).__name__)
        raise ValueError(f"a feature map is a tensor (B, C, H, W), got {shape}")
    return x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3])
