"""The spatial entropy loss equals a slow reading of [SAR Eqs. 4-9], map by map, with its gradient;
nothing makes it fail.
"""

import math

import pytest
import torch
from scipy import ndimage
from torch import Tensor

from cenote.losses import spatial_entropy, total_variation


def slow(maps: Tensor) -> Tensor:
    values = []
    for s in maps.flatten(0, 1):
        b = torch.relu(s - s.mean())
        numbers, count = ndimage.label((b > 0).detach().numpy(), [[1, 1, 1]] * 3)
        h = s.sum() * 0
        for j in range(1, count + 1):
            p = b[torch.from_numpy(numbers == j)].sum() / b.sum()
            h = h - p * torch.log(p)
        values.append(h)
    return torch.stack(values).mean()


@pytest.mark.parametrize(
    "shape", [(2, 3, 14, 14), (3, 2, 7, 7), (1, 1, 5, 9), (2, 1, 1, 8), (4, 6, 1, 1)]
)
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2])
def test_value_and_gradient_are_those_of_the_equation(shape: tuple[int, ...], scale: float) -> None:
    torch.manual_seed(0)
    maps = (scale * torch.randn(shape)).double().requires_grad_()
    single = maps.detach().float().requires_grad_()
    expected, found = slow(maps), spatial_entropy(single)
    torch.testing.assert_close(
        found.double(), expected, atol=1e-5, rtol=0
    )  # sums of up to 196 float32
    expected.backward()
    found.backward()
    assert maps.grad is not None and single.grad is not None
    torch.testing.assert_close(single.grad.double() * scale, maps.grad * scale, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        single.grad.sum((-2, -1)) * scale, torch.zeros(shape[:2]), atol=1e-5, rtol=0
    )


def test_equal_blobs_have_the_logarithm_of_their_number() -> None:
    maps = torch.zeros(1, 1, 9, 9)
    maps[0, 0, ::4, ::4] = 1.0  # nine pixels, none beside another
    assert spatial_entropy(maps).item() == pytest.approx(math.log(9), abs=1e-6)
    maps[0, 0] = torch.eye(9)  # a diagonal is one component of eight neighbours
    assert spatial_entropy(maps).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.7, 1e4])
def test_a_constant_map_has_neither_entropy_nor_gradient(value: float) -> None:
    maps = torch.full((2, 3, 14, 14), value, requires_grad=True)
    loss = spatial_entropy(maps)
    loss.backward()
    assert loss.item() == 0 and maps.grad is not None and not maps.grad.any()
    mixed = torch.cat(
        [torch.full((1, 1, 14, 14), value), torch.randn(1, 1, 14, 14)], 1
    ).requires_grad_()
    spatial_entropy(mixed).backward()
    assert mixed.grad is not None and mixed.grad.isfinite().all() and not mixed.grad[:, 0].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_floats_are_summed_as_floats(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    maps = (30 * torch.randn(4, 6, 14, 14)).to(dtype).requires_grad_()
    loss = spatial_entropy(maps)
    loss.backward()
    assert maps.grad is not None and maps.grad.isfinite().all()
    torch.testing.assert_close(loss.double(), slow(maps.detach().double()), atol=1e-5, rtol=0)


def test_one_value_for_each_head() -> None:
    maps = torch.randn(3, 4, 6, 6)
    each = spatial_entropy(maps, "none")
    assert each.shape == (3, 4)
    torch.testing.assert_close(each[1, 2], spatial_entropy(maps[1:2, 2:3]))


def test_total_variation_by_hand() -> None:
    maps = torch.tensor([[[[0.0, 1.0], [3.0, 1.0]], [[2.0, 2.0], [2.0, 2.0]]]])
    assert total_variation(maps).item() == pytest.approx(
        (1 + 2 + 3 + 0 + 0) / 2
    )  # [SAR Eq. 14], the mean over two heads
