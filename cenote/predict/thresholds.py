"""The threshold at which a saved model's maps become boxes, stored beside the model."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..data.files import write_atomically
from ..models import PooledModel
from ..models.saving import model_digest
from .maps import MapPredictor
from .object_map import THRESHOLD as OBJECT_THRESHOLD

log = logging.getLogger(__name__)
FILE = "localization.json"
# Without calibration: near the best of two data sets (docs/localization.md), not of yours. A class
# activation map is broad, attention has peaks: the same box is at a lower share of its height.
DEFAULTS = {
    "object": OBJECT_THRESHOLD,
    "cam": 0.25,
    "gradcam": 0.25,
    "text": 0.25,  # that of a class activation map, not chosen on data
    "pool": 0.1,
    "cls": 0.1,
    "rollout": 0.1,
}
MIN_THRESHOLD = 0.02  # below it nearly every pixel is object, and every box the whole photograph
MIN_IMAGES = 20  # for a reliable choice


class Threshold(NamedTuple):
    """A threshold and the maps it is for: another kind or another size would need its own."""

    value: float
    kind: str
    size: int
    source: str  # the images it was chosen on
    doubts: tuple[str, ...] = ()  # warnings to show before it is used
    default: bool = False  # not chosen on any images


@dataclass(frozen=True)
class Calibration:
    """A threshold chosen on images with boxes, as it is stored beside the model."""

    threshold: float
    kind: str
    size: int
    chosen_on: dict[str, Any]  # data, split, images, oracle
    # Right boxes at IoU 0.5 in percent, of the maps and of a box in the middle of every image.
    max_box_acc: float = 0.0
    centred_box: float = -1.0

    def as_threshold(self) -> Threshold:
        """Return the threshold with its source in words and the reasons to doubt it."""
        images = int(self.chosen_on["images"])
        noun = "image" if images == 1 else "images"
        source = f"{images} {noun} of {self.chosen_on['data']}, {self.chosen_on['split']}"
        if self.chosen_on.get("oracle"):
            source += ", an oracle's: it was also evaluated on them"
        reasons = {
            f"the threshold is below {MIN_THRESHOLD:g}: "
            "most boxes will be the whole photograph": self.threshold < MIN_THRESHOLD,
            f"the threshold was chosen on fewer than {MIN_IMAGES} images": images < MIN_IMAGES,
            "a fixed box in the middle of every image was right as often as these boxes": (
                self.centred_box >= self.max_box_acc
            ),
        }
        doubts = tuple(reason for reason, applies in reasons.items() if applies)
        return Threshold(self.threshold, self.kind, self.size, source, doubts)

    def save(self, folder: Path) -> None:
        """Write what `read_threshold` reads; a shared model may be read-only, which is logged."""
        content = {**asdict(self), "model": model_digest(folder)}
        try:
            with write_atomically(folder / FILE) as path:
                path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            self.log_not_stored(f"{folder / FILE}: {error.strerror or error}")

    def log_not_stored(self, reason: str) -> None:
        options = f"--map {self.kind} --size {self.size} --threshold {self.threshold:.2f}"
        remedy = f"cenote localize {options} uses it"
        log.info("the threshold was not stored (%s): %s", reason, remedy)


def read_threshold(folder: Path) -> Threshold | None:
    """Read the stored threshold, None if there is none.

    A damaged file, or one of another model, is a ValueError.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    remedy = "calibrate again (--calibrate DATA) or give --threshold"
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        content["threshold"] = float(content["threshold"])
        digest = content.pop("model")
        threshold = Calibration(**content).as_threshold()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a threshold file ({error}): {remedy}") from error
    if digest != model_digest(folder):
        raise ValueError(f"{path} was chosen for another model than the one there now: {remedy}")
    return threshold


def threshold_for(
    model: PooledModel,
    folder: Path | None,
    value: float | None,
    kind: str = "auto",
    size: int | None = None,
) -> tuple[Threshold, MapPredictor]:
    """Return the given threshold, the calibrated one if it is for such maps, or a default; and
    what predicts the maps.

    "auto" is the calibrated kind, else the object map where the model has one: its boxes are the
    best over several data sets (docs/localization.md).
    """
    if value is not None and not 0 <= value < 1:
        raise ValueError(f"a threshold must be at least 0 and less than 1, got {value}")
    stored = None
    try:
        stored = read_threshold(folder) if folder is not None else None
    except ValueError:
        if value is None:
            raise
    if stored is not None and kind in ("auto", stored.kind):
        kind, size = stored.kind, size or stored.size
    predictor = _predictor(model, kind, size)
    if stored is not None and (predictor.kind, predictor.size) == (stored.kind, stored.size):
        threshold = stored
    else:
        source = "default"
        if folder is not None and stored is not None:
            source = f"default: {folder / FILE} is for {stored.kind} maps of {stored.size} pixels"
        default = DEFAULTS[predictor.kind]
        threshold = Threshold(default, predictor.kind, predictor.size, source, default=True)
    if value is not None:
        threshold = Threshold(value, predictor.kind, predictor.size, "as given")
    return threshold, predictor


def _predictor(model: PooledModel, kind: str, size: int | None) -> MapPredictor:
    if kind == "auto":
        try:
            return MapPredictor.create(model, "object", size)
        except ValueError as error:
            log.debug("%s", error)
    return MapPredictor.create(model, kind, size)
