"""Oxford 102 Flowers and Oxford-IIIT Pets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..checks import check, errors_in
from ..dataset import Dataset, pack
from ..record import Box, Record
from ..voc import read_annotation
from .parsing import parse_lines, read_mat
from .registry import benchmark

FLOWER_SPLITS = {"train": "trnid", "val": "valid", "test": "tstid"}
PET_LISTS = {"train": "annotations/trainval.txt", "test": "annotations/test.txt"}
SPECIES = {"1": "cat", "2": "dog"}
# In the order of the labels.
FLOWERS = """
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
    ("jpg/", "imagelabels.mat", "setid.mat"),
)
def read_flowers(root: Path) -> Dataset:
    classes = [name.strip() for name in FLOWERS.split(",")]
    return pack(_flower_records(root, classes), root, "flowers", classes)


def _flower_records(root: Path, classes: list[str]) -> Iterator[Record]:
    (labels,) = read_mat(root / "imagelabels.mat", "labels")
    splits = read_mat(root / "setid.mat", *FLOWER_SPLITS.values())
    for split, numbers in zip(FLOWER_SPLITS, splits, strict=True):
        for number in map(int, numbers):
            with errors_in(root / "setid.mat"):
                check(1 <= number <= len(labels), f"image {number} of {len(labels)}")
            label = int(labels[number - 1])
            with errors_in(root / "imagelabels.mat"):
                check(1 <= label <= len(classes), f"class {label} of {len(classes)}")
            yield Record(f"jpg/image_{number:05d}.jpg", classes[label - 1], split)


@benchmark(
    "pets",
    "Oxford-IIIT Pets: trainval as train, and test; trimaps; boxes of heads, which only some of "
    "train have",
    "images/Abyssinian_1.jpg\nannotations/trainval.txt\nannotations/test.txt\n"
    "annotations/trimaps/Abyssinian_1.png\nannotations/xmls/Abyssinian_1.xml (optional: boxes)",
    "robots.ox.ac.uk/~vgg/data/pets (images.tar.gz, annotations.tar.gz)",
    ("images/", *PET_LISTS.values(), "annotations/trimaps/"),
)
def read_pets(root: Path) -> Dataset:
    numbers: dict[str, int] = {}  # of breeds

    def record(image: str, number: str, species: str, _: str) -> Record:
        breed = image.rpartition("_")[0].replace("_", " ")
        numbers[breed] = int(number)
        boxes = _head_boxes(root / "annotations" / "xmls" / f"{image}.xml")
        masks, attributes = (f"annotations/trimaps/{image}.png",), {"species": SPECIES[species]}
        return Record(f"images/{image}.jpg", breed, None, boxes, masks, attributes=attributes)

    records = (
        parsed._replace(split=split)
        for split, path in PET_LISTS.items()
        for parsed in parse_lines(root / path, record, 4)
    )
    return pack(records, root, "pets", None, "trimap", numbers.__getitem__)


def _head_boxes(path: Path) -> tuple[Box, ...]:
    """Return the boxes without their label, cat or dog: the image's class is more specific."""
    if not path.is_file():
        return ()
    boxes = read_annotation(path)
    return tuple(b._replace(x1=max(b.x1, 0), y1=max(b.y1, 0), label=None) for b in boxes)
