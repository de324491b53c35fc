"""DRLoc against its equation, and that it can be learned from tokens that know their place, and from no others."""

import torch
from torch import Tensor

from cenote.losses import DRLoc


def test_the_equation() -> None:
    torch.manual_seed(0)
    loss, tokens, (height, width) = DRLoc(5, weight=0.3, pairs=7), torch.randn(2, 12, 5), (3, 4)
    places = torch.randint(12, (2, 14), generator=torch.Generator().manual_seed(3)).tolist()
    total = torch.zeros(())
    for image in range(2):
        for k in range(7):
            first, second = places[image][2 * k : 2 * k + 2]
            (i, j), (p, h) = divmod(first, width), divmod(second, width)
            pair = torch.cat([tokens[image, first], tokens[image, second]])
            target = torch.tensor([abs(i - p) / height, abs(j - h) / width])
            total = total + (loss.mlp(pair) - target).abs().mean()
    value = loss(tokens, (height, width), torch.Generator().manual_seed(3))
    torch.testing.assert_close(value, 0.3 * total / 14)


def learned(tokens: Tensor) -> float:
    torch.manual_seed(0)
    loss, rng = DRLoc(tokens.shape[2], weight=1.0, hidden=32), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-2)
    for _ in range(200):
        value = loss(tokens, (6, 6), rng)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return float(value)


def test_tokens_that_know_their_place() -> None:
    rows, columns = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
    placed = torch.stack([rows.flatten(), columns.flatten()], 1).expand(8, -1, -1) / 6
    assert learned(placed) < 0.075 and learned(torch.zeros(8, 36, 2)) > 0.15
