"""The zero-shot loss equals a slow float64 reading of (P3) and [GSP Sec. 4.4], with its gradients;
nothing makes it fail.
"""

import copy
import re

import pytest
import torch
from torch import Tensor

from cenote.losses.zero_shot import ZeroShot, ridge_map

CLASSES, M, DIM = 7, 6, 5


def histograms(n: int, m: int = M, seed: int = 0) -> Tensor:
    return torch.randn(
        n, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).softmax(1)


def slow(
    z: Tensor, labels: list[int], v: Tensor, first: set[int], ridge: float, scale: float = 1.0
) -> Tensor:
    """Image by image; A from the normal equations by an explicit inverse."""
    halves = [[i for i, y in enumerate(labels) if (y in first) is side] for side in (True, False)]
    total = z.new_zeros(())
    for fitted, asked in (halves, halves[::-1]):
        gram, right = (
            ridge * torch.eye(z.shape[1], dtype=z.dtype),
            z.new_zeros(v.shape[1], z.shape[1]),
        )
        for i in fitted:
            gram = gram + torch.outer(z[i], z[i])
            right = right + torch.outer(v[labels[i]], z[i])
        a = right @ gram.inverse()  # (d, m)
        for i in asked:
            others = [
                torch.exp(scale * (v[j] - v[labels[i]]) @ a @ z[i])
                for j in range(len(v))
                if j != labels[i]
            ]
            total = total + torch.log(1 + sum(others, z.new_zeros(()))) / len(asked)
    return total


def first_of(labels: list[int], seed: int) -> set[int]:
    """The classes of the first half: those that the permutation puts below the middle."""
    present = sorted(set(labels))
    places = torch.randperm(len(present), generator=torch.Generator().manual_seed(seed)).tolist()
    return {
        label for label, place in zip(present, places, strict=True) if place < len(present) // 2
    }


@pytest.mark.parametrize(
    "labels", [[0, 1], [3, 3, 5, 5, 1, 1, 0, 0, 2], [6, 0, 6, 0], list(range(7)) * 4]
)
@pytest.mark.parametrize(("ridge", "scale"), [(0.05, 1.0), (1.0, 9.5)])
def test_value_and_gradients_are_those_of_the_equations(
    labels: list[int], ridge: float, scale: float
) -> None:
    torch.manual_seed(0)
    loss = ZeroShot(CLASSES, M, ridge=ridge, dim=DIM, scale=scale).double()
    z = histograms(len(labels)).requires_grad_()
    v, same = loss.v.detach().clone().requires_grad_(), z.detach().clone().requires_grad_()
    for seed in range(3):
        found = loss(z, torch.tensor(labels), torch.Generator().manual_seed(seed))
        expected = slow(same, labels, v, first_of(labels, seed), ridge, scale)
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)
        got = torch.autograd.grad(found, (z, loss.v))
        wanted = torch.autograd.grad(expected, (same, v))
        for g, w in zip(got, wanted, strict=True):
            torch.testing.assert_close(g, w, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("b", [1, 3, 6, 20])
def test_both_systems_give_the_ridge_regression(b: int) -> None:
    z, v = histograms(b), torch.randn(b, DIM, dtype=torch.float64)
    a = ridge_map(z, v, 0.05)
    # At the minimum of (P3) its gradient vanishes.
    torch.testing.assert_close(
        z.T @ (z @ a - v) + 0.05 * a, torch.zeros(M, DIM, dtype=torch.float64)
    )


def test_gradcheck() -> None:
    torch.manual_seed(0)
    loss = ZeroShot(4, 3, dim=2).double()
    labels = torch.tensor([0, 1, 2, 3, 0])
    generator = torch.Generator()
    assert torch.autograd.gradcheck(
        lambda z: loss(z, labels, generator.manual_seed(1)), histograms(5, 3).requires_grad_()
    )


def test_halves_share_no_class_and_change() -> None:
    """The loss takes one of three values, those of the three ways to halve four classes."""
    loss, labels = ZeroShot(CLASSES, M, dim=DIM).double(), [0, 1, 2, 3, 0, 1, 2, 3]
    z = histograms(8)
    ways = torch.stack(
        [slow(z, labels, loss.v.detach(), {0, other}, loss.ridge) for other in (1, 2, 3)]
    )
    drawn = set()
    for seed in range(40):
        value = loss(z, torch.tensor(labels), torch.Generator().manual_seed(seed)).detach()
        way = int((ways - value).abs().argmin())
        torch.testing.assert_close(value, ways[way], atol=1e-12, rtol=1e-10)
        drawn.add(way)
    assert drawn == {0, 1, 2} and ways.sort().values.diff().min() > 1e-6


def test_a_batch_of_one_class_has_no_loss_and_is_reported() -> None:
    loss = ZeroShot(CLASSES, M)
    z = histograms(4).float().requires_grad_()
    value = loss(z, torch.tensor([2, 2, 2, 2]))
    value.backward()
    assert value.item() == 0 and z.grad is not None and not z.grad.any()
    assert loss.v.grad is not None and not loss.v.grad.any()
    assert isinstance(loss.silent(torch.tensor([2, 2])), str)
    assert loss.silent(torch.tensor([2, 1])) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_floats_are_solved_as_floats(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    loss, labels = ZeroShot(CLASSES, M), torch.arange(7).repeat(3)
    z = histograms(21).to(dtype)
    exact = copy.deepcopy(loss).double()(z.double(), labels, torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(z, labels, torch.Generator().manual_seed(0))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=1e-5)


def test_it_is_learned() -> None:
    """Classes that differ in the same attribute: label embeddings and histograms come to foretell
    each other.
    """
    torch.manual_seed(0)
    loss = ZeroShot(4, 4, dim=8, scale=9.5)
    scores, labels = torch.randn(8, 4, requires_grad=True), torch.arange(4).repeat(2)
    optimizer = torch.optim.Adam([scores, *loss.parameters()], 0.05)
    values = []
    for _ in range(150):
        optimizer.zero_grad()
        value = loss(scores.softmax(1), labels)
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.7 * values[0]


def test_bad_input_is_refused() -> None:
    loss = ZeroShot(3, M)
    z = histograms(2).float()
    for labels in ([1, 3], [-1, 1]):
        with pytest.raises(IndexError, match="out of"):
            loss(z, torch.tensor(labels))
    with pytest.raises(ValueError, match=r"\(B, 6\).*\(2, 5\)"):
        loss(histograms(2, 5).float(), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"ridge\b.*\b0\b"):
        ZeroShot(3, M, ridge=0)
    for name, wrong in (
        ("weight", 2),
        ("weight", "abc"),
        ("ridge", "abc"),
        ("scale", float("nan")),
        ("dim", 2.5),
    ):
        with pytest.raises(ValueError, match=rf"{name}\b.*{re.escape(repr(wrong))}"):
            ZeroShot(3, M, **{name: wrong})  # type: ignore[arg-type]
