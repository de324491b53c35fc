"""`cenote probe`: k-NN, linear and efficient probing of frozen backbones, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from ._messages import check_data
from ._options import Device, Workers

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="OUT")],
    backbone: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="NAME...", help_behavior_hint="(default: lite0)"),
    ] = (),
    weights: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="FILE...", help_behavior_hint="(default: their own)"),
    ] = (),
    recipe: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")] = "probing/ep",
    seeds: int = 3,
    epochs: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the recipe's, 90)")
    ] = None,
    batch: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="N",
            help_behavior_hint="(default: the recipe's, 4096, at most 1/16 of the images)",
        ),
    ] = None,
    lr: Annotated[
        tuple[float, ...],
        tyro.conf.arg(metavar="X...", help_behavior_hint="(default: the recipe's, 1.6 8 24)"),
    ] = (),
    seed: int = 0,
    workers: Workers = "auto",
    device: Device = "auto",
    resume: Flag = False,
) -> None:
    """Measure how well frozen backbones separate the classes: k-NN, linear probing (LP), EP.

    One row per backbone, with the columns and settings of the efficient-probing (EP) benchmark:
    nearest neighbours, a linear layer on the CLS token or the average of the patches, and EP on the
    patches, also with the CLS token if there is one. All read the same features, which are computed
    once. Validation images select the learning rate, the epoch, k and the temperature; the numbers
    are those of test images, which are held out if the data has no test split. OUT contains
    index.html, results.json, table.md and table.txt. If it is killed, --resume continues and ends
    with the same numbers; it may also add seeds and backbones.

    Args:
        data: a folder of class folders, a list, NAME:FOLDER, world/small: see cenote data.
        out: folder of the results.
        backbone: timm models, hf-hub:OWNER/NAME, local-dir:FOLDER, hf:OWNER/NAME or hf:FOLDER
            (transformers), or lite0, whose weights need no download.
        weights: a checkpoint for each backbone, in their order; own: the backbone's own weights.
        recipe: settings of the training (cenote recipes NAME shows them).
        seeds: trainings of LP and EP.
        epochs: passes over the training images.
        batch: images per step, over all processes.
        lr: learning rates to try for a third of the epochs; validation selects one per probe.
        seed: first random seed; also of the splits that are made.
        resume: continue the run in OUT.
    """
    check_data(data)

    from cenote.api.training import probe
    from cenote.cli._messages import check_output_folder, command_line
    from cenote.cli._training import exit_if_stopped
    from cenote.predict.distributed import is_main_process

    check_output_folder(out)
    with exit_if_stopped("probe"):
        result = probe(
            data,
            out,
            backbone=backbone or "lite0",
            weights=[None if name == "own" else name for name in weights],
            recipe=recipe,
            lr=lr,
            seeds=seeds,
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
        print(f"\n{out}: results.json, {', '.join(result.files)}")
