"""Batches have P classes of K images, every image once per epoch, in an order given by seed and epoch."""

from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.data import Record, pack
from cenote.data.loading import load
from cenote.data.samplers import BalancedBatchSampler, SeededBatchSampler

EVEN = np.repeat(np.arange(10), 12)
RAGGED = np.repeat(np.arange(12), [1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 17, 40])


def steps(order: SeededBatchSampler, epoch: int = 0, start: int = 0) -> list[list[int]]:
    order.epoch, order.start = epoch, start
    batches = list(order)
    assert all(number == epoch for batch in batches for number, _ in batch)
    return [[index for _, index in batch] for batch in batches]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("classes", "images"), [(5, 4), (10, 4), (3, 2), (4, 3), (10, 1)])
def test_every_batch_has_so_many_classes_and_images_of_each(
    seed: int, classes: int, images: int
) -> None:
    labels = np.random.default_rng(seed).permutation(EVEN)
    order = BalancedBatchSampler(labels, classes, images, seed)
    found = steps(order)
    assert len(found) == len(order) == len(labels) // (classes * images)
    for batch in found[: -1 - len(found) // 5]:  # towards the end, only some classes are left
        assert sorted(Counter(labels[batch].tolist()).values()) == [images] * classes
    seen = Counter(index for batch in found for index in batch)
    assert set(seen.values()) == {1} and len(seen) == len(found) * classes * images


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("classes", "images"), [(4, 4), (6, 5), (12, 3), (2, 8)])
def test_classes_of_all_sizes(seed: int, classes: int, images: int) -> None:
    order = BalancedBatchSampler(RAGGED, classes, images, seed)
    found = steps(order, seed)
    assert len(found) == len(RAGGED) // (classes * images)
    assert all(len(batch) == classes * images for batch in found)  # filled from other classes
    seen = Counter(index for batch in found for index in batch)
    assert set(seen.values()) == {1}
    assert len(RAGGED) - len(seen) < classes * images  # what is left would not fill a step


def test_no_image_is_alone() -> None:
    """Classes of K + 1 images: 4 and 2 instead of 5 and 1, and no group is cut where a smaller one fits."""
    labels = np.repeat(np.arange(50), 6)
    counts = [
        count
        for batch in steps(BalancedBatchSampler(labels, 6, 5))
        for count in Counter(labels[batch].tolist()).values()
    ]
    assert counts.count(1) == 0 and {2, 4} <= set(counts)
    labels = np.repeat(
        np.arange(600), np.random.default_rng(0).integers(2, 9, 600)
    )  # as products are
    found = steps(BalancedBatchSampler(labels, 20, 5))
    assert (
        sum(
            count == 1 for batch in found[:-1] for count in Counter(labels[batch].tolist()).values()
        )
        <= 2
    )


def test_a_large_class_is_spread_over_the_epoch() -> None:
    labels = np.repeat(np.arange(21), [80, *[16] * 20])
    first = [
        Counter(labels[batch].tolist())[0] for batch in steps(BalancedBatchSampler(labels, 4, 4, 3))
    ]
    assert (
        max(first[:18]) <= 4 and sum(first[:12]) < 4 * 12
    )  # in many batches, not in all the first ones
    assert sum(first) >= 70


def test_left_out_images_change_with_the_epoch() -> None:
    order, seen = BalancedBatchSampler(RAGGED, 6, 5, 1), set[int]()
    for epoch in range(12):
        seen.update(index for batch in steps(order, epoch) for index in batch)
    assert len(seen) == len(RAGGED)


def test_seed_and_epoch_alone_decide() -> None:
    one, other = BalancedBatchSampler(RAGGED, 4, 4, 7), BalancedBatchSampler(RAGGED, 4, 4, 7)
    assert steps(one, 3) == steps(other, 3)
    assert steps(one, 3, 2) == steps(other, 3)[2:]  # resumed in the middle
    assert steps(one, 3) != steps(one, 4) and steps(one, 3) != steps(
        BalancedBatchSampler(RAGGED, 4, 4, 8), 3
    )


def test_processes_share_a_step_by_classes() -> None:
    whole = steps(BalancedBatchSampler(EVEN, 6, 4, 5), 2)
    for world in (2, 3):
        shares = [
            steps(BalancedBatchSampler(EVEN, 6 // world, 4, 5, rank, world), 2)
            for rank in range(world)
        ]
        assert [list(chain(*parts)) for parts in zip(*shares, strict=True)] == whole
        for batch in shares[1][:3]:
            assert sorted(Counter(EVEN[batch].tolist()).values()) == [4] * (6 // world)


def test_companions_change() -> None:
    """Which classes meet in a batch is drawn anew, also within an epoch: no class always stands beside another."""
    together = Counter[tuple[int, int]]()
    for batch in steps(BalancedBatchSampler(np.repeat(np.arange(10), 400), 2, 4))[:-50]:
        a, b = sorted({index // 400 for index in batch})
        together[a, b] += 1
    assert len(together) == 45


def test_a_loader_takes_it(tmp_path: Path) -> None:
    for i in range(12):
        Image.new("RGB", (4, 4), (i, 0, 0)).save(tmp_path / f"{i}.png")
    dataset = pack([Record(f"{i}.png", "abc"[i % 3]) for i in range(12)], tmp_path, "made")

    def pixel(image: Image.Image) -> torch.Tensor:
        return torch.tensor(float(image.getpixel((0, 0))[0]))  # type: ignore[index]

    loader = load(dataset, pixel, sampler=BalancedBatchSampler(dataset.labels, 2, 2, 1))
    loader.seek(1)
    batches = list(loader)
    assert [batch.indices.tolist() for batch in batches] == steps(
        BalancedBatchSampler(dataset.labels, 2, 2, 1), 1
    )
    assert all(batch.images.tolist() == batch.indices.tolist() for batch in batches)
    loader.seek(1, 2)
    assert torch.equal(next(iter(loader)).indices, batches[2].indices)


@pytest.mark.parametrize(
    ("labels", "options", "values"),
    [
        ([0, 0, -1, 1], (2, 1), r"\b1\b"),
        ([0, 0, 1, 1], (3, 1), r"\b3\b.*\b2\b"),
        ([0, 0, 1, 1], (2, 3), r"\b2 x 3\b.*\b4\b"),
    ],
)
def test_bad_input_is_refused(labels: list[int], options: tuple[int, int], values: str) -> None:
    with pytest.raises(ValueError, match=values):
        BalancedBatchSampler(labels, *options)
