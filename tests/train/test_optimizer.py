"""LARS without weight decay against its equation."""

import pytest
import torch
from torch import nn

from cenote.train.config import OptimizationConfig
from cenote.train.optimizer import create_optimizer


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_lars_adapts_matrices_and_no_biases(momentum: float) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(5, 3)
    expected = [p.detach().clone() for p in layer.parameters()]
    velocity = [torch.zeros_like(p) for p in expected]
    settings = OptimizationConfig(optimizer="lars", lr=1.6, momentum=momentum, weight_decay=0.0)
    optimizer = create_optimizer(layer, settings)
    for _ in range(3):
        for p in layer.parameters():
            p.grad = torch.randn_like(p)
        for i, p in enumerate(layer.parameters()):
            assert p.grad is not None
            step = p.grad.clone()
            if p.ndim > 1:
                step *= 0.001 * expected[i].norm() / step.norm()
            velocity[i] = momentum * velocity[i] + step
            expected[i] -= 1.6 * velocity[i]
        optimizer.step()
    for p, value in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach(), value)
