"""`cenote evaluate-search`: parse, evaluate, print."""

from __future__ import annotations

import json as to_json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from ._messages import check_output_folder, output_folder, print_message
from ._options import Device, Workers

if TYPE_CHECKING:
    from cenote.search.evaluation import TaskEvaluator
    from cenote.search.methods import MethodSpec

DEFAULT_METHODS = (
    "text,image,sum,product,normalised-sum,weicom,freedom-word,"
    "freedom-e,freedom-l,freedom-e+,freedom-l+,freedom,basic"
)
METHODS_HINT = "(default: all that need no training)"
WORDS_HINT = "(default: the model's own, or ImageNet-21k)"
MAX_FAILURES = 5  # messages about unreadable images
Names = Annotated[tuple[str, ...], arg(metavar="NAME...", help_behavior_hint="(default: all)")]


def run(
    data: Annotated[str, Positional, arg(metavar="DATA")],
    model: Annotated[str, arg(metavar="NAME")] = "text-space",
    methods: Annotated[
        str, arg(metavar="NAMES", help_behavior_hint=METHODS_HINT)
    ] = DEFAULT_METHODS,
    out: Annotated[
        Path | None, arg(aliases=["-o"], metavar="FOLDER", help_behavior_hint="")
    ] = None,
    protocol: Literal["auto", "domains", "attributes", "triplets"] = "auto",
    at: Annotated[tuple[int, ...], arg(metavar="K...", help_behavior_hint="")] = (),
    split: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None,
    words: Annotated[str | None, arg(metavar="FILE", help_behavior_hint=WORDS_HINT)] = None,
    memory: Annotated[str | None, arg(metavar="DATA", help_behavior_hint="")] = None,
    remove_words: Annotated[int, arg(metavar="N", help_behavior_hint="")] = 0,
    say_as: Annotated[tuple[str, ...], arg(metavar="NAME=WORDS...", help_behavior_hint="")] = (),
    attributes: Names = (),
    sources: Names = (),
    most: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: all)")] = None,
    batch: int = 64,
    workers: Workers = "auto",
    device: Device = "auto",
    seed: int = 0,
    json: Annotated[bool, FlagCreatePairsOff] = False,
) -> None:
    """Evaluate how well an image and a text together find the images that both describe (mAP).

    domains: every image asks for its class in each other domain (domain conversion, trapezoidal
    average precision). attributes: every image asks for its class with another value of an
    attribute (PatternCom, standard average precision). triplets: queries that came with the data,
    an image and a sentence (FashionIQ, CIRR, CIRCO, i-CIR). The query stays in the database and is
    never relevant, except CIRR's, which is not ranked; a query without relevant images counts 0.
    CIRR also has recall_subset@1, 2 and 3, where only the five others of the query's group are
    ranked. i-CIR, with trapezoidal average precision, also has mmAP and minmAP: the averages over
    objects of the mean and of the lowest average precision of their queries.

    Args:
        data: a folder, list, NAME:FOLDER (minidomainnet-conversion:FOLDER, patterncom:FOLDER, ...),
            or world/domains.
        model: text-space, open_clip/MODEL/WEIGHTS, or a folder of cenote clip.
        methods: separated by commas; options after colons: weicom:weight=0.3,freedom:k=10:m=3.
            supplied:texts=FILE (or images=FILE, captions=FILE) searches by what another system
            generated for each query; combiner is trained on the triplets of the split train.
        out: write results.json, table.txt, table.md and, except for triplets, similarities.png.
        protocol: auto takes the one that the data has ground truth for.
        at: also recall and mean average precision among the first K, such as 10 50.
        split: only images of this split; by default query against gallery, or test, or all; for
            triplets the first of test and val whose relevant images are public.
        words: FreeDom's text memory: a text file with one word a line, or a CSV.
        memory: another visual memory of FreeDom: images for freedom:memory=other, and with the database
            for freedom:memory=both. freedom:injected=class adds the name of the query's class,
            injected=domain its domain, and freedom-l+:m=0:injected=class has no other word.
        remove_words: take the N words nearest to the name of the query's class out of the text
            memory.
        say_as: text of a domain or value, for instance art_painting='art painting'.
        attributes: only these.
        sources: only query images of these domains; with one, the table is by target domain.
        most: at most this number of query images per domain or attribute, drawn at random.
        batch: images at a time.
        seed: seed of the random selection.
        json: print JSON.
    """
    from cenote.data import open_dataset
    from cenote.data.files import write_text
    from cenote.data.processes import count_workers
    from cenote.device import use_device
    from cenote.options import check_number
    from cenote.progress import progress_of_total
    from cenote.report.composed import table_markdown, table_text
    from cenote.search.combiner import train_combiner
    from cenote.search.evaluation import TaskEvaluator, dataset_vectors, training_triplets
    from cenote.search.load import open_image_text
    from cenote.search.methods import METHODS, MethodSpec, check_model, find_method, parse_method
    from cenote.search.protocols import (
        evaluation_split,
        find_protocol,
        make_tasks,
        parse_texts,
        sample_queries,
    )
    from cenote.search.supplied import read_supplied
    from cenote.search.words import load_words, remember_words

    specs = [parse_method(text) for text in methods.split(",") if text.strip()]
    if not specs:
        raise ValueError("no method is named: separate them by commas, such as text,image,freedom")
    for spec in specs:
        if spec.method == "supplied":
            read_supplied(spec.options)  # an error before images are read
    for rank in at:
        check_number("--at", rank, whole=True, least=1)
    if most is not None:
        check_number("--most", most, whole=True, least=1)
    check_number("--remove-words", remove_words, whole=True, least=0)
    uses_words = any(find_method(spec.method).words for spec in specs)
    if not uses_words and (words or remove_words):
        names = ", ".join(name for name, method in METHODS.items() if method.words)
        raise ValueError(f"--words and --remove-words are options of --methods {names}")
    uses_memory = any(spec.options.get("memory") in ("other", "both") for spec in specs)
    if uses_memory and memory is None:
        raise ValueError(
            "memory=other and memory=both need the images of another memory: --memory DATA"
        )
    if memory is not None and not uses_memory:
        raise ValueError("--memory is for --methods freedom:memory=other or freedom:memory=both")
    use_device(device)
    readers = count_workers(workers)
    check_output_folder(out)
    opened = open_dataset(data)
    dataset, texts = evaluation_split(opened, split), parse_texts(say_as)
    protocol_name = find_protocol(dataset) if protocol == "auto" else protocol
    # An error before the model is loaded.
    make_tasks(dataset, protocol_name, texts, attributes, sources)
    image_text = open_image_text(model)
    word_list: list[str] = []
    if uses_words:
        word_list = load_words(words, image_text)
    for spec in specs:
        check_model(spec.method, image_text)
    with progress_of_total("images") as progress:
        embeddings = dataset_vectors(image_text, dataset, batch, readers, progress)
    _print_failures([*dataset.problems, *embeddings.bad])
    readable = dataset.select(embeddings.positions.numpy())
    tasks = make_tasks(readable, protocol_name, texts, attributes, sources)
    if most is not None:
        tasks = [sample_queries(task, most, seed) for task in tasks]
    text_memory = other_memory = None
    if word_list:
        text_memory = remember_words(image_text, word_list)
    if memory is not None:
        with progress_of_total("memory") as progress:
            images = open_dataset(memory)
            other_memory = dataset_vectors(image_text, images, batch, readers, progress).vectors
    if any(spec.method == "combiner" for spec in specs):
        triplets = training_triplets(image_text, opened, batch, readers)
        for i, spec in enumerate(specs):
            if spec.method == "combiner":
                network = train_combiner(triplets, **spec.options)
                specs[i] = MethodSpec("combiner", {**spec.options, "network": network}, spec.name)
    evaluators = [
        TaskEvaluator(task, embeddings.vectors, image_text, text_memory, other_memory, remove_words)
        for task in tasks
    ]
    with output_folder(out, "results.json"):
        report = _evaluate(evaluators, specs, at, words)
        report |= {"memory": memory, "removed_words": remove_words}
        report_json = to_json.dumps(report, indent=2, allow_nan=False)
        print(report_json if json else table_text(report))
        if out is None:
            return
        write_text(out / "results.json", report_json + "\n")
        write_text(out / "table.txt", table_text(report) + "\n")
        write_text(out / "table.md", table_markdown(report) + "\n")
        if tasks[0].values:  # an image can match in class or value alone
            _draw(evaluators[0], specs, out / "similarities.png")


