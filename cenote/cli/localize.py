"""`cenote localize`: parse, find, write, print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ._arguments import check_output_folder, pluralize, print_message, report_interrupt

if TYPE_CHECKING:
    from cenote.models import PooledModel
    from cenote.predict.maps import MapPredictor
    from cenote.predict.thresholds import Threshold

Number = Annotated[
    float | None, tyro.conf.arg(metavar="T", help_behavior_hint="(default: see above)")
]
Maps = Literal["auto", "pool", "cls", "rollout", "cam", "gradcam"]

FILES = {"coco": "boxes.json", "voc": "Annotations/", "csv": "boxes.csv"}


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
    map: Maps = "auto",
    size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the model's)")
    ] = None,
    batch: int = 32,
    workers: int = 0,
) -> None:
    """Boxes and masks of photographs, from a model that never saw a box.

    The map of the predicted class is cut at a threshold; the box is around the largest contour. The threshold is the
    one that `cenote evaluate RUN DATA --on localize` or `--calibrate DATA` chose and kept in RUN, where there is one.
    A box's score is the probability of its class, times the highest value of the map in it. Boxes are in pixels of
    the upright photograph. A run that was killed goes on where it was. Exit code 1: some photographs failed, the others
    are done; 2: nothing could be done.

    Args:
        folder: a saved model, for instance a run of cenote fit.
        images: files, folders (and what is in them), globs, or one data set as for cenote fit.
        out: where boxes.json, boxes.csv, Annotations/, masks/ and pictures/ go.
        format: coco (boxes.json), voc (Annotations/*.xml), csv (boxes.csv).
        masks: also masks/*.png, and segmentations in boxes.json.
        pictures: also pictures/*.jpg, with contact sheets of boxes and maps.
        several: every component that has at least a tenth of the largest one's pixels, not the largest alone.
        threshold: of the map, from 0 to 1.
        calibrate: choose the threshold on the validation images of a data set with boxes, and keep it in RUN.
        map: what is cut; auto is the pool's own map, CLS attention, or the predicted class's activation map.
        size: the side of the square that the model sees.
        batch: photographs at a time.
        workers: processes that read images.
    """
    import torch

    from cenote.models import load
    from cenote.predict.maps import MapPredictor
    from cenote.predict.thresholds import threshold_for

    if threshold is not None and calibrate is not None:
        raise ValueError("--threshold and --calibrate exclude each other")
    check_output_folder(out)
    model = load(folder).eval().to("cuda" if torch.cuda.is_available() else "cpu")
    if calibrate is not None:
        chosen = _calibrate(
            model, folder, calibrate, kind=map, size=size, batch=batch, workers=workers
        )
    else:
        chosen = threshold_for(model, folder, threshold, map, size)
    predictor = MapPredictor(model, chosen.kind, chosen.size, batch, workers)
    for sentence in (f"threshold {chosen.value:.2f}: {chosen.source}", *chosen.doubts):
        print_message(sentence)
    written = [name for kind, name in FILES.items() if kind in format]
    written += ["masks/"] * masks + ["pictures/"] * pictures
    if not written:
        raise ValueError("nothing would be written: name a --format, or --masks or --pictures")
    done, boxes, failed = _find_all(
        predictor, images, out, format, chosen.value, masks, pictures, several
    )
    print(
        f"{pluralize(boxes, 'box', 'boxes')} in {pluralize(done, 'photograph')}: {', '.join(written)} in {out}"
    )
    if failed:
        print_message(f"cenote localize: {failed} failed, see above")
        raise SystemExit(1)


def _calibrate(model: PooledModel, folder: Path, data: str, **options: Any) -> Threshold:
    """On the validation images of the data: those of its own split, or those that the run held out of it, or all."""
    from tqdm import tqdm

    from cenote.data import open_dataset
    from cenote.evaluate.calibration import choose_threshold, save_threshold
    from cenote.evaluate.localize import localize
    from cenote.predict.thresholds import FILE, as_threshold
    from cenote.train.judged import own_splits

    dataset = open_dataset(data)
    name, part = "all", dataset
    own = own_splits(folder, dataset)
    if "val" in dataset.splits:
        name, part = "val", dataset.split("val")
    elif own is not None:
        name, part = "val", own.val
    with tqdm(total=len(part), unit="image", desc="calibrating", disable=None, leave=False) as bar:
        result = localize(model, part, each=0, resamples=0, progress=bar.update, **options)
    for sentence in result.report["unreadable"]:
        print_message(f"left out: {sentence}")
    chosen = as_threshold(choose_threshold(result, dataset.name, name))
    try:
        save_threshold(folder, result, dataset.name, name)
    except (
        OSError
    ) as error:  # a shared model may be read-only, and the photographs can still be done
        told = f"{folder / FILE}: {error.strerror or error}"
        print_message(
            f"the threshold was not kept ({told}): --threshold {chosen.value:.2f} uses it again"
        )
    return chosen


def _find_all(
    predictor: MapPredictor,
    images: Sequence[str],
    out: Path,
    formats: Sequence[str],
    threshold: float,
    masks: bool,
    pictures: bool,
    several: bool,
) -> tuple[int, int, int]:
    """Photographs done, boxes in them, photographs that failed."""
    from tqdm import tqdm

    from cenote.data.loading import UnreadableImage
    from cenote.data.sources import open_photographs
    from cenote.data.write_boxes import ImageBoxes, open_writers
    from cenote.predict.boxes import find, object_masks
    from cenote.predict.open_model import class_names
    from cenote.predict.photos import names_for
    from cenote.report.localization import Gallery

    failed: list[str] = []

    def skipped(sentence: str) -> None:
        failed.append(sentence)
        print_message(f"skipped {sentence}")

    dataset = open_photographs(images, [out / "masks", out / "pictures"], skipped)
    if not len(dataset):
        raise ValueError(
            "no photographs found" if failed else "no photographs: name files, folders or globs"
        )
    paths = [dataset.path(i) for i in range(len(dataset))]
    names, classes = names_for(paths), class_names(predictor.model)
    gallery = Gallery(
        out / "pictures",
        f"{predictor.model.backbone.name} · {predictor.kind} map · threshold {threshold:.2f}",
    )
    done = boxes = 0
    journal = out / ".looks.jsonl"
    with (
        report_interrupt(),
        tqdm(total=len(dataset), unit="photo", disable=None, file=sys.stderr) as bar,
        open_writers(out, formats, masks, classes or ["object"]) as writers,
    ):
        for found in find(predictor, dataset, threshold, several, journal):
            bar.update()
            if isinstance(found, UnreadableImage):
                skipped(found.message)
                continue
            i, label = found.position, None if classes is None else classes[found.class_id or 0]
            drawn = object_masks(found) if masks else []
            entry = ImageBoxes(
                paths[i],
                names[i],
                found.size,
                label,
                found.boxes.tolist(),
                found.scores.tolist(),
                drawn,
            )
            for writer in writers:
                writer.add(entry)
            if pictures:
                note = "" if label is None else f"{label.split(',')[0]} {found.probability:.0%}"
                gallery.add(dataset.image(i), names[i], found.boxes, found.map, paths[i].name, note)
            done, boxes = done + 1, boxes + len(found.boxes)
        if not done:
            journal.unlink(missing_ok=True)
            raise ValueError(f"none of the {len(dataset)} photographs could be used")
        gallery.turn()
    journal.unlink(missing_ok=True)  # all is written
    return done, boxes, len(failed)
