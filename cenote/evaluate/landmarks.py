"""The revisited Oxford and Paris: landmarks in a database, searched by a region of a photograph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ..data import BadImage, Dataset, Record, pack
from ..data.record import RetrievalQuery
from ..metrics import landmark_scores
from ..metrics.vectors import unit
from ..models import PooledModel
from ..predict.batches import Progress
from ..predict.embedding import embed_dataset
from .protocol import Figure, Report, left_out, without_nan

DIFFICULTIES = ("easy", "medium", "hard")


@dataclass
class LandmarkReport(Report):
    """For each difficulty mAP, mP@1, mP@5 and mP@10 in percent, and the number of queries."""

    scores: dict[str, dict[str, float]]
    images: int
    unreadable: list[str]

    def to_json(self) -> dict[str, Any]:
        images = {"images": self.images, "unreadable": self.unreadable}
        return dict(without_nan({**self.scores, **images}))

    def table(self, split: str) -> str:
        names = [name for name in self.scores["medium"] if name != "queries"]
        heads = [name.replace("map", "mAP").replace("mp", "mP") for name in names]
        lines = [f"{'':10}" + "".join(f"{head:>8}" for head in heads) + f"{'queries':>9}"]
        for difficulty in DIFFICULTIES:
            score = self.scores[difficulty]
            values = "".join(f"{score[name]:8.2f}" for name in names)
            lines.append(f"{difficulty:10}{values}{int(score['queries']):9d}")
        lines.append(f"percent; {self.images} images in the database")
        return "\n".join([*lines, *left_out(self.unreadable)])

    def figures(self) -> list[Figure]:
        return [Figure(f"mAP, {name}", self.scores[name]["map"], "%") for name in DIFFICULTIES]


def are_landmarks(dataset: Dataset) -> bool:
    """Return whether the queries of a data set name easy, hard and junk images."""
    needed = {"easy", "hard", "junk"}
    return bool(dataset.queries) and all(set(query.truth) >= needed for query in dataset.queries)


def landmarks(
    model: PooledModel,
    dataset: Dataset,
    batch: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> LandmarkReport:
    """Search the database by cosine similarity to the queries, cropped to their boxes.

    An image of the database that cannot be read is never retrieved; an unreadable query is not
    used.
    """
    query_images = [query.image for query in dataset.queries]
    database_images = np.setdiff1d(np.arange(len(dataset)), query_images)
    options = batch, workers, progress
    queries = embed_dataset(model, crop_queries(dataset), *options)
    database = embed_dataset(model, dataset.select(database_images), *options)
    similarity = unit(queries.vectors) @ unit(database.vectors).T  # (queries, images)
    order = similarity.argsort(dim=1, descending=True, stable=True).numpy()
    ranking = database_images[database.positions.numpy()][order]
    truth = [dataset.queries[i].truth for i in queries.positions.tolist()]
    scores: dict[str, dict[str, float]] = {}
    for name, score in landmark_scores(ranking, truth).items():
        precision = {f"mp@{k}": 100 * share for k, share in score.mp.items()}
        scores[name] = {"map": 100 * score.map, "queries": score.queries, **precision}
    return LandmarkReport(scores, ranking.shape[1], queries.bad + database.bad)


def crop_queries(dataset: Dataset) -> Dataset:
    """Return an image for each query, in their order: the inside of its box."""
    records = (Record(dataset[query.image].image) for query in dataset.queries)
    cropped = pack(records, dataset.root, f"{dataset.name} queries")
    cropped.pixels = CroppedQueries(dataset, dataset.queries)
    return cropped


class CroppedQueries:
    def __init__(self, dataset: Dataset, queries: list[RetrievalQuery]) -> None:
        self.dataset, self.queries = dataset, queries

    def image(self, row: int) -> Image.Image:
        query = self.queries[row]
        image = self.dataset.image(query.image)
        if query.box is None:
            return image
        x1, y1, x2, y2 = (round(corner) for corner in query.box)
        box = (max(x1, 0), max(y1, 0), min(x2, image.width), min(y2, image.height))
        if box[0] >= box[2] or box[1] >= box[3]:
            path = self.dataset.path(query.image)
            raise BadImage(path, f"the query's box {query.box} is outside of the image")
        return image.crop(box)

    def mask(self, row: int) -> None:
        return None
