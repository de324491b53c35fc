"""ROxford and RParis: landmarks, with the revisited ground truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Record, RetrievalQuery
from ..safe_pickle import read_pickle
from .registry import benchmark

SOURCE = (
    "cmp.felk.cvut.cz, Revisiting Oxford and Paris (gnd_*.pkl), with the images of Oxford 5k and "
    "Paris 6k in jpg/"
)
KINDS = ("easy", "hard", "junk")  # of correct answers


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
    """Read the database, in the order of the ground truth's positions, then the queries."""
    path = root / f"gnd_{published}.pkl"
    check_layout(root, published, path.name, "jpg/")
    content = read_pickle(path)
    try:
        database, query_images, answers = (content[key] for key in ("imlist", "qimlist", "gnd"))
        splits = [
            *((image, "gallery") for image in database),
            *((q, "query") for q in query_images),
        ]
        records = [Record(f"jpg/{image}.jpg", split=split) for image, split in splits]
        n = len(database)
        pairs = zip(range(n, len(records)), answers, strict=False)
        queries = [_query(image, answer, n) for image, answer in pairs]
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise ValueError(
            f"{path} is not a ground truth: expected imlist, qimlist and gnd of easy, hard, junk "
            f"and bbx; {type(error).__name__} {error}"
        ) from error
    if len(queries) != len(query_images):
        counts = f"{len(query_images)} queries, but the answers to {len(queries)}"
        raise ValueError(f"{path} has {counts}")
    dataset = pack(records, root, name)
    dataset.queries = queries
    return dataset


def _query(image: int, answer: Any, images: int) -> RetrievalQuery:
    truth = {kind: tuple(int(position) for position in answer[kind]) for kind in KINDS}
    positions = [position for answers in truth.values() for position in answers]
    valid = all(0 <= position < images for position in positions)
    check(valid, f"a position is not among the {images} images")
    x1, y1, x2, y2 = (float(corner) for corner in answer["bbx"])
    return RetrievalQuery(image, truth, box=(x1, y1, x2, y2))
