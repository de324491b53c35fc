"""ROxford and RParis: landmarks, with the revisited ground truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..dataset import Dataset, pack
from ..layout import check_layout
from ..record import Record, RetrievalQuery
from ..safe_pickle import read_pickle
from .registry import benchmark

SOURCE = "cmp.felk.cvut.cz, Revisiting Oxford and Paris (gnd_*.pkl), with the images of Oxford 5k and Paris 6k in jpg/"
JUDGED = ("easy", "hard", "junk")


@benchmark(
    "roxford",
    "ROxford: 4,993 images, 70 queries",
    "gnd_roxford5k.pkl\njpg/all_souls_000001.jpg, ... (flat)",
    SOURCE,
)
def read_roxford(root: Path) -> Dataset:
    return _read(root, "roxford", "roxford5k")


@benchmark(
    "rparis",
    "RParis: 6,322 images, 70 queries",
    "gnd_rparis6k.pkl\njpg/paris_defense_000000.jpg, ... (flat)",
    SOURCE,
)
def read_rparis(root: Path) -> Dataset:
    return _read(root, "rparis", "rparis6k")


def _read(root: Path, name: str, published: str) -> Dataset:
    """The database comes first, in the published order, so that its positions are those of the ground truth."""
    check_layout(root, published, f"gnd_{published}.pkl", "jpg/")
    path = root / f"gnd_{published}.pkl"
    found = read_pickle(path)
    try:
        database, asking, truth = found["imlist"], found["qimlist"], found["gnd"]
        records = [Record(f"jpg/{image}.jpg", split="gallery") for image in database]
        records += [Record(f"jpg/{image}.jpg", split="query") for image in asking]
        queries = [
            _query(len(database) + number, judged, len(database))
            for number, judged in enumerate(truth)
            if number < len(asking)
        ]
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise ValueError(
            f"{path} is no ground truth: expected imlist, qimlist and gnd of easy, hard, junk and bbx; "
            f"{type(error).__name__} {error}"
        ) from error
    if len(queries) != len(asking):
        raise ValueError(f"{path} has {len(asking)} queries, but the truth of {len(queries)}")
    dataset = pack(records, root, name)
    dataset.queries = queries
    return dataset


def _query(image: int, judged: Any, images: int) -> RetrievalQuery:
    truth = {key: tuple(int(place) for place in judged[key]) for key in JUDGED}
    if any(not 0 <= place < images for places in truth.values() for place in places):
        raise ValueError(f"a position that is not among the {images} images")
    x1, y1, x2, y2 = (float(corner) for corner in judged["bbx"])
    return RetrievalQuery(image, truth, box=(x1, y1, x2, y2))
