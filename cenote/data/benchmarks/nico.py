"""NICO++: 60 classes in six contexts, its benchmark of domain generalization."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Record
from .parsing import FREEDOM, QUERY_AND_DATABASE, parse_lines, read_domain_lists
from .registry import benchmark

DOMAINS = ("autumn", "dim", "grass", "outdoor", "rock", "water")
LISTS = [(domain, split) for domain in DOMAINS for split in ("train", "test")]


@benchmark(
    "nico",
    "NICO++, domain generalization: the official lists, train and test in each domain",
    "NICO_DG_official/autumn_train.txt, NICO_DG_official/autumn_test.txt and so on\n"
    "NICO_DG/autumn/airplane/*.jpg\nNICO_DG/dim/, grass/, outdoor/, rock/, water/",
    "nicochallenge.com/dataset (DG_Benchmark.zip)",
)
def read_nico(root: Path) -> Dataset:
    paths = [f"NICO_DG_official/{domain}_{split}.txt" for domain, split in LISTS]
    check_layout(root, "NICO++", "NICO_DG/", *paths)
    numbers: dict[str, int] = {}  # of classes, filled while the records are read
    return pack(_records(root, numbers), root, "nico", class_order=numbers.__getitem__)


def _records(root: Path, numbers: dict[str, int]) -> Iterator[Record]:
    for domain, split in LISTS:

        def record(line: str, domain: str = domain, split: str = split) -> Record:
            path, _, number = line.rpartition(" ")  # classes such as "fishing rod" have spaces
            *_, folder, label, image = ["", "", *path.split("/")]
            check(folder == domain, f"expected NICO_DG/{domain}/CLASS/IMAGE and a number")
            check(
                numbers.setdefault(label, int(number)) == int(number),
                f"class {label} had number {numbers[label]} before",
            )
            return Record(f"NICO_DG/{folder}/{label}/{image}", label, split, domain=domain)

        yield from parse_lines(root / "NICO_DG_official" / f"{domain}_{split}.txt", record, 1)


@benchmark(
    "nico-conversion",
    "NICO++, domain conversion: query and gallery",
    "query_files.csv\ndatabase_files.csv\nautumn/airplane/*.jpg\n"
    "dim/, grass/, outdoor/, rock/, water/",
    f"{FREEDOM}; nicochallenge.com/dataset (DG_Benchmark.zip)",
)
def read_nico_conversion(root: Path) -> Dataset:
    what = "NICO++ for domain conversion"
    return read_domain_lists(root, "nico-conversion", what, QUERY_AND_DATABASE)
