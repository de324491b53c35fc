"""The third question: an image and a sentence that make another image (D 4.4.8): FashionIQ, CIRR, CIRCO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..data import Dataset
from ..data.record import RetrievalQuery
from .protocols import Codes, EvaluationQuery, RetrievalTask


def triplet_queries(dataset: Dataset) -> list[RetrievalQuery]:
    """Those that came with the data, of an image and a text, whose right images are told, also if none can be read."""
    known = dataset.table.attributes  # a text that is a value is another question
    return [
        q
        for q in dataset.queries
        if q.text is not None and "targets" in q.truth and q.group not in known
    ]


def triplets(dataset: Dataset) -> list[RetrievalTask]:
    """A task for each group of queries: the images of a kind of garment are a database of their own."""
    groups: dict[str | None, list[RetrievalQuery]] = {}
    for query in triplet_queries(dataset):
        groups.setdefault(query.group, []).append(query)
    if not groups:
        raise ValueError(f"{dataset.name} has no queries of an image, a text and its right images")
    return [_of_group(dataset, group, queries) for group, queries in groups.items()]


def _of_group(
    dataset: Dataset, group: str | None, queries: Sequence[RetrievalQuery]
) -> RetrievalTask:
    column, everything = group or dataset.name, np.arange(len(dataset))
    own = group in dataset.classes
    database = (
        everything[dataset.labels == dataset.classes.index(str(group))] if own else everything
    )
    rows = {int(position): row for row, position in enumerate(database)}
    questions = []
    for query in queries:
        right = sorted(
            rows[target]
            for target in query.truth["targets"]
            if target in rows and target != query.image
        )
        asked = query.image, str(query.text), np.array(right, np.int64), column, column, -1, -1
        questions.append(EvaluationQuery(*asked, group=_group(dataset, query, rows)))
    # CIRR, whose queries come with the others of their group, does not rank the query; the other sets do.
    itself = not any("subset" in query.truth for query in queries)
    nothing = np.full(len(database), -1)
    return RetrievalTask(
        "triplets", "standard", dataset, database, questions, [column], nothing, {}, itself
    )


def _group(dataset: Dataset, query: RetrievalQuery, rows: Mapping[int, int]) -> Codes | None:
    """Images that cannot be read have left the truth before: what is not in the database was never in the data."""
    if "subset" not in query.truth:
        return None
    members, targets = (set(query.truth[name]) - {query.image} for name in ("subset", "targets"))
    which = f"{dataset.name}: the group of query {query.name or repr(query.text)}"
    if unknown := (members | targets) - rows.keys():
        raise ValueError(
            f"{which} names image {min(unknown)}, which is not in the database: correct its members"
        )
    if lacking := targets - members:
        right = dataset[min(lacking)].image
        raise ValueError(
            f"{which} lacks its right image {right}: add it to the members, or leave the query out"
        )
    return np.array(sorted(rows[member] for member in members), np.int64)
