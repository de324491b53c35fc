"""Classes in several domains: DomainNet, MiniDomainNet, NICO++, LTLL, and FreeDom's lists of domain conversion.

The protocol of domain conversion makes queries of its lists: each image of the split `query` (of
the full set if there are no splits) with each other domain; the images of its class in that domain
are correct.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Record
from .parsing import folders, images, parse_lines
from .registry import benchmark

FREEDOM = "github.com/NikosEfth/freedom (data/ and set_dataset.py)"
QUERY_AND_DATABASE = {"query": "query_files.csv", "gallery": "database_files.csv"}
FULL: dict[str | None, str] = {None: "full_files.csv"}
# Words of the text queries, where they are not the names of the domains.
DOMAIN_WORDS = {"real": "photo", "dim": "dimlight", "New": "Today", "Old": "Archive"}

DOMAINNET = ("clipart", "painting", "real", "sketch")
DOMAINNET_IMAGES = "clipart/aircraft_carrier/*.jpg\npainting/, real/, sketch/"
NICO = ("autumn", "dim", "grass", "outdoor", "rock", "water")
SPLITS = ("train", "test")


@benchmark(
    "domainnet",
    "DomainNet: 345 classes in six domains, the split of its authors",
    "clipart_train.txt, clipart_test.txt\nclipart/aircraft_carrier/*.jpg\n"
    "the same of infograph, painting, quickdraw, real and sketch, or of some of them",
    "ai.bu.edu/M3SDA",
    images="",
    lists="",
    domains=("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
)
@benchmark(
    "minidomainnet",
    "MiniDomainNet: the split of its authors, train and test in each domain",
    f"splits_mini/clipart_train.txt, splits_mini/clipart_test.txt and so on\n{DOMAINNET_IMAGES}",
    "ai.bu.edu/M3SDA (DomainNet, cleaned); splits_mini.zip: github.com/KaiyangZhou/Dassl.pytorch",
    [f"splits_mini/{domain}_{split}.txt" for domain in DOMAINNET for split in SPLITS],
    images="",
    lists="splits_mini",
    domains=DOMAINNET,
)
@benchmark(
    "nico",
    "NICO++, domain generalization: the official lists, train and test in each domain",
    "NICO_DG_official/autumn_train.txt, NICO_DG_official/autumn_test.txt and so on\n"
    "NICO_DG/autumn/airplane/*.jpg\nNICO_DG/dim/, grass/, outdoor/, rock/, water/",
    "nicochallenge.com/dataset (DG_Benchmark.zip)",
    [
        "NICO_DG/",
        *(f"NICO_DG_official/{domain}_{split}.txt" for domain in NICO for split in SPLITS),
    ],
    images="NICO_DG/",
    lists="NICO_DG_official",
    domains=NICO,
)
def read_domains(root: Path, images: str, lists: str, domains: tuple[str, ...]) -> Dataset:
    """Read lists of `DOMAIN/CLASS/IMAGE NUMBER`, one for each split of each domain that is there."""
    files = {d: [f"{d}_{split}.txt" for split in SPLITS] for d in domains}
    domains = tuple(d for d in domains if any((root / lists / f).is_file() for f in files[d]))
    check_layout(root / lists, "DomainNet", *(file for d in domains for file in files[d]))
    numbers: dict[str, int] = {}  # of classes

    def record(line: str, domain: str, split: str) -> Record:
        path, _, text = line.rpartition(" ")  # classes such as "fishing rod" have spaces
        *_, folder, label, image = ["", "", *path.split("/")]
        check(folder == domain, f"expected {domain}/CLASS/IMAGE and a number")
        number = numbers.setdefault(label, int(text))
        check(number == int(text), f"class {label} had number {number} before")
        return Record(f"{images}{folder}/{label}/{image}", label, split, domain=domain)

    records = (
        parsed
        for domain in domains
        for split in SPLITS
        for parsed in parse_lines(
            root / lists / f"{domain}_{split}.txt", partial(record, domain=domain, split=split), 1
        )
    )
    return pack(records, root, lists, class_order=numbers.__getitem__)


@benchmark(
    "minidomainnet-conversion",
    "MiniDomainNet, domain conversion: query and gallery",
    f"query_files.csv\ndatabase_files.csv\n{DOMAINNET_IMAGES}",
    f"{FREEDOM}; DomainNet",
    [*QUERY_AND_DATABASE.values()],
    lists=QUERY_AND_DATABASE,
)
@benchmark(
    "nico-conversion",
    "NICO++, domain conversion: query and gallery",
    "query_files.csv\ndatabase_files.csv\nautumn/airplane/*.jpg\n"
    "dim/, grass/, outdoor/, rock/, water/",
    f"{FREEDOM}; nicochallenge.com/dataset (DG_Benchmark.zip)",
    [*QUERY_AND_DATABASE.values()],
    lists=QUERY_AND_DATABASE,
)
@benchmark(
    "imagenet-r-conversion",
    "ImageNet-R and ImageNet photographs, domain conversion: every image is a query and in the "
    "database",
    "full_files.csv\nimagenet-r/n01443537/*.jpg\nreal/n01443537/*.JPEG",
    f"{FREEDOM}; ImageNet-R; ImageNet's validation images",
    ("imagenet-r/", "real/", "full_files.csv"),
    lists=FULL,
)
def read_domain_lists(root: Path, lists: dict[str | None, str]) -> Iterator[Record]:
    """Read FreeDom's lists, in the folder of the images: `set/path domain class` per line."""

    def record(path: str, domain: str, label: str) -> Record:
        relative = path.partition("/")[2]  # without FreeDom's name of the folder
        check(relative, f"{path} is not a path in the set's folder")
        return Record(relative, label, domain=domain)

    for split, file in lists.items():
        for parsed in parse_lines(root / file, record, 3):
            yield parsed._replace(split=split)


@benchmark(
    "ltll",
    "LTLL, domain conversion: every image is a query and in the database",
    "New/images/TajMahal/*.jpg\nOld/images/TajMahal/*.jpg\n"
    "full_files.csv (optional: the images to take)",
    f"users.cecs.anu.edu.au/~basura/beeldcanon (LTLL.zip); list: {FREEDOM}",
    ("New/images/", "Old/images/"),
)
def read_ltll(root: Path) -> Iterator[Record]:
    """Read location recognition over large time lags: 25 places in new and old photographs."""
    if (root / "full_files.csv").is_file():
        yield from read_domain_lists(root, FULL)
        return
    for domain in ("New", "Old"):
        for place in folders(root / domain / "images"):
            label = place.replace(" ", "")  # as in FreeDom's list
            for image in images(root / domain / "images" / place):
                yield Record(f"{domain}/images/{place}/{image}", label, domain=domain)
