"""What a run of `attend` leaves in its folder, each file whole or not there."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from .. import __version__
from ..data import write_atomically
from .maps import draw_box, highlight, overlay
from .sheet import Entry, contact_sheet

if TYPE_CHECKING:
    from ..models import PooledModel
    from .attend import Seen

PICTURES = ("overlay", "mask", "box")
PAGE = 40  # photographs on one contact sheet


def is_output(path: Path, out: Path) -> bool:
    """Whether a file is a picture of an earlier run: `cenote attend . -o .` must not look at its own pictures."""
    if path.resolve().parent != out.resolve() or path.suffix != ".jpg":
        return False
    return path.stem.startswith("contact_sheet") or path.stem.rpartition(".")[2] in PICTURES


class Outputs:
    """Pictures are written as they come; the tables and the maps when all are there."""

    def __init__(self, out: Path, model: PooledModel, kind: str, size: int, share: float) -> None:
        self.out = out
        self.rows: list[dict[str, Any]] = []
        self.maps: list[np.ndarray] = []
        self.page: list[Entry] = []
        self.sheets: list[str] = []
        pool = "cls" if model.pool is None else model.pool.name
        self.settings = {
            "backbone": model.backbone.name,
            "pool": pool,
            "map": kind,
            "size": size,
            "share": share,
        }
        self.heading = (
            f"{model.backbone.name} · {pool} · {kind} map · box and mask: {share:.0%} of its mass"
        )
        out.mkdir(parents=True, exist_ok=True)

    def add(self, seen: Seen) -> None:
        picture, (width, height) = seen.photo.picture, seen.photo.size
        box = seen.box
        if box is not None:
            across, down = picture.width / width, picture.height / height
            box = (
                round(box[0] * across),
                round(box[1] * down),
                round(box[2] * across),
                round(box[3] * down),
            )
        pictures = {
            "overlay": overlay(picture, seen.map),
            "mask": highlight(picture, seen.mask),
            "box": draw_box(picture, box),
        }
        files = {kind: f"{seen.photo.name}.{kind}.jpg" for kind in PICTURES}
        for kind, image in pictures.items():
            self._save(image, files[kind])
        known = seen.class_id is not None
        self.rows.append(
            {
                "file": str(seen.photo.path),
                "width": width,
                "height": height,
                "box": None if seen.box is None else list(seen.box),
                "class_id": seen.class_id,
                "class": seen.class_name if known else None,
                "score": round(seen.score, 4) if known else None,
                "pictures": files,
            }
        )
        self.maps.append(seen.maps)
        note = f"{seen.class_name.split(',')[0]} {seen.score:.0%}" if known else ""
        small = [_small(pictures[kind]) for kind in ("box", "overlay", "mask")]
        self.page.append(Entry(small, seen.photo.path.name, note))
        if len(self.page) == PAGE:
            self._turn_page()

    def finish(self, failed: list[tuple[str, str]]) -> None:
        if self.page:
            self._turn_page()
        for stale in self.out.glob("contact_sheet_*.jpg"):  # of an earlier, longer run
            if stale.name not in self.sheets:
                stale.unlink()
        self._tables(failed)
        boxes = [row["box"] or [-1] * 4 for row in self.rows]
        with write_atomically(self.out / "attention.npz") as path:
            np.savez_compressed(
                path,
                maps=_stack(self.maps),  # (n, m, H, W), zeros beyond a photograph's own grid
                grids=np.array([a.shape[-2:] for a in self.maps]),  # (n, 2) rows, columns
                files=np.array([row["file"] for row in self.rows]),
                sizes=np.array([[row["width"], row["height"]] for row in self.rows]),
                boxes=np.array(boxes),  # (n, 4) x0, y0, x1, y1; -1 where there is none
                class_ids=np.array(
                    [-1 if row["class_id"] is None else row["class_id"] for row in self.rows]
                ),
                class_names=np.array([row["class"] or "" for row in self.rows]),
                scores=np.array(
                    [np.nan if row["score"] is None else row["score"] for row in self.rows]
                ),
            )

    def _tables(self, failed: list[tuple[str, str]]) -> None:
        report = {
            "cenote": __version__,
            **self.settings,
            "sheets": self.sheets,
            "photographs": self.rows,
            "failed": [{"file": file, "reason": reason} for file, reason in failed],
        }
        with write_atomically(self.out / "attention.json") as path:
            path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        with (
            write_atomically(self.out / "attention.csv") as path,
            path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
        ):
            writer = csv.writer(file)
            writer.writerow(
                ["file", "width", "height", "x0", "y0", "x1", "y1", "class_id", "class", "score"]
            )
            for row in self.rows:
                size, label = (
                    [row["width"], row["height"]],
                    [row["class_id"], row["class"], row["score"]],
                )
                writer.writerow([row["file"], *size, *(row["box"] or [""] * 4), *label])

    def _turn_page(self) -> None:
        number = len(self.sheets) + 1
        name = f"contact_sheet_{number}.jpg" if number > 1 else "contact_sheet.jpg"
        self._save(contact_sheet(self.page, self.heading), name)
        self.sheets.append(name)
        self.page = []

    def _save(self, image: Image.Image, name: str) -> None:
        with write_atomically(self.out / name) as path:
            image.save(path, quality=92, subsampling=0)


def _small(picture: Image.Image, side: int = 320) -> Image.Image:
    """A page of pictures is kept until it is full: not in full size."""
    picture = picture.copy()
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return picture


def _stack(maps: list[np.ndarray]) -> np.ndarray:
    """(m, H, W) of different sizes -> (n, m, largest H, largest W)."""
    count, height, width = (max(sizes) for sizes in zip(*(a.shape for a in maps), strict=True))
    out = np.zeros((len(maps), count, height, width), np.float32)
    for place, a in zip(out, maps, strict=True):
        place[: a.shape[0], : a.shape[1], : a.shape[2]] = a
    return out
