"""The pictures of entries: of files, and of data sets whose images are none."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from ..data import BadImage, Dataset, open_dataset, read_image
from .store import ImageEntry


class EntryImages:
    """None where there is no picture any more. Data sets are opened once."""

    def __init__(self) -> None:
        self.datasets: dict[str, tuple[Dataset, dict[str, int]]] = {}

    def file(self, path: str | Path) -> Image.Image | None:
        try:
            return read_image(path)
        except BadImage:
            return None

    def __call__(self, entry: ImageEntry) -> Image.Image | None:
        if entry.time:
            return self.file(entry.path)
        if entry.source not in self.datasets:
            dataset = open_dataset(entry.source)
            self.datasets[entry.source] = (
                dataset,
                {dataset[i].image: i for i in range(len(dataset))},
            )
        dataset, places = self.datasets[entry.source]
        place = places.get(entry.path.partition(":")[2])
        return None if place is None else dataset.image(place)
