"""`cenote tournament`: parse, play, print."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")],
    backbone: str = "lite0",
    weights: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: its own)")
    ] = None,
    pools: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="POOL...", help_behavior_hint="(default: all)")
    ] = (),
    ablation: Flag = False,
    gamma: Annotated[
        tuple[float, ...] | None,
        tyro.conf.arg(metavar="[X...]", help_behavior_hint="(without numbers: 1 to 5)"),
    ] = None,
    seeds: int = 3,
    epochs: int = 30,
    batch: int = 128,
    lr: Annotated[tuple[float, ...], tyro.conf.arg(metavar="X...")] = (1e-3, 3e-3, 1e-2),
    boxes: int = 400,
    seed: int = 0,
    workers: int = 0,
    resume: Flag = False,
) -> None:
    """Which pooling suits these images? Every pool on the same frozen features, several seeds, each at its own rate.

    The features are computed once; rates are chosen on validation images, contenders judged on test images where there
    are any. RUN holds index.html (the report), results.json, table.md, table.txt, plot.png, plot.svg, pictures.jpg
    (where each looks) and the recommended model, for cenote.load and cenote evaluate. Killed at any moment, --resume
    ends with the same numbers.

    Args:
        data: a folder of class folders, a list, NAME:FOLDER, world/small: see cenote data.
        out: where the tournament lies.
        backbone: a timm model, or lite0, whose weights need no download.
        weights: a checkpoint of the backbone.
        pools: who plays (cenote pools lists them); cls is the CLS token, which all of them include.
        ablation: play the rows of SimPool's own ablation instead (S Table 10).
        gamma: play SimPool with these exponents instead (S Figure C1), for instance 1 1.25 2.
        seeds: trainings of each contender. Differences within their noise are called ties.
        epochs: passes over the training images.
        batch: images a step, over all processes.
        lr: rates that each contender tries for a third of the epochs; validation chooses.
        boxes: images with boxes, at most so many, on which maps are judged.
        seed: the first one; also of the split, if one is made.
        workers: processes that read images.
        resume: go on with the tournament in RUN.
    """
    kinds = [
        name
        for name, given in (
            ("--pools", pools),
            ("--ablation", ablation),
            ("--gamma", gamma is not None),
        )
        if given
    ]
    if len(kinds) > 1:
        raise ValueError(f"{' and '.join(kinds)} are different tournaments: choose one")
    if gamma and min(gamma) <= 0:
        raise ValueError(f"gamma is a number above 0, got {min(gamma):g}")
    from cenote.cli._arguments import command_line
    from cenote.data import open_dataset
    from cenote.predict.distributed import leads
    from cenote.predict.timing import best_times
    from cenote.report.html import write_page
    from cenote.report.html.tournament import tournament_page
    from cenote.report.tournament import table, write_tournament
    from cenote.train.choices import PROBE
    from cenote.train.engine import Stopped
    from cenote.train.tournament.run import Game, tournament

    settings = replace(
        PROBE, epochs=epochs, batch=batch, seed=seed, workers=workers, warmup=min(2.0, epochs / 5)
    )
    kind = "ablation" if ablation else "gamma" if gamma is not None else "pools"
    game = Game(backbone, weights, kind, pools, gamma or (), seeds, lr, boxes, settings)
    say = _say if leads() else _silent
    try:
        outcome = tournament(
            open_dataset(data), out, game, resume=resume, clock=best_times, say=say
        )
    except Stopped as stop:
        print(f"cenote tournament: {stop}", file=sys.stderr)
        raise SystemExit(1) from stop
    if not leads():
        return
    written = write_tournament(outcome.report, out, outcome.photos, outcome.maps)
    seconds = sum(outcome.report["seconds"].values())
    page = tournament_page(outcome.report, outcome.photos, outcome.maps, command_line(), seconds)
    written += write_page(out, page)
    print(table(outcome.report))
    print(f"\n{out}: results.json, {', '.join(written)}, model.safetensors")
    print(f"report: {out / 'index.html'}")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _silent(sentence: str) -> None:
    pass
