"""`cenote evaluate-search`: parse, judge, print."""

from __future__ import annotations

import json as to_json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from cenote.search.evaluation import MethodSpec, TaskEvaluator

DEFAULT = (
    "text,image,sum,product,normalised-sum,weicom,freedom-word,"
    "freedom-e,freedom-l,freedom-e+,freedom-l+,freedom,basic"
)


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    model: Annotated[str, tyro.conf.arg(metavar="NAME")] = "text-space",
    methods: Annotated[
        str,
        tyro.conf.arg(metavar="NAMES", help_behavior_hint="(default: all that need no training)"),
    ] = DEFAULT,
    out: Annotated[
        Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER", help_behavior_hint="")
    ] = None,
    protocol: Literal["auto", "domains", "attributes", "triplets"] = "auto",
    at: Annotated[tuple[int, ...], tyro.conf.arg(metavar="K...", help_behavior_hint="")] = (),
    split: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None,
    words: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="FILE", help_behavior_hint="(default: the model's own, or ImageNet-21k)"
        ),
    ] = None,
    say_as: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME=WORDS...", help_behavior_hint="")
    ] = (),
    attributes: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME...", help_behavior_hint="(default: all)")
    ] = (),
    sources: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME...", help_behavior_hint="(default: all)")
    ] = (),
    most: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: all)")
    ] = None,
    batch: int = 64,
    workers: int = 0,
    seed: int = 0,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """How well an image and a text together find the images that both describe: mAP, a row for each method.

    domains: every image asks for its class in each other domain (domain conversion, trapezoidal average precision).
    attributes: every image asks for its class with another value of an attribute (PatternCom, standard average
    precision). triplets: queries that came with the data, an image and a sentence (FashionIQ, CIRR, CIRCO). The query
    stays in the database and is never right, but for CIRR's; with nothing to find the precision is 0. CIRR's also have
    recall_subset@1, 2 and 3, where only the five others of the query's group are ranked.

    Args:
        data: a folder, list, NAME:FOLDER (minidomainnet-conversion:FOLDER, patterncom:FOLDER, ...), or world/domains.
        model: text-space, open_clip/MODEL/WEIGHTS, or a folder that cenote clip wrote.
        methods: with commas; options behind colons: weicom:weight=0.3,freedom:k=10:m=3.
        out: write results.json, table.txt, table.md and, but for triplets, similarities.png there.
        protocol: which of the three; auto takes what the data has truth for.
        at: also the recall and the mean average precision among the K first, such as 10 50: the share of the right
            images that is found there.
        split: images of this split alone; by default query against gallery, or test, or all; of triplets the first of
            test and val whose right images are public.
        words: FreeDom's text memory: a text file with one word a line, or a CSV.
        say_as: what a domain or value is called, for instance art_painting='art painting'.
        attributes: only these.
        sources: ask with images of these domains alone; with one of them, the table is by the domain asked for.
        most: ask with at most so many images of each domain or attribute, drawn at random.
        batch: images at a time.
        workers: processes that read images.
        seed: of the draw.
        json: print JSON.
    """
    import torch

    from cenote.cli._arguments import check_output_folder, print_message
    from cenote.data import open_dataset, write_atomically
    from cenote.models.image_text import create_image_text
    from cenote.options import check_number
    from cenote.report.composed import table_markdown, table_text
    from cenote.search.evaluation import TaskEvaluator, parse_method
    from cenote.search.methods import check_model, find_method
    from cenote.search.protocols import as_words, fewer
    from cenote.search.tasks import find_protocol, judged_part, make_tasks
    from cenote.search.vectors import dataset_vectors
    from cenote.search.words import load_words, remember_words

    asked = {
        one.name: one for text in methods.split(",") if text.strip() for one in [parse_method(text)]
    }
    if not asked:
        raise ValueError("no method is named: give some with commas, such as text,image,freedom")
    if at and min(at) < 1:
        raise ValueError(f"--at takes whole numbers from 1, got {min(at)}")
    if most is not None:
        check_number("--most", most, whole=True, least=1)
    check_output_folder(out)
    dataset, said = judged_part(open_dataset(data), split), as_words(say_as)
    chosen = find_protocol(dataset, None if protocol == "auto" else protocol)
    make_tasks(
        dataset, chosen, said, attributes, sources
    )  # what is wrong is told before a model is loaded
    found = create_image_text(model)
    listed = (
        load_words(words, found)
        if any(find_method(one.method).words for one in asked.values())
        else None
    )
    for one in asked.values():
        check_model(one.method, found)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if isinstance(found, torch.nn.Module):
        found.to(device)
    embedded = dataset_vectors(found, dataset, batch, workers, device, _bar("images"))
    left_out = [*dataset.problems, *embedded.bad]
    for sentence in left_out[:5]:
        print_message(f"left out: {sentence}")
    if len(left_out) > 5:
        print_message(f"left out: {len(left_out) - 5} more")
    readable = dataset.select(embedded.positions.numpy())
    tasks = make_tasks(readable, chosen, said, attributes, sources)
    tasks = [fewer(task, most, seed) for task in tasks] if most is not None else tasks
    memory = None if listed is None else remember_words(found, listed)
    benches = [TaskEvaluator(task, embedded.vectors, found, memory) for task in tasks]
    report = _report(benches, asked, at, words)
    if json:
        print(to_json.dumps(report, indent=2, allow_nan=False))
    else:
        print(table_text(report))
    if out is not None:
        for name, text in {
            "results.json": to_json.dumps(report, indent=2, allow_nan=False),
            "table.txt": table_text(report),
            "table.md": table_markdown(report),
        }.items():
            with write_atomically(out / name) as temporary:
                temporary.write_text(text + "\n", encoding="utf-8")
        if tasks[0].values:  # there is something that can be right by half
            _draw(benches[0], asked, out / "similarities.png")


