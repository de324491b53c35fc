"""A model that is small on disk, quickly written, and read back."""

from typing import Any

import torch
from torch import Tensor

from cenote.models import PooledModel, create_model

NARROW: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (8, 16, 32, 64)}  # small files, quickly written


def small(pool: Any = "simpool", **options: Any) -> PooledModel:
    torch.manual_seed(0)
    return create_model("resnet18", pool, **{"num_classes": 3, **NARROW, **options}).eval()


def images(size: int = 64) -> Tensor:
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def assert_same(model: PooledModel, other: PooledModel, size: int = 64) -> None:
    assert torch.equal(model.eval()(images(size)), other(images(size)))
    assert other.config == model.config and not other.training
