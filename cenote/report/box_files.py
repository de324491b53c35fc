"""Boxes and masks of photographs, written as they are found: files, pictures, contact sheets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from ..data import Dataset
from ..data.ground_truth import evenly_spaced
from ..data.loading import UnreadableImage
from ..data.write_boxes import BoxWriter, ImageBoxes, open_writers, remove_earlier
from ..predict.boxes import object_masks, predict_boxes
from ..predict.discovery import DiscoveryResult
from ..predict.maps import MapPredictor
from ..predict.open_model import class_names
from ..predict.photos import unique_names
from ..progress import progress_bar
from .blocks import PhotoWithBoxes, boxed_photo
from .discovery import draw_discovered, enlarged, method_title
from .localization import PICTURE_SIDE, Gallery
from .sheet import ENTRIES_PER_SHEET, THUMBNAIL, SheetEntry, contact_sheet, save_picture

FILES = {
    "coco": "boxes.json",
    "voc": "Annotations/",
    "csv": "boxes.csv",
    "yolo": "yolo/",
    "label-studio": "label-studio.json",
}
MIN_PHOTOS = 12  # on the contact sheet of discovery, for each of several methods


class BoxFiles:
    """The files of the photographs of a data set, and the number of photographs and boxes."""

    def __init__(self, dataset: Dataset, out: Path, formats: Sequence[str]) -> None:
        self.dataset, self.out, self.formats = dataset, out, formats
        self.paths = [dataset.path(i) for i in range(len(dataset))]
        self.names = unique_names(self.paths)
        self.written: list[str] = []  # names of finished photographs
        self.done = self.boxes = 0

    def add(
        self,
        writers: Sequence[BoxWriter],
        result: Any,
        boxes: list[list[int]],
        scores: list[float],
        masks: list[Any],
        labels: Sequence[str | None] = (),
        label: str | None = None,
    ) -> None:
        """Write the boxes of one photograph; `result` has its position and its size."""
        path, name = self.paths[result.position], self.names[result.position]
        read = partial(self.dataset.image, result.position)
        entry = ImageBoxes(path, name, result.size, label, boxes, scores, masks, labels, read)
        for writer in writers:
            writer.add(entry)
        self.written.append(name)
        self.boxes += len(boxes)


class LocalizedFiles(BoxFiles):
    """The files of `cenote localize`."""

    def predict(
        self,
        predictor: MapPredictor,
        threshold: float,
        masks: bool,
        pictures: bool,
        several: bool,
        skip: Callable[[str], None],
        refined: bool = False,
    ) -> None:
        """Predict and write the boxes of all photographs; `skip` receives those that fail."""
        classes, progress_file = class_names(predictor.model), self.out / ".localize.jsonl"
        backbone = predictor.model.backbone.name
        heading = f"{backbone} · {predictor.kind} map · threshold {threshold:.2f}"
        gallery = Gallery(self.out / "pictures", heading)
        predictions = predict_boxes(
            predictor, self.dataset, threshold, several, progress_file, refined
        )
        with (
            progress_bar("boxes", len(self.dataset)) as bar,
            open_writers(self.out, self.formats, masks, classes or ["object"]) as writers,
        ):
            for prediction in predictions:
                bar.update()
                if isinstance(prediction, UnreadableImage):
                    skip(prediction.message)
                    continue
                i, boxes, scores = prediction.position, list[list[int]](), list[float]()
                names, notes, object_pixels = list[str | None](), list[str](), list[Any]()
                labels = list[str | None]()  # of the boxes
                for part in (prediction, *prediction.further):
                    label = None
                    if classes is not None and part.class_id is not None:
                        label = classes[part.class_id]
                        notes.append(f"{label} {part.probability:.0%}")
                    names.append(label)
                    labels += [label] * len(part.boxes)
                    boxes += part.boxes.tolist()
                    scores += part.scores.tolist()
                    if masks:
                        object_pixels += object_masks(part)
                self.add(writers, prediction, boxes, scores, object_pixels, labels, names[0])
                if pictures:
                    photo, title, note = (
                        self.dataset.image(i, PICTURE_SIDE),
                        self.paths[i].name,
                        ", ".join(notes),
                    )
                    gallery.add(photo, self.names[i], boxes, prediction.map, title, note)
                self.done += 1
            if not self.done:
                progress_file.unlink(missing_ok=True)
                raise ValueError(f"no photograph of {len(self.dataset)} could be read")
            gallery.sheets.save()
        kinds = [*self.formats, *["masks"] * masks, *["pictures"] * pictures]
        sheets = [Path(name).stem for name in gallery.sheets.names]
        remove_earlier(self.out, kinds, [*self.written, *sheets])
        progress_file.unlink(missing_ok=True)


class DiscoveredFiles(BoxFiles):
    """The files of `cenote discover`, of each method in its own folder if there are several."""

    def __init__(
        self, dataset: Dataset, out: Path, formats: Sequence[str], methods: Sequence[str]
    ) -> None:
        super().__init__(dataset, out, formats)
        self.methods, self.files = methods, ExitStack()
        self.folders = {name: out / name for name in methods}
        if len(methods) == 1:
            self.folders = {methods[0]: out}
        self.writers: dict[str, list[BoxWriter]] = {}
        shown = max(MIN_PHOTOS, ENTRIES_PER_SHEET // len(methods))
        self.shown = set(evenly_spaced(range(len(dataset)), shown))
        self.entries: list[SheetEntry] = []  # of the contact sheet
        self.photos: dict[str, list[PhotoWithBoxes]] = {name: [] for name in methods}  # of the page

    def __enter__(self) -> DiscoveredFiles:
        return self

    def __exit__(self, *error: Any) -> None:
        self.files.__exit__(*error)
        if error[0] is None:
            for folder in self.folders.values():
                remove_earlier(folder, [*self.formats, "masks"], self.written)
        if self.entries and error[0] is None:
            heading = " · ".join(method_title(name) for name in self.methods)
            save_picture(contact_sheet(self.entries, heading), self.out / "found.jpg")

    def write(self, result: DiscoveryResult) -> None:
        if not self.writers:  # opened with the first image: an error before it leaves no files
            for name, folder in self.folders.items():
                writers = open_writers(folder, self.formats, True)
                self.writers[name] = self.files.enter_context(writers)
        for method, objects in result.objects.items():
            boxes = objects.boxes.round().astype(int).tolist()
            masks = [enlarged(mask, result.size) for mask in objects.masks]
            self.add(self.writers[method], result, boxes, [1.0] * len(boxes), masks)
        if result.position in self.shown:
            self._draw(result)
        self.done += 1

    def _draw(self, result: DiscoveryResult) -> None:
        photo = self.dataset.image(result.position, 2 * THUMBNAIL)
        pictures, name = [], self.paths[result.position].name
        for method, objects in result.objects.items():
            pictures.append(draw_discovered(photo, objects.boxes, objects.masks))
            self.photos[method].append(boxed_photo(photo, objects.boxes, name))
        self.entries.append(SheetEntry(pictures, name))
