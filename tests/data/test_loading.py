"""Batches depend on seed, epoch and image alone; a bad image is named and left out; shards count everything once."""

import random
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.data import Box, Dataset, Record, pack
from cenote.data.loading import Batch, ImageLoader, TransformedImages, load
from cenote.data.samplers import FixedLengthEpochs, SeededBatchSampler
from cenote.data.transforms import MultiCrop, train_transform, wsol_eval_transform

N, BAD = 23, (4, 17)
SIZE = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for i in range(N):
        pixels = rng.integers(0, 255, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / f"{i}.png")
        Image.fromarray(np.full((30, 40), 255, np.uint8)).save(root / f"{i}.mask.png")
    return root


@pytest.fixture(scope="module")
def good(folder: Path) -> Dataset:
    box = (Box(4, 3, 20, 15),)
    records = [
        Record(f"{i}.png", "ab"[i % 2], boxes=box, masks=(f"{i}.mask.png",)) for i in range(N)
    ]
    return pack(records, folder, "good")


@pytest.fixture(scope="module")
def damaged(folder: Path) -> Dataset:
    (folder / "broken.jpg").write_bytes(b"not an image")
    return pack(
        [Record("broken.jpg" if i in BAD else f"{i}.png", "a") for i in range(N)], folder, "damaged"
    )


class Dice:
    """An augmentation that draws from all three generators, as strangers' transforms do."""

    def __call__(self, image: Image.Image) -> torch.Tensor:
        return torch.tensor([float(torch.rand(())), np.random.rand(), random.random()])


def epoch(loader: ImageLoader, number: int = 0, start: int = 0) -> list[Batch]:
    loader.seek(number, start)
    return list(loader)


def same(a: list[Batch], b: list[Batch]) -> bool:
    pairs = list(zip(a, b, strict=True))
    return all(
        torch.equal(x.images, y.images) and torch.equal(x.indices, y.indices) for x, y in pairs
    )


@pytest.mark.parametrize(
    ("workers", "method"),
    [
        (2, "fork"),
        (1, "spawn"),
        *(pytest.param(2, method, marks=pytest.mark.slow) for method in ("spawn", "forkserver")),
    ],
)
def test_workers_change_nothing(good: Dataset, workers: int, method: str) -> None:
    """The loader without workers is the oracle, in two epochs of the same persistent workers."""
    alone = load(good, train_transform(SIZE, cutout=0.5), 5, shuffle=True, seed=7)
    many = load(
        good,
        train_transform(SIZE, cutout=0.5),
        5,
        workers,
        shuffle=True,
        seed=7,
    )
    many.multiprocessing_context = method
    for number in (0, 3):
        assert same(epoch(alone, number), epoch(many, number))


def test_every_generator_is_seeded_for_every_image(good: Dataset) -> None:
    runs = [epoch(load(good, Dice(), 4, workers, seed=1)) for workers in (0, 2)]
    assert same(*runs)
    drawn = torch.cat([batch.images for batch in runs[0]])
    assert (
        len(drawn.unique(dim=0)) == N and (drawn.std(0) > 0.15).all()
    )  # nobody draws what a neighbour drew


@pytest.mark.parametrize("change", [{"seed": 1}, {"epoch": 1}])
def test_seed_and_epoch_change_order_and_augmentation(
    good: Dataset, change: dict[str, int]
) -> None:
    number = change.pop("epoch", 0)
    first = epoch(load(good, Dice(), N, shuffle=True, seed=0))[0]
    other = epoch(load(good, Dice(), N, shuffle=True, **{"seed": 0, **change}), number)[0]
    assert not torch.equal(first.indices, other.indices)
    a, b = first.images[first.indices.argsort()], other.images[other.indices.argsort()]
    assert (a != b).all()
    assert sorted(first.indices.tolist()) == sorted(other.indices.tolist()) == list(range(N))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_resumes_at_any_batch_to_the_same_bits(good: Dataset, workers: int) -> None:
    loader = load(good, train_transform(SIZE), 5, workers, shuffle=True, seed=2)
    whole = epoch(loader, 1)
    for start in (0, 2, len(loader)):
        assert same(epoch(loader, 1, start), whole[start:])
        assert same(list(loader), whole)  # the pass after it is whole again
    with pytest.raises(ValueError, match=r"\b5\b.*\b6\b"):
        loader.seek(0, 6)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_that_was_broken_off_leaves_no_trace(good: Dataset, workers: int) -> None:
    loader = load(good, train_transform(SIZE), 5, workers, shuffle=True)
    loader.seek(1)
    next(iter(loader))
    again = load(good, train_transform(SIZE), 5, shuffle=True)
    assert same(epoch(loader, 2), epoch(again, 2))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_generators_of_training_do_not_notice(good: Dataset, workers: int) -> None:
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(5)
    expected = float(torch.rand(())), np.random.rand(), random.random()
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(5)
    list(load(good, Dice(), 4, workers, shuffle=True))
    assert (float(torch.rand(())), np.random.rand(), random.random()) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_image_is_left_out_and_named_once(damaged: Dataset, workers: int) -> None:
    batches = epoch(load(damaged, train_transform(SIZE), 5, workers))
    bad = [bad for batch in batches for bad in batch.bad]
    assert [b.position for b in bad] == list(BAD)
    assert all("broken.jpg" in b.message for b in bad)
    left = [i for batch in batches for i in batch.indices.tolist()]
    assert left == [i for i in range(N) if i not in BAD]
    assert all(len(b.images) == len(b.labels) == len(b.indices) for b in batches)


