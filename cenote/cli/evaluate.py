"""`cenote evaluate`: parse, evaluate, print."""

from __future__ import annotations

import json as to_json
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ._messages import check_data
from ._options import Device, Workers

OF_BACKBONES = ("knn", "linear", "retrieve")  # protocols that need vectors alone


def run(
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|BACKBONE")],
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    on: Annotated[str, tyro.conf.arg(metavar="NAMES")] = "classify",
    out: Annotated[
        Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER", help_behavior_hint="")
    ] = None,
    weights: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: its own)")
    ] = None,
    split: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: see above)")
    ] = None,
    batch: int = 64,
    workers: Workers = "auto",
    device: Device = "auto",
    seed: int = 0,
    map: Literal["auto", "object", "pool", "cls", "rollout", "cam", "gradcam"] = "auto",
    without_match: Literal["exclude", "miss"] = "exclude",
    settings: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE...", help_behavior_hint="")
    ] = (),
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Evaluate a saved model with one or several protocols.

    Of several, those that the data is not suitable for are skipped with a message.

    classify: top-1 and top-5, or mAP if images have several classes. knn: 10 and 20 nearest
    neighbours among the training images. linear: a linear probe on the model's vectors.
    retrieve: Recall@K, P@1, R-precision and MAP@R among the evaluated images, or of queries
    against a gallery. localize: boxes and pixels of its maps, against the ground truth.
    discover: objects found without labels. segment: a linear layer on frozen patch features, if
    there are masks. background: ImageNet-9's eight backgrounds of images with masks.
    corruption: ImageNet-C's fifteen corruptions at five severities, which takes 76 passes over
    the images. imagenet-a: top-1 if only the classes of the data set can be predicted, also for
    ImageNet-R. jaccard: the maps of the heads against segmented objects, as SAR evaluates VOC12.
    zero-shot: how well GSP's prototypes of some classes predict the mean vectors of others.

    Args:
        folder: a saved model, for instance a run of cenote fit; for knn, linear and retrieve also a
            backbone, whose vectors are those of its own pooling.
        data: as for cenote fit.
        on: protocols, separated by commas: classify, knn, linear, retrieve, localize, discover,
            segment, background, corruption, imagenet-a, jaccard, zero-shot.
        out: also write results.json, pictures and an HTML report (index.html) to this folder.
        weights: a local checkpoint of the backbone.
        split: the images to evaluate on; by default test, or what was held out of the data that the
            run was trained on, or all.
        batch: images per batch.
        seed: seed of backgrounds and corruptions.
        map: kind of map for localize; auto is what a tournament chose, or else the pool's own map,
            CLS attention or the class activation map; object is what the images have in common,
            the same for every class.
        without_match: treatment of retrieve's queries that have nothing to find.
        settings: of the training of segment, such as epochs=127 lr=3e-5 weight_decay=0.05.
        json: print JSON.
    """
    check_data(data)

    from contextlib import nullcontext

    import cenote.train.segmentation  # noqa: F401 (registers the protocol "segment")
    from cenote.cli._messages import (
        check_output_folder,
        command_line,
        output_folder,
        parse_names,
        report_interrupt,
    )
    from cenote.data import open_dataset
    from cenote.data.processes import count_workers
    from cenote.device import default_device, use_device
    from cenote.evaluate.protocol import PROTOCOLS, Evaluation
    from cenote.evaluate.run import run_protocols
    from cenote.evaluate.splits import evaluation_splits, log_fold
    from cenote.models import load
    from cenote.predict.open_model import open_model
    from cenote.train.configure import parse_pairs

    use_device(device)
    names = parse_names(on, PROTOCOLS, "protocol")
    if settings and "segment" not in names:
        raise ValueError("--settings are those of segment: --on segment")
    check_output_folder(out)
    is_run = folder.exists()
    if not is_run and not set(names) <= set(OF_BACKBONES):
        raise ValueError(
            f"there is no saved model in {folder}; of a backbone, {', '.join(OF_BACKBONES)} are "
            "evaluated (--on knn)"
        )
    if is_run and weights is not None:
        raise ValueError(f"--weights {weights}: the model in {folder} has its own, leave it out")
    dataset = open_dataset(data)
    splits = evaluation_splits(folder, dataset, split)
    model = load(folder) if is_run else open_model(str(folder), weights)[0]
    evaluation = Evaluation(
        folder=folder,
        model=model.eval().to(default_device()),
        splits=splits,
        out=out,
        batch=batch,
        workers=count_workers(workers),
        seed=seed,
        data=dataset if split is None else None,
        map=map,
        without_match=without_match,
        settings=parse_pairs(settings),
    )
    log_fold(folder)
    separator = ""
    resumable = out is not None and any(PROTOCOLS[name].resumable for name in names)
    interrupts = report_interrupt() if resumable else nullcontext()
    with interrupts, output_folder(out, "results.json"):
        for name, report in run_protocols(evaluation, names, command_line()):
            if not json:
                title = f"{name}\n" * (len(names) > 1)
                print(separator + title + report.table(splits.name))
                separator = "\n"
    if json:
        print(to_json.dumps(evaluation.results, indent=2, allow_nan=False))
    elif out is not None:
        print(f"\nreport: {out / 'index.html'}")
