"""Pictures, boxes and numbers of where a model looks in photographs, in a folder."""

from __future__ import annotations

import csv
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from .. import __version__
from ..data import find_images, write_atomically
from ..predict.photos import FailedPhoto, PhotoPrediction, PhotoPredictor
from .maps import draw_box, highlight, overlay
from .sheet import SheetEntry, contact_sheet

log = logging.getLogger(__name__)
PICTURES = ("overlay", "mask", "box")
PHOTOS_PER_SHEET = 40
THUMBNAIL = 320  # pixels: the pictures of a contact sheet are kept in memory until it is full
COLUMNS = ("file", "width", "height", "x0", "y0", "x1", "y1", "class_id", "class", "score")


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
        if outcome.failed:
            raise ValueError("no photographs found")
        raise ValueError("no photographs: name files, folders or globs")
    writer = AttendWriter(out, predictor)
    with tqdm(total=len(files), unit="photo", disable=None, file=sys.stderr) as bar:
        for prediction in predictor(files):
            bar.update()
            if isinstance(prediction, FailedPhoto):
                skip(prediction)
            else:
                writer.add(prediction)
                outcome.done += 1
    if not outcome.done:
        raise ValueError(f"none of the {len(files)} photographs could be used")
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
        self.entries: list[SheetEntry] = []  # of the current contact sheet
        self.sheets: list[str] = []
        model, kind, share = predictor.model, predictor.kind, predictor.share
        pool = "cls" if model.pool is None else model.pool.name
        self.settings = {
            "backbone": model.backbone.name,
            "pool": pool,
            "map": kind,
            "size": predictor.size,
            "share": share,
        }
        self.heading = (
            f"{model.backbone.name} · {pool} · {kind} map · box and mask: {share:.0%} of its mass"
        )

    def add(self, prediction: PhotoPrediction) -> None:
        photo, classified = prediction.photo, prediction.class_id is not None
        self.out.mkdir(parents=True, exist_ok=True)
        pictures = {
            "overlay": overlay(photo.picture, prediction.map),
            "mask": highlight(photo.picture, prediction.mask),
            "box": draw_box(photo.picture, prediction.picture_box),
        }
        files = {kind: f"{photo.name}.{kind}.jpg" for kind in PICTURES}
        for kind, image in pictures.items():
            self._save(image, files[kind])
        box, note = prediction.box, ""
        row = {
            "file": str(photo.path),
            "width": photo.size[0],
            "height": photo.size[1],
            "box": None if box is None else list(box),
            "class_id": prediction.class_id,
            "class": None,
            "score": None,
            "pictures": files,
        }
        if classified:
            row |= {"class": prediction.class_name, "score": round(prediction.score, 4)}
            note = f"{prediction.class_name.split(',')[0]} {prediction.score:.0%}"
        self.rows.append(row)
        self.maps.append(prediction.maps)
        for image in pictures.values():
            image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        shown = [pictures[kind] for kind in ("box", "overlay", "mask")]
        self.entries.append(SheetEntry(shown, photo.path.name, note))
        if len(self.entries) == PHOTOS_PER_SHEET:
            self._save_sheet()

    def finish(self, failed: list[FailedPhoto]) -> None:
        if self.entries:
            self._save_sheet()
        for stale in self.out.glob("contact_sheet_*.jpg"):  # of an earlier run with more sheets
            if stale.name not in self.sheets:
                stale.unlink()
        self._save_json(failed)
        self._save_csv()
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
                class_names=column("class", ""),
                scores=column("score", np.nan),
            )

    def _save_json(self, failed: list[FailedPhoto]) -> None:
        report = {
            "cenote": __version__,
            **self.settings,
            "sheets": self.sheets,
            "photographs": self.rows,
            "failed": [{"file": path, "reason": reason} for path, reason in failed],
        }
        with write_atomically(self.out / "attention.json") as path:
            path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")

    def _save_csv(self) -> None:
        with (
            write_atomically(self.out / "attention.csv") as path,
            path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
        ):
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            for row in self.rows:
                corners = row["box"] or [""] * 4
                writer.writerow(row | dict(zip(("x0", "y0", "x1", "y1"), corners, strict=True)))

    def _save_sheet(self) -> None:
        number = len(self.sheets) + 1
        name = f"contact_sheet_{number}.jpg" if number > 1 else "contact_sheet.jpg"
        self._save(contact_sheet(self.entries, self.heading), name)
        self.sheets.append(name)
        self.entries = []

    def _save(self, image: Image.Image, name: str) -> None:
        with write_atomically(self.out / name) as path:
            image.save(path, quality=92, subsampling=0)


def _stack(maps: list[np.ndarray]) -> np.ndarray:
    """Stack (m, H, W) of different sizes into (n, m, largest H, largest W)."""
    count, height, width = (max(sizes) for sizes in zip(*(a.shape for a in maps), strict=True))
    stacked = np.zeros((len(maps), count, height, width), np.float32)
    for row, a in zip(stacked, maps, strict=True):
        row[: a.shape[0], : a.shape[1], : a.shape[2]] = a
    return stacked