def _report(
    benches: Sequence[TaskEvaluator],
    asked: dict[str, MethodSpec],
    at: tuple[int, ...],
    words: str | None,
) -> dict[str, Any]:
    from tqdm import tqdm

    from cenote.search.evaluation import report

    methods, first = dict[str, Any](), benches[0]
    questions = [question for bench in benches for question in bench.task.questions]
    for name, one in asked.items():
        with tqdm(total=len(questions), desc=name, unit="query", disable=None, leave=False) as bar:
            methods[name] = report(benches, one, at, bar.update)
    listed = first.words
    return {
        "protocol": first.task.name,
        "average_precision": first.task.kind,
        "data": first.task.dataset.name,
        "model": first.model.name,
        "identity": first.model.identity,
        "words": None
        if listed is None
        else {"list": words or "default", "count": len(listed.words)},
        "questions": len(questions),
        "nothing_to_find": sum(not len(question.right) for question in questions),
        "database": sum(len(bench.task.database) for bench in benches),
        "columns": [column for bench in benches for column in bench.task.columns],
        "at": list(at),
        "methods": methods,
    }


def _draw(bench: TaskEvaluator, asked: dict[str, MethodSpec], path: Path) -> None:
    """Of one question that has something to find, the middle one; a picture that fails costs no figure."""
    from cenote.cli._arguments import print_message
    from cenote.data import write_atomically
    from cenote.report.similarities import draw_similarities

    task = bench.task
    useful = [question for question in task.questions if len(question.right)]
    if not useful:
        return
    question = useful[len(useful) // 2]
    label = task.dataset[question.image].label
    what = "domain" if task.kind == "trapezoid" else question.column
    names = {
        "neither": "neither",
        "class": "class alone",
        "value": f"{what} alone",
        "both": "both: right",
    }
    try:
        panels = {name: bench.groups(one, question) for name, one in asked.items()}
        figure = draw_similarities(
            panels, f"an image of {label} and “{question.text}”: scores of the database", names
        )
        with write_atomically(path) as temporary:
            figure.savefig(temporary, dpi=110)
    except Exception as error:
        print_message(f"{path.name} was not drawn: {error}")


def _bar(what: str) -> Any:
    """Progress over a number that is known with the first step."""
    from tqdm import tqdm

    bar: list[Any] = []

    def progress(done: int, of: int) -> None:
        if not bar:
            bar.append(tqdm(total=of, desc=what, unit="image", disable=None, leave=False))
        bar[0].update(done - bar[0].n)
        if done >= of:
            bar[0].close()

    return progress
