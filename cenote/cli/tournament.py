"""`cenote tournament`: train every pool, on frozen features or end to end, and rank them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from ._messages import check_data
from ._options import Device, Workers

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")],
    recipe: Annotated[
        str | None, tyro.conf.arg(metavar="NAME|FILE", help_behavior_hint="(default: none)")
    ] = None,
    backbone: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: lite0)")
    ] = None,
    weights: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: its own)")
    ] = None,
    size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the recipe's)")
    ] = None,
    pools: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="POOL...", help_behavior_hint="(default: twelve; all: every pool)"),
    ] = (),
    ablation: Flag = False,
    gamma: Annotated[
        tuple[float, ...] | None,
        tyro.conf.arg(metavar="[X...]", help_behavior_hint="(without numbers: 1 to 5)"),
    ] = None,
    seeds: int = 3,
    epochs: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: 30)")
    ] = None,
    batch: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: 128)")
    ] = None,
    lr: Annotated[
        tuple[float, ...],
        tyro.conf.arg(metavar="X...", help_behavior_hint="(default: 1e-3 3e-3 1e-2)"),
    ] = (),
    boxes: int = 400,
    seed: int = 0,
    workers: Workers = "auto",
    device: Device = "auto",
    resume: Flag = False,
) -> None:
    """Find the pooling that suits these images: train every pool on the same frozen features.

    The features are computed once. Each pool is trained with several seeds, at the learning rate
    that is best on validation images, and evaluated on test images if there are any. RUN contains
    index.html (the report), results.json, table.md, table.txt, plot.png, plot.svg, pictures.jpg
    (attention maps) and the recommended model, for cenote.load and cenote evaluate. If it is
    killed, --resume continues and ends with the same numbers.

    With --recipe, whole networks are trained instead, one after the other, with the recipe's
    settings, which the options below override.

    Args:
        data: a folder of class folders, a list, NAME:FOLDER, world/small: see cenote data.
        out: folder of the tournament.
        recipe: train networks end to end by a recipe (cenote recipes), e.g.
            simpool/resnet18-supervised.
        backbone: a timm model, hf-hub:OWNER/NAME, local-dir:FOLDER, hf:OWNER/NAME or hf:FOLDER
            (transformers), or lite0, whose weights need no download.
        weights: a checkpoint of the backbone.
        size: side of an image in pixels; only with --recipe.
        pools: pools to train (cenote pools lists them); cls is the CLS token, own the pooling that
            the encoder was trained with. By default these, the baselines and the best pools of each
            group in the papers.
        ablation: train the rows of SimPool's ablation instead [SimPool Table 10].
        gamma: train SimPool with these exponents instead [SimPool Fig. C1], e.g. 1 1.25 2.
        seeds: trainings of each pool. Differences that other seeds or images could reverse are ties.
        epochs: passes over the training images.
        batch: images per step, over all processes.
        lr: learning rates to try for a third of the epochs; validation selects one per pool, and
            a factor of it for the matrices of the pool. With --recipe, one.
        boxes: maximal number of images with boxes to evaluate maps on.
        seed: first random seed; also of the validation split, if one is made.
        resume: continue the tournament in RUN.
    """
    check_data(data)

    from cenote.api.training import tournament
    from cenote.cli._messages import command_line
    from cenote.cli._training import exit_if_stopped
    from cenote.predict.distributed import is_main_process

    with exit_if_stopped("tournament"):
        result = tournament(
            data,
            out,
            pools=pools,
            backbone=backbone,
            weights=weights,
            recipe=recipe,
            ablation=ablation,
            gamma=gamma,
            lr=lr,
            seeds=seeds,
            boxes=boxes,
            size=size,
            resume=resume,
            device=device,
            command=command_line(),
            epochs=epochs,
            batch=batch,
            seed=seed,
            workers=workers,
        )
    if is_main_process():
        print(result)
        print(f"\n{out}: results.json, {', '.join(result.files)}, model.safetensors")
        print(f"report: {out / 'index.html'}")
