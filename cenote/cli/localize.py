"""`cenote localize`: parse, predict, write, print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ._arguments import check_output_folder, pluralize, print_message, report_interrupt

if TYPE_CHECKING:
    from cenote.models import PooledModel
    from cenote.predict.boxes import BoxPrediction
    from cenote.predict.maps import MapPredictor
    from cenote.predict.thresholds import Threshold

Number = Annotated[
    float | None, tyro.conf.arg(metavar="T", help_behavior_hint="(default: see above)")
]
MapKind = Literal["auto", "pool", "cls", "rollout", "cam", "gradcam"]
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
    highest value of the map in it. Boxes are in pixels of the upright photograph. A killed run
    resumes. Exit code 1: some photographs failed, the others are done; 2: nothing could be done.

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
    from cenote.models import load
    from cenote.predict.distributed import default_device
    from cenote.predict.maps import MapPredictor
    from cenote.predict.thresholds import threshold_for

    if threshold is not None and calibrate is not None:
        raise ValueError("--threshold and --calibrate exclude each other")
    written = [name for kind, name in FILES.items() if kind in format]
    written += ["masks/"] * masks + ["pictures/"] * pictures
    if not written:
        raise ValueError("nothing would be written: name a --format, or --masks or --pictures")
    check_output_folder(out)
    model = load(folder).eval().to(default_device())
    if calibrate is not None:
        options = {"kind": map, "size": size, "batch": batch, "workers": workers}
        box_threshold = _calibrate(model, folder, calibrate, options)
    else:
        box_threshold = threshold_for(model, folder, threshold, map, size)
    for message in (
        f"threshold {box_threshold.value:.2f}: {box_threshold.source}",
        *box_threshold.doubts,
    ):
        print_message(message)
    predictor = MapPredictor(model, box_threshold.kind, box_threshold.size, batch, workers)
    writer = _Writer(predictor, out, format, masks, pictures, box_threshold.value)
    writer.predict(images, several)
    boxes, photographs = (
        pluralize(writer.boxes, "box", "boxes"),
        pluralize(writer.done, "photograph"),
    )
    print(f"{boxes} in {photographs}: {', '.join(written)} in {out}")
    if writer.failed:
        print_message(f"cenote localize: {writer.failed} failed, see above")
        raise SystemExit(1)


def _calibrate(model: PooledModel, folder: Path, data: str, options: dict[str, Any]) -> Threshold:
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
    with tqdm(
        total=len(images), unit="image", desc="calibrating", disable=None, leave=False
    ) as bar:
        loading = Loading(options.pop("batch"), options.pop("workers"), bar.update)
        report = localize(model, images, cases=0, resamples=0, loading=loading, **options)
    for message in report.unreadable:
        print_message(f"left out: {message}")
    calibration = report.calibration(dataset.name, name)
    calibration.save(folder)
    return calibration.as_threshold()


class _Writer:
    """Predict the boxes of photographs, and write files and pictures as they come."""

    def __init__(
        self,
        predictor: MapPredictor,
        out: Path,
        formats: Sequence[str],
        masks: bool,
        pictures: bool,
        threshold: float,
    ) -> None:
        self.predictor, self.out, self.formats = predictor, out, formats
        self.masks, self.pictures, self.threshold = masks, pictures, threshold
        self.done = self.boxes = self.failed = 0

    def _skip(self, message: str) -> None:
        self.failed += 1
        print_message(f"skipped {message}")

    def predict(self, images: Sequence[str], several: bool) -> None:
        from tqdm import tqdm

        from cenote.data.loading import UnreadableImage
        from cenote.data.sources import open_photographs
        from cenote.data.write_boxes import ImageBoxes, open_writers
        from cenote.predict.boxes import object_masks, predict_boxes
        from cenote.predict.open_model import class_names
        from cenote.predict.photos import unique_names
        from cenote.report.localization import Gallery

        outputs = [self.out / "masks", self.out / "pictures"]
        dataset = open_photographs(images, outputs, self._skip)
        if not len(dataset):
            if self.failed:
                raise ValueError("no photographs found")
            raise ValueError("no photographs: name files, folders or globs")
        paths = [dataset.path(i) for i in range(len(dataset))]
        names, classes = unique_names(paths), class_names(self.predictor.model)
        backbone, kind = self.predictor.model.backbone.name, self.predictor.kind
        heading = f"{backbone} · {kind} map · threshold {self.threshold:.2f}"
        gallery = Gallery(self.out / "pictures", heading)
        progress_file = self.out / ".looks.jsonl"
        predictions = predict_boxes(self.predictor, dataset, self.threshold, several, progress_file)
        with (
            report_interrupt(),
            tqdm(total=len(dataset), unit="photo", disable=None, file=sys.stderr) as bar,
            open_writers(self.out, self.formats, self.masks, classes or ["object"]) as writers,
        ):
            for prediction in predictions:
                bar.update()
                if isinstance(prediction, UnreadableImage):
                    self._skip(prediction.message)
                    continue
                i, boxes = prediction.position, prediction.boxes
                label = _label(prediction, classes)
                masks = object_masks(prediction) if self.masks else []
                scores = prediction.scores.tolist()
                entry = ImageBoxes(
                    paths[i], names[i], prediction.size, label, boxes.tolist(), scores, masks
                )
                for writer in writers:
                    writer.add(entry)
                if self.pictures:
                    note = ""
                    if label is not None:
                        note = f"{label.split(',')[0]} {prediction.probability:.0%}"
                    photo, title = dataset.image(i), paths[i].name
                    gallery.add(photo, names[i], boxes, prediction.map, title, note)
                self.done += 1
                self.boxes += len(boxes)
            if not self.done:
                progress_file.unlink(missing_ok=True)
                raise ValueError(f"none of the {len(dataset)} photographs could be used")
            gallery.save_sheet()
        progress_file.unlink(missing_ok=True)


def _label(prediction: BoxPrediction, classes: Sequence[str] | None) -> str | None:
    if classes is None or prediction.class_id is None:
        return None
    return classes[prediction.class_id]
