"""`cenote metric`: parse, train, print. Its options are the fields of train/config.py with `flag`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ._messages import check_data, pluralize
from ._options import Device
from ._training import Data, Flag, Out, config_of, exit_if_stopped, options_type
from .grid import GridOption, RunsOption, train_grid

if TYPE_CHECKING:
    from cenote.train.reports import FairReport, MetricReport

TITLES = {"p@1": "P@1", "r_precision": "RP", "map@r": "MAP@R"}
MetricOptions = options_type("metric")
Options = Annotated[Any, tyro.conf.arg(name="", constructor=MetricOptions)]


def run(
    data: Data,
    out: Out,
    options: Options = MetricOptions(),  # noqa: B008
    resume: Flag = False,
    grid: GridOption = (),
    runs: RunsOption = 1,
    screen: Flag = False,
    device: Device = "auto",
) -> None:
    """Train embeddings that separate classes, and test them on classes that were never seen.

    The first half of the classes trains and the second half tests, unless the data set says which
    are unseen. Any loss can be combined with Metrix's mixed examples, GSP's zero-shot loss or a
    cross-batch memory. A quarter of the training classes is held out to select the epoch. RUN
    contains the model, results.json and metrics.jsonl; cenote evaluate RUN DATA --on retrieve reads
    it. A run that is killed and resumed ends with the same weights; torchrun spreads it over
    processes, whose images are compared with each other.

    Args:
        data: a folder of class folders, a list, NAME:FOLDER (cub-retrieval, cars-retrieval, sop,
            inshop), world/small.
        out: folder of the run.
        resume: resume the run in RUN.
        grid: train all combinations of these values. Keys are settings, options of metric learning
            and options of the pool, such as prototypes=16,64 eps=0.5,5. The table is grid.csv. The
            same command resumes.
        runs: number of runs per combination, with different seeds; the table has their mean and
            standard deviation.
        screen: train half of the combinations, for keys with two values each, and print the main
            effects on the metric that selects the epoch.
    """
    check_data(data)

    from cenote.data import open_dataset
    from cenote.device import use_device
    from cenote.predict.distributed import is_main_process
    from cenote.train.metric_run import train_metric

    use_device(device)
    config = config_of("metric", options, data)
    if grid or runs != 1 or screen:
        if resume:
            raise ValueError(
                "--resume cannot be combined with --grid, --runs and --screen: the same command "
                "without it resumes"
            )
        with exit_if_stopped("metric"):
            train_grid(open_dataset(data), out, config, grid, runs, screen)
        return
    with exit_if_stopped("metric"):
        report = train_metric(open_dataset(data), out, config, resume=resume)
    if is_main_process():
        print(table(report))
        print(f"saved in {out}")


def table(report: MetricReport | FairReport) -> str:
    """Return a row for a model, or for the mean of four and for their concatenation."""
    from cenote.evaluate.retrieve import ONE_CLASS

    rows = [("the model", report.test)]
    concatenated, deviation = (getattr(report, n, None) for n in ("concatenated", "deviation"))
    if concatenated is not None:
        rows = [("mean of 4", report.test), ("concatenated", concatenated)]
    if deviation is not None:
        spreads = [("±", scores) for scores in deviation.values()]
        rows = [row for pair in zip(rows, spreads, strict=True) for row in pair]
    names = [name for name in report.test if name not in ("images", "queries", "without_match")]
    titles = [TITLES.get(name, name.replace("recall", "R")).rjust(6) for name in names]
    classes, images = len(report.classes["test"]), report.test["images"]
    lines = [f"{images:.0f} images of {classes} classes, in percent:"]
    if not set(report.classes["test"]) & set(report.classes["train"]):
        lines = [f"{images:.0f} images of {classes} classes that were not trained on, in percent:"]
    width = max(len(label) for label, _ in rows)
    lines.append("  ".join([" " * width, *titles]))
    for label, scores in rows:
        numbers = [f"{scores[name]:.2f}" for name in names]
        cells = [number.rjust(len(title)) for number, title in zip(numbers, titles, strict=True)]
        lines.append("  ".join([label.ljust(width), *cells]))
    if deviation is not None:
        count = getattr(report, "collections", 0)
        lines.append(f"mean of all {count} collections of four models, ± standard deviation")
    if unmatched := int(report.test["without_match"]):
        counted = "counted as misses"
        if report.test["queries"] < images:
            counted = "left out"
        queries = pluralize(unmatched, "query", "queries")
        lines.append(f"{counted}: {queries} without a match in the gallery")
    if classes == 1:
        lines.append(ONE_CLASS)
    return "\n".join(lines)
