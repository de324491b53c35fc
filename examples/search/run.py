"""The tables of chapters 4 and 5 of the dissertation at a scale for one core: docs/results.md.

    python examples/search/run.py OUT [--clip RUN [RUN ...] --world DATA] [--pacs FOLDER --vocabulary FILE]

RUN: written by `cenote clip DATA -o RUN`, several seeds for deviations; its test images are the
queries and the database, its training images the other visual memory. FOLDER: shared/data/pacs,
searched with text-space and the words of Open Images (shared/data/vocabulary/open_images_v7.csv). An
interrupted command resumes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from cenote.allocator import keep_memory
from cenote.data import Dataset, open_dataset, write_atomically
from cenote.models.image_text import ImageText, Invertible, create_image_text
from cenote.report.table import markdown_table
from cenote.search import MatrixDatabase, load_words, remember_words
from cenote.search.evaluation import TaskEvaluator, dataset_vectors, evaluate_method
from cenote.search.methods import MethodSpec
from cenote.search.protocols import (
    RetrievalTask,
    attribute_modification,
    domain_conversion,
    sample_queries,
)

SIMPLE = [
    MethodSpec("text", title="Text"),
    MethodSpec("image", title="Image"),
    MethodSpec("product", title="Text x Image"),
    MethodSpec("sum", title="Text + Image"),
    MethodSpec("normalised-sum", title="Text + Image, normalised"),
]
COMPOSED = [
    MethodSpec("weicom", {"weight": 0.5}, "WeiCom"),
    MethodSpec("freedom", title="FreeDom"),
    MethodSpec("basic", title="BASIC"),
]
TUNED = {"lr": 2e-4, "concepts": 1}  # best in [Dissertation Sec. 4.4.4]
RIVALS = [
    MethodSpec("pic2word", {"steps": 400, "mapping": "database"}, "Pic2Word"),
    MethodSpec("searle", title="SEARLE, its settings"),
    MethodSpec("searle", TUNED, "SEARLE, settings of the Dissertation"),
]
COMPONENTS = {
    "E": "freedom-e",
    "E+": "freedom-e+",
    "L": "freedom-l",
    "L+": "freedom-l+",
    "L+a": "freedom",
}
KS, NS, MS = (1, 5, 10, 20, 40), (1, 7, 15, 30), (1, 3, 7, 10, 15)
LAMBDAS = [i / 10 for i in range(11)]
ATTRIBUTES = ("scene", "colour", "texture", "count", "shape", "density")
COUNTS = {"1": "one", "2": "two", "3": "three", "4": "four"}


class ResultCache:
    """Results by model, task and method, stored in a JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def __call__(self, evaluator: TaskEvaluator, method: MethodSpec) -> dict[str, Any]:
        task = evaluator.task
        key = " | ".join(
            [
                evaluator.model.identity,
                task.dataset.name,
                task.name,
                str(len(task.queries)),
                method.name,
            ]
        )
        if key not in self.results:
            self.results[key] = evaluate_method([evaluator], method)
            with write_atomically(self.path) as temporary:
                temporary.write_text(json.dumps(self.results, indent=1))
        scores: dict[str, Any] = self.results[key]
        return scores


def mean_and_deviation(values: Iterable[float], sign: str = "") -> str:
    """Format the mean and the deviation over the models."""
    scores = list(values)
    return f"{fmean(scores):{sign}.1f}" + (f" ± {stdev(scores):.1f}" if len(scores) > 1 else "")


