"""Protocols of composed retrieval: queries with their relevant images, made from a data set.

Domain conversion [Dissertation Ch. 4]: the same class in another domain. Attribute modification
[Dissertation Ch. 5]: the same class with another attribute value. Triplets [Dissertation
Sec. 4.4.8]: an image and a sentence that describe another image (FashionIQ, CIRR, CIRCO, i-CIR).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..data import Dataset
from ..data.benchmarks.domains import DOMAIN_WORDS
from ..data.benchmarks.patterncom import MERGED
from ..data.record import RetrievalQuery
from ..options import check_known, check_number

Codes = npt.NDArray[np.int64]
# Data sets of FreeDom's lists, in which a domain's word differs from its name.
WITH_DOMAIN_WORDS = ("imagenet-r-conversion", "minidomainnet-conversion", "nico-conversion", "ltll")


class EvaluationQuery(NamedTuple):
    """An image, a text, and the relevant images."""

    image: int  # position in the data set
    text: str
    relevant: Codes  # rows of the database, without the query
    column: str  # of the table: the source domain, or the attribute
    cell: str  # averaged first within a column: the target domain; one cell for an attribute
    label: int = -1
    value: int = -1  # of the target, as in `RetrievalTask.values`
    # Rows of CIRR's similar images without the query: ranked alone as well.
    group: Codes | None = None
    name: str | None = None  # id of a query that came with the data


class RetrievalTask(NamedTuple):
    """All queries to one database."""

    name: str
    kind: str  # of average precision
    dataset: Dataset
    database: Codes  # positions in the data set
    queries: list[EvaluationQuery]
    columns: list[str]
    labels: Codes  # (N,) classes of the database
    values: Mapping[str, Codes]  # (N,) domains or attribute values, by column
    ranks_query: bool = True  # a query that is in the database is ranked, as a distractor
    instances: bool = False  # the data set has a database for each object, as i-CIR

    @property
    def rows(self) -> dict[int, int]:
        """Return rows of the database by position in the data set."""
        return _rows_of(self.database)


def _rows_of(database: Codes) -> dict[int, int]:
    return {int(position): row for row, position in enumerate(database)}


def find_protocol(dataset: Dataset) -> str:
    """Return the protocol that the data set has ground truth for."""
    attributes = dataset.table.attributes
    if any(query.group in attributes for query in dataset.queries):
        return "attributes"
    if triplet_queries(dataset):
        return "triplets"
    if len(labelled_domains(dataset)) > 1:
        return "domains"
    if attributes:
        return "attributes"
    if any(query.text is not None for query in dataset.queries):
        raise ValueError(
            f"{dataset.name}: the relevant images of its queries are not public; "
            "name another split or data set"
        )
    raise ValueError(
        f"{dataset.name} has one domain and no attributes: composed queries need images with "
        "classes, and with domains (a column 'domain') or attributes"
    )


def evaluation_split(dataset: Dataset, split: str | None = None) -> Dataset:
    """Return the split by name, else query and gallery, or test, or everything.

    Of data with queries, the first of test and val whose relevant images are public.
    """
    if split is not None:
        return dataset.split(split)
    names = dataset.splits
    if triplet_queries(dataset):
        splits = (dataset.split(name) for name in ("test", "val") if name in names)
        return next((subset for subset in splits if triplet_queries(subset)), dataset)
    if ("query" in names and "gallery" in names) or "test" not in names:
        return dataset
    return dataset.split("test")


def make_tasks(
    dataset: Dataset,
    protocol: str | None = None,
    words: Mapping[str, str] | None = None,
    attributes: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> list[RetrievalTask]:
    """Make one task for each database; `protocol` is domains, attributes or triplets.

    By default it is the one that the data set has ground truth for.
    """
    protocol = protocol or find_protocol(dataset)
    for option, values, owner in (
        ("attributes", attributes, "attributes"),
        ("sources", sources, "domains"),
    ):
        if values and protocol != owner:
            raise ValueError(f"--{option} needs the protocol {owner}, this one is {protocol}")
    if protocol == "triplets":
        return triplets(dataset)
    if protocol == "domains":
        return [domain_conversion(dataset, words, sources)]
    return [attribute_modification(dataset, words, attributes)]


def domain_conversion(
    dataset: Dataset, words: Mapping[str, str] | None = None, sources: Sequence[str] = ()
) -> RetrievalTask:
    """Search each image's class in each other domain of the whole database.

    Columns are the domains of the query images; with a single source, the target domains.
    """
    names = labelled_domains(dataset)
    domain_words = DOMAIN_WORDS if dataset.name in WITH_DOMAIN_WORDS else {}
    texts = _texts(names, words, domain_words)
    name_of_text = {text: name for name, text in texts.items()} | {name: name for name in names}
    sources = [name_of_text.get(source, source) for source in sources]
    for source in sources:
        check_known(f"domain of {dataset.name}", source, names)
    query_positions, database = _query_and_database(dataset)
    labels, domains = dataset.labels, dataset.domains.codes.astype(np.int64)
    codes = {name: dataset.domains.names.index(name) for name in names}
    rows = _rows_by_class_and_value(labels[database], domains[database])
    labelled = query_positions[labels[query_positions] >= 0]
    queries = []
    for source in sources or names:
        positions = labelled[domains[labelled] == codes[source]].tolist()
        for image, target in product(positions, [name for name in names if name != source]):
            text, label, code = texts[target], int(labels[image]), codes[target]
            relevant = rows.get((label, code), np.empty(0, np.int64))
            column = text if len(sources) == 1 else texts[source]
            queries.append(EvaluationQuery(image, text, relevant, column, text, label, code))
    columns = sorted({query.column for query in queries}, key=str.casefold)
    values = dict.fromkeys(columns, domains[database])
    return _make_task("domain conversion", "trapezoid", dataset, database, queries, labels, values)


def attribute_modification(
    dataset: Dataset, words: Mapping[str, str] | None = None, attributes: Sequence[str] = ()
) -> RetrievalTask:
    """Search each image's class with each other value that it has under the attribute."""
    names = list(dataset.table.attributes)
    for attribute in attributes:
        check_known(f"attribute of {dataset.name}", attribute, names)
    query_positions, database = _query_and_database(dataset)
    has_queries = any(query.group in names for query in dataset.queries)  # PatternCom
    labels = _merged_labels(dataset) if has_queries else dataset.labels
    queries, values = list[EvaluationQuery](), dict[str, Codes]()
    for name in attributes or names:
        column = dataset.attribute(name)
        codes = column.codes.astype(np.int64)
        values[name] = codes[database]
        if has_queries:
            queries += _listed_queries(name, dataset, labels, column.names, words)
        else:
            rows = _rows_by_class_and_value(labels[database], codes[database])
            value_texts = list(_texts(column.names, words, {}).values())
            queries += _attribute_queries(name, query_positions, labels, codes, rows, value_texts)
    return _make_task(
        "attribute modification", "standard", dataset, database, queries, labels, values
    )


