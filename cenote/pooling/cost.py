"""What a pool adds to a network: parameters and multiply-adds [SimPool Table 8]."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from .base import Grid, Pool
from .registry import create_pool


@dataclass(frozen=True)
class PoolCost:
    """`flops` are multiply-adds for one image [SimPool Table 8]: no elementwise work."""

    parameters: int
    flops: int  # of the layer as it runs
    flops_as_published: int  # of its row of Algorithm 1, with the keys and values of the papers


def pool_cost(name: str, dim: int, grid: Grid, **options: Any) -> PoolCost:
    """What `create_pool(name, dim, **options)` costs on a feature map of H x W positions."""
    # Without gradients: the counter trips over views of weights.
    pool = create_pool(name, dim, **options).eval().requires_grad_(False)
    x = torch.randn(1, prod(grid), dim, generator=torch.Generator().manual_seed(0))
    return PoolCost(
        parameters=sum(p.numel() for p in pool.parameters()),
        flops=multiply_adds(pool, x, grid),
        flops_as_published=multiply_adds(pool, x, grid, published=True),
    )


def parse_grid(text: str) -> Grid:
    """'14x14' -> (14, 14)."""
    height, _, width = text.lower().partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise ValueError(f"a grid is height x width, for example 14x14; got '{text}'")
    return int(height), int(width)


def multiply_adds(pool: Pool, x: Tensor, grid: Grid | None, published: bool = False) -> int:
    """Return those of a pool without gradients for tokens x, or of its row of Algorithm 1."""
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and no layer needs it

    # The counter of torch knows products of matrices; a matrix times a vector it passes over.
    aten = torch.ops.aten
    vectors = {
        aten.mv: lambda matrix, *_, **__: 2 * prod(matrix),
        aten.addmv: lambda bias, matrix, *_, **__: 2 * prod(matrix),
        aten.dot: lambda x, *_, **__: 2 * prod(x),
    }
    with FlopCounterMode(display=False, custom_mapping=vectors) as counter:
        _ = pool.algorithm().run(pool.local(x), grid) if published else pool(x, grid)
    return int(counter.get_total_flops()) // 2