class Study:
    """The tables for one model or for several seeds of it."""

    def __init__(
        self,
        evaluators: Sequence[TaskEvaluator],
        cache: ResultCache,
        memories: Sequence[MatrixDatabase] = (),
    ) -> None:
        self.evaluators, self.cache, self.memories = evaluators, cache, memories

    def columns(self, method: MethodSpec) -> list[str]:
        reports = [self.cache(evaluator, method) for evaluator in self.evaluators]
        scores_by_column = [
            [report["columns"][column] for report in reports]
            for column in self.evaluators[0].task.columns
        ]
        return [
            *map(mean_and_deviation, scores_by_column),
            mean_and_deviation(report["average"] for report in reports),
        ]

    def average(self, method: MethodSpec) -> list[float]:
        return [self.cache(evaluator, method)["average"] for evaluator in self.evaluators]

    def methods(self, methods: Iterable[MethodSpec]) -> str:
        """Tables 4.1 and 5.2."""
        head = ["method", *self.evaluators[0].task.columns, "AVG"]
        return markdown_table(head, [[method.name, *self.columns(method)] for method in methods])

    def grid(self) -> str:
        """Table 4.3: k against n."""
        cells = [
            [mean_and_deviation(self.average(MethodSpec("freedom", {"k": k, "n": n}))) for n in NS]
            for k in KS
        ]
        return markdown_table(
            ["k \\ n", *map(str, NS)], [[str(k), *row] for k, row in zip(KS, cells, strict=True)]
        )

    def components(self, rivals: bool) -> str:
        """Table 4.4: m for every component."""
        rows = [
            [component, *(mean_and_deviation(self.average(MethodSpec(name, {"m": m}))) for m in MS)]
            for component, name in COMPONENTS.items()
        ]
        if rivals:
            rows.insert(
                0,
                [
                    "SEARLE",
                    *(
                        mean_and_deviation(
                            self.average(MethodSpec("searle", TUNED | {"concepts": m}))
                        )
                        for m in MS
                    ),
                ],
            )
        return markdown_table(["component \\ m", *map(str, MS)], rows)

    def memory(self, other: str) -> str:
        """Table 4.5."""
        rows = [
            [
                "none",
                mean_and_deviation(
                    self.average(MethodSpec("freedom", {"memory": "none"}, "freedom, no memory"))
                ),
            ]
        ]
        for name, with_database in (
            ((other, False), (f"{other} and database", True)) if self.memories else ()
        ):
            scores = []
            for evaluator, memory in zip(self.evaluators, self.memories, strict=True):
                matrix = (
                    torch.cat([memory.matrix, evaluator.database.matrix])
                    if with_database
                    else memory.matrix
                )
                scores.append(
                    self.cache(
                        evaluator,
                        MethodSpec(
                            "freedom", {"memory": MatrixDatabase(matrix)}, f"freedom, {name}"
                        ),
                    )
                )
            rows.append([name, mean_and_deviation(report["average"] for report in scores)])
        return markdown_table(
            ["visual memory", "AVG"],
            [*rows, ["database", mean_and_deviation(self.average(MethodSpec("freedom")))]],
        )

    def injected(self) -> str:
        """Table 4.6, and the class name as the only word, an upper bound."""
        rows = []
        for component in ("E+", "L+"):
            plain = self.average(MethodSpec(COMPONENTS[component]))
            changes = []
            for name, word in (("class", "class"), ("source domain", "domain")):
                scores = self.average(
                    MethodSpec(
                        COMPONENTS[component],
                        {"injected": word},
                        f"{COMPONENTS[component]} with {name}",
                    )
                )
                changes.append(
                    mean_and_deviation((a - b for a, b in zip(scores, plain, strict=True)), "+")
                )
            rows.append([component, mean_and_deviation(plain), *changes])
        bound = mean_and_deviation(
            self.average(
                MethodSpec("freedom-l+", {"m": 0, "injected": "class"}, "the class name alone")
            )
        )
        table = markdown_table(["component", "plain", "class added", "source domain added"], rows)
        return f"{table}\n\nWith the class name as the only word: {bound}."

    def vocabulary(self, lists: Mapping[str, Sequence[str]]) -> str:
        """Compare vocabularies of the text memory; not in the dissertation."""
        rows = []
        for name, words in lists.items():
            cells = []
            for n in (1, 7):
                method = MethodSpec("freedom", {"n": n}, f"freedom, n {n}, {name}")
                evaluators = (
                    TaskEvaluator(b.task, b.vectors, b.model, remember_words(b.model, words))
                    for b in self.evaluators
                )
                cells.append(
                    mean_and_deviation(
                        self.cache(evaluator, method)["average"] for evaluator in evaluators
                    )
                )
            rows.append([name, str(len(words)), *cells])
        return markdown_table(["text memory", "words", "n = 1", "n = 7"], rows)

    def weights(self) -> str:
        """Table 5.3: lambda, by attribute."""
        scores = [self.columns(MethodSpec("weicom", {"weight": weight})) for weight in LAMBDAS]
        rows = [
            [name, *cells]
            for name, *cells in zip([*self.evaluators[0].task.columns, "AVG"], *scores, strict=True)
        ]
        return markdown_table(["lambda", *(f"{weight:g}" for weight in LAMBDAS)], rows)


def create_evaluator(
    model: ImageText, data: Dataset, make: Callable[[Dataset], RetrievalTask], words: Sequence[str]
) -> TaskEvaluator:
    embedded = dataset_vectors(model, data)
    return TaskEvaluator(
        make(data.select(embedded.positions.numpy())),
        embedded.vectors,
        model,
        remember_words(model, words),
    )


def caption_words(data: Dataset) -> list[str]:
    """Return all words of the captions, classes, domains and attributes of the images."""
    texts = [
        text
        for record in data
        for text in (record.caption, record.label, record.domain, *record.attributes.values())
    ]
    plain = (
        " ".join(text or "" for text in texts).replace("/", " ").replace("_", " ").replace(",", " ")
    )
    return sorted({word for word in plain.lower().split() if len(word) > 1})


