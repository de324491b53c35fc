"""`cenote fit`: parse, train, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

Whole = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: see above)")]
Pairs = Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE...", help_behavior_hint="")]


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")],
    backbone: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: lite0)")] = None,
    pool: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: simpool)")] = None,
    pool_options: Pairs = (),
    tokens: Annotated[
        Literal["patches", "all", "cls"] | None, tyro.conf.arg(help_behavior_hint="(default: patches)")
    ] = None,
    recipe: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None,
    weights: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    freeze: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    scratch: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    epochs: Whole = None,
    batch: Whole = None,
    lr: Annotated[tuple[float, ...], tyro.conf.arg(metavar="X...", help_behavior_hint="(default: see above)")] = (),
    size: Whole = None,
    seed: int = 0,
    workers: int = 0,
    settings: Pairs = (),
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Train a model on labelled images and save it.

    With --freeze only pool and head learn, on features that are computed once: 30 epochs, four rates, minutes.
    Otherwise every weight does: 20 epochs from trained weights, 100 from scratch. A validation split is made if there
    is none, and the best epoch on it is kept. RUN holds the model (config.json, model.safetensors), results.json and
    metrics.jsonl. Killed at any moment, a run ends with the same weights if it is resumed.

    Args:
        data: a folder of class folders, a list, NAME:FOLDER, world/small: see cenote data.
        out: where the run lies.
        backbone: a timm model, or lite0, whose weights need no download.
        pool: a pool (cenote pools lists them), or cls.
        pool_options: of the pool, such as gamma=2.
        tokens: what is pooled: patches, all of them with the CLS token, or cls alone.
        recipe: a paper's settings by name (cenote recipes lists them), or a YAML file; other options go before it.
        weights: a checkpoint of the backbone.
        freeze: keep the backbone as it is.
        scratch: begin with random weights.
        epochs: passes over the images.
        batch: images a step, over all processes.
        lr: the rate, or several with --freeze, of which validation chooses.
        size: pixels of a side (default: the backbone's).
        seed: of weights, order and augmentation.
        workers: processes that read images.
        settings: others, such as optimizer=sgd clip=1 mixup=0.2 ema=0.999 amp=bf16 tensorboard=true.
        resume: go on with the run in RUN.
    """
    from cenote.data import open_dataset
    from cenote.train.choices import Choices, given_only, parse_options
    from cenote.train.engine import Stopped
    from cenote.train.fit import fit
    from cenote.train.recipe_choices import choices_of
    from cenote.train.recipes import load_recipe

    given: dict[str, Any] = {"epochs": epochs, "batch": batch, "seed": seed, "workers": workers}
    chosen = {key: value for key, value in given.items() if value is not None} | parse_options(settings)
    asked: dict[str, Any] = {"backbone": backbone, "pool": pool, "tokens": tokens, "weights": weights, "size": size}
    asked |= {"rates": lr, "pool_options": parse_options(pool_options), "settings": chosen}
    asked |= {"freeze": freeze, "scratch": scratch}
    choices = choices_of(load_recipe(recipe), **asked) if recipe else Choices(**given_only(asked))
    choices.training()  # a typo is told before the images are read
    try:
        report = fit(open_dataset(data), out, choices, resume=resume)
    except Stopped as stop:
        print(f"cenote fit: {stop}", file=sys.stderr)
        raise SystemExit(1) from stop
    judged = "test" if report["test"] else "val"
    print(f"{report[judged]['accuracy']:.2f}% of {report[judged]['images']} {judged} images right: saved in {out}")
