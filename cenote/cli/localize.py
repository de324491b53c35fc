"""`cenote localize`: parse, predict, write, print."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ._messages import (
    Failures,
    check_output_folder,
    check_photos,
    output_folder,
    pluralize,
    print_message,
    report_interrupt,
    split_run,
)
from ._options import BoxFormats, Device, Workers

if TYPE_CHECKING:
    from cenote.models import PooledModel
    from cenote.predict.embedding import Loading
    from cenote.predict.thresholds import Threshold

Number = Annotated[
    float | None, tyro.conf.arg(metavar="T", help_behavior_hint="(default: see above)")
]
MapKind = Literal["auto", "object", "pool", "cls", "rollout", "cam", "gradcam"]


def run(
    paths: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[RUN] IMAGES...", help_behavior_hint=""),
    ],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")],
    format: BoxFormats = ("coco", "csv"),
    masks: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    pictures: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    several: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    refine: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    threshold: Number = None,
    calibrate: Annotated[str | None, tyro.conf.arg(metavar="DATA", help_behavior_hint="")] = None,
    map: MapKind = "auto",
    size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the model's)")
    ] = None,
    batch: int = 32,
    workers: Workers = "auto",
    device: Device = "auto",
) -> None:
    """Predict boxes and masks of photographs; no boxes and no training are needed.

    A map is cut at a threshold; the box is around the largest contour. The threshold is the one
    that `cenote evaluate RUN DATA --on localize` or `--calibrate DATA` chose and stored in RUN, if
    there is one. Without RUN: lite0, an ImageNet classifier that needs no download. A box's score
    is the probability of its class, times the highest value of the map in it. A model of images
    with several classes gives a box for every class with a probability of at least 0.5, or for the
    most probable one. Boxes are in pixels of the upright photograph. A killed run resumes.
    Exit code 1: some photographs failed, the others are done; 2: nothing could be done.

    Args:
        paths: a saved model, for instance a run of cenote fit, or none; then files, folders
            (searched recursively), globs, or one data set as for cenote fit.
        out: folder for boxes.json, boxes.csv, Annotations/, yolo/, label-studio.json, masks/ and
            pictures/.
        format: coco (boxes.json), voc (Annotations/*.xml), csv (boxes.csv), yolo (yolo/data.yaml,
            with copies of the photographs, to train a detector), label-studio (label-studio.json).
        masks: also write masks/*.png, and segmentations in boxes.json.
        pictures: also write pictures/*.jpg, with contact sheets of boxes and maps.
        several: one box for every component with at least a tenth of the largest one's pixels.
        refine: make maps follow the edges of the photographs: better masks, tighter boxes, of which
            fewer may be right.
        threshold: of the map, from 0 to 1.
        calibrate: choose the threshold on the validation images of a data set with boxes, and store
            it in RUN.
        map: kind of map; auto is the calibrated one, or the object map: what the photographs have
            in common, or for fewer than 8 what the training images or the last set had. It is the
            same for every class, unless photographs may have several: then it has the object where
            the class activation map is highest. pool is the pool's own map, cam the class
            activation map of the predicted class.
        size: side of the square that the model sees, by default what it was trained on; of the
            object map 12/7 of it (384 for 224), which costs 4.8 times as much.
        batch: photographs per batch.
    """
    check_photos(paths)

    from cenote.data.processes import count_workers
    from cenote.data.sources import open_photographs
    from cenote.device import use_device
    from cenote.options import check_number
    from cenote.predict.embedding import Loading
    from cenote.predict.maps import MapPredictor
    from cenote.predict.open_model import open_model
    from cenote.predict.thresholds import threshold_for
    from cenote.report.box_files import FILES, LocalizedFiles

    use_device(device)
    readers = count_workers(workers)
    if threshold is not None and calibrate is not None:
        raise ValueError("--threshold and --calibrate exclude each other")
    check_number("--batch", batch, whole=True, least=1)
    if size is not None:
        check_number("--size", size, whole=True, least=1)
    written = [name for kind, name in FILES.items() if kind in format]
    written += ["masks/"] * masks + ["pictures/"] * pictures
    if not written:
        raise ValueError("nothing would be written: name a --format, or --masks or --pictures")
    check_output_folder(out)
    folder, images = split_run(paths)
    model, _ = open_model(folder=folder)
    if calibrate is None:
        chosen, predictor = threshold_for(model, folder, threshold, map, size)
    elif folder is None:
        raise ValueError("--calibrate stores the threshold in RUN: name a saved model")
    else:
        chosen = _calibrate(model, folder, calibrate, map, size, Loading(batch, readers))
        predictor = MapPredictor.create(model, chosen.kind, chosen.size)
    predictor = replace(predictor, batch=batch, workers=readers)
    failures = Failures("localize")
    outputs = [out / name for name in ("masks", "pictures", "yolo")]
    dataset = open_photographs(images, outputs, failures)
    if not len(dataset):
        raise ValueError("no photographs found: name files, folders or globs")
    files = LocalizedFiles(dataset, out, format)
    with report_interrupt(), output_folder(out, *(name.rstrip("/") for name in written)):
        predictor.fit(dataset, folder)
        threshold_line = f"threshold {chosen.value:.2f} ({chosen.source})"
        if folder is None:
            print_message("classes of ImageNet, by lite0: name a saved model for your own")
        warnings = (*chosen.doubts, *predictor.doubts())
        for message in (predictor.describe(), threshold_line, *warnings):
            print_message(message)
        files.predict(predictor, chosen.value, masks, pictures, several, failures, refine)
    boxes, photographs = pluralize(files.boxes, "box", "boxes"), pluralize(files.done, "photograph")
    print(f"{boxes} in {photographs}: {', '.join(written)} in {out}")
    failures.exit()


def _calibrate(
    model: PooledModel, folder: Path, data: str, kind: str, size: int | None, loading: Loading
) -> Threshold:
    """Choose map and threshold on the validation split, or what the run held out, or all images.

    "auto" chooses between the object map and the model's own map, by the share of right boxes.
    """
    from cenote.data import open_dataset
    from cenote.evaluate.localize import calibrate
    from cenote.evaluate.splits import splits_of_run
    from cenote.predict.object_map import store_object_map

    dataset = open_dataset(data)
    name, images = "all", dataset
    run_splits = splits_of_run(folder, dataset)
    if "val" in dataset.splits:
        name, images = "val", dataset.split("val")
    elif run_splits is not None:
        name, images = "val", run_splits.val
    calibration = calibrate(model, images, name, kind, size, loading)
    calibration.save(folder)
    if calibration.kind == "object":
        store_object_map(model, images, folder, loading.workers, calibration.size)
    return calibration.as_threshold()