def _print_failures(failures: Sequence[str]) -> None:
    for failure in failures[:MAX_FAILURES]:
        print_message(f"left out: {failure}")
    if len(failures) > MAX_FAILURES:
        print_message(f"left out: {len(failures) - MAX_FAILURES} more")


def _evaluate(
    evaluators: Sequence[TaskEvaluator],
    specs: Sequence[MethodSpec],
    at: tuple[int, ...],
    words: str | None,
) -> dict[str, Any]:
    from cenote.progress import progress_bar
    from cenote.search.evaluation import evaluate_method

    methods, first = dict[str, Any](), evaluators[0]
    tasks = [evaluator.task for evaluator in evaluators]
    queries = [query for task in tasks for query in task.queries]
    for spec in specs:
        with progress_bar(spec.name, len(queries), "queries") as bar:
            methods[spec.name] = evaluate_method(evaluators, spec, at, bar.update)
    word_list = None
    if first.words is not None:
        word_list = {"list": words or "default", "count": len(first.words.words)}
    return {
        "protocol": first.task.name,
        "average_precision": first.task.kind,
        "data": first.task.dataset.name,
        "model": first.model.name,
        "identity": first.model.identity,
        "words": word_list,
        "questions": len(queries),
        "nothing_to_find": sum(not len(query.relevant) for query in queries),
        "database": sum(len(task.database) for task in tasks),
        "columns": list(dict.fromkeys(column for task in tasks for column in task.columns)),
        "at": list(at),
        "methods": methods,
    }


def _draw(evaluator: TaskEvaluator, specs: Sequence[MethodSpec], path: Path) -> None:
    """Draw the scores of one query; if that fails, the numbers are still written."""
    from cenote.data import write_atomically
    from cenote.report.composed import draw_similarities

    task = evaluator.task
    queries = [query for query in task.queries if len(query.relevant)]
    if not queries:
        return
    query = queries[len(queries) // 2]
    value = query.column
    if task.kind == "trapezoid":
        value = "domain"
    names = {
        "neither": "neither",
        "class": "class alone",
        "value": f"{value} alone",
        "both": "both: right",
    }
    label = task.dataset[query.image].label
    title = f"an image of {label} and “{query.text}”: scores of the database"
    try:
        panels = {spec.name: evaluator.scores_by_match(spec, query) for spec in specs}
        figure = draw_similarities(panels, title, names)
        with write_atomically(path) as temporary:
            figure.savefig(temporary, dpi=110)
    except Exception as error:
        print_message(f"{path.name} was not drawn: {error}")
