"""The threshold at which a saved model's maps become boxes, kept beside the model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from ..data.files import write_atomically
from ..models import PooledModel
from ..models.decided import settle_kind
from .localize import Localization

FILE = "localization.json"
# Where nothing was calibrated: near the best of two data sets (docs/localization.md), not of yours. A class activation
# map is broad, attention has peaks, and the same box lies at less of its height.
DEFAULTS = {"cam": 0.25, "gradcam": 0.25, "pool": 0.1, "cls": 0.1, "rollout": 0.1}


class Threshold(NamedTuple):
    """A threshold and the maps it is for: another kind, or another size, would need its own."""

    value: float
    kind: str
    size: int
    source: str  # on which images it was chosen


def save_threshold(folder: Path, result: Localization, data: str, split: str) -> Path:
    """Write what `read_threshold` reads; `split` is the name of the images that chose it."""
    report = result.report
    if result.threshold is None:
        raise ValueError(f"no image of {data} has a box: nothing can choose a threshold")
    images = report["images_with_boxes"] if report["threshold_from"] == "test" else report["val"]["images"]
    kept = {
        "threshold": round(result.threshold, 6),
        "kind": report["kind"],
        "size": report["size"],
        "chosen_on": {"data": data, "split": split, "images": images},
        "model": _digest(folder),
    }
    with write_atomically(folder / FILE) as path:
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return folder / FILE


def read_threshold(folder: Path) -> Threshold | None:
    """None if there is none; a file that is damaged, or of another model, is a ValueError."""
    path = folder / FILE
    if not path.is_file():
        return None
    again = "calibrate again (--calibrate DATA) or give --threshold"
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        on = kept["chosen_on"]
        source = f"{on['images']} images of {on['data']}, {on['split']}"
        found = Threshold(float(kept["threshold"]), str(kept["kind"]), int(kept["size"]), source)
        model = kept["model"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a threshold that cenote wrote ({error}): {again}") from error
    if model != _digest(folder):
        raise ValueError(f"{path} was chosen for another model than is there now: {again}")
    return found


def threshold_for(
    model: PooledModel, folder: Path, given: float | None, kind: str = "auto", size: int | None = None
) -> Threshold:
    """The threshold to use, and why: the one given, the calibrated one if it is of such maps, or a default."""
    kept = read_threshold(folder) if given is None else None
    if kept is not None and kind in ("auto", kept.kind) and size in (None, kept.size):
        return kept
    side = size or model.backbone.preprocessing.size
    settled = settle_kind(model, kind, side)
    if given is not None:
        return Threshold(given, settled, side, "as given")
    why = "no threshold was calibrated for this model"
    if kept is not None:
        why = f"{folder / FILE} is for {kept.kind} maps of {kept.size} pixels"
    return Threshold(DEFAULTS[settled], settled, side, f"a default, because {why}")


def _digest(folder: Path) -> str:
    """Of the model: two pools without parameters share their weights, so what is built of them counts too."""
    digest = hashlib.sha256()
    for name in ("config.json", "model.safetensors"):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
