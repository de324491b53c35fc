"""Evaluate composition methods on a task: precision and recall of every query, as in the papers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..data import Dataset, Record, pack
from ..metrics.rankings import of_places
from ..predict.embedding import Embeddings
from ..predict.feature_cache import FeatureCache, FillProgress, Layout
from ..predict.inference import Inference
from ..predict.openvino_engine import embed_images
from ..report.composed import MatchScores
from .combiner import Triplets
from .composition import ComposedQuery, Scorer, encode_texts
from .database import MatrixDatabase
from .freedom import N
from .inversion import COMPOSED, TEMPLATES
from .load import image_text_device
from .methods import MethodSpec, compose_all, find_method
from .protocols import Codes, EvaluationQuery, RetrievalTask, triplet_queries
from .supplied import Generations, read_supplied, stack_images
from .words import WordMemory

if TYPE_CHECKING:
    from ..models.image_text import ImageText

CHUNK = 512  # queries composed at a time
BUDGET = 64 << 20  # bytes of similarities at a time
SUBSET_SIZES = (1, 2, 3)  # K of CIRR's Recall_subset@K
MATCHES = ("neither", "class", "value", "both")  # what is right of an image [Fig. 4.3]


@torch.no_grad()
def dataset_vectors(
    model: ImageText,
    dataset: Dataset,
    batch: int = 64,
    workers: int = 0,
    progress: FillProgress | None = None,
) -> Embeddings:
    """Embed the readable images of a data set through the feature cache.

    An image is identified by its contents.
    """

    def forward(images: Tensor) -> Tensor:
        return embed_images(model, images)[:, None]

    run, feature_cache = Inference(forward, image_text_device(model), half=False), FeatureCache()
    settings = {"backbone": model.name, "identity": model.identity, "view": "image-text"}
    store = feature_cache.open(settings, Layout((1, 1), model.dim, False, "float32"))
    rows, bad = feature_cache.fill(store, dataset, model.transform(), run, batch, workers, progress)
    positions = np.flatnonzero(rows >= 0)
    vectors = np.ascontiguousarray(store.values()[rows[positions], 0])
    return Embeddings(torch.from_numpy(vectors), torch.from_numpy(positions), bad)


def training_triplets(
    model: ImageText, dataset: Dataset, batch: int = 64, workers: int = 0
) -> Triplets:
    """Embed the triplets of the split "train"; of several targets the first counts."""
    train = dataset.split("train") if "train" in dataset.splits else dataset.select([])
    queries = triplet_queries(train)
    if not queries:
        raise ValueError(
            f"combiner is trained on triplets, {dataset.name} has none in a split 'train'"
        )
    used = sorted({i for query in queries for i in (query.image, query.truth["targets"][0])})
    vectors, positions, _ = dataset_vectors(model, train.select(used), batch, workers)
    row = {used[position]: i for i, position in enumerate(positions.tolist())}
    queries = [q for q in queries if q.image in row and q.truth["targets"][0] in row]
    texts = encode_texts(model, [str(query.text) for query in queries])
    images = vectors[[row[query.image] for query in queries]]
    return Triplets(images, texts, vectors[[row[query.truth["targets"][0]] for query in queries]])


class CellAverages(TypedDict):
    """Means in percent: over all columns, of each column, and of each cell of a column."""

    average: float
    columns: dict[str, float]
    cells: dict[str, dict[str, float]]


class TaskEvaluator:
    """A task with the vectors (images of the data set, D) and a model."""

    def __init__(
        self,
        task: RetrievalTask,
        vectors: Tensor,
        model: ImageText,
        words: WordMemory | None = None,
        other_memory: Tensor | None = None,
        removed_words: int = 0,
    ) -> None:
        self.task, self.vectors, self.model, self.words = task, vectors, model, words
        self.database = MatrixDatabase(vectors[torch.from_numpy(task.database)])
        self.rows, self.removed_words = task.rows, removed_words
        self.memories: dict[str, MatrixDatabase] = {}
        self.supplied: dict[Path, dict[str, Tensor]] = {}  # vectors of supplied images, by path
        if other_memory is not None:
            both = torch.cat([other_memory, self.database.matrix])
            self.memories = {"other": MatrixDatabase(other_memory), "both": MatrixDatabase(both)}

    def scorers(self, spec: MethodSpec, queries: Sequence[EvaluationQuery]) -> list[Scorer]:
        """Compose the queries, with the words and memories that only the evaluation knows."""
        options, method = dict(spec.options), find_method(spec.method)
        if isinstance(word := options.get("injected"), str):
            options["injected"] = [self._true_word(word, query) for query in queries]
        if isinstance(memory := options.get("memory"), str):
            options["memory"] = self.memories.get(memory, memory)
        if spec.method == "supplied":
            options = self._generations(options, queries)
        if method.pseudo_words:
            options.setdefault("template", TEMPLATES.get(self.task.dataset.name, COMPOSED))
        if method.words and self.words is not None and self.removed_words:
            return self._without_nearest_words(spec.method, queries, options)
        if method.words and self.words is not None:
            # The words of every image are found once for all variants of FreeDom.
            n, stored = int(options.get("n", N)), self.database.word_ids
            if stored is None or stored.shape[1] < min(n, len(self.words.words)):
                self.database.word_ids = self.words.nearest(self.database.matrix, n)
        composed = self.composed_queries(queries)
        return compose_all(spec.method, composed, self.database, self.model, self.words, **options)

    def composed_queries(self, queries: Sequence[EvaluationQuery]) -> list[ComposedQuery]:
        """Return vectors and texts; a query in the database stays there as a distractor."""
        vectors, rows = self.vectors, self.rows
        return [
            ComposedQuery(vectors[query.image], (query.text,), inside=rows.get(query.image))
            for query in queries
        ]

    def _generations(
        self, options: dict[str, Any], queries: Sequence[EvaluationQuery]
    ) -> dict[str, Any]:
        """Replace the file of `supplied` by what it has for each query."""
        generations, dataset = read_supplied(options), self.task.dataset
        lines = [generations.of(q.name, dataset[q.image].image, q.text) for q in queries]
        values: list[Any] = list(lines)
        if generations.kind == "texts":
            values = [[line.result for line in several] for several in lines]
        elif generations.kind == "images":
            by_path = self._supplied_vectors(generations)
            values = [stack_images(several, by_path) for several in lines]
        return {**options, generations.kind: values}

    def _supplied_vectors(self, generations: Generations) -> dict[str, Tensor]:
        """Embed the images of a file, once."""
        path = generations.path
        if path not in self.supplied:
            lines: dict[str, int] = {}
            for generation in chain(*generations.by_query.values()):
                lines.setdefault(generation.result, generation.line)
            images = pack(
                [Record(str(Path(name).absolute())) for name in lines], path.parent, path.name
            )
            vectors, positions, bad = dataset_vectors(self.model, images)
            unread = [i for i in range(len(images)) if i not in set(positions.tolist())]
            if unread:
                line = list(lines.values())[unread[0]]
                raise ValueError(f"{path}, line {line}: {bad[0]}")
            self.supplied[path] = dict(zip(lines, vectors, strict=True))
        return self.supplied[path]

    def _true_word(self, kind: str, query: EvaluationQuery) -> str:
        """Return the class, or the domain, of the query image as words."""
        record = self.task.dataset[query.image]
        word = {"class": record.label, "domain": record.domain}[kind]
        if word is None:
            raise ValueError(f"{self.task.dataset.name} has no {kind} to inject")
        return word.replace("_", " ")

    def _without_nearest_words(
        self, method: str, queries: Sequence[EvaluationQuery], options: dict[str, Any]
    ) -> list[Scorer]:
        """Compose with a text memory without the words nearest to the name of the query's class.

        [Dissertation Sec. 4.4.7]
        """
        assert self.words is not None
        vectors, scorers = self.words.vectors, dict[int, Scorer]()
        for label in {query.label for query in queries}:
            places = [i for i, query in enumerate(queries) if query.label == label]
            group = [queries[i] for i in places]
            name = encode_texts(self.model, [self._true_word("class", group[0])])
            is_used = torch.ones(len(vectors), dtype=torch.bool)
            is_used[self.words.nearest(name, self.removed_words)[0]] = False
            words = [word for word, keep in zip(self.words.words, is_used, strict=True) if keep]
            memory = WordMemory(words, vectors[is_used])
            group_options = {
                key: [value[i] for i in places] if isinstance(value, list) else value
                for key, value in options.items()
            }
            composed = self.composed_queries(group)
            database = MatrixDatabase(self.database.matrix)
            group_scorers = compose_all(
                method, composed, database, self.model, memory, **group_options
            )
            scorers.update(zip(places, group_scorers, strict=True))
        return [scorers[i] for i in range(len(queries))]

    def places(
        self, spec: MethodSpec, progress: Callable[[int], object] | None = None
    ) -> Iterator[tuple[Codes, Codes | None]]:
        """Yield the ranks of each query's relevant images, among all and within its group."""
        queries = self.task.queries
        for start in range(0, len(queries), CHUNK):
            chunk = queries[start : start + CHUNK]
            all_scores = score_all(self.scorers(spec, chunk), self.database.matrix)
            for query, scores in zip(chunk, all_scores, strict=True):
                row, in_group = self.rows.get(query.image), None
                if not self.task.ranks_query and row is not None:
                    scores[row] = -np.inf
                if query.group is not None:
                    relevant = np.flatnonzero(np.isin(query.group, query.relevant))
                    in_group = places_of(scores[query.group], relevant)
                yield places_of(scores, query.relevant), in_group
            if progress:
                progress(len(chunk))

    def scores_by_match(self, spec: MethodSpec, query: EvaluationQuery) -> MatchScores:
        """Return one query's scores by what is right of an image, and its average precision.

        [Dissertation Fig. 4.3]
        """
        scores = next(score_all(self.scorers(spec, [query]), self.database.matrix))
        same_class = self.task.labels == query.label
        same_value = self.task.values[query.column] == query.value
        match = same_class + 2 * same_value  # index into MATCHES
        places = places_of(scores, query.relevant)
        groups = {name: scores[match == i].tolist() for i, name in enumerate(MATCHES)}
        return MatchScores(groups, of_places(places, len(places), self.task.kind))


