"""ROxford and RParis: landmarks, with the revisited ground truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..checks import check, errors_in
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
    ("gnd_roxford5k.pkl", "jpg/"),
    file="gnd_roxford5k.pkl",
)
@benchmark(
    "rparis",
    "RParis: 6,322 images, 70 queries",
    "gnd_rparis6k.pkl\njpg/paris_defense_000000.jpg, ... (flat)",
    SOURCE,
    ("gnd_rparis6k.pkl", "jpg/"),
    file="gnd_rparis6k.pkl",
)
def read_landmarks(root: Path, file: str) -> Dataset:
    """Read the database, in the order of the ground truth's positions, then the queries."""
    with errors_in(root / file):
        content = read_pickle(root / file)
        database, query_images, answers = (content[key] for key in ("imlist", "qimlist", "gnd"))
        records = [
            *(Record(f"jpg/{image}.jpg", split="gallery") for image in database),
            *(Record(f"jpg/{image}.jpg", split="query") for image in query_images),
        ]
        n = len(database)
        pairs = zip(range(n, len(records)), answers, strict=True)
        queries = [_query(image, answer, n) for image, answer in pairs]
    dataset = pack(records, root, "landmarks")
    dataset.queries = queries
    return dataset


def _query(image: int, answer: Any, images: int) -> RetrievalQuery:
    truth = {kind: tuple(int(position) for position in answer[kind]) for kind in KINDS}
    positions = [position for answers in truth.values() for position in answers]
    valid = all(0 <= position < images for position in positions)
    check(valid, f"a position is not among the {images} images")
    x1, y1, x2, y2 = (float(corner) for corner in answer["bbx"])
    return RetrievalQuery(image, truth, box=(x1, y1, x2, y2))
