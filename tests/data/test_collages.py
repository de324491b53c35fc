"""A collage is one image of its class and three of shared ones; no class, told or shared, stands in two splits."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import BadImage, Dataset, Record, open_dataset, pack
from cenote.data.collages import SPLITS, assign_roles, make_collages
from tests.data.benchmarks.labelled_trees import python2_pickle

EACH, SIDE = 4, 8


class Flat:
    """Image i has colour i everywhere."""

    def __init__(self, bad: tuple[int, ...] = ()) -> None:
        self.bad = bad

    def image(self, row: int) -> Image.Image:
        if row in self.bad:
            raise BadImage(f"{row}.png", "damaged")
        return Image.new("RGB", (20, 10), (row, row // 256, 7))

    def mask(self, row: int) -> None:
        return None


def flat(classes: int = 20, superclass: int = 0, bad: tuple[int, ...] = ()) -> Dataset:
    records = []
    for i in range(classes * EACH):
        number = i % classes
        above = {"superclass": f"s{number // superclass}"} if superclass else {}
        records.append(Record(f"{i}.png", f"c{number:03d}", attributes=above))
    dataset = pack([*records, Record("none.png")], Path("flat"), "flat")
    dataset.pixels = Flat(bad)
    return dataset


def tiles(picture: Image.Image) -> list[int]:
    """The number of the image in each tile."""
    pixels = (
        np.asarray(picture).reshape(2, SIDE, 2, SIDE, 3).transpose(0, 2, 1, 3, 4).reshape(4, -1, 3)
    )
    assert (pixels == pixels[:, :1]).all()
    return [int(r) + 256 * int(g) for r, g, _ in pixels[:, 0]]


@pytest.mark.parametrize(
    ("classes", "superclass"), [(9, 0), (20, 0), (37, 0), (100, 0), (100, 5), (30, 5)]
)
def test_no_class_stands_in_two_roles(classes: int, superclass: int) -> None:
    dataset = flat(classes, superclass)
    found = assign_roles(dataset, seed=3)
    parts = [*found.targets.values(), *found.nuisances.values()]
    assert sorted(chain(*parts)) == sorted(dataset.classes)  # each once
    assert all(len(found.targets[split]) >= 2 and found.nuisances[split] for split in SPLITS)
    assert assign_roles(dataset, seed=3) == found and (
        classes == 9 or assign_roles(dataset, seed=4) != found
    )


def test_superclasses_are_cut_as_the_paper_cuts_them() -> None:
    """CIFAR-100: 20 superclasses of 5, four of them shared; of each, 2 train, 1 chooses, 2 judge."""
    found = assign_roles(flat(100, 5))
    assert [len(found.targets[split]) for split in SPLITS] == [32, 16, 32]
    assert [len(found.nuisances[split]) for split in SPLITS] == [8, 4, 8]
    above = [{int(name[1:]) // 5 for names in part.values() for name in names} for part in found]
    assert len(above[0]) == 16 and len(above[1]) == 4 and not above[0] & above[1]


def test_what_stands_in_a_collage() -> None:
    dataset = flat()
    made, found = make_collages(dataset, SIDE, seed=1), assign_roles(dataset, seed=1)
    assert len(made) == EACH * sum(map(len, found.targets.values()))
    where = set()
    for i, record in enumerate(made):
        shown, own = tiles(made.image(i)), int(record.image.removesuffix(".png"))
        tile = int(record.attributes["tile"])
        where.add(tile)
        assert (
            shown[tile] == own
            and record.label == f"c{own % 20:03d}"
            and record.label in found.targets[record.split or ""]
        )
        others = [number for place, number in enumerate(shown) if place != tile]
        assert len(set(others)) == 3
        assert all(
            f"c{number % 20:03d}" in found.nuisances[record.split or ""] for number in others
        )
        mask, (box,) = made.mask(i), record.boxes
        assert mask is not None and mask.sum() == SIDE * SIDE
        assert mask[int(box.y1) : int(box.y2), int(box.x1) : int(box.x2)].all()
        assert (np.asarray(made.image(i))[mask == 1][:, 0] == own % 256).all()
    assert where == {0, 1, 2, 3}
    assert made.classes == sorted(chain(*found.targets.values()))


def test_distilled_images_are_those_of_the_collages_alone() -> None:
    dataset = flat()
    collages = make_collages(dataset, SIDE, seed=1)
    alone = make_collages(dataset, SIDE, seed=1, distilled=True)
    assert [r[:3] for r in alone] == [r[:3] for r in collages] and alone.classes == collages.classes
    for i in (0, len(alone) - 1):
        assert alone.image(i) == dataset.image(int(alone[i].image.removesuffix(".png")))
        assert alone[i].boxes == () and alone.mask(i) is None


def test_collages_of_cifar_100(tmp_path: Path) -> None:
    for name in ("train", "test"):
        data = np.arange(100, dtype=np.uint8)[:, None].repeat(3 * 32 * 32, 1)
        fine = list(range(100))
        labels = {"fine_labels": fine, "coarse_labels": [number // 5 for number in fine]}
        python2_pickle(tmp_path / name, {"data": data, **labels})
    names = {
        "fine_label_names": [f"c{number:03d}" for number in range(100)],
        "coarse_label_names": [f"s{number:02d}" for number in range(20)],
    }
    python2_pickle(tmp_path / "meta", names)
    collages = open_dataset(f"cifar100-collage:{tmp_path}")
    alone = open_dataset(f"cifar100-distilled:{tmp_path}")
    assert collages.splits == alone.splits == {"train": 64, "val": 32, "test": 64}
    assert collages.image(0).size == (64, 64) and alone.image(0).size == (32, 32)
    own = alone.image(0).getpixel((0, 0))
    assert collages[0].label == alone[0].label == f"c{own[0]:03d}"
    box = collages[0].boxes[0]
    assert collages.image(0).getpixel((int(box.x1), int(box.y1))) == own


def test_seed_and_image_alone_decide() -> None:
    dataset = flat()
    made = make_collages(dataset, SIDE, seed=1)
    again, other = make_collages(dataset, SIDE, seed=1), make_collages(dataset, SIDE, seed=2)
    order = [5, 2, 40]
    assert [made.image(i).tobytes() for i in order] == [
        again.select(order).image(k).tobytes() for k in range(3)
    ]
    assert [made.image(i).tobytes() for i in order] != [other.image(i).tobytes() for i in order]


def test_bad_images() -> None:
    """A bad image of the class is a bad collage; one that fills a place is replaced."""
    dataset = flat()
    found = assign_roles(dataset)
    shared = {name for names in found.nuisances.values() for name in names}
    bad = [i for i in range(20 * EACH) if f"c{i % 20:03d}" in shared][
        ::5
    ]  # a few of those that fill
    worse = int(make_collages(dataset, SIDE)[0].image.removesuffix(".png"))
    made = make_collages(flat(bad=(*bad, worse)), SIDE)
    with pytest.raises(BadImage, match=rf"\b{worse}\.png"):
        made.image(0)
    for i in range(1, len(made)):
        assert not set(tiles(made.image(i))) & set(bad)


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"flat\b.*\b8\b.*\b9\b"):
        make_collages(flat(8))
    with pytest.raises(ValueError, match=r"\b0\b"):
        make_collages(flat(), 0)
