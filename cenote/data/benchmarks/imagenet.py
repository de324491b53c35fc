"""ImageNet-1k, in the layout of image-net.org or Kaggle, two subsets, and test sets for its models.

The test sets are ImageNet-9's backgrounds, ImageNet-A, ImageNet-C and ImageNet-R.

A class is named by the first of its names if a file has them (LOC_synset_mapping.txt,
imagenet_class_index.json, the devkit), else by its wnid. The classes are in the order of the wnids,
and every image has its wnid as an attribute.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from ..backgrounds import VARIANTS
from ..checks import LayoutError, check, errors_in, read_json
from ..dataset import Dataset, pack
from ..record import Box, Record
from ..voc import read_annotation
from .parsing import folders, images, make_box, parse_lines, read_mat, struct_rows
from .registry import benchmark

TREE = """\
train/n01440764/*.JPEG
val/n01440764/*.JPEG (or val/*.JPEG with LOC_val_solution.csv or ILSVRC2012_devkit_t12/data/)
or ILSVRC/Data/CLS-LOC/train/ and val/, as Kaggle has them
LOC_synset_mapping.txt, LOC_train_solution.csv, LOC_val_solution.csv (optional: names, boxes)"""
SOURCE = "image-net.org, ILSVRC 2012; or Kaggle, imagenet-object-localization-challenge"
NEEDS = ("train/|val/|ILSVRC/Data/CLS-LOC/",)
IMAGES_20PC = 260  # per class: a fifth of the usual 1,300, as SimPool's authors take them
WNID = re.compile(r"n\d{8}")
DEVKIT = "ILSVRC2012_devkit_t12/data"
SOLUTION = re.compile(r"(n\d{8}( -?\d+){4}\s*)+")  # wnid and box, for each object

# The classes of Contrastive Multiview Coding, the usual ImageNet-100.
IMAGENET_100 = """
n01558993 n01692333 n01729322 n01735189 n01749939 n01773797 n01820546 n01855672 n01978455 n01980166
n01983481 n02009229 n02018207 n02085620 n02086240 n02086910 n02087046 n02089867 n02089973 n02090622
n02091831 n02093428 n02099849 n02100583 n02104029 n02105505 n02106550 n02107142 n02108089 n02109047
n02113799 n02113978 n02114855 n02116738 n02119022 n02123045 n02138441 n02172182 n02231487 n02259212
n02326432 n02396427 n02483362 n02488291 n02701002 n02788148 n02804414 n02859443 n02869837 n02877765
n02974003 n03017168 n03032252 n03062245 n03085013 n03259280 n03379051 n03424325 n03492542 n03494278
n03530642 n03584829 n03594734 n03637318 n03642806 n03764736 n03775546 n03777754 n03785016 n03787032
n03794056 n03837869 n03891251 n03903868 n03930630 n03947888 n04026417 n04067472 n04099969 n04111531
n04127249 n04136333 n04229816 n04238763 n04336792 n04418357 n04429376 n04435653 n04485082 n04493381
n04517823 n04589890 n04592741 n07714571 n07715103 n07753275 n07831146 n07836838 n13037406 n13040303
"""


@benchmark(
    "imagenet",
    "ImageNet-1k: training and validation images, boxes if available",
    TREE,
    SOURCE,
    NEEDS,
)
@benchmark(
    "imagenet-20pc",
    f"ImageNet-20%: the first {IMAGES_20PC} training images of each class, all of val",
    TREE,
    SOURCE,
    ("train/|ILSVRC/Data/CLS-LOC/train/",),
    limit=IMAGES_20PC,
)
@benchmark(
    "imagenet-100",
    "ImageNet-100: the 100 classes of CMC, or those of imagenet100.txt",
    f"{TREE}\nimagenet100.txt (optional: other classes, one wnid per line)",
    SOURCE,
    NEEDS,
    wnids=set(IMAGENET_100.split()),
)
def read_imagenet(
    root: Path, limit: int | None = None, wnids: Collection[str] | None = None
) -> Dataset:
    """Read at most `limit` training images of each class, of the classes `wnids`."""
    if wnids and (root / "imagenet100.txt").is_file():
        wnids = set(parse_lines(root / "imagenet100.txt", str, 1))
    names = {wnid: name for wnid, name in class_names(root).items() if not wnids or wnid in wnids}
    records = _records(root, names, limit, wnids)
    return pack(records, root, "ImageNet", list(names.values()) or None)


def _records(
    root: Path, names: dict[str, str], limit: int | None, wnids: Collection[str] | None
) -> Iterator[Record]:
    prefix = "" if (root / "train").is_dir() or (root / "val").is_dir() else "ILSVRC/Data/CLS-LOC/"
    for split in ("train", "val"):
        folder = f"{prefix}{split}"
        if not (root / folder).is_dir():
            continue
        boxes = _box_reader(root, split)
        for path, wnid in _files(root, folder, {"train": limit}.get(split)):
            if not wnids or wnid in wnids:
                label, attributes = names.get(wnid, wnid), {"wnid": wnid}
                yield Record(path, label, split, boxes(_stem(path), wnid), attributes=attributes)


def _files(root: Path, folder: str, limit: int | None) -> Iterator[tuple[str, str]]:
    """Yield paths with their wnids, from class folders or, for val, from the list of labels."""
    wnids = wnids_in(root / folder)
    for wnid in wnids:
        for name in images(root / folder / wnid)[:limit]:
            yield f"{folder}/{wnid}/{name}", wnid
    if wnids or not folder.endswith("val") or not (names := images(root / folder)):
        return
    labels = _validation_wnids(root, folder)
    for name in names:
        path, stem = f"{folder}/{name}", _stem(name)
        check(stem in labels, f"{root / path} is not in the list of validation images")
        yield path, labels[stem]


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def wnids_in(path: Path) -> list[str]:
    """Return the folders whose names are WordNet ids."""
    return [name for name in folders(path) if WNID.fullmatch(name)]


def class_names(root: Path) -> dict[str, str]:
    """Return names by wnid, sorted by wnid, from the first file that has them; else nothing."""
    if (path := root / "LOC_synset_mapping.txt").is_file():
        return _unique(dict(parse_lines(path, lambda wnid, names: (_wnid(wnid), names), 2)))
    if (path := root / "imagenet_class_index.json").is_file():
        with errors_in(path):
            return _unique({_wnid(wnid): name for wnid, name in read_json(path).values()})
    if (path := root / DEVKIT / "meta.mat").is_file():
        return _unique({wnid: name for _, wnid, name in _synsets(path)})
    if (path := root / "README.txt").is_file():  # of ImageNet-A and -R
        lines = path.read_text("utf-8", "replace").splitlines()
        pairs = [line.split(maxsplit=1) for line in lines]
        return _unique(dict(pair for pair in pairs if len(pair) == 2 and WNID.fullmatch(pair[0])))
    return {}


def _unique(names: dict[str, str]) -> dict[str, str]:
    """Return the first name of each class, with the wnid if two classes share it (crane)."""
    items = sorted(names.items())
    first = {wnid: name.split(",")[0].replace("_", " ").strip() for wnid, name in items}
    count = Counter(first.values())
    return {wnid: name if count[name] == 1 else f"{name} ({wnid})" for wnid, name in first.items()}


def _wnid(text: str) -> str:
    check(WNID.fullmatch(text), f"{text} is not a WordNet id")
    return text


def _synsets(path: Path) -> list[tuple[int, str, str]]:
    """Return number, wnid and words of the 1000 classes: the synsets without children."""
    (synsets,) = read_mat(path, "synsets")
    rows = struct_rows(path, synsets, "num_children", "ILSVRC2012_ID", "WNID", "words")
    return [(int(k), str(wnid), str(words)) for children, k, wnid, words in rows if not children]


def _validation_wnids(root: Path, folder: str) -> dict[str, str]:
    """Return the wnid of each validation image by its name without suffix."""
    if (path := root / "LOC_val_solution.csv").is_file():
        rows = parse_lines(path, lambda image, text: (image, _wnid(text.split()[0])), 2, ",", 1)
        return dict(rows)
    path = root / DEVKIT / "ILSVRC2012_validation_ground_truth.txt"
    if path.is_file() and (root / DEVKIT / "meta.mat").is_file():
        numbers = {str(number): wnid for number, wnid, _ in _synsets(root / DEVKIT / "meta.mat")}
        wnids = parse_lines(path, lambda number: numbers[number], 1)
        return {f"ILSVRC2012_val_{k:08d}": wnid for k, wnid in enumerate(wnids, 1)}
    raise LayoutError(
        f"{root} has no validation labels: expected class folders in {folder}/, or "
        f"LOC_val_solution.csv, or {DEVKIT}/"
    )


def _box_reader(root: Path, split: str) -> Callable[[str, str], tuple[Box, ...]]:
    """Return a reader of the boxes of an image's class, from LOC_*_solution.csv or XML, if any.

    ImageNet counts pixels from 0 and includes the last: one is added to the right and the bottom.
    """
    table = root / f"LOC_{split}_solution.csv"
    if table.is_file():
        solutions = dict(parse_lines(table, _solution, 2, ",", skip=1))
        return lambda image, wnid: tuple(_boxes(solutions.get(image, ""), wnid))
    xml = root / "ILSVRC" / "Annotations" / "CLS-LOC" / split
    if not xml.is_dir():
        return lambda image, wnid: ()
    if split == "train":
        return lambda image, wnid: _xml_boxes(xml / wnid / f"{image}.xml", wnid)
    return lambda image, wnid: _xml_boxes(xml / f"{image}.xml", wnid)


def _solution(image: str, text: str) -> tuple[str, str]:
    check(SOLUTION.fullmatch(text), "expected a class and four numbers for each box")
    return image, text


def _boxes(solution: str, wnid: str) -> Iterable[Box]:
    values = solution.split()
    for k in range(0, len(values), 5):
        if values[k] == wnid:
            x1, y1, x2, y2 = map(int, values[k + 1 : k + 5])
            yield make_box(x1, y1, x2 + 1, y2 + 1)


def _xml_boxes(path: Path, wnid: str) -> tuple[Box, ...]:
    if not path.is_file():  # only 42% of the training images have one
        return ()
    boxes = [box for box in read_annotation(path) if box.label == wnid]
    # The reader of VOC subtracted 1 from the first corner.
    return tuple(Box(b.x1 + 1, b.y1 + 1, b.x2 + 1, b.y2 + 1) for b in boxes)


# Test sets.

BACKGROUNDS = (
    "github.com/MadryLab/backgrounds_challenge, release data (backgrounds_challenge_data.tar.gz)"
)
SEVERITIES = ("1", "2", "3", "4", "5")
# The folders of ImageNet-C; those of `extra` are for selecting settings, not for reporting.
CORRUPTIONS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": ("speckle_noise", "gaussian_blur", "spatter", "saturate"),
}


def read_imagenet_9(root: Path, variants: Sequence[str]) -> Dataset:
    """Read the variants that exist, each a domain; the class folders are such as 00_dog."""
    paths = [
        (variant, split, folder)
        for variant in variants
        for split in ("train", "val")
        for folder in folders(root / variant / split)
        if folder[:2].isdigit() and folder[2:3] == "_"
    ]
    records = (
        Record(f"{variant}/{split}/{folder}/{image}", folder[3:], split, domain=variant)
        for variant, split, folder in paths
        for image in images(root / variant / split / folder)
    )
    classes = [folder[3:] for folder in sorted({folder for _, _, folder in paths})]
    return pack(records, root, "ImageNet-9", classes)


benchmark(
    "imagenet-9",
    "ImageNet-9: all variants in the folder, each a domain",
    "\n".join(f"{variant}/val/00_dog/*.JPEG" for variant in VARIANTS),
    BACKGROUNDS,
    ["|".join(f"{variant}/" for variant in VARIANTS)],
    variants=VARIANTS,
)(read_imagenet_9)
for _variant in VARIANTS:
    _name = _variant.replace("_", "-")
    benchmark(
        f"imagenet-9-{_name}",
        f"ImageNet-9, {_name.title().replace('Fg', 'FG').replace('Bg', 'BG')} only",
        f"{_variant}/val/00_dog/*.JPEG",
        BACKGROUNDS,
        [f"{_variant}/"],
        variants=[_variant],
    )(read_imagenet_9)


@benchmark(
    "imagenet-a",
    "ImageNet-A: natural adversarial examples of 200 classes",
    "n01498041/*.jpg\nREADME.txt (optional: names)",
    "github.com/hendrycks/natural-adv-examples (imagenet-a.tar)",
    domains=False,
)
@benchmark(
    "imagenet-r",
    "ImageNet-R: renditions of 200 classes, the kind of rendition as domain",
    "n01443537/art_0.jpg\nREADME.txt (optional: names)",
    "github.com/hendrycks/imagenet-r (imagenet-r.tar)",
    domains=True,
)
def read_class_folders(root: Path, domains: bool) -> Dataset:
    """Read folders of classes; with `domains`, an image's name starts with its domain: art_0.jpg."""
    wnids, names = wnids_in(root), class_names(root)

    def record(wnid: str, image: str) -> Record:
        domain = image.rpartition("_")[0] if domains else ""
        path, label = f"{wnid}/{image}", names.get(wnid, wnid)
        return Record(path, label, "test", domain=domain or None, attributes={"wnid": wnid})

    records = (record(wnid, image) for wnid in wnids for image in images(root / wnid))
    return pack(records, root, "ImageNet", [names.get(wnid, wnid) for wnid in wnids])


@benchmark(
    "imagenet-c",
    "ImageNet-C: corruptions of the validation images, the corruption as domain and its severity as "
    "attribute",
    "gaussian_noise/1/n01440764/*.JPEG (or noise/gaussian_noise/1/...)\n"
    "LOC_synset_mapping.txt (optional: names)",
    "zenodo.org/record/2235448 (blur, digital, extra, noise, weather)",
)
def read_imagenet_c(root: Path) -> Dataset:
    paths = [
        path
        for group, corruptions in CORRUPTIONS.items()
        for corruption in corruptions
        for path in (corruption, f"{group}/{corruption}")
        if (root / path).is_dir()
    ]
    names = class_names(root)

    def records() -> Iterator[Record]:
        for path in paths:
            domain = path.rpartition("/")[2]
            for severity in SEVERITIES:
                for wnid in wnids_in(root / path / severity):
                    label, attributes = names.get(wnid, wnid), {"severity": severity, "wnid": wnid}
                    for image in images(root / path / severity / wnid):
                        file = f"{path}/{severity}/{wnid}/{image}"
                        yield Record(file, label, "test", domain=domain, attributes=attributes)

    return pack(records(), root, "imagenet-c", list(names.values()) or None)