def test_a_batch_of_bad_images_only_is_empty(damaged: Dataset) -> None:
    (batch,) = load(damaged.select(list(BAD)), train_transform(SIZE), 5)
    assert len(batch.images) == len(batch.indices) == 0 and len(batch.bad) == 2


def test_a_good_image_is_augmented_the_same_beside_a_bad_one(
    good: Dataset, damaged: Dataset
) -> None:
    a = torch.cat([b.images for b in load(good, train_transform(SIZE), 5)])
    b = torch.cat([b.images for b in load(damaged, train_transform(SIZE), 5)])
    assert torch.equal(a[[i for i in range(N) if i not in BAD]], b)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 5, 30])
@pytest.mark.parametrize("batch", [1, 4, 7])
def test_shards_count_every_image_exactly_once(shuffle: bool, world: int, batch: int) -> None:
    counts: Counter[int] = Counter()
    lengths = []
    for rank in range(world):
        order = SeededBatchSampler(N, batch, shuffle, 0, False, rank, world)
        batches = list(order)
        lengths.append(len(batches))
        assert len(batches) == len(order) and all(0 < len(b) <= batch for b in batches)
        counts.update(index for b in batches for _, index in b)
    assert counts == Counter(range(N)) and max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("world", [1, 2, 3])
def test_training_shards_have_equally_many_full_batches(world: int) -> None:
    orders = [SeededBatchSampler(N, 4, True, 0, True, rank, world) for rank in range(world)]
    assert {len(list(order)) for order in orders} == {N // (4 * world)}
    assert all(len(batch) == 4 for order in orders for batch in order)


def test_a_step_holds_the_same_images_on_one_process_and_on_four() -> None:
    one = [sorted(batch) for batch in SeededBatchSampler(N, 8, True, 3, True)]
    ranks = [SeededBatchSampler(N, 2, True, 3, True, rank, 4) for rank in range(4)]
    assert one == [sorted(chain(*step)) for step in zip(*ranks, strict=True)]


@pytest.mark.parametrize("steps", [1, 3, 4, 11])  # an epoch has 4
def test_stretches_go_on_where_the_last_one_ended(steps: int) -> None:
    whole = SeededBatchSampler(19, 2, True, 5, True, rank=1, world=2)
    every = []
    for whole.epoch in range(12):
        every += list(whole)
    order = FixedLengthEpochs(whole, steps)
    assert len(order) == steps
    for turn, start in [(0, 0), (1, 0), (3, 0), (2, steps - 1), (1, steps)]:
        order.epoch, order.start = turn, start
        assert list(order) == every[turn * steps + start : (turn + 1) * steps]


def test_a_stretch_needs_a_batch() -> None:
    with pytest.raises(ValueError, match=r"\b1\b.*\b2\b"):
        FixedLengthEpochs(SeededBatchSampler(1, 2, True, 5, True), 3)


def test_truth_comes_along_where_it_is_asked_for(good: Dataset) -> None:
    (batch,) = load(good.select([3, 1]), wsol_eval_transform(60), 8, targets=True)
    assert (
        len(batch.targets) == 2
        and batch.targets[0]["mask"].shape == (60, 60)
        and bool((batch.targets[0]["mask"]).all())
    )
    torch.testing.assert_close(batch.targets[0]["boxes"], torch.tensor([[6.0, 6, 30, 30]]))
    assert load(good, wsol_eval_transform(60), 8).dataset[0].targets is None


def test_a_mask_of_another_size_is_a_bad_image(folder: Path) -> None:
    Image.new("L", (9, 9)).save(folder / "small.png")
    dataset = pack(
        [Record("0.png", masks=("small.png",)), Record("1.png", masks=("1.mask.png",))], folder, "d"
    )
    (batch,) = load(dataset, wsol_eval_transform(60), 8, targets=True)
    assert batch.indices.tolist() == [1]
    assert all(value in batch.bad[0].message for value in ("0.png", "9 x 9", "40 x 30"))


def test_labels_are_positions_in_classes_and_crops_are_a_list(good: Dataset) -> None:
    (batch,) = load(good, MultiCrop(24, 12, local=2), 64)
    assert [tuple(x.shape) for x in batch.images] == [(N, 3, 24, 24)] * 2 + [(N, 3, 12, 12)] * 2
    assert batch.labels.tolist() == [i % 2 for i in range(N)] and batch.labels.dtype == torch.int64
    (batch,) = load(pack([Record("0.png")], good.root, "d"), train_transform(SIZE))
    assert batch.labels.tolist() == [-1]


def test_images_serve_any_data_loader(good: Dataset) -> None:
    images = TransformedImages(good, train_transform(SIZE))
    assert len(images) == N and torch.equal(images[2].image, images[0, 2].image)
    assert not torch.equal(images[2].image, images[1, 2].image)
