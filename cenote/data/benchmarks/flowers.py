"""Oxford 102 Flowers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Record
from .parsing import read_mat
from .registry import benchmark

SPLITS = {"train": "trnid", "val": "valid", "test": "tstid"}
# In the order of the labels.
CLASSES = """
pink primrose, hard-leaved pocket orchid, canterbury bells, sweet pea, english marigold, tiger
lily, moon orchid, bird of paradise, monkshood, globe thistle, snapdragon, colt's foot, king
protea, spear thistle, yellow iris, globe-flower, purple coneflower, peruvian lily, balloon
flower, giant white arum lily, fire lily, pincushion flower, fritillary, red ginger, grape
hyacinth, corn poppy, prince of wales feathers, stemless gentian, artichoke, sweet william,
carnation, garden phlox, love in the mist, mexican aster, alpine sea holly, ruby-lipped
cattleya, cape flower, great masterwort, siam tulip, lenten rose, barbeton daisy, daffodil,
sword lily, poinsettia, bolero deep blue, wallflower, marigold, buttercup, oxeye daisy, common
dandelion, petunia, wild pansy, primula, sunflower, pelargonium, bishop of llandaff, gaura,
geranium, orange dahlia, pink-yellow dahlia, cautleya spicata, japanese anemone, black-eyed
susan, silverbush, californian poppy, osteospermum, spring crocus, bearded iris, windflower,
tree poppy, gazania, azalea, water lily, rose, thorn apple, morning glory, passion flower,
lotus, toad lily, anthurium, frangipani, clematis, hibiscus, columbine, desert-rose, tree
mallow, magnolia, cyclamen, watercress, canna lily, hippeastrum, bee balm, ball moss, foxglove,
bougainvillea, camellia, mallow, mexican petunia, bromelia, blanket flower, trumpet creeper,
blackberry lily
"""


@benchmark(
    "flowers",
    "Oxford 102 Flowers: the official split, 1,020 train, 1,020 val, 6,149 test",
    "jpg/image_00001.jpg\nimagelabels.mat\nsetid.mat",
    "robots.ox.ac.uk/~vgg/data/flowers/102",
)
def read_flowers(root: Path) -> Dataset:
    check_layout(root, "Oxford 102 Flowers", "jpg/", "imagelabels.mat", "setid.mat")
    classes = [name.strip() for name in CLASSES.split(",")]
    return pack(_records(root, classes), root, "flowers", classes)


def _records(root: Path, classes: list[str]) -> Iterator[Record]:
    (labels,) = read_mat(root / "imagelabels.mat", "labels")
    for split, numbers in zip(SPLITS, read_mat(root / "setid.mat", *SPLITS.values()), strict=True):
        for number in map(int, numbers):
            check(
                1 <= number <= len(labels),
                f"{root / 'setid.mat'}: image {number}, but imagelabels.mat has "
                f"{len(labels)} labels",
            )
            label = int(labels[number - 1])
            check(
                1 <= label <= len(classes),
                f"{root / 'imagelabels.mat'}, image {number}: label {label} is not between "
                f"1 and {len(classes)}",
            )
            yield Record(f"jpg/image_{number:05d}.jpg", classes[label - 1], split)
