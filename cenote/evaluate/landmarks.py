"""The revisited Oxford and Paris: landmarks in a database, found by a part of a photograph."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from ..data import BadImage, Dataset, Record, pack
from ..data.record import RetrievalQuery
from ..metrics import landmark_scores
from ..metrics.vectors import unit
from ..models import PooledModel
from ..predict.embedding import embed_dataset

JUDGED = {"easy", "hard", "junk"}


def are_landmarks(dataset: Dataset) -> bool:
    """Whether its queries name easy, hard and junk images."""
    return bool(dataset.queries) and all(set(query.truth) >= JUDGED for query in dataset.queries)


def landmarks(model: PooledModel, dataset: Dataset, **options: Any) -> dict[str, Any]:
    """mAP and mP@1, 5 and 10 in percent, easy, medium and hard, by cosine; queries are cut to their boxes.

    An image of the database that cannot be read is found by nobody; a query that cannot be read is left out.
    """
    asking = [query.image for query in dataset.queries]
    rest = np.setdiff1d(np.arange(len(dataset)), asking)
    queries = embed_dataset(model, cut_queries(dataset), **options)
    database = embed_dataset(model, dataset.select(rest), **options)
    similarity = unit(queries.vectors) @ unit(database.vectors).T  # (queries, images)
    order = rest[database.positions.numpy()][
        similarity.argsort(dim=1, descending=True, stable=True).numpy()
    ]
    truth = [dataset.queries[i].truth for i in queries.positions.tolist()]
    report: dict[str, Any] = {}
    for name, score in landmark_scores(order, truth).items():
        report[name] = {"map": 100 * score.map, "queries": score.queries}
        report[name] |= {f"mp@{k}": 100 * share for k, share in score.mp.items()}
    return {**report, "images": order.shape[1], "unreadable": queries.bad + database.bad}


def cut_queries(dataset: Dataset) -> Dataset:
    """An image for each query, in their order: what lies in its box."""
    part = pack(
        (Record(dataset[query.image].image) for query in dataset.queries),
        dataset.root,
        f"{dataset.name} queries",
    )
    part.pixels = _Cut(dataset, dataset.queries)
    return part


class _Cut:
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
            raise BadImage(
                self.dataset.path(query.image), f"the query's box {query.box} lies outside of it"
            )
        return image.crop(box)

    def mask(self, row: int) -> None:
        return None