def chapter_4(
    study: Study, other: str, rivals: bool, lists: Mapping[str, Sequence[str]]
) -> Iterable[tuple[str, str]]:
    yield (
        "Methods [Dissertation Table 4.1]",
        study.methods([*SIMPLE, *(RIVALS if rivals else []), *COMPOSED]),
    )
    yield "k proxies, n words of each [Dissertation Table 4.3]", study.grid()
    yield "m words and the components [Dissertation Table 4.4]", study.components(rivals)
    yield "The visual memory [Dissertation Table 4.5]", study.memory(other)
    yield "Words injected [Dissertation Table 4.6]", study.injected()
    yield "The text memory", study.vocabulary(lists)


def chapter_5(study: Study) -> Iterable[tuple[str, str]]:
    rows = [
        MethodSpec("text", title="Text"),
        MethodSpec("image", title="Image"),
        MethodSpec("average", title="Text & Image"),
    ]
    rows += [
        MethodSpec("weicom", {"weight": weight}, f"WeiCom, lambda {weight:g}")
        for weight in (0.3, 0.5, 0.6)
    ]
    rows += [MethodSpec("freedom", title="FreeDom"), MethodSpec("basic", title="BASIC")]
    yield "Attributes [Dissertation Table 5.2]", study.methods(rows)
    yield "The weight of the text [Dissertation Table 5.3]", study.weights()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--clip", nargs="+", default=[], metavar="RUN")
    parser.add_argument("--world", metavar="DATA", help="what the RUNs were trained on")
    parser.add_argument("--pacs", metavar="FOLDER")
    parser.add_argument(
        "--vocabulary", metavar="FILE", help="FreeDom's words for --pacs (default: ImageNet-21k's)"
    )
    parser.add_argument(
        "--most",
        type=int,
        default=40,
        help="questions of an attribute's table, of each attribute x 10",
    )
    args = parser.parse_args()
    if not args.clip and not args.pacs:
        parser.error("nothing to do: give --clip RUN --world DATA, or --pacs FOLDER")
    if args.clip and not args.world:
        parser.error("--clip needs --world DATA: the images that the RUNs were trained on")
    keep_memory()
    cache = ResultCache(args.out / "search.json")
    page: list[str] = []
    if args.clip:
        data = open_dataset(args.world)
        models = [create_image_text(run) for run in args.clip]
        words, test = caption_words(data.split("train")), data.split("test")
        rivals = all(isinstance(model, Invertible) for model in models)
        converted: Callable[[Dataset], RetrievalTask] = lambda dataset: sample_queries(  # noqa: E731
            domain_conversion(dataset), args.most
        )
        changed: Callable[[Dataset], RetrievalTask] = lambda dataset: sample_queries(  # noqa: E731
            attribute_modification(dataset, COUNTS, ATTRIBUTES), args.most
        )
        domains = Study(
            [create_evaluator(model, test, converted, words) for model in models],
            cache,
            [
                MatrixDatabase(dataset_vectors(model, data.split("train")).vectors)
                for model in models
            ],
        )
        styles = {domain.replace("_", " ") for domain in data.domains.names}
        lists = {
            "every word of the captions": words,
            "the same without domains": [word for word in words if word not in styles],
            "the classes, as an oracle": data.classes,
        }
        page += print_tables(
            "The world, small CLIP", domains, chapter_4(domains, "training images", rivals, lists)
        )
        attributes = Study(
            [create_evaluator(model, test, changed, words) for model in models], cache
        )
        page += print_tables("The world, attributes", attributes, chapter_5(attributes))
    if args.pacs:
        model = create_image_text("text-space")
        data, vocabulary_words = open_dataset(args.pacs), load_words(args.vocabulary)
        pacs = Study([create_evaluator(model, data, domain_conversion, vocabulary_words)], cache)
        lists = {
            "the given list": vocabulary_words,
            "ImageNet-21k": load_words(),
            "the classes, as an oracle": data.classes,
        }
        page += print_tables("PACS, text-space", pacs, chapter_4(pacs, "", False, lists))
    with write_atomically(args.out / "tables.md") as temporary:
        temporary.write_text("\n".join(page) + "\n", encoding="utf-8")


def print_tables(title: str, study: Study, tables: Iterable[tuple[str, str]]) -> list[str]:
    """Print the tables while they are computed; return their lines."""
    task = study.evaluators[0].task
    words = study.evaluators[0].words
    count = 0 if words is None else len(words.words)
    lines = [
        f"### {title}",
        "",
        f"{len(task.queries)} queries, {len(task.database)} images, {count} words.",
        "",
    ]
    print("\n".join(lines), flush=True)
    for heading, table in tables:
        section = [f"#### {heading}", "", table, ""]
        print("\n".join(section), flush=True)
        lines += section
    return lines


if __name__ == "__main__":
    main()
