"""The tables of D's chapters 4 and 5 at a scale for one core: docs/results.md.

    python examples/search/run.py OUT [--clip RUN [RUN ...] --world DATA] [--pacs FOLDER --vocabulary FILE]

RUN: what `cenote clip DATA -o RUN` wrote, several seeds of it for deviations; its test images are asked and searched,
its training images are the other visual memory. FOLDER: shared/data/pacs, searched with text-space and the words of
Open Images (shared/data/vocabulary/open_images_v7.csv). Killed, it goes on where it was.
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
    EvaluationQuery,
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
FOUND = [
    MethodSpec("weicom", {"weight": 0.5}, "WeiCom"),
    MethodSpec("freedom", title="FreeDom"),
    MethodSpec("basic", title="BASIC"),
]
TUNED = {"lr": 2e-4, "concepts": 1}  # as D 4.4.4 found it best
RIVALS = [
    MethodSpec("pic2word", {"steps": 400}, "Pic2Word"),
    MethodSpec("searle", title="SEARLE, its settings"),
    MethodSpec("searle", TUNED, "SEARLE, D's settings"),
]
PARTS = {
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


class Ledger:
    """What was measured before is not measured again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def __call__(self, bench: TaskEvaluator, asked: MethodSpec) -> dict[str, Any]:
        task = bench.task
        key = " | ".join(
            [
                bench.model.identity,
                task.dataset.name,
                task.name,
                str(len(task.queries)),
                asked.name,
            ]
        )
        if key not in self.known:
            self.known[key] = evaluate_method([bench], asked)
            with write_atomically(self.path) as temporary:
                temporary.write_text(json.dumps(self.known, indent=1))
        found: dict[str, Any] = self.known[key]
        return found


def told(values: Iterable[float], sign: str = "") -> str:
    """Mean and deviation over the models."""
    found = list(values)
    return f"{fmean(found):{sign}.1f}" + (f" ± {stdev(found):.1f}" if len(found) > 1 else "")


