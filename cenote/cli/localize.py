"""`cenote localize`: parse, predict, write, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ._arguments import Failures, check_output_folder, pluralize, print_message, report_interrupt

if TYPE_CHECKING:
    from cenote.models import PooledModel
    from cenote.predict.thresholds import Threshold

Number = Annotated[
    float | None, tyro.conf.arg(metavar="T", help_behavior_hint="(default: see above)")
]
MapKind = Literal["auto", "pool", "cls", "rollout", "cam", "gradcam"]


def run(
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    images: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES...")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")],
    format: tuple[Literal["coco", "voc", "csv"], ...] = ("coco", "csv"),
    masks: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    pictures: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    several: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    threshold: Number = None,
    calibrate: Annotated[str | None, tyro.conf.arg(metavar="DATA", help_behavior_hint="")] = None,
    map: MapKind = "auto",
    size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the model's)")
    ] = None,
    batch: int = 32,
    workers: int = 0,
) -> None:
    """Predict boxes and masks of photographs with a model that was trained without boxes.

    The map of the predicted class is cut at a threshold; the box is around the largest contour. The
    threshold is the one that `cenote evaluate RUN DATA --on localize` or `--calibrate DATA` chose
    and stored in RUN, if there is one. A box's score is the probability of its class, times the
    highest value of the map in it. A model of images with several classes gives a box for every
    class with a probability of at least 0.5, or for the most probable one. Boxes are in pixels of
    the upright photograph. A killed run resumes. Exit code 1: some photographs failed, the others
    are done; 2: nothing could be done.

    Args:
        folder: a saved model, for instance a run of cenote fit.
        images: files, folders (searched recursively), globs, or one data set as for cenote fit.
        out: folder for boxes.json, boxes.csv, Annotations/, masks/ and pictures/.
        format: coco (boxes.json), voc (Annotations/*.xml), csv (boxes.csv).
        masks: also write masks/*.png, and segmentations in boxes.json.
        pictures: also write pictures/*.jpg, with contact sheets of boxes and maps.
        several: one box for every component with at least a tenth of the largest one's pixels.
        threshold: of the map, from 0 to 1.
        calibrate: choose the threshold on the validation images of a data set with boxes, and store
            it in RUN.
        map: kind of map; auto is the pool's own map, CLS attention, or the class activation map of
            the predicted class.
        size: side of the square that the model sees.
        batch: photographs per batch.
        workers: processes that read images.
    """
    from cenote.data.sources import open_photographs
    from cenote.models import load
    from cenote.predict.distributed import default_device
    from cenote.predict.maps import MapPredictor
    from cenote.predict.thresholds import threshold_for
    from cenote.report.box_files import FILES, LocalizedFiles

    if threshold is not None and calibrate is not None:
        raise ValueError("--threshold and --calibrate exclude each other")
    written = [name for kind, name in FILES.items() if kind in format]
    written += ["masks/"] * masks + ["pictures/"] * pictures
    if not written:
        raise ValueError("nothing would be written: name a --format, or --masks or --pictures")
    check_output_folder(out)
    model = load(folder).eval().to(default_device())
    if calibrate is None:
        chosen = threshold_for(model, folder, threshold, map, size)
    else:
        chosen = _calibrate(model, folder, calibrate, batch, workers, kind=map, size=size)
    for message in (f"threshold {chosen.value:.2f}: {chosen.source}", *chosen.doubts):
        print_message(message)
    failures = Failures("localize")
    dataset = open_photographs(images, [out / "masks", out / "pictures"], failures)
    if not len(dataset):
        raise ValueError("no photographs found: name files, folders or globs")
    predictor = MapPredictor(model, chosen.kind, chosen.size, batch, workers)
    files = LocalizedFiles(dataset, out, format)
    with report_interrupt():
        files.predict(predictor, chosen.value, masks, pictures, several, failures)
    boxes, photographs = pluralize(files.boxes, "box", "boxes"), pluralize(files.done, "photograph")
    print(f"{boxes} in {photographs}: {', '.join(written)} in {out}")
    failures.exit()


def _calibrate(
    model: PooledModel, folder: Path, data: str, batch: int, workers: int, **options: Any
) -> Threshold:
    """Choose the threshold on the validation split, or what the run held out, or all images."""
    from tqdm import tqdm

    from cenote.data import open_dataset
    from cenote.evaluate.splits import splits_of_run
    from cenote.evaluate.wsol import localize
    from cenote.predict.embedding import Loading

    dataset = open_dataset(data)
    name, images = "all", dataset
    run_splits = splits_of_run(folder, dataset)
    if "val" in dataset.splits:
        name, images = "val", dataset.split("val")
    elif run_splits is not None:
        name, images = "val", run_splits.val
    bar = tqdm(total=len(images), unit="image", desc="calibrating", disable=None, leave=False)
    with bar:
        loading = Loading(batch, workers, bar.update)
        report = localize(model, images, cases=0, resamples=0, loading=loading, **options)
    for message in report.unreadable:
        print_message(f"left out: {message}")
    calibration = report.calibration(dataset.name, name)
    calibration.save(folder)
    return calibration.as_threshold()
