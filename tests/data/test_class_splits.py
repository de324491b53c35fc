"""Parts share no class and lose no image; which class goes where depends on the data set alone."""

from pathlib import Path

import numpy as np
import pytest

from cenote.data import Dataset, Record, pack
from cenote.data.splits import first_half, folds


def made(counts: list[int], unlabelled: int = 0, unused: int = 0) -> Dataset:
    names = [f"c{i:02d}" for i in range(len(counts) + unused)]
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    records = [Record(f"{i}.png", names[unused + label]) for i, label in enumerate(labels)]
    return pack(
        [*records, *(Record(f"x{i}.png") for i in range(unlabelled))], Path("made"), "made", names
    )


def names(dataset: Dataset) -> set[str]:
    return {record.label for record in dataset if record.label}


def images(dataset: Dataset) -> set[str]:
    return {record.image for record in dataset}


@pytest.mark.parametrize(("number", "trains"), [(4, 2), (5, 3), (10, 5), (101, 51)])
def test_the_first_half_of_the_classes_trains(number: int, trains: int) -> None:
    dataset = made([3] * number, unlabelled=2)
    train, test = first_half(dataset)
    assert names(train) == {f"c{i:02d}" for i in range(trains)}
    assert names(test) == {f"c{i:02d}" for i in range(trains, number)}
    assert len(train) + len(test) == 3 * number == len(images(train) | images(test))


def test_classes_without_images_do_not_count() -> None:
    train, test = first_half(made([2] * 6, unused=6))
    assert len(names(train)) == len(names(test)) == 3


@pytest.mark.parametrize("classes", [8, 10, 13, 100])
def test_every_class_is_held_out_once(classes: int) -> None:
    dataset = made([2] * classes, unlabelled=1)
    parts = folds(dataset)
    assert len(parts) == 4
    for train, held in parts:
        assert not names(train) & names(held) and names(train) | names(held) == names(dataset)
        assert len(train) + len(held) == 2 * classes and len(names(held)) >= 2
        assert not images(train) & images(held)
    sizes = [len(names(held)) for _, held in parts]
    assert sum(sizes) == classes and max(sizes) - min(sizes) <= 1
    assert len(set().union(*(names(held) for _, held in parts))) == classes


def test_the_same_whenever_it_is_asked() -> None:
    dataset = made([2, 5, 1, 3, 3, 2, 4, 4])
    for (a, b), (c, d) in zip(folds(dataset), folds(dataset), strict=True):
        assert a.rows.tolist() == c.rows.tolist() and b.rows.tolist() == d.rows.tolist()


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\bmade\b.*\b3\b.*\b4\b"):
        first_half(made([2] * 3))
    with pytest.raises(ValueError, match=r"\bmade\b.*\b7\b.*\b8\b"):
        folds(made([2] * 7))
