"""MiniDomainNet: 126 classes of DomainNet in four domains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Record
from .parsing import FREEDOM, QUERY_AND_DATABASE, parse_lines, read_domain_lists
from .registry import benchmark

DOMAINS = ("clipart", "painting", "real", "sketch")
IMAGES = "clipart/aircraft_carrier/*.jpg\npainting/, real/, sketch/"
LISTS = [(domain, split) for domain in DOMAINS for split in ("train", "test")]


@benchmark(
    "minidomainnet",
    "MiniDomainNet: the split of its authors, train and test in each domain",
    f"splits_mini/clipart_train.txt, splits_mini/clipart_test.txt and so on\n{IMAGES}",
    "ai.bu.edu/M3SDA (DomainNet, cleaned); splits_mini.zip: github.com/KaiyangZhou/Dassl.pytorch",
)
def read_minidomainnet(root: Path) -> Dataset:
    paths = [f"splits_mini/{domain}_{split}.txt" for domain, split in LISTS]
    check_layout(root, "MiniDomainNet", *paths)
    numbers: dict[str, int] = {}  # of classes, filled while the records are read
    return pack(_records(root, numbers), root, "minidomainnet", class_order=numbers.__getitem__)


def _records(root: Path, numbers: dict[str, int]) -> Iterator[Record]:
    for domain, split in LISTS:

        def record(path: str, number: str, domain: str = domain, split: str = split) -> Record:
            folder, label, *_ = [*path.split("/"), ""]
            check(
                folder == domain and numbers.setdefault(label, int(number)) == int(number),
                f"expected an image of {domain}, and one number per class",
            )
            return Record(path, label, split, domain=domain)

        yield from parse_lines(root / "splits_mini" / f"{domain}_{split}.txt", record, 2)


@benchmark(
    "minidomainnet-conversion",
    "MiniDomainNet, domain conversion: query and gallery",
    f"query_files.csv\ndatabase_files.csv\n{IMAGES}",
    f"{FREEDOM}; DomainNet",
)
def read_minidomainnet_conversion(root: Path) -> Dataset:
    what = "MiniDomainNet for domain conversion"
    return read_domain_lists(root, "minidomainnet-conversion", what, QUERY_AND_DATABASE)