def _make_task(
    name: str,
    kind: str,
    dataset: Dataset,
    database: Codes,
    queries: list[EvaluationQuery],
    labels: Codes,
    values: Mapping[str, Codes],
) -> RetrievalTask:
    if not queries:
        raise ValueError(
            f"{dataset.name} has no query of {name}: that needs two domains, or a class with two "
            "values of an attribute"
        )
    used = {query.column for query in queries}
    columns = [column for column in values if column in used]
    return RetrievalTask(name, kind, dataset, database, queries, columns, labels[database], values)


def _attribute_queries(
    name: str,
    positions: Codes,
    labels: Codes,
    codes: Codes,
    rows: Mapping[tuple[int, int], Codes],
    texts: list[str],
) -> Iterator[EvaluationQuery]:
    values_of_label: dict[int, list[int]] = {}
    for label, value in sorted(rows):
        if label >= 0 and value >= 0:
            values_of_label.setdefault(label, []).append(value)
    for image in positions[codes[positions] >= 0].tolist():
        label = int(labels[image])
        for value in values_of_label.get(label, ()):
            if value != codes[image]:
                relevant = rows[label, value]
                yield EvaluationQuery(image, texts[value], relevant, name, name, label, value)


def _listed_queries(
    name: str,
    dataset: Dataset,
    labels: Codes,
    values: list[str],
    words: Mapping[str, str] | None,
) -> Iterator[EvaluationQuery]:
    code_of = {value: code for code, value in enumerate(values)}
    shared = dict[tuple[int, ...], Codes]()  # thousands of queries have the same targets
    for query in dataset.queries:
        if query.group == name and query.text is not None:
            targets = query.truth["targets"]
            relevant = shared.setdefault(targets, np.array(targets, np.int64))
            # A value that later rows replaced for all its images has no code: the query finds nothing.
            label, value = int(labels[query.image]), code_of.get(query.text, -2)
            (text,) = _texts([query.text], words, {}).values()
            yield EvaluationQuery(query.image, text, relevant, name, name, label, value)


def triplet_queries(dataset: Dataset) -> list[RetrievalQuery]:
    """Return the queries of an image and a sentence whose relevant images are known."""
    attributes = dataset.table.attributes  # a text that is a value is another protocol
    return [
        query
        for query in dataset.queries
        if query.text is not None and "targets" in query.truth and query.group not in attributes
    ]


def triplets(dataset: Dataset) -> list[RetrievalTask]:
    """Make a task for each group of queries: each garment, each object has its own database."""
    groups: dict[str | None, list[RetrievalQuery]] = {}
    for query in triplet_queries(dataset):
        groups.setdefault(query.group, []).append(query)
    if not groups:
        raise ValueError(f"{dataset.name} has no queries of an image, a text and relevant images")
    return [_triplet_task(dataset, group, queries) for group, queries in groups.items()]


