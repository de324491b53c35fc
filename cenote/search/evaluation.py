"""How well composed queries find their images: precision and recall of every question, in the papers' tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..metrics.average_precision import of_places
from ..options import check_names, check_number
from .composition import ComposedQuery, Scorer
from .database import MatrixDatabase
from .freedom import N
from .methods import compose_all, find_method
from .protocols import Codes, EvaluationQuery, RetrievalTask

if TYPE_CHECKING:
    from ..models.image_text import ImageText
    from .words import WordMemory

CHUNK = 512  # questions composed at a time
BUDGET = 64 << 20  # bytes of similarities at a time
SUBSET = (1, 2, 3)  # CIRR's Recall_subset@K, of the five others of a group
GROUPS = ("neither", "class", "value", "both")  # of Fig. 4.3: wrong; right in one way; right


class MethodSpec(NamedTuple):
    """A method with its options, and what the table calls it."""

    method: str
    options: Mapping[str, Any] = {}
    title: str = ""

    @property
    def name(self) -> str:
        return self.title or ":".join(
            [self.method, *(f"{key}={value}" for key, value in self.options.items())]
        )


def parse_method(text: str) -> MethodSpec:
    """`weicom:weight=0.3`, `freedom:k=10:m=3`: options are those of the method, numbers as numbers."""
    name, *parts = [part.strip() for part in text.split(":")]
    method, options = find_method(name), dict[str, Any]()
    known = method.options
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(
                f"options are NAME=VALUE, such as {name}:{next(iter(known), 'k')}=3, got '{part}'"
            )
        options[key.strip()] = _value(value.strip())
    check_names(name, options, known)
    for key, value in options.items():
        if not isinstance(known[key], int | float | str):
            raise ValueError(
                f"{name}'s {key} is no number and no word: it can be given in Python alone"
            )
        if isinstance(known[key], str):
            options[key] = str(value)
        else:
            check_number(f"{name}'s {key}", value, whole=isinstance(known[key], int))
    method.check(name, options)
    return MethodSpec(name, options)


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class TaskEvaluator:
    """A task with its vectors: `vectors` (images of the dataset, D)."""

    def __init__(
        self,
        task: RetrievalTask,
        vectors: Tensor,
        model: ImageText,
        words: WordMemory | None = None,
    ) -> None:
        self.task, self.model, self.words = task, model, words
        self.vectors, self.database = (
            vectors,
            MatrixDatabase(vectors[torch.from_numpy(task.database)]),
        )
        self.rows = task.rows

    def remember(self, n: int = N) -> None:
        """The words of every database image, once for all variants of FreeDom: they depend on the image alone."""
        stored = self.database.word_ids
        if self.words is not None and (
            stored is None or stored.shape[1] < min(n, len(self.words.words))
        ):
            self.database.word_ids = self.words.nearest(self.database.matrix, n)

    def queries(self, questions: Sequence[EvaluationQuery]) -> list[ComposedQuery]:
        """A query in the database stays there: a distractor, never right."""
        return [
            ComposedQuery(self.vectors[q.image], (q.text,), inside=self.rows.get(q.image))
            for q in questions
        ]

    def plans(self, asked: MethodSpec, questions: Sequence[EvaluationQuery]) -> list[Scorer]:
        options = {key: _of(value, questions) for key, value in asked.options.items()}
        if find_method(asked.method).words:
            self.remember(int(options.get("n", N)))
        return compose_all(
            asked.method, self.queries(questions), self.database, self.model, self.words, **options
        )

    def places(
        self, asked: MethodSpec, progress: Callable[[int], object] | None = None
    ) -> Iterator[tuple[Codes, Codes | None]]:
        """Of each question, where its right images stand in the ranking, and in that of its group if it has one."""
        questions = self.task.questions
        for start in range(0, len(questions), CHUNK):
            part = questions[start : start + CHUNK]
            scores = scored(self.plans(asked, part), self.database.matrix)
            for question, of_images in zip(part, scores, strict=True):
                if not self.task.itself and (row := self.rows.get(question.image)) is not None:
                    of_images[row] = -np.inf
                yield places_of(of_images, question.right), _within(of_images, question)
            if progress:
                progress(len(part))

    def groups(self, asked: MethodSpec, question: EvaluationQuery) -> dict[str, Any]:
        """Fig. 4.3: the scores of one question by what is right of an image, and its average precision."""
        scores = next(scored(self.plans(asked, [question]), self.database.matrix))
        same = (
            self.task.labels == question.label,
            self.task.values[question.column] == question.value,
        )
        masks = (~same[0] & ~same[1], same[0] & ~same[1], ~same[0] & same[1], same[0] & same[1])
        places = places_of(scores, question.right)
        own = {name: scores[mask].tolist() for name, mask in zip(GROUPS, masks, strict=True)}
        return {"scores": own, "precision": of_places(places, len(places), self.task.kind)}


def _of(value: Any, questions: Sequence[EvaluationQuery]) -> Any:
    """An option may be a function of the question: the word to inject, say."""
    return [value(question) for question in questions] if callable(value) else value


def _told(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value if isinstance(value, int | float | str) else type(value).__name__
        for key, value in options.items()
    }


def scored(plans: Sequence[Scorer], images: Tensor, budget: int = BUDGET) -> Any:
    """The scores (N,) of each plan, one after the other; similarities are made for many plans at once."""
    rows = max(budget // (4 * max(len(images), 1)), 1)
    waiting, count = list[Scorer](), 0
    for place, plan in enumerate(plans):
        waiting.append(plan)
        count += len(plan.vectors)
        if count >= rows or place == len(plans) - 1:
            similarities = torch.cat([one.vectors for one in waiting]) @ images.T
            parts = similarities.split([len(one.vectors) for one in waiting])
            yield from (
                one.of_similarities(part).numpy() for one, part in zip(waiting, parts, strict=True)
            )
            waiting, count = [], 0


def places_of(scores: npt.NDArray[Any], right: Codes) -> Codes:
    """Where the right images stand in the ranking, from 0, ascending; of equal scores the first row comes first."""
    own, ascending = scores[right], np.sort(scores)
    after = np.searchsorted(ascending, own, side="right")
    places = len(scores) - after
    for i in np.flatnonzero(after - np.searchsorted(ascending, own, side="left") > 1):
        places[i] += int((scores[: right[i]] == own[i]).sum())
    return np.sort(places)


def _within(scores: npt.NDArray[Any], question: EvaluationQuery) -> Codes | None:
    if question.group is None:
        return None
    return places_of(
        scores[question.group], np.flatnonzero(np.isin(question.group, question.right))
    )


def _recall(found: Codes, k: int) -> float:
    """The share of the right images that is found; where there is one, whether it is."""
    return float((found < k).sum()) / max(len(found), 1)


def report(
    benches: Sequence[TaskEvaluator],
    asked: MethodSpec,
    at: Sequence[int] = (),
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """In percent: the average, the columns, their cells; the same of recall and precision among the `at` first.

    Questions that come with a group also have recall_subset@1, 2 and 3: only its members are ranked.
    """
    start = time.perf_counter()
    tasks = [bench.task for bench in benches]
    questions = [question for task in tasks for question in task.questions]
    columns, kind = [column for task in tasks for column in task.columns], tasks[0].kind
    both = [found for bench in benches for found in bench.places(asked, progress)]
    places = [found for found, _ in both]
    values = {"": [of_places(found, len(found), kind) for found in places]}
    for k in at:
        values[f"recall@{k}"] = [_recall(found, k) for found in places]
        values[f"map@{k}"] = [
            of_places(found[found < k], min(len(found), k), kind) for found in places
        ]
    tables = {name: averages(questions, columns, of) for name, of in values.items()}
    grouped = [
        (question, own)
        for question, (_, own) in zip(questions, both, strict=True)
        if own is not None
    ]
    for k in SUBSET if grouped else ():
        recalls = [_recall(own, k) for _, own in grouped]
        tables[f"recall_subset@{k}"] = averages(
            [question for question, _ in grouped], columns, recalls
        )
    told = {"method": asked.method, "options": _told(asked.options), **tables.pop("")}
    return told | tables | {"seconds": time.perf_counter() - start}


def averages(
    questions: Sequence[EvaluationQuery], columns: Sequence[str], values: Sequence[float]
) -> dict[str, Any]:
    """Cells are means over their questions, columns over their cells, the average over the columns."""
    cells: dict[str, dict[str, list[float]]] = {column: {} for column in columns}
    for question, value in zip(questions, values, strict=True):
        cells[question.column].setdefault(question.cell, []).append(value)
    means = {
        c: {cell: 100 * float(np.mean(v)) for cell, v in own.items()}
        for c, own in cells.items()
        if own
    }
    found = {column: float(np.mean(list(own.values()))) for column, own in means.items()}
    return {"average": float(np.mean(list(found.values()))), "columns": found, "cells": means}