def score_all(
    scorers: Sequence[Scorer], images: Tensor, budget: int = BUDGET
) -> Iterator[npt.NDArray[Any]]:
    """Yield the scores (N,) of each scorer; similarities are computed for many at once."""
    count = max(budget // (8 * max(len(images), 1)), 1)  # a scorer has at most two vectors
    for start in range(0, len(scorers), count):
        group = scorers[start : start + count]
        similarities = torch.cat([scorer.vectors for scorer in group]) @ images.T
        blocks = similarities.split([len(scorer.vectors) for scorer in group])
        for scorer, block in zip(group, blocks, strict=True):
            yield scorer.of_similarities(block).numpy()


def places_of(scores: npt.NDArray[Any], relevant: Codes) -> Codes:
    """Return the ranks of the relevant images from 0, ascending; ties keep the lower row."""
    values, ascending = scores[relevant], np.sort(scores)
    not_higher = np.searchsorted(ascending, values, side="right")
    lower = np.searchsorted(ascending, values, side="left")
    places = len(scores) - not_higher
    for i in np.flatnonzero(not_higher - lower > 1):  # ties
        places[i] += int((scores[: relevant[i]] == values[i]).sum())
    return np.sort(places)


def _recall(places: Codes, k: int) -> float:
    return float((places < k).sum()) / max(len(places), 1)


def evaluate_method(
    evaluators: Sequence[TaskEvaluator],
    spec: MethodSpec,
    at: Sequence[int] = (),
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """Return mAP in percent: average, columns and cells; the same of recall@K and map@K.

    Queries with a group also have recall_subset@1, 2 and 3: only its members are ranked. i-CIR also
    has mmap and minmap, the averages over objects of the mean and of the lowest precision.
    """
    start = time.perf_counter()
    tasks = [evaluator.task for evaluator in evaluators]
    queries = [query for task in tasks for query in task.queries]
    columns, kind = [column for task in tasks for column in task.columns], tasks[0].kind
    ranked = [pair for evaluator in evaluators for pair in evaluator.places(spec, progress)]
    places = [among_all for among_all, _ in ranked]
    values = {"": [of_places(ranks, len(ranks), kind) for ranks in places]}
    for k in at:
        values[f"recall@{k}"] = [_recall(ranks, k) for ranks in places]
        values[f"map@{k}"] = [
            of_places(ranks[ranks < k], min(len(ranks), k), kind) for ranks in places
        ]
    tables = {name: average_by_cell(queries, columns, v) for name, v in values.items()}
    if tasks[0].instances:
        tables["mmap"] = _average_instances(queries, values[""], np.mean)
        tables["minmap"] = _average_instances(queries, values[""], np.min)
    grouped = {i: in_group for i, (_, in_group) in enumerate(ranked) if in_group is not None}
    if grouped:
        for k in SUBSET_SIZES:
            recalls = [_recall(in_group, k) for in_group in grouped.values()]
            table = average_by_cell([queries[i] for i in grouped], columns, recalls)
            tables[f"recall_subset@{k}"] = table
    options = dict(spec.options)
    for key, value in options.items():
        if not isinstance(value, int | float | str):
            options[key] = type(value).__name__  # for JSON
    description = {"method": spec.method, "options": options, **tables.pop("")}
    return {**description, **tables, "seconds": time.perf_counter() - start}


def _average_instances(
    queries: Sequence[EvaluationQuery],
    values: Sequence[float],
    reduce: Callable[[npt.NDArray[Any]], Any],
) -> CellAverages:
    """Reduce the values of each object's queries to one, and average these in percent."""
    labels, precisions = np.array([query.label for query in queries]), np.array(values)
    numbers = [reduce(precisions[labels == label]) for label in np.unique(labels)]
    average, column = 100 * float(np.mean(numbers)), queries[0].column
    return {"average": average, "columns": {column: average}, "cells": {}}


def average_by_cell(
    queries: Sequence[EvaluationQuery], columns: Sequence[str], values: Sequence[float]
) -> CellAverages:
    """Average values in percent over the queries of a cell, the cells of a column, the columns."""
    by_cell: dict[str, dict[str, list[float]]] = {column: {} for column in columns}
    for query, value in zip(queries, values, strict=True):
        by_cell[query.column].setdefault(query.cell, []).append(value)
    cells = {
        column: {cell: 100 * float(np.mean(values)) for cell, values in members.items()}
        for column, members in by_cell.items()
        if members
    }
    means = {column: float(np.mean(list(members.values()))) for column, members in cells.items()}
    return {"average": float(np.mean(list(means.values()))), "columns": means, "cells": cells}
