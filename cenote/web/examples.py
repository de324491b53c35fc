"""Photographs to begin with, so that there is something to see before anything is uploaded."""

from __future__ import annotations

import json
from contextlib import suppress

from ..data import Dataset, open_dataset
from ..data.dataset import images_are_files
from ..data.digests import digest_of, digests
from ..train.tournament.maps import photographs
from .indexed import Indexed
from .photos import file_of, photo_of
from .questions import Photo
from .runs import Served

MOST = 8


def examples(served: Served, index: Indexed | None) -> dict[str, Photo]:
    """Of the data of a run, else of the index, else drawn: by the digest that an index, too, knows them by."""
    for name in _data(served):
        with suppress(ValueError, OSError):
            if found := _of(_unseen(open_dataset(name))):
                return found
    found = dict[str, Photo]()
    for _, entry in [] if index is None else index.shown():
        if index is not None and len(found) < MOST and (known := index.photo(entry)):
            found[known[0]] = known[1]
    return found or _drawn()


def _data(served: Served) -> list[str]:
    """A demo's world; a world that a tournament was played on; others name no place where they can be found."""
    names = [str(world) for world in served.worlds]
    for folder in served.tournaments:
        with suppress(OSError, ValueError, KeyError, TypeError):
            name = str(json.loads((folder / "results.json").read_text())["data"])
            names += [name] if name.startswith("world/") else []
    return names


def _unseen(dataset: Dataset) -> Dataset:
    return dataset.split("test") if "test" in dataset.splits else dataset


def _of(dataset: Dataset) -> dict[str, Photo]:
    chosen, found = photographs(dataset, MOST), dict[str, Photo]()
    for i, digest in enumerate(digests(chosen)):
        if digest is not None:
            content = file_of(chosen.path(i), images_are_files(chosen.pixels))
            found[digest.hex()] = photo_of(chosen.image(i), content, chosen[i].label or "")
    return found


def _drawn() -> dict[str, Photo]:
    from ..data.synthetic.drawing import World

    plan, found = World.preset("tiny", size=256), {}
    for i in (1, 2):
        drawn = plan.draw(i)
        photo = photo_of(drawn.image, None, drawn.record.label or "")
        found[digest_of(photo.content).hex()] = photo
    return found
