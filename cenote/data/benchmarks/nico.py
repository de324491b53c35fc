"""NICO++: 60 classes in six contexts, its benchmark of domain generalization."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..dataset import Dataset, pack
from ..layout import check_layout
from ..record import Record
from .parsing import QUERY_AND_DATABASE, SOURCE, parse_lines, read_domain_lists
from .registry import benchmark

DOMAINS = ("autumn", "dim", "grass", "outdoor", "rock", "water")


@benchmark(
    "nico",
    "NICO++, domain generalization: the official lists, train and test in each domain",
    "NICO_DG_official/autumn_train.txt, NICO_DG_official/autumn_test.txt and so on\n"
    "NICO_DG/autumn/airplane/*.jpg\nNICO_DG/dim/, grass/, outdoor/, rock/, water/",
    "nicochallenge.com/dataset (DG_Benchmark.zip)",
)
def read_nico(root: Path) -> Dataset:
    lists = [
        f"NICO_DG_official/{domain}_{split}.txt"
        for domain in DOMAINS
        for split in ("train", "test")
    ]
    check_layout(root, "NICO++", "NICO_DG/", *lists)
    numbers: dict[str, int] = {}  # filled while the records go by
    return pack(_records(root, numbers), root, "nico", class_order=numbers.__getitem__)


def _records(root: Path, numbers: dict[str, int]) -> Iterator[Record]:
    for domain in DOMAINS:
        for split in ("train", "test"):

            def record(line: str, domain: str = domain, split: str = split) -> Record:
                path, _, number = line.rpartition(" ")  # classes such as "fishing rod" have spaces
                parts = path.split("/")
                if len(parts) < 3 or parts[-3] != domain:
                    raise ValueError(f"expected NICO_DG/{domain}/CLASS/IMAGE and a number")
                if numbers.setdefault(parts[-2], int(number)) != int(number):
                    raise ValueError(f"class {parts[-2]} was number {numbers[parts[-2]]} before")
                return Record(f"NICO_DG/{'/'.join(parts[-3:])}", parts[-2], split, domain=domain)

            yield from parse_lines(root / "NICO_DG_official" / f"{domain}_{split}.txt", record, 1)


@benchmark(
    "nico-conversion",
    "NICO++, domain conversion: query and gallery",
    "query_files.csv\ndatabase_files.csv\nautumn/airplane/*.jpg\ndim/, grass/, outdoor/, rock/, water/",
    f"{SOURCE}; nicochallenge.com/dataset (DG_Benchmark.zip)",
)
def read_nico_conversion(root: Path) -> Dataset:
    return read_domain_lists(
        root, "nico-conversion", "NICO++ for domain conversion", QUERY_AND_DATABASE
    )
