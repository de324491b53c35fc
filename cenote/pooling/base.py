"""The contract of a pool: tokens `(B, N, D)` in, vector(s) out, and the map they came from on request."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .framework import Algorithm

Grid = tuple[int, int]


class NoAttention(TypeError):
    """Raised by `attend` of a pool that has no attention of its own."""


class Pool(nn.Module):
    """Feature map -> vector(s). A method overrides `algorithm` (its row of Table 1) and, where a
    faster form exists, `pool` (the layer users get); the tests prove the two equal."""

    name: ClassVar[str] = ""  # set by the registry
    no_attention: str = ""  # why there is no map, where there is none
    sums_to_one: bool = False  # each map is a distribution over positions
    permutation_invariant: bool = True  # the order of the tokens does not matter
    needs_grid: bool = False  # the layer looks at neighbours
    mixes: bool = False  # it has `pool_mixed`
    published: ClassVar[dict[str, Any]] = {}  # the paper's settings where they are not the defaults

    def __init__(self, dim: int, k: int = 1, out_dim: int | None = None) -> None:
        super().__init__()
        out_dim = dim if out_dim is None else out_dim
        self.check_whole(dim=dim, k=k, out_dim=out_dim)
        self.dim, self.k, self.out_dim = dim, k, out_dim
        self.min_tokens = 1
        self.check_finite = False
        self.options: dict[str, Any] = {}  # what `create_pool` was given, to make this pool again

    def algorithm(self) -> Algorithm:
        """This method as an instance of Algorithm 1, with this pool's own parameters."""
        raise TypeError(f"{type(self).__name__} declares no row of the framework")

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor | None]:
        """(B, N, D) -> vectors (B, k, D'), maps (B, queries, N) or None."""
        return self.algorithm().run(x, grid)

    def forward(self, x: Tensor, grid: Grid | None = None) -> Tensor:
        """Tokens (B, N, D) -> (B, D'), or (B, k, D') for a pool of k > 1 vectors."""
        return self.vectors_and_maps(x, grid)[0]

    def attend(self, x: Tensor, grid: Grid | None = None) -> tuple[Tensor, Tensor]:
        """As `forward`, and the attention: (B, queries, H, W), or (B, queries, N) without a grid.

        There is one map per query: k vectors, or the m heads of one vector (S B49).
        """
        if self.no_attention:
            raise NoAttention(f"'{self.name}' has no attention map of its own: {self.no_attention}")
        u, a = self.vectors_and_maps(x, grid)
        assert a is not None
        return u, a if grid is None else a.unflatten(-1, grid)

    def pool_mixed(self, x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        """What `mixed` gives, of x in float32 or wider."""
        raise TypeError(f"'{self.name}' has to see mixed maps to pool them")

    def mixed(self, x: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        """`forward` of maps lam x_b + (1 - lam) x_c that are never built: rows b, c (M,) of x (B, N, D), lam (M,)."""
        self._check(x, None)
        if not b.shape == c.shape == lam.shape == (len(b),):
            shapes = [tuple(t.shape) for t in (b, c, lam)]
            raise ValueError(
                f"'{self.name}' mixes pairs of rows with a share each, three times (M,), got {shapes}"
            )
        u = self.pool_mixed(x.to(torch.promote_types(x.dtype, torch.float32)), b, c, lam)
        return u if torch.is_autocast_enabled(x.device.type) else u.to(x.dtype)  # as `forward` does

    def on_map(self, x: Tensor) -> Tensor:
        """`forward` for a feature map (B, C, H, W)."""
        return self(*as_tokens(x))

    def attend_on_map(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`attend` for a feature map (B, C, H, W)."""
        return self.attend(*as_tokens(x))

    def check_positive(self, **options: object) -> None:
        """Refuse options that are no number above zero."""
        for option, value in options.items():
            if not (isinstance(value, Real) and float(value) > 0):
                raise ValueError(f"'{self.name}': {option} must be a number above 0, got {value!r}")

    def check_whole(self, **options: object) -> None:
        """Refuse options that are no whole number above zero."""
        for option, value in options.items():
            if not (isinstance(value, Integral) and int(value) > 0):
                raise ValueError(
                    f"'{self.name}': {option} must be a whole number above 0, got {value!r}"
                )

    def vectors_and_maps(self, x: Tensor, grid: Grid | None = None) -> tuple[Tensor, Tensor | None]:
        """The vectors, and the maps (B, queries, N) if this pool has any: for code that serves every pool."""
        if not torch.compiler.is_compiling():
            self._check(x, grid)
        # Powers, exponentials and variances overflow in half precision: a pool computes in float32
        # unless its own weights are half as well.
        asked, weight = x.dtype, next(self.parameters(), None)
        x = x.to(torch.promote_types(x.dtype, torch.float32 if weight is None else weight.dtype))
        if torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, enabled=False):
                u, a = self.pool(x, grid)
        else:
            u, a = self.pool(x, grid)
            if (
                weight is None
            ):  # nothing else says what a network in half precision, without autocast, goes on with
                u = u.to(asked)
        a = (
            None if self.no_attention else a
        )  # some rows have weights that are no map: uniform, or negative
        return (u.squeeze(1) if self.k == 1 else u), a

    def _check(self, x: Tensor, grid: Grid | None) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(
                f"'{self.name}' takes a tensor of tokens (B, N, D), got a {type(x).__name__}"
            )
        if x.ndim != 3:
            hint = "; for a feature map (B, C, H, W) call pool.on_map(x)" if x.ndim == 4 else ""
            raise ValueError(
                f"'{self.name}' takes tokens (B, N, D), got shape {tuple(x.shape)}{hint}"
            )
        n = x.shape[1]
        if x.shape[2] != self.dim:
            hint = " (channels first? call pool.on_map on the map)" if n == self.dim else ""
            raise ValueError(
                f"'{self.name}' was made for dim={self.dim}, the tokens have {x.shape[2]}{hint}"
            )
        if not x.is_floating_point():
            raise ValueError(f"'{self.name}' takes floating point features, got {x.dtype}")
        weight = next(
            (p for p in self.parameters() if p.ndim), None
        )  # a scalar goes along with any dtype
        if weight is not None and torch.promote_types(x.dtype, weight.dtype) != weight.dtype:
            raise ValueError(
                f"'{self.name}' has weights of {weight.dtype}, the tokens are {x.dtype}: "
                f"call pool.to({x.dtype}) or x.to({weight.dtype})"
            )
        if grid is not None and not is_grid(grid):
            raise ValueError(f"a grid is (height, width), two whole numbers above 0, got {grid!r}")
        if grid is not None and grid[0] * grid[1] != n:
            raise ValueError(
                f"grid {grid[0]}x{grid[1]} has {grid[0] * grid[1]} positions, but there are {n} tokens"
            )
        if grid is None and self.needs_grid:
            raise ValueError(
                f"'{self.name}' looks at neighbours: pass the grid, pool(x, grid=(H, W))"
            )
        if n < self.min_tokens:
            raise ValueError(f"'{self.name}' needs at least {self.min_tokens} tokens, got {n}")
        if self.check_finite and not (finite := x.isfinite().flatten(1).all(1)).all():
            bad = (~finite).nonzero().flatten().tolist()
            raise ValueError(
                f"'{self.name}': features of image(s) {bad} of the batch are NaN or infinite"
            )


def is_grid(grid: object) -> bool:
    """Is it a height and a width? (Sizes are tensors while torch.jit traces.)"""
    if not isinstance(grid, tuple | list) or len(grid) != 2:
        return False
    return all(isinstance(size, Integral | Tensor) and int(size) > 0 for size in grid)


class OnMap(nn.Module):
    """A pool as a layer over feature maps, for networks that end in (B, C, H, W)."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        return self.pool.on_map(x)


def as_tokens(x: Tensor) -> tuple[Tensor, Grid]:
    """(B, C, H, W) -> tokens (B, H*W, C), a view, and their grid."""
    if not isinstance(x, Tensor) or x.ndim != 4:
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise ValueError(f"a feature map is a tensor (B, C, H, W), got {got}")
    return x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3])
