"""Binary cross-entropy against the definition."""

import math

import pytest
import torch

from cenote.losses import binary_cross_entropy


@pytest.mark.parametrize("scale", [1e-2, 1, 1e2])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_definition(scale: float, smoothing: float) -> None:
    torch.manual_seed(0)
    logits = scale * torch.randn(4, 3, dtype=torch.float64)
    targets = torch.rand(4, 3) < 0.5
    total = 0.0
    for x, y in zip(logits.flatten().tolist(), targets.flatten().tolist(), strict=True):
        y = y * (1 - smoothing) + smoothing / 2
        log_yes, log_no = -math.log1p(math.exp(-x)), -math.log1p(math.exp(x))
        total -= y * log_yes + (1 - y) * log_no
    loss = binary_cross_entropy(logits, targets, smoothing)
    assert float(loss) == pytest.approx(total / 4)


def test_gradient() -> None:
    logits = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.rand(3, 5) < 0.5
    assert torch.autograd.gradcheck(lambda x: binary_cross_entropy(x, targets, 0.2), logits)
