"""Image retrieval: are a model's nearest images of the query's class?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..data import BadImage, Dataset, Record, pack
from ..metrics import landmark_scores
from ..metrics.arrays import unit
from ..metrics.embedding import alignment, uniformity
from ..metrics.retrieval import KS, KS_OF, QueryScores, mean_scores, query_scores
from ..models import PooledModel
from ..predict.embedding import Embeddings, Loading, embed_dataset
from ..report.blocks import Block
from ..report.retrieval import Neighbour, QueryCase, retrieval_blocks, retrieval_page
from .protocol import Evaluation, Figure, Picture, Protocol, Report, left_out, without_nan
from .splits import held_out_classes

TITLES = {"p@1": "P@1", "r_precision": "R-precision", "map@r": "MAP@R"}
NEIGHBOURS = 6  # shown for a query
CASES = 6  # best and worst queries
DIFFICULTIES = ("easy", "medium", "hard")
TREATMENTS = {"exclude": "left out", "miss": "counted as misses"}  # of queries without a match
ONE_CLASS = "all images are of one class: every neighbour is right, these figures mean nothing"


@dataclass
class RetrievalReport(Report):
    """Scores in percent: recall@K, P@1, R-precision and MAP@R."""

    scores: dict[str, float]
    queries: int
    without_match: int
    without_match_are: str
    images: int
    gallery: int | None
    classes: int
    no_class: int
    alignment: float | None
    uniformity: float | None
    unreadable: list[str]
    cases: list[QueryCase]
    of: str = ""

    not_in_json = ("scores",)

    def to_json(self) -> dict[str, object]:
        return {**without_nan(self.scores), **super().to_json()}

    def table(self, split: str) -> str:
        heads = [
            name.replace("recall", "R").replace("r_precision", "RP").upper() for name in self.scores
        ]
        against = "the others"
        if self.gallery is not None:
            against = f"{self.gallery} images of the gallery"
        lines = [
            "".join(f"{head:>8}" for head in heads),
            "".join(f"{score:8.2f}" for score in self.scores.values()),
            f"percent; {self.queries} queries of {self.of or split}, {self.classes} classes, "
            f"against {against}",
        ]
        if self.without_match:
            noun = {1: "query"}.get(self.without_match, "queries")
            treatment = TREATMENTS[self.without_match_are]
            lines.append(f"{treatment}: {self.without_match} {noun} with nothing to find")
        if self.alignment is not None and self.uniformity is not None:
            lines.append(
                f"alignment {self.alignment:.3f}, uniformity {self.uniformity:.3f} "
                "(lower is better)"
            )
        lines += left_out(self.unreadable, no_class=self.no_class)
        if self.classes == 1 and self.gallery is None:
            lines.append(ONE_CLASS)
        return "\n".join(lines)

    def figures(self) -> list[Figure]:
        unit = f"% of {self.queries} queries"
        return [
            Figure(TITLES.get(name, name.replace("recall", "Recall")), score, unit)
            for name, score in self.scores.items()
        ]


class Retrieve(Protocol[Any], name="retrieve"):
    """Every image is a query among the others, or In-Shop's queries search their gallery.

    A metric learning run on this data set is evaluated on the classes it held out. The revisited
    Oxford and Paris have their own scores, `landmarks`.
    """

    queries: Dataset
    searched: Dataset

    def run(self, evaluation: Evaluation) -> RetrievalReport | LandmarkReport:
        model, data = evaluation.model, evaluation.data
        if data is not None and are_landmarks(data):
            with evaluation.loading("retrieve", len(data)) as loading:
                return landmarks(model, data, loading)
        queries, gallery, name = self._sets(evaluation)
        self.queries, self.searched = queries, gallery or queries
        with evaluation.loading("retrieve", len(queries) + len(gallery or ())) as loading:
            treatment = evaluation.without_match
            report = retrieve(model, queries, gallery, without_match=treatment, loading=loading)
        report.of = name
        return report

    def _sets(self, evaluation: Evaluation) -> tuple[Dataset, Dataset | None, str]:
        """Return queries, their gallery (None: they search each other) and a name."""
        data = evaluation.data
        if data is not None and {"query", "gallery"} <= set(data.splits):
            return data.split("query"), data.split("gallery"), "query"
        if data is not None and (held_out := held_out_classes(evaluation.folder, data)):
            return held_out, None, "unseen classes"
        return evaluation.test, None, evaluation.splits.name

    def pictures(self, evaluation: Evaluation, report: Report) -> Iterable[Picture]:
        if isinstance(report, RetrievalReport):
            sets = self.queries, self.searched
            yield "retrieval.jpg", lambda: retrieval_page(report.cases, *sets, evaluation.title)

    def blocks(self, evaluation: Evaluation, report: Report) -> list[Block]:
        if not isinstance(report, RetrievalReport):
            return []
        return retrieval_blocks(report.cases, self.queries, self.searched)


class EmbeddedImages(NamedTuple):
    """Labelled images of a data set and their vectors; positions are those in the data set."""

    dataset: Dataset
    embeddings: Embeddings

    @property
    def labels(self) -> Tensor:
        return self.embeddings.labels(self.dataset)


def retrieve(
    model: PooledModel,
    queries: Dataset,
    gallery: Dataset | None = None,
    ks: Sequence[int] | None = None,
    without_match: str = "exclude",
    loading: Loading = Loading(),
) -> RetrievalReport:
    """Search every image among the others, or in a gallery, by cosine similarity.

    Images without a class are not used. `queries` and `gallery` are splits of one data set, and K
    is by default what is published for it, else 1, 2, 4, 8.
    """
    ks = ks or KS_OF.get(queries.name, KS)
    if gallery is not None and gallery.classes != queries.classes:
        raise ValueError(
            f"{queries.name} and {gallery.name} have different classes: use splits of one data set"
        )
    asking = _embed_labelled(model, queries, loading)
    vectors, labels = asking.embeddings.vectors, asking.labels
    searched, gallery_vectors, gallery_labels, gallery_size = asking, None, None, None
    if gallery is not None:
        searched = _embed_labelled(model, gallery, loading)
        gallery_vectors, gallery_labels = searched.embeddings.vectors, searched.labels
        gallery_size = len(gallery_labels)
    scores = query_scores(vectors, labels, ks, gallery_vectors, gallery_labels, keep=NEIGHBOURS)
    means = mean_scores(scores, ks, without_match)
    names = [*(f"recall@{k}" for k in ks), *TITLES]
    return RetrievalReport(
        scores={name: 100 * means[name] for name in names},
        queries=int(means["queries"]),
        without_match=int(means["without_match"]),
        without_match_are=without_match,
        images=len(labels),
        gallery=gallery_size,
        classes=len(labels.unique()),
        no_class=int((queries.labels < 0).sum()),
        alignment=_value_or_none(alignment, vectors, labels),
        uniformity=_value_or_none(uniformity, vectors),
        unreadable=list(dict.fromkeys(asking.embeddings.bad + searched.embeddings.bad)),
        cases=[
            _case(group, row, scores, asking, searched) for group, row in _extremes(scores, labels)
        ],
    )


def _embed_labelled(model: PooledModel, dataset: Dataset, loading: Loading) -> EmbeddedImages:
    positions = np.flatnonzero(dataset.labels >= 0)
    if not len(positions):
        raise ValueError(f"{dataset.name} has no image with a class to retrieve by")
    output = embed_dataset(model, dataset.select(positions), loading)
    output = output._replace(positions=torch.from_numpy(positions)[output.positions])
    return EmbeddedImages(dataset, output)


def _value_or_none(metric: Any, *arguments: Tensor) -> float | None:
    """Return alignment or uniformity, None without a pair of images to compute it of."""
    try:
        return float(metric(*arguments))
    except ValueError:
        return None


def _extremes(scores: QueryScores, labels: Tensor) -> list[tuple[str, int]]:
    """Choose the best queries, ties by the number of matches, and the worst; one per class."""
    rows = torch.nonzero(scores.matches > 0)[:, 0].tolist()
    map_at_r, matches = scores.map_at_r.tolist(), scores.matches.tolist()
    best = sorted(rows, key=lambda i: (-map_at_r[i], -matches[i], i))
    worst = sorted(rows, key=lambda i: (map_at_r[i], -matches[i], i))
    cases, used = list[tuple[str, int]](), set[int]()
    for group, ordered in (("best", best), ("worst", worst)):
        classes = set[int]()
        for row in ordered:
            label = int(labels[row])
            if len(classes) < CASES and label not in classes and row not in used:
                classes.add(label)
                used.add(row)
                cases.append((group, row))
    return cases


def _case(
    group: str, row: int, scores: QueryScores, asking: EmbeddedImages, searched: EmbeddedImages
) -> QueryCase:
    position = int(asking.embeddings.positions[row])
    label = asking.dataset[position].label
    nearest = [i for i in scores.nearest[row].tolist() if i >= 0]
    neighbours = []
    for i in searched.embeddings.positions[nearest].tolist():
        name = searched.dataset[i].label
        neighbours.append(Neighbour(i, str(searched.dataset.path(i)), name, name == label))
    file, map_at_r = str(asking.dataset.path(position)), float(scores.map_at_r[row])
    return QueryCase(group, position, file, label, map_at_r, int(scores.matches[row]), neighbours)


@dataclass
class LandmarkReport(Report):
    """For each difficulty mAP, mP@1, mP@5 and mP@10 in percent, and the number of queries."""

    scores: dict[str, dict[str, float]]
    images: int
    unreadable: list[str]

    not_in_json = ("scores",)

    def to_json(self) -> dict[str, object]:
        return {**without_nan(self.scores), **super().to_json()}

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


def landmarks(model: PooledModel, dataset: Dataset, loading: Loading = Loading()) -> LandmarkReport:
    """Search the revisited Oxford or Paris by cosine similarity to queries cropped to their boxes.

    An image of the database that cannot be read is never retrieved; an unreadable query is not
    used.
    """
    query_images = [query.image for query in dataset.queries]
    database_images = np.setdiff1d(np.arange(len(dataset)), query_images)
    queries = embed_dataset(model, crop_queries(dataset), loading)
    database = embed_dataset(model, dataset.select(database_images), loading)
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
    cropped.pixels = _CroppedQueries(dataset)
    return cropped


class _CroppedQueries:
    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def image(self, row: int) -> Image.Image:
        query = self.dataset.queries[row]
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
