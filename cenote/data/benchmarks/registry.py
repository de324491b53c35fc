"""Published data sets by name; every module of this package may declare some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from ...options import suggest
from ..checks import LayoutError, list_contents
from ..dataset import Dataset

Reader = Callable[[Path], Dataset]


@dataclass(frozen=True)
class Benchmark:
    """A published data set: its layout, where to get it, and its reader."""

    name: str
    title: str
    tree: str  # what the root must contain, one path per line
    source: str  # where to get it
    read: Reader


_benchmarks: dict[str, Benchmark] = {}


def benchmark(name: str, title: str, tree: str, source: str) -> Callable[[Reader], Reader]:
    """Register a reader: a function of the root folder. A data set without images is an error."""

    def register(read: Reader) -> Reader:
        @wraps(read)
        def read_nonempty(root: Path) -> Dataset:
            dataset = read(root)
            if not len(dataset):
                short_title = title.split(",")[0].split(":")[0]
                problems = dataset.problems or [f"found {list_contents(root)}"]
                raise LayoutError(f"{root} has no image of {short_title}: {problems[0]}")
            return dataset

        _benchmarks[name] = Benchmark(name, title, tree, source, read_nonempty)
        return read_nonempty

    return register


def benchmarks() -> dict[str, Benchmark]:
    """Return all benchmarks, sorted by name. The readers are imported now, not before."""
    for module in iter_modules([str(Path(__file__).parent)]):
        import_module(f".{module.name}", __package__)
    return dict(sorted(_benchmarks.items()))


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of this name; an unknown name is a ValueError with a suggestion."""
    available = benchmarks()
    if name not in available:
        hint = suggest(name, available) or f"; available: {', '.join(available)}"
        raise ValueError(f"no data set '{name}'{hint}")
    return available[name]


def describe_benchmarks() -> str:
    """Return a text with the title, layout and source of every benchmark."""
    blocks = ["`cenote data NAME:FOLDER` reads one of these; FOLDER must have the layout shown."]
    for name, entry in benchmarks().items():
        tree = "\n".join(f"      {line}" for line in entry.tree.splitlines())
        blocks.append(f"{name}\n    {entry.title}\n{tree}\n    from {entry.source}")
    return "\n\n".join(blocks)
