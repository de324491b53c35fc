"""Masks and boxes against slow and obvious references."""

import itertools

import numpy as np
import pytest
import torch

from cenote.metrics import largest_box, mass_mask


def fewest(a: np.ndarray, share: float) -> int:
    """The smallest number of positions that reach the share, by trying every subset."""
    values = a.ravel().tolist()
    for n in range(len(values) + 1):
        if any(
            sum(chosen) >= share * sum(values) - 1e-9
            for chosen in itertools.combinations(values, n)
        ):
            return n
    raise AssertionError


@pytest.mark.parametrize("share", [0.1, 0.5, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_no_smaller_mask_reaches_the_share(share: float, seed: int) -> None:
    a = np.random.default_rng(seed).random((3, 4)) ** 3
    mask = mass_mask(a, share).numpy()
    assert a[mask].sum() >= share * a.sum() - 1e-9
    assert mask.sum() == fewest(a, share)
    assert mask.all() or a[mask].min() >= a[~mask].max()


def test_leading_dimensions_are_a_batch() -> None:
    a = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(0))
    masks = mass_mask(a)
    assert masks.shape == a.shape and masks.dtype == torch.bool
    for i, j in itertools.product(range(2), range(3)):
        assert torch.equal(masks[i, j], mass_mask(a[i, j]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_six_tenths_of_ten_equal_positions_are_the_first_six(dtype: torch.dtype) -> None:
    mask = mass_mask(torch.full((2, 5), 0.1, dtype=dtype), 0.6)
    assert mask.flatten().tolist() == [True] * 6 + [False] * 4


def test_positions_without_mass_are_never_in_it() -> None:
    assert not mass_mask(torch.zeros(4, 4)).any()
    assert mass_mask(torch.eye(4), 1.0).equal(torch.eye(4).bool())


def test_scale_does_not_matter() -> None:
    a = torch.rand(6, 6, generator=torch.Generator().manual_seed(1))
    assert mass_mask(a * 1e-30).equal(mass_mask(a)) and mass_mask(a * 1e30).equal(mass_mask(a))


@pytest.mark.parametrize("bad", [torch.tensor([[0.0, -1.0]]), torch.tensor([[float("nan"), 1.0]])])
def test_a_map_that_is_no_mass_is_refused(bad: torch.Tensor) -> None:
    with pytest.raises(ValueError):
        mass_mask(bad)


@pytest.mark.parametrize("share", [0, -1, 1.01, float("nan")])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(ValueError, match=rf"share\b.*{share}"):
        mass_mask(torch.ones(2, 2), share)


def components(mask: np.ndarray) -> list[set[tuple[int, int]]]:
    """Flood fill, in reading order."""
    left, found = {(int(y), int(x)) for y, x in zip(*mask.nonzero(), strict=True)}, []
    while left:
        front, component = [min(left)], set()
        while front:
            y, x = front.pop()
            if (y, x) in left:
                left.remove((y, x))
                component.add((y, x))
                front += [(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)]
        found.append(component)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_box_of_the_largest_component(seed: int) -> None:
    mask = np.random.default_rng(seed).random((9, 13)) < 0.45
    component = max(components(mask), key=len)  # max keeps the first of equals
    rows, columns = [y for y, _ in component], [x for _, x in component]
    assert largest_box(mask) == (min(columns), min(rows), max(columns) + 1, max(rows) + 1)
    assert largest_box(torch.from_numpy(mask)) == largest_box(mask)


def test_a_corner_does_not_connect() -> None:
    assert largest_box(np.eye(3)) == (0, 0, 1, 1)


def test_no_mask_no_box() -> None:
    assert largest_box(np.zeros((3, 3))) is None