class Study:
    """The same questions to one model or several seeds of it."""

    def __init__(
        self,
        benches: Sequence[TaskEvaluator],
        ledger: Ledger,
        memories: Sequence[MatrixDatabase] = (),
    ) -> None:
        self.benches, self.ledger, self.memories = benches, ledger, memories

    def columns(self, asked: MethodSpec) -> list[str]:
        reports = [self.ledger(bench, asked) for bench in self.benches]
        own = [
            [report["columns"][column] for report in reports]
            for column in self.benches[0].task.columns
        ]
        return [*map(told, own), told(report["average"] for report in reports)]

    def average(self, asked: MethodSpec) -> list[float]:
        return [self.ledger(bench, asked)["average"] for bench in self.benches]

    def methods(self, asked: Iterable[MethodSpec]) -> str:
        """Tables 4.1 and 5.2."""
        head = ["method", *self.benches[0].task.columns, "AVG"]
        return markdown_table(head, [[one.name, *self.columns(one)] for one in asked])

    def grid(self) -> str:
        """Table 4.3: k against n."""
        cells = [
            [told(self.average(MethodSpec("freedom", {"k": k, "n": n}))) for n in NS] for k in KS
        ]
        return markdown_table(
            ["k \\ n", *map(str, NS)], [[str(k), *row] for k, row in zip(KS, cells, strict=True)]
        )

    def components(self, rivals: bool) -> str:
        """Table 4.4: m for every component."""
        rows = [
            [part, *(told(self.average(MethodSpec(name, {"m": m}))) for m in MS)]
            for part, name in PARTS.items()
        ]
        if rivals:
            rows.insert(
                0,
                [
                    "SEARLE",
                    *(
                        told(self.average(MethodSpec("searle", TUNED | {"concepts": m})))
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
                told(self.average(MethodSpec("freedom", {"memory": "none"}, "freedom, no memory"))),
            ]
        ]
        for name, whole in (
            ((other, False), (f"{other} and database", True)) if self.memories else ()
        ):
            found = []
            for bench, memory in zip(self.benches, self.memories, strict=True):
                matrix = (
                    torch.cat([memory.matrix, bench.database.matrix]) if whole else memory.matrix
                )
                found.append(
                    self.ledger(
                        bench,
                        MethodSpec(
                            "freedom", {"memory": MatrixDatabase(matrix)}, f"freedom, {name}"
                        ),
                    )
                )
            rows.append([name, told(report["average"] for report in found)])
        return markdown_table(
            ["visual memory", "AVG"],
            [*rows, ["database", told(self.average(MethodSpec("freedom")))]],
        )

    def injected(self) -> str:
        """Table 4.6, and the class name alone as the bound that D calls the upper one."""
        data = self.benches[0].task.dataset
        right: Callable[[EvaluationQuery], str] = lambda q: data.classes[q.label].replace("_", " ")  # noqa: E731
        wrong: Callable[[EvaluationQuery], str] = lambda q: q.column  # noqa: E731
        rows = []
        for part in ("E+", "L+"):
            plain = self.average(MethodSpec(PARTS[part]))
            changes = []
            for name, word in (("class", right), ("source domain", wrong)):
                found = self.average(
                    MethodSpec(PARTS[part], {"injected": word}, f"{PARTS[part]} with {name}")
                )
                changes.append(told((a - b for a, b in zip(found, plain, strict=True)), "+"))
            rows.append([part, told(plain), *changes])
        bound = told(
            self.average(
                MethodSpec("freedom-l+", {"m": 0, "injected": right}, "the class name alone")
            )
        )
        table = markdown_table(["component", "plain", "class added", "source domain added"], rows)
        return f"{table}\n\nWith the class name as the only word: {bound}."

    def vocabulary(self, lists: Mapping[str, Sequence[str]]) -> str:
        """No table of D: what the text memory is made of."""
        rows = []
        for name, words in lists.items():
            cells = []
            for n in (1, 7):
                asked = MethodSpec("freedom", {"n": n}, f"freedom, n {n}, {name}")
                benches = (
                    TaskEvaluator(b.task, b.vectors, b.model, remember_words(b.model, words))
                    for b in self.benches
                )
                cells.append(told(self.ledger(bench, asked)["average"] for bench in benches))
            rows.append([name, str(len(words)), *cells])
        return markdown_table(["text memory", "words", "n = 1", "n = 7"], rows)

    def weights(self) -> str:
        """Table 5.3: lambda, by attribute."""
        found = [self.columns(MethodSpec("weicom", {"weight": weight})) for weight in LAMBDAS]
        rows = [
            [name, *cells]
            for name, *cells in zip([*self.benches[0].task.columns, "AVG"], *found, strict=True)
        ]
        return markdown_table(["lambda", *(f"{weight:g}" for weight in LAMBDAS)], rows)


def bench_of(
    model: ImageText, data: Dataset, make: Callable[[Dataset], RetrievalTask], words: Sequence[str]
) -> TaskEvaluator:
    found = dataset_vectors(model, data)
    return TaskEvaluator(
        make(data.select(found.positions.numpy())),
        found.vectors,
        model,
        remember_words(model, words),
    )


def caption_words(data: Dataset) -> list[str]:
    """Every word that the captions, classes, domains and attributes of these images have: what the model has read."""
    said = [
        text
        for record in data
        for text in (record.caption, record.label, record.domain, *record.attributes.values())
    ]
    plain = (
        " ".join(text or "" for text in said).replace("/", " ").replace("_", " ").replace(",", " ")
    )
    return sorted({word for word in plain.lower().split() if len(word) > 1})


def chapter_4(
    study: Study, other: str, rivals: bool, lists: Mapping[str, Sequence[str]]
) -> Iterable[tuple[str, str]]:
    yield "Methods (D Table 4.1)", study.methods([*SIMPLE, *(RIVALS if rivals else []), *FOUND])
    yield "k proxies, n words of each (D Table 4.3)", study.grid()
    yield "m words and the components (D Table 4.4)", study.components(rivals)
    yield "The visual memory (D Table 4.5)", study.memory(other)
    yield "Words injected (D Table 4.6)", study.injected()
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
    yield "Attributes (D Table 5.2)", study.methods(rows)
    yield "The weight of the text (D Table 5.3)", study.weights()


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
    asked = parser.parse_args()
    if not asked.clip and not asked.pacs:
        parser.error("nothing to do: give --clip RUN --world DATA, or --pacs FOLDER")
    if asked.clip and not asked.world:
        parser.error("--clip needs --world DATA: the images that the RUNs were trained on")
    keep_memory()
    ledger = Ledger(asked.out / "search.json")
    page: list[str] = []
    if asked.clip:
        data = open_dataset(asked.world)
        models = [create_image_text(run) for run in asked.clip]
        words, test = caption_words(data.split("train")), data.split("test")
        rivals = all(isinstance(model, Invertible) for model in models)
        converted: Callable[[Dataset], RetrievalTask] = lambda part: sample_queries(  # noqa: E731
            domain_conversion(part), asked.most
        )
        changed: Callable[[Dataset], RetrievalTask] = lambda part: sample_queries(  # noqa: E731
            attribute_modification(part, COUNTS, ATTRIBUTES), asked.most
        )
        domains = Study(
            [bench_of(model, test, converted, words) for model in models],
            ledger,
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
        page += shown(
            "The world, small CLIP", domains, chapter_4(domains, "training images", rivals, lists)
        )
        attributes = Study([bench_of(model, test, changed, words) for model in models], ledger)
        page += shown("The world, attributes", attributes, chapter_5(attributes))
    if asked.pacs:
        model = create_image_text("text-space")
        data, given = open_dataset(asked.pacs), load_words(asked.vocabulary)
        pacs = Study([bench_of(model, data, domain_conversion, given)], ledger)
        lists = {
            "the given list": given,
            "ImageNet-21k": load_words(),
            "the classes, as an oracle": data.classes,
        }
        page += shown("PACS, text-space", pacs, chapter_4(pacs, "", False, lists))
    with write_atomically(asked.out / "tables.md") as temporary:
        temporary.write_text("\n".join(page) + "\n", encoding="utf-8")


def shown(title: str, study: Study, tables: Iterable[tuple[str, str]]) -> list[str]:
    """Printed as they come."""
    task = study.benches[0].task
    words = study.benches[0].words
    count = 0 if words is None else len(words.words)
    lines = [
        f"### {title}",
        "",
        f"{len(task.questions)} queries, {len(task.database)} images, {count} words.",
        "",
    ]
    print("\n".join(lines), flush=True)
    for heading, table in tables:
        part = [f"#### {heading}", "", table, ""]
        print("\n".join(part), flush=True)
        lines += part
    return lines


if __name__ == "__main__":
    main()
