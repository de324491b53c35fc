"""Pictures, boxes and numbers of where a model looks in photographs, in a folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..data import find_images, write_atomically
from ..data.csv_files import write_csv
from ..data.files import write_text
from ..data.images import stretch
from ..data.write_boxes import CSV_HEADER, relative_path
from ..predict.object_map import THRESHOLD
from ..predict.photos import FailedPhoto, PhotoPrediction, PhotoPredictor, combine_maps
from ..progress import progress_bar
from ..version import __version__
from .maps import draw_box, highlight, overlay
from .sheet import SheetEntry, SheetWriter, save_picture, thumbnail

log = logging.getLogger(__name__)
PICTURES = ("overlay", "mask", "box")


@dataclass
class AttendOutcome:
    """Number of finished photographs, and those that failed."""

    done: int = 0
    failed: list[FailedPhoto] = field(default_factory=list)


def attend_photos(
    predictor: PhotoPredictor, paths: Sequence[str | Path], out: Path
) -> AttendOutcome:
    """Write overlays, masks, boxes and a contact sheet of photographs, and the maps themselves.

    `paths` are files, folders and globs. Photographs that cannot be read are logged and skipped.
    """
    outcome = AttendOutcome()

    def skip(failed: FailedPhoto) -> None:
        outcome.failed.append(failed)
        log.info("skipped %s", ": ".join(filter(None, failed)))

    def skip_missing(message: str) -> None:
        path, _, reason = message.rpartition(": ")
        skip(FailedPhoto(path, reason) if path else FailedPhoto(message, ""))

    files = [f for f in find_images(paths, on_missing=skip_missing) if not is_output(f, out)]
    if not files:
        raise ValueError("no photographs found: name files, folders or globs")
    warnings = predictor.fit(files)
    writer = AttendWriter(out, predictor)
    with progress_bar("maps", len(files)) as bar:
        for prediction in predictor(files):
            bar.update()
            if isinstance(prediction, FailedPhoto):
                skip(prediction)
            else:
                writer.add(prediction)
                outcome.done += 1
    if not outcome.done:
        raise ValueError(f"no photograph of {len(files)} could be read")
    for warning in warnings:
        log.warning("%s", warning)
    writer.finish(outcome.failed)
    return outcome


def is_output(path: Path, out: Path) -> bool:
    """Return whether a file is a picture of an earlier run, for `cenote attend . -o .`."""
    if path.resolve().parent != out.resolve() or path.suffix != ".jpg":
        return False
    return path.stem.startswith("contact_sheet") or path.stem.rpartition(".")[2] in PICTURES


class AttendWriter:
    """Write the pictures as they come, and the tables and the maps at the end."""

    def __init__(self, out: Path, predictor: PhotoPredictor) -> None:
        self.out = out
        self.rows: list[dict[str, Any]] = []
        self.maps: list[np.ndarray] = []
        model, description = predictor.model, predictor.describe()
        backbone, pool = model.backbone.name, "cls"
        if model.pool is not None:
            pool = model.pool.label
        names = {"backbone": backbone, "pool": pool, "map": predictor.kind}
        self.settings: dict[str, object] = {
            **names,
            "description": description,
            "size": predictor.size,
        }
        if predictor.objects is not None:
            self.settings["threshold"] = THRESHOLD
            region = f"above {THRESHOLD:.0%} of its maximum"
        else:
            self.settings["share"] = predictor.share
            region = f"{predictor.share:.0%} of its mass"
        heading = f"{backbone} · {pool} · {description} · box and mask: {region}"
        self.sheets = SheetWriter(out, heading, "contact_sheet.jpg")
        self.predictor = predictor

    def add(self, prediction: PhotoPrediction) -> None:
        photo, box, note = prediction.photo, prediction.box, ""
        pictures = {
            "overlay": overlay(photo.picture, prediction.map),
            "mask": highlight(photo.picture, prediction.mask),
            "box": draw_box(photo.picture, box and photo.in_picture(box)),
        }
        if box is None:
            log.info("%s: nothing stands out, so it has no box", photo.path)
        files = {kind: f"{photo.name}.{kind}.jpg" for kind in PICTURES}
        for kind, image in pictures.items():
            save_picture(image, self.out / files[kind])
        row = {
            "file": relative_path(photo.path, self.out),
            "width": photo.size[0],
            "height": photo.size[1],
            "box": box and list(box),
            "class_id": prediction.class_id,
            "class_name": None,
            "score": None,
            "pictures": files,
        }
        if prediction.class_id is not None:
            row |= {"class_name": prediction.class_name, "score": round(prediction.score, 4)}
            note = f"{prediction.class_name} {prediction.score:.0%}"
        self.rows.append(row)
        self.maps.append(prediction.maps)
        if self.predictor.shows_each:
            self._add_each(prediction, note)
            return
        shown = [thumbnail(pictures[kind]) for kind in ("box", "overlay", "mask")]
        self.sheets.add(SheetEntry(shown, photo.path.name, note))

    def _add_each(self, prediction: PhotoPrediction, note: str) -> None:
        """Show each map with its name; all heads of all blocks in a row for each block."""
        picture, maps = prediction.photo.picture, prediction.maps
        names, width = self.predictor.name_maps(len(maps)), len(maps)
        if self.predictor.head == "all":
            width = self.predictor.heads
        for start in range(0, len(maps), width):
            shown, row = [thumbnail(picture)], slice(start, start + width)
            for values in maps[row]:
                each = stretch(combine_maps(values[None]), picture.size)
                shown.append(thumbnail(overlay(picture, each)))
            labels = ["", *names[row]]
            self.sheets.add(SheetEntry(shown, prediction.photo.path.name, note, labels))

    def finish(self, failed: list[FailedPhoto]) -> None:
        self.sheets.save()
        for stale in self.out.glob("contact_sheet_*.jpg"):  # of an earlier run with more sheets
            if stale.name not in self.sheets.names:
                stale.unlink()
        report = {
            "cenote": __version__,
            **self.settings,
            "sheets": self.sheets.names,
            "photographs": self.rows,
            "failed": [{"file": path, "reason": reason} for path, reason in failed],
        }
        write_text(self.out / "attention.json", json.dumps(report, indent=2) + "\n")
        with write_csv(self.out / "attention.csv") as table:
            table.write(CSV_HEADER)
            for row in self.rows:
                corners = row["box"] or [""] * 4
                values = row | dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True))
                table.write(values[name] for name in CSV_HEADER)
        self._save_maps()

    def _save_maps(self) -> None:
        def column(key: str, default: Any) -> np.ndarray:
            return np.array([default if row[key] is None else row[key] for row in self.rows])

        with write_atomically(self.out / "attention.npz") as path:
            np.savez_compressed(
                path,
                maps=_stack(self.maps),  # (n, m, H, W), zeros beyond a photograph's grid
                grids=np.array([a.shape[-2:] for a in self.maps]),  # (n, 2) rows, columns
                files=column("file", ""),
                sizes=np.stack([column("width", 0), column("height", 0)], 1),
                boxes=column("box", [-1] * 4),  # (n, 4) x0, y0, x1, y1; -1 without a box
                class_ids=column("class_id", -1),
                class_names=column("class_name", ""),
                scores=column("score", np.nan),
            )


def _stack(maps: list[np.ndarray]) -> np.ndarray:
    """Stack (m, H, W) of different sizes into (n, m, largest H, largest W)."""
    count, height, width = (max(sizes) for sizes in zip(*(a.shape for a in maps), strict=True))
    stacked = np.zeros((len(maps), count, height, width), np.float32)
    for row, a in zip(stacked, maps, strict=True):
        row[: a.shape[0], : a.shape[1], : a.shape[2]] = a
    return stacked
