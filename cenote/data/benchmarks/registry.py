"""Published data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ...options import suggest
from ..dataset import Dataset
from ..trees import WrongTree, contents

# The file of each family. Nothing is imported before it is asked for.
FAMILIES = """
    imagenet imagenet_variants cifar flowers oxford_pets cub cars sop inshop minidomainnet nico ltll
    wsol openimages voc_sets coco_sets ade20k landmarks patterncom fashioniq cirr circo
"""


class Benchmark(NamedTuple):
    """A published data set: how it lies on disk, where it is had, and who reads it."""

    name: str
    title: str
    tree: str  # what the root must hold, one path a line
    source: str  # where to get it
    read: Callable[[Path], Dataset]


_benchmarks: dict[str, Benchmark] = {}


def benchmark(
    name: str, title: str, tree: str, source: str
) -> Callable[[Callable[[Path], Dataset]], Callable[[Path], Dataset]]:
    """Declare a reader: a function of the root. One that finds nothing is an error."""

    def declare(read: Callable[[Path], Dataset]) -> Callable[[Path], Dataset]:
        @wraps(read)
        def read_some(root: Path) -> Dataset:
            dataset = read(root)
            if not len(dataset):
                why = dataset.problems[0] if dataset.problems else f"found {contents(root)}"
                raise WrongTree(
                    f"{root} has no image of {title.split(',')[0].split(':')[0]}: {why}"
                )
            return dataset

        _benchmarks[name] = Benchmark(name, title, tree, source, read_some)
        return read_some

    return declare


def benchmarks() -> dict[str, Benchmark]:
    """All of them, sorted by name."""
    for family in FAMILIES.split():
        import_module(f".{family}", __package__)
    return dict(sorted(_benchmarks.items()))


def find_benchmark(name: str) -> Benchmark:
    known = benchmarks()
    if name not in known:
        hint = suggest(name, known) or f"; known: {', '.join(known)}"
        raise ValueError(f"no data set is called '{name}'{hint}")
    return known[name]