def _triplet_task(
    dataset: Dataset, group: str | None, queries: Sequence[RetrievalQuery]
) -> RetrievalTask:
    instances = dataset.name == "icir"
    column, label = group or dataset.name, -1
    database = _query_and_database(dataset)[1]
    if group in dataset.classes:
        label = dataset.classes.index(str(group))
        database = database[dataset.labels[database] == label]
    if instances:
        column = dataset.name  # 202 objects would be too many columns
    rows = _rows_of(database)
    evaluation_queries = list[EvaluationQuery]()
    for query in queries:
        targets = [target for target in query.truth["targets"] if target != query.image]
        relevant = np.array(sorted(rows[t] for t in targets if t in rows), np.int64)
        similar = _similar_images(dataset, query, rows)
        evaluation_queries.append(
            EvaluationQuery(
                query.image,
                str(query.text),
                relevant,
                column,
                column,
                label,
                group=similar,
                name=query.name,
            )
        )
    # CIRR, whose queries come with similar images, does not rank the query; other data sets do.
    ranks_query = not any("subset" in query.truth for query in queries)
    labels, kind = np.full(len(database), -1), "trapezoid" if instances else "standard"
    task = RetrievalTask(
        "triplets", kind, dataset, database, evaluation_queries, [column], labels, {}, ranks_query
    )
    return task._replace(instances=instances)


def _similar_images(
    dataset: Dataset, query: RetrievalQuery, rows: Mapping[int, int]
) -> Codes | None:
    """Return the rows of the query's group without the query, if it has one.

    Unreadable images have been removed from the ground truth before.
    """
    if "subset" not in query.truth:
        return None
    members, targets = (set(query.truth[name]) - {query.image} for name in ("subset", "targets"))
    problem = ""
    if unknown := (members | targets) - rows.keys():
        problem = f"names image {min(unknown)}, which is not in the database"
    elif missing := targets - members:
        problem = f"lacks its relevant image {dataset[min(missing)].image}"
    if problem:
        group = f"the group of query {query.name or repr(query.text)}"
        raise ValueError(f"{dataset.name}: {group} {problem}: correct it, or remove the query")
    return np.array(sorted(rows[member] for member in members), np.int64)


def sample_queries(task: RetrievalTask, max_images: int, seed: int = 0) -> RetrievalTask:
    """Keep the queries of at most `max_images` random images of each column."""
    check_number("the number of query images", max_images, whole=True, least=1)
    rng, sampled = np.random.default_rng(seed), set[tuple[str, int]]()
    for column in task.columns:
        images = sorted({query.image for query in task.queries if query.column == column})
        sampled |= {(column, int(image)) for image in rng.permutation(images)[:max_images]}
    return task._replace(
        queries=[query for query in task.queries if (query.column, query.image) in sampled]
    )


def parse_texts(assignments: Iterable[str]) -> dict[str, str]:
    """Parse 'art_painting=art painting' and so on."""
    texts = {}
    for assignment in assignments:
        name, _, text = (side.strip() for side in assignment.partition("="))
        if not name or not text:
            example = "art_painting='art painting'"
            raise ValueError(f"texts are NAME=WORDS, such as {example}, got '{assignment}'")
        texts[name] = text
    return texts


def labelled_domains(dataset: Dataset) -> list[str]:
    """Return the domains that have images with a class."""
    domains = dataset.domains
    codes = np.unique(domains.codes[dataset.labels >= 0])
    return [domains.names[code] for code in codes.tolist() if code >= 0]


def _query_and_database(dataset: Dataset) -> tuple[Codes, Codes]:
    """Return positions of the splits query and gallery, else every image is in both."""
    column = dataset.table.split
    codes = column.codes[dataset.rows]
    if "query" in column.names and "gallery" in column.names:
        query, gallery = (
            np.flatnonzero(codes == column.names.index(name)) for name in ("query", "gallery")
        )
        if len(query) and len(gallery):
            return query, gallery
    positions = np.arange(len(dataset))
    return positions, positions


def _texts(
    names: Sequence[str], words: Mapping[str, str] | None, known: Mapping[str, str]
) -> dict[str, str]:
    """Return the text of each name: the user's, the paper's, or the name with spaces."""
    texts = {**known, **(words or {})}
    return {name: texts.get(name) or name.replace("_", " ") for name in names}


def _rows_by_class_and_value(labels: Codes, values: Codes) -> dict[tuple[int, int], Codes]:
    """Return the rows of each class and value, ascending."""
    if not len(labels):
        return {}
    order = np.lexsort((values, labels))  # stable: rows of a group stay in order
    pairs = np.stack([labels[order], values[order]], 1)
    starts = np.flatnonzero(np.r_[True, (pairs[1:] != pairs[:-1]).any(1)])
    groups = np.split(order, starts[1:])
    return {(a, b): rows for (a, b), rows in zip(pairs[starts].tolist(), groups, strict=True)}


def _merged_labels(dataset: Dataset) -> Codes:
    """Return class indices with those classes merged that PatternCom treats as one."""
    # Names of folders have underscores, those in files do not.
    plain = [name.replace("_", "") for name in dataset.classes]
    names = [MERGED.get(name, name) for name in plain]
    codes: dict[str, int] = {}
    table = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)
    labels = dataset.labels
    return np.where(labels >= 0, table[labels], -1)
