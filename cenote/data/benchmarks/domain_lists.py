"""The lists of FreeDom for domain conversion: `set/path domain class` a line, in the folder of the images.

The protocol makes its queries of them: each image of the split `query` (of the whole set where there are no splits)
with each other domain; right are the images of its class in that domain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ..dataset import Dataset
from ..packing import pack
from ..record import Record
from ..trees import expect
from .parsing import parse_lines

Lists = Mapping[str | None, str]  # the file of each split
SOURCE = "github.com/NikosEfth/freedom (data/ and set_dataset.py)"
QUERY_AND_DATABASE: Lists = {"query": "query_files.csv", "gallery": "database_files.csv"}
WHOLE: Lists = {None: "full_files.csv"}
# The words of the text queries, where they are not the names of the domains.
DOMAIN_WORDS = {"real": "photo", "dim": "dimlight", "New": "Today", "Old": "Archive"}


def read_domain_lists(root: Path, name: str, what: str, lists: Lists) -> Dataset:
    expect(root, what, *lists.values())
    return pack(_records(root, lists), root, name)


def _records(root: Path, lists: Lists) -> Iterator[Record]:
    for split, file in lists.items():

        def record(path: str, domain: str, label: str, split: str | None = split) -> Record:
            below = path.partition("/")[2]  # without the name that FreeDom gives the set's folder
            if not below:
                raise ValueError(f"{path} is no path below the set's folder")
            return Record(below, label, split, domain=domain)

        yield from parse_lines(root / file, record, 3)
