"""`cenote fit` and `cenote sweep`: parse, train, print.

Their options are the fields of train/config.py with `flag`.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import tyro

from ._messages import check_data
from ._options import Device
from ._training import (
    Data,
    Flag,
    Out,
    config_of,
    exit_if_stopped,
    given_options,
    options_type,
    recipe_of,
)
from .grid import GridOption, RunsOption, train_grid

METRICS = {"boxes": "MaxBoxAccV2", "pixels": "PxAP"}
FitOptions = options_type("fit")
Options = Annotated[Any, tyro.conf.arg(name="", constructor=FitOptions)]


def run(
    data: Data,
    out: Out,
    options: Options = FitOptions(),  # noqa: B008
    resume: Flag = False,
    device: Device = "auto",
) -> None:
    """Train a model on labelled images and save it.

    With --freeze only pool and head learn, on features that are computed once: 30 epochs with four
    learning rates take minutes. Otherwise all weights learn. A validation split is held out if
    there is none, and its best epoch is saved. If images have several classes, training is with
    binary cross-entropy, and validation by mAP. RUN contains the model (config.json,
    model.safetensors), results.json and metrics.jsonl. A run that is killed and resumed ends with
    the same weights.

    Args:
        data: a folder of class folders, a list, NAME:FOLDER, world/small: see cenote data.
        out: folder of the run.
        resume: resume the run in RUN.
    """
    check_data(data)

    from cenote.data import open_dataset
    from cenote.device import use_device
    from cenote.predict.distributed import is_main_process
    from cenote.train.fit import fit

    use_device(device)
    config = config_of("fit", options, data)
    with exit_if_stopped("fit"):
        report = fit(open_dataset(data), out, config, resume=resume)
    if not is_main_process():
        return
    split, scores, how = "val", report.val, ""
    if report.test:
        split, scores, how = "test", report.test, " with the thresholds chosen on val"
    if "boxes" in scores:
        print(f"{METRICS['boxes']} {scores['boxes']:.2f} on {split}{how}")
    if "pixels" in scores:
        print(f"{METRICS['pixels']} {scores['pixels']:.2f} on {split}")
    if report.layers:
        shares = {layer: sum(weights.values()) for layer, weights in report.layers.items()}
        print("attention to layers: " + ", ".join(f"{k} {v:.0%}" for k, v in shares.items()))
    images = f"{scores['images']} {split} images"
    if "mAP" in scores:
        print(f"mAP {scores['mAP']:.2f} on {images}: saved in {out}")
    else:
        print(f"{scores['accuracy']:.2f}% of {images} correct: saved in {out}")


def sweep(
    data: Data,
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")],
    trials: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: 30)")
    ] = None,
    search: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="KEY=LOW..HIGH[:log]...", help_behavior_hint="(default: see above)"),
    ] = (),
    grid: GridOption = (),
    runs: RunsOption = 1,
    screen: Flag = False,
    options: Options = FitOptions(),  # noqa: B008
    device: Device = "auto",
) -> None:
    """Train many times with random settings, save the best on validation, and test it once.

    By default lr (1e-5..1, log), weight_decay (1e-7..1e-1, log) and cutout (0..0.5) are drawn, as
    in "Beyond Global Average Pooling"; a recipe may name others. The same command again resumes
    the search, and may run in several processes at once: they share the trials in FOLDER.
    FOLDER/best is the saved model, trials.csv the table.

    Args:
        data: as for cenote fit.
        out: folder of the search.
        trials: number of trials, over all processes.
        search: other settings to draw, such as lr=1e-4..1e-1:log smoothing=0..0.2.
        grid: train all combinations of these values instead of random ones. Keys are settings and
            options of the pool, such as lr=1e-4,1e-3 gamma=1.25,2. The table is grid.csv.
        runs: number of runs per combination, with different seeds; the table has their mean and
            standard deviation.
        screen: train half of the combinations, for keys with two values each, and print the main
            effects on the metric that selects the epoch.
    """
    check_data(data)

    from cenote.data import open_dataset
    from cenote.device import use_device
    from cenote.train.sweep import TRIALS, refuse_fixed, search_space
    from cenote.train.sweep import sweep as run_sweep

    use_device(device)
    config, recipe = config_of("fit", options, data), recipe_of(options)
    if grid or runs != 1 or screen:
        if trials is not None or search:
            raise ValueError(
                "--trials and --search cannot be combined with --grid, --runs and --screen"
            )
        with exit_if_stopped("sweep"):
            train_grid(open_dataset(data), out, config, grid, runs, screen)
        return
    space = search_space(search, recipe, config.model.freeze)
    given = given_options("fit", options)
    refuse_fixed(space, [*given, *given.get("settings", {})])
    if trials is None:
        trials = TRIALS
        if recipe is not None:
            trials = recipe.search.get("trials", TRIALS)
    with exit_if_stopped("sweep"):
        report = run_sweep(open_dataset(data), out, config, space, trials)
    _print_table(out / "trials.csv")
    if report is None:
        return
    metric = METRICS.get(config.train.select, "mAP" if "mAP" in report.val else "accuracy")
    drawn = ", ".join(f"{key} {value:.3g}" for key, value in report.drawn.items())
    print(f"best: trial {report.trial} ({drawn}), {metric} {report.value:.2f} on val")
    if report.test:
        names = [name for name in (*METRICS, "accuracy", "mAP") if name in report.test]
        scores = ", ".join(f"{METRICS.get(k, k)} {report.test[k]:.2f}" for k in names)
        print(f"on {report.test['images']} test images: {scores}")
    print(f"saved in {out / 'best'}")


def _print_table(path: Path) -> None:
    """Print the trials, best first."""
    head, *rows = csv.reader(path.open(newline=""))
    rows.sort(key=lambda row: -float(row[2] or "-inf"))
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in [head, *rows]:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
