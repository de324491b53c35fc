"""The papers' two questions: the same thing in another domain (D 4), the same thing with another attribute (D 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..data import Dataset
from ..data.benchmarks.parsing import DOMAIN_WORDS
from ..data.benchmarks.patterncom import MERGED
from ..options import check_number, suggest

Codes = npt.NDArray[np.int64]
# Sets of FreeDom's lists, where a domain's word is not its name.
LISTED = ("imagenet-r-conversion", "minidomainnet-conversion", "nico-conversion", "ltll")


class EvaluationQuery(NamedTuple):
    """An image, a text, and what is right."""

    image: int  # a position in the dataset
    text: str
    right: Codes  # rows of the database; never the query itself
    column: str  # of the table: the source domain, or the attribute
    cell: (
        str  # what is averaged first within a column: the target domain; one cell for an attribute
    )
    label: int
    value: int  # of the target, as `Task.values` has it
    group: Codes | None = (
        None  # CIRR's similar images, rows of the database without the query: ranked alone as well
    )


class RetrievalTask(NamedTuple):
    """All questions to one database."""

    name: str
    kind: str  # of average precision
    dataset: Dataset
    database: Codes  # positions in the dataset
    questions: list[EvaluationQuery]
    columns: list[str]  # in order
    labels: Codes  # (N,) classes of the database's images
    values: Mapping[str, Codes]  # (N,) domains or values, by column
    itself: bool = True  # whether a query that is in the database is ranked, as a distractor

    @property
    def rows(self) -> dict[int, int]:
        """Rows of the database by position in the dataset."""
        return {int(position): row for row, position in enumerate(self.database)}


def domain_conversion(
    dataset: Dataset, words: Mapping[str, str] | None = None, sources: Sequence[str] = ()
) -> RetrievalTask:
    """Every query asks for its class in each other domain; right are those images of the whole database.

    Columns are the domains of the queries; with one of them alone in `sources`, the domains that are asked for.
    """
    names = present_domains(dataset)
    if len(names) < 2:
        only = f"has one domain, '{names[0]}'" if names else "has no domains"
        raise ValueError(f"{dataset.name} {only}: domain conversion needs at least two")
    said = _said(names, words, DOMAIN_WORDS if dataset.name in LISTED else {})
    sources = [
        next((known for known in names if name in (known, said[known])), name) for name in sources
    ]
    for name in sources:
        if name not in names:
            raise ValueError(
                f"no domain '{name}' in {dataset.name}{suggest(name, names)} ({', '.join(names)})"
            )
    asking, database = _parts(dataset)
    labels, domains = dataset.labels, dataset.domains.codes.astype(np.int64)
    codes = {name: dataset.domains.names.index(name) for name in names}
    right = _groups(labels[database], domains[database])
    nothing = np.empty(0, np.int64)
    questions = [
        EvaluationQuery(
            image, said[target], right.get((labels[image], codes[target]), nothing),
            said[target] if len(sources) == 1 else said[source], said[target], int(labels[image]), codes[target],
        )
        for source in sources or names
        for image in asking[domains[asking] == codes[source]].tolist()
        if labels[image] >= 0
        for target in names
        if target != source
    ]  # fmt: skip
    columns = sorted({question.column for question in questions}, key=str.casefold)
    values = dict.fromkeys(columns, domains[database])
    return _task(
        "domain conversion",
        "trapezoid",
        dataset,
        database,
        questions,
        columns,
        labels[database],
        values,
    )


def attribute_modification(
    dataset: Dataset, words: Mapping[str, str] | None = None, attributes: Sequence[str] = ()
) -> RetrievalTask:
    """Every image asks for each other value that its class has under the attribute; all others are wrong."""
    known = list(dataset.table.attributes)
    if not known:
        raise ValueError(f"{dataset.name} has no attributes: attribute modification needs them")
    for name in attributes:
        if name not in known:
            raise ValueError(
                f"no attribute '{name}' in {dataset.name}{suggest(name, known)} ({', '.join(known)})"
            )
    asking, database = _parts(dataset)
    listed = any(query.group in known for query in dataset.queries)  # PatternCom's own
    labels = _merged(dataset) if listed else dataset.labels
    questions, values = list[EvaluationQuery](), dict[str, Codes]()
    for name in attributes or known:
        column = dataset.attribute(name)
        codes, said = column.codes.astype(np.int64), _said(column.names, words, {})
        values[name] = codes[database]
        if listed:
            questions += _listed(name, dataset, labels, column.names, said)
        else:
            right = _groups(labels[database], codes[database])
            questions += _of_attribute(
                name, asking, labels, codes, right, [said[value] for value in column.names]
            )
    columns = [name for name in values if any(question.column == name for question in questions)]
    return _task(
        "attribute modification", "standard", dataset, database, questions, columns, labels[database], values
    )  # fmt: skip


def _of_attribute(
    name: str,
    asking: Codes,
    labels: Codes,
    codes: Codes,
    right: Mapping[tuple[int, int], Codes],
    said: list[str],
) -> Iterable[EvaluationQuery]:
    by_label: dict[int, list[int]] = {}
    for label, value in sorted(right):
        if label >= 0 and value >= 0:
            by_label.setdefault(label, []).append(value)
    for image in asking[codes[asking] >= 0].tolist():
        label = int(labels[image])
        for value in by_label.get(label, ()):
            if value != codes[image]:
                yield EvaluationQuery(
                    image, said[value], right[label, value], name, name, label, value
                )


def _listed(
    name: str, dataset: Dataset, labels: Codes, values: list[str], said: Mapping[str, str]
) -> Iterable[EvaluationQuery]:
    shared = dict[tuple[int, ...], Codes]()  # thousands of queries have the same targets
    for query in dataset.queries:
        if query.group == name and query.text is not None:
            targets = query.truth["targets"]
            right = shared.setdefault(targets, np.array(targets, np.int64))
            right = right[right != query.image] if query.image in targets else right
            value = values.index(query.text)
            yield EvaluationQuery(
                query.image, said[query.text], right, name, name, int(labels[query.image]), value
            )


def _task(
    name: str, kind: str, dataset: Dataset, database: Codes, questions: list[EvaluationQuery], columns: list[str],
    labels: Codes, values: Mapping[str, Codes],
) -> RetrievalTask:  # fmt: skip
    if not questions:
        raise ValueError(
            f"{dataset.name} has no question of {name}: no class is there with two values"
        )
    return RetrievalTask(name, kind, dataset, database, questions, columns, labels, values)


def _parts(dataset: Dataset) -> tuple[Codes, Codes]:
    """Positions of queries and of the database: two splits of these names, else every image is both."""
    column = dataset.table.split
    codes = column.codes[dataset.rows]
    if "query" in column.names and "gallery" in column.names:
        parts = [np.flatnonzero(codes == column.names.index(name)) for name in ("query", "gallery")]
        if all(map(len, parts)):
            return parts[0], parts[1]
    everything = np.arange(len(dataset))
    return everything, everything


def present_domains(dataset: Dataset) -> list[str]:
    """Domains that have images with a class."""
    domains = dataset.domains
    codes = np.unique(domains.codes[dataset.labels >= 0])
    return [domains.names[code] for code in codes.tolist() if code >= 0]


def _said(
    names: Sequence[str], words: Mapping[str, str] | None, known: Mapping[str, str]
) -> dict[str, str]:
    """The word of each: the user's, the paper's, or the name with spaces."""
    given = words or {}
    return {name: given.get(name) or known.get(name) or name.replace("_", " ") for name in names}


def _groups(labels: Codes, values: Codes) -> dict[tuple[int, int], Codes]:
    """Rows of each class and value, ascending."""
    if not len(labels):
        return {}
    order = np.lexsort((values, labels))  # stable: rows of a group stay in order
    pairs = np.stack([labels[order], values[order]], 1)
    starts = np.flatnonzero(np.r_[True, (pairs[1:] != pairs[:-1]).any(1)])
    parts = np.split(order, starts[1:])
    return {(a, b): part for (a, b), part in zip(pairs[starts].tolist(), parts, strict=True)}


def _merged(dataset: Dataset) -> Codes:
    """PatternCom takes some classes for one."""
    plain = [name.replace("_", "") for name in dataset.classes]  # folders have it, files have not
    names = [MERGED.get(name, name) for name in plain]
    codes: dict[str, int] = {}
    table = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)
    labels = dataset.labels
    return np.where(labels >= 0, table[labels], -1)


def fewer(task: RetrievalTask, most: int, seed: int = 0) -> RetrievalTask:
    """The questions of at most so many images of each column, drawn at random."""
    check_number("the number of query images", most, whole=True, least=1)
    draw, kept = np.random.default_rng(seed), set[tuple[str, int]]()
    for column in task.columns:
        images = sorted(
            {question.image for question in task.questions if question.column == column}
        )
        kept |= {(column, int(image)) for image in draw.permutation(images)[:most]}
    return task._replace(
        questions=[one for one in task.questions if (one.column, one.image) in kept]
    )


def as_words(given: Iterable[str]) -> dict[str, str]:
    """'art_painting=art painting' and so on."""
    found = {}
    for text in given:
        name, equals, word = text.partition("=")
        if not equals or not name.strip() or not word.strip():
            raise ValueError(
                f"words are NAME=WORDS, such as art_painting='art painting', got '{text}'"
            )
        found[name.strip()] = word.strip()
    return found
