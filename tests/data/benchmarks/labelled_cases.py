"""What the readers must say of each tiny set of labelled_trees.py."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.data.benchmarks import labelled_trees as trees


@dataclass
class Case:
    name: str  # of the benchmark
    make: Callable[[Path], None]
    splits: dict[str | None, int]
    classes: list[str]  # the first ones
    count: int | None = None  # of all classes, if there are more
    boxes: dict[str, list[tuple[float, ...]]] = field(
        default_factory=dict
    )  # by image; other images have none
    labels: dict[str, str] = field(default_factory=dict)  # of some images
    domains: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    folder: str = ""  # of the root in what `make` makes
    needed: str | None = None  # a file without which the set is refused
    damaged: tuple[str, int, str] | None = None  # a table, a line of it, and what to write there


V = "ILSVRC/Data/CLS-LOC/val/ILSVRC2012_val_0000000"
CUB = {"images/001.Albatross/a.jpg": [(6, 7, 31, 27)], "images/001.Albatross/b.jpg": [(1, 2, 4, 6)]}
CUB["images/101.Pelican/c.jpg"] = [(0, 0, 40, 30)]
BIRDS = ["001.Albatross", "101.Pelican"]
CUB_DAMAGE = ("bounding_boxes.txt", 2, "2 1.0 2.0 three 4.0")
FLAT = {"car_ims/000001.jpg": [(0, 0, 40, 30)], "car_ims/000002.jpg": [(4, 5, 20, 16)]}
FLAT["car_ims/000003.jpg"] = [(2, 3, 33, 24)]
SPLIT = dict(
    zip(
        ("cars_train/00001.jpg", "cars_train/00002.jpg", "cars_test/00001.jpg"),
        FLAT.values(),
        strict=True,
    )
)
DRESS = "img/WOMEN/Dresses/id_0000000{}/02_1_front.jpg"
MINI = trees.conversion("minidn", ("clipart", "painting", "real", "sketch"), "zebra")

CASES = {
    "imagenet": Case(
        "imagenet", trees.imagenet, {"train": 4, "val": 2}, ["n01440764", "n02012849"],
        attributes={"val/n01440764/n01440764_val.JPEG": {"wnid": "n01440764"}},
    ),
    "imagenet, names of Keras": Case(
        "imagenet", trees.class_index, {"train": 4, "val": 2}, ["tench", "crane (n02012849)", "crane (n03126707)"],
        labels={"train/n02012849/n02012849_9.JPEG": "crane (n02012849)"},
        damaged=("imagenet_class_index.json", 1, '{"0": 3}'),
    ),
    "imagenet, Kaggle": Case(
        "imagenet", trees.imagenet_kaggle, {"train": 3, "val": 2}, ["tench", "crane (n02012849)", "crane (n03126707)"],
        boxes={
            "ILSVRC/Data/CLS-LOC/train/n02012849/n02012849_1.JPEG": [(0, 0, 40, 30)],
            f"{V}1.JPEG": [(1, 2, 11, 21), (5, 6, 8, 9)],
            f"{V}2.JPEG": [(3, 3, 10, 10)],
        },
        labels={f"{V}1.JPEG": "crane (n03126707)", f"{V}2.JPEG": "tench"},
        needed="LOC_val_solution.csv",
        damaged=("LOC_val_solution.csv", 3, "ILSVRC2012_val_00000002,tench 3 3 9 9"),
    ),
    "imagenet, devkit": Case(
        "imagenet", trees.imagenet_devkit, {"val": 2}, ["tench", "crane (n02012849)", "crane (n03126707)"],
        boxes={"val/ILSVRC2012_val_00000001.JPEG": [(0, 0, 40, 30)]},
        labels={"val/ILSVRC2012_val_00000001.JPEG": "tench", "val/ILSVRC2012_val_00000002.JPEG": "crane (n02012849)"},
        needed="ILSVRC2012_devkit_t12/data/meta.mat",
        damaged=("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", 2, "2000"),
    ),
    "imagenet-20pc": Case("imagenet-20pc", trees.imagenet_20pc, {"train": 262, "val": 2}, ["n01440764", "n02012849"]),
    "imagenet-100": Case("imagenet-100", trees.imagenet_100, {"train": 1, "val": 1}, ["n01558993", "n13040303"]),
    "imagenet-9": Case(
        "imagenet-9", trees.imagenet_9, {"val": 16}, ["dog", "wheeled vehicle"],
        domains={f"{variant}/val/00_dog/a.JPEG": variant for variant in trees.V9},
    ),
    **{
        f"imagenet-9-{v}": Case(
            f"imagenet-9-{v.replace('_', '-')}", trees.imagenet_9, {"val": 2}, ["dog", "wheeled vehicle"],
            labels={f"{v}/val/02_wheeled vehicle/b.JPEG": "wheeled vehicle"},
            domains={f"{v}/val/00_dog/a.JPEG": v},
        )
        for v in trees.V9
    },
    "imagenet-a": Case("imagenet-a", trees.imagenet_a, {"test": 2}, ["stingray", "goldfinch"]),
    "imagenet-r": Case(
        "imagenet-r", trees.imagenet_r, {"test": 3}, ["goldfish", "great white shark"],
        domains={"n01443537/art_0.jpg": "art", "n01443537/videogame_12.jpg": "videogame"},
    ),
    "imagenet-r-conversion": Case(
        "imagenet-r-conversion", trees.imagenet_r_conversion, {None: 2}, ["goldfish"],
        domains={"imagenet-r/n01443537/cartoon_1.jpg": "cartoon"},
        needed="full_files.csv", damaged=("full_files.csv", 2, "imagenet_r/real/a.JPEG real"),
    ),
    "imagenet-c": Case(
        "imagenet-c", trees.imagenet_c, {"test": 4}, ["tench", "crane (n02012849)", "crane (n03126707)"],
        domains={"noise/gaussian_noise/5/n01440764/a.JPEG": "gaussian_noise", "fog/1/n02012849/a.JPEG": "fog"},
        attributes={"fog/5/n02012849/a.JPEG": {"severity": "5", "wnid": "n02012849"}},
        damaged=("LOC_synset_mapping.txt", 2, "crane"),
    ),
    "cifar10, Python": Case(
        "cifar10", trees.cifar10_python, {"train": 5, "test": 1}, ["airplane", "automobile"],
        labels={"data_batch_2:0": "automobile"}, needed="cifar-10-batches-py/data_batch_3",
    ),
    "cifar10, binary": Case(
        "cifar10", trees.cifar10_binary, {"train": 5, "test": 1}, ["airplane", "automobile"],
        labels={"data_batch_2.bin:0": "automobile"}, needed="test_batch.bin",
    ),
    "cifar100, Python": Case(
        "cifar100", trees.cifar100_python, {"train": 4, "test": 2}, ["apple", "aquarium_fish", "baby"],
        labels={"train:3": "baby"}, attributes={"test:0": {"superclass": "people"}}, needed="test",
    ),
    "cifar100, binary": Case(
        "cifar100", trees.cifar100_binary, {"train": 4, "test": 2}, ["apple", "aquarium_fish", "baby"],
        labels={"train.bin:3": "baby"}, attributes={"test.bin:0": {"superclass": "people"}},
        needed="coarse_label_names.txt",
    ),
    "flowers": Case(
        "flowers", trees.flowers, {"train": 2, "val": 1, "test": 3}, ["pink primrose"], 102,
        labels={"jpg/image_00002.jpg": "passion flower", "jpg/image_00003.jpg": "pink primrose",
                "jpg/image_00005.jpg": "blackberry lily"},
        needed="setid.mat",
    ),
    "pets": Case(
        "pets", trees.pets, {"train": 2, "test": 1}, ["Abyssinian", "american bulldog"],
        boxes={"images/Abyssinian_1.jpg": [(10, 5, 30, 20)]},
        attributes={"images/american_bulldog_2.jpg": {"species": "dog"}},
        needed="annotations/test.txt", damaged=("annotations/trainval.txt", 2, "american_bulldog_2 2 3 1"),
    ),
    "cub": Case("cub", trees.cub, {"train": 2, "test": 1}, BIRDS, boxes=CUB, needed="classes.txt", damaged=CUB_DAMAGE),
    "cub-retrieval": Case(
        "cub-retrieval", trees.cub, {"train": 2, "test": 1}, BIRDS, boxes=CUB,
        needed="images.txt", damaged=("image_class_labels.txt", 3, "3 201"),
    ),
    "cub-localization": Case(
        "cub-localization", trees.cub_v2, {"train": 2, "val": 1, "test": 1}, BIRDS,
        boxes={**CUB, "CUBV2/101.Pelican/123.jpg": [(4, 5, 34, 25)]},
        needed="CUBV2/localization.txt", damaged=("CUBV2/localization.txt", 1, "102.Stork/123.jpg,4,5,34,25"),
    ),
    "cub-localization, images beside": Case(
        "cub-localization", trees.cub_v2_beside, {"train": 2, "val": 1, "test": 1}, BIRDS, folder="CUB_200_2011",
        boxes={**CUB, "../CUBV2/101.Pelican/123.jpg": [(4, 5, 34, 25)]},
        needed="metadata/CUB/val/localization.txt",
    ),
    "cub-localization, without CUBV2": Case(
        "cub-localization", trees.cub, {"train": 2, "test": 1}, BIRDS, boxes=CUB,
        damaged=("train_test_split.txt", 1, "1 yes"),
    ),
    "cars, flat": Case("cars", trees.cars_flat, {"train": 2, "test": 1}, ["car 1", "car 2"], 100, FLAT),
    "cars, devkit": Case(
        "cars", trees.cars_devkit, {"train": 2, "test": 1}, ["car 1", "car 2"], 100, SPLIT,
        labels={"cars_train/00002.jpg": "car 99"}, needed="cars_test_annos_withlabels.mat",
    ),
    "cars-retrieval, flat": Case(
        "cars-retrieval", trees.cars_flat, {"train": 2, "test": 1}, ["car 1"], 100, FLAT,
        labels={"car_ims/000002.jpg": "car 99"},
    ),
    "cars-retrieval, devkit": Case(
        "cars-retrieval", trees.cars_devkit, {"train": 2, "test": 1}, ["car 1"], 100, SPLIT,
        needed="devkit/cars_meta.mat",
    ),
    "sop": Case(
        "sop", trees.sop, {"train": 2, "test": 1}, ["1", "11"],
        attributes={"sofa_final/2_0.JPG": {"superclass": "sofa"}},
        needed="Ebay_test.txt", damaged=("Ebay_train.txt", 3, "2 one 1 bicycle_final/1_1.JPG"),
    ),
    "inshop": Case(
        "inshop", trees.inshop, {"train": 1, "query": 1, "gallery": 1}, ["id_00000001", "id_00000002"],
        boxes={DRESS.format(2): [(4, 5, 34, 25)]},
        attributes={
            DRESS.format(1): {"category": "WOMEN/Dresses"},
            DRESS.format(2): {"category": "WOMEN/Dresses", "clothes": "full body", "pose": "front"},
        },
        needed="Eval/list_eval_partition.txt",
        damaged=("Eval/list_eval_partition.txt", 4, f"{DRESS.format(2)} id_00000002 val"),
    ),
    "domainnet": Case(
        "domainnet", trees.domainnet, {"train": 4, "test": 4}, ["zebra", "ant"],
        domains={"sketch/ant/sketch_2.jpg": "sketch"},
        needed="sketch_test.txt", damaged=("sketch_test.txt", 2, "sketch/ant/sketch_2.jpg 5"),
    ),
    "minidomainnet": Case(
        "minidomainnet", trees.minidomainnet, {"train": 8, "test": 8}, ["zebra", "ant"],
        domains={"real/ant/real_2.jpg": "real"},
        needed="splits_mini/sketch_test.txt", damaged=("splits_mini/real_test.txt", 2, "real/ant/real_2.jpg 5"),
    ),
    "minidomainnet-conversion": Case(
        "minidomainnet-conversion", MINI, {"gallery": 4, "query": 4}, ["zebra"],
        domains={"sketch/zebra/2.jpg": "sketch"}, needed="database_files.csv", damaged=("query_files.csv", 1, "x"),
    ),
    "nico": Case(
        "nico", trees.nico, {"train": 12, "test": 12}, ["bear", "fishing rod"],
        domains={"NICO_DG/dim/fishing rod/dim_1.jpg": "dim"},
        needed="NICO_DG_official/rock_train.txt",
        damaged=("NICO_DG_official/rock_train.txt", 1, "NICO_DG/water/bear/1.jpg 0"),
    ),
    "nico-conversion": Case(
        "nico-conversion", trees.conversion("nico", trees.NICO, "fishing_rod"), {"gallery": 6, "query": 6},
        ["fishing_rod"], domains={"dim/fishing_rod/1.jpg": "dim"},
        needed="query_files.csv", damaged=("database_files.csv", 6, "autumn autumn bear"),
    ),
    "ltll": Case(
        "ltll", trees.ltll, {None: 3}, ["Q001", "TajMahal"],
        domains={"New/images/Taj Mahal/a b.jpg": "New", "Old/images/Q001/d.JPG": "Old"},
    ),
    "ltll, listed": Case(
        "ltll", trees.ltll_listed, {None: 2}, ["TajMahal"],
        damaged=("full_files.csv", 1, "ltll/New/images/TajMahal/a_b.jpg"),
    ),
}  # fmt: skip
