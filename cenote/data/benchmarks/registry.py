"""Published data sets by name; every module of this package may declare some."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, TypeVar

from ...options import check_known
from ..checks import LayoutError, check_folder, check_layout, list_contents
from ..dataset import Dataset, pack
from ..record import Record

Reader = TypeVar("Reader", bound=Callable[..., Dataset | Iterable[Record]])


@dataclass(frozen=True)
class Benchmark:
    """A published data set: its layout, where to get it, and its reader."""

    name: str
    title: str
    tree: str  # what the root must contain, one path per line
    source: str  # where to get it
    needs: Sequence[str]
    inside: Sequence[str]
    reader: Callable[..., Dataset | Iterable[Record]]
    options: Mapping[str, Any]

    def read(self, root: Path) -> Dataset:
        """Read the data set; a LayoutError says what is missing."""
        root = first_folder(root, *self.inside)
        what, expected = re.split("[,:;]", self.title)[0], "; ".join(self.tree.splitlines())
        check_folder(root, what, expected)
        check_layout(root, what, *self.needs)
        data = self.reader(root, **self.options)
        dataset = data if isinstance(data, Dataset) else pack(data, root, self.name)
        dataset.name = self.name
        if not len(dataset):
            problems = dataset.problems or [f"expected {expected}, found {list_contents(root)}"]
            raise LayoutError(f"{root} has no image of {what}: {problems[0]}")
        return dataset


_benchmarks: dict[str, Benchmark] = {}


def benchmark(
    name: str,
    title: str,
    tree: str,
    source: str,
    needs: Sequence[str] = (),
    inside: Sequence[str] = (),
    **options: Any,
) -> Callable[[Reader], Reader]:
    """Register a reader: a function of the root folder and `options` that returns records or a set.

    The paths that the reader `needs` are checked first (see `check_layout`). The root is the first
    folder of `inside` that exists, such as the folder in the archive. Stacked decorators register
    several sets with one reader.
    """

    def register(reader: Reader) -> Reader:
        _benchmarks[name] = Benchmark(name, title, tree, source, needs, inside, reader, options)
        return reader

    return register


def first_folder(root: Path, *names: str) -> Path:
    """Return the first of these folders that exists in the root, else the root."""
    return next((root / name for name in names if (root / name).is_dir()), root)


def benchmarks() -> dict[str, Benchmark]:
    """Return all benchmarks, sorted by name. The readers are imported now, not before."""
    for module in iter_modules([str(Path(__file__).parent)]):
        import_module(f".{module.name}", __package__)
    return dict(sorted(_benchmarks.items()))


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of this name; an unknown name is a ValueError with a suggestion."""
    check_known("data set", name, benchmarks())
    return benchmarks()[name]


def describe_benchmarks() -> str:
    """Return a text with the title, layout and source of every benchmark."""
    blocks = ["`cenote data NAME:FOLDER` reads one of these; FOLDER must have the layout shown."]
    for name, entry in benchmarks().items():
        tree = "\n".join(f"      {line}" for line in entry.tree.splitlines())
        blocks.append(f"{name}\n    {entry.title}\n{tree}\n    from {entry.source}")
    return "\n\n".join(blocks)
