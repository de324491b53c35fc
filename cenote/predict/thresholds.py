"""The threshold at which a saved model's maps become boxes, kept beside the model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from ..models import PooledModel
from ..models.class_map import resolve_map_kind

FILE = "localization.json"
# Where nothing was calibrated: near the best of two data sets (docs/localization.md), not of yours. A class activation
# map is broad, attention has peaks, and the same box lies at less of its height.
DEFAULTS = {"cam": 0.25, "gradcam": 0.25, "pool": 0.1, "cls": 0.1, "rollout": 0.1}
LOWEST = 0.02  # below it nearly every pixel is object, and every box the whole photograph
FEWEST = 20  # images to choose on


class Threshold(NamedTuple):
    """A threshold and the maps it is for: another kind, or another size, would need its own."""

    value: float
    kind: str
    size: int
    source: str  # on which images it was chosen
    doubts: tuple[str, ...] = ()  # sentences to say before it is used
    default: bool = False  # chosen on no images at all


def read_threshold(folder: Path) -> Threshold | None:
    """None if there is none; a file that is damaged, or of another model, is a ValueError."""
    path = folder / FILE
    if not path.is_file():
        return None
    again = "calibrate again (--calibrate DATA) or give --threshold"
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found, model = as_threshold(kept), kept["model"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a threshold that cenote wrote ({error}): {again}"
        ) from error
    if model != model_digest(folder):
        raise ValueError(f"{path} was chosen for another model than is there now: {again}")
    return found


def as_threshold(kept: dict[str, Any]) -> Threshold:
    """What was chosen, its source in words, and what speaks against it."""
    value, on = float(kept["threshold"]), kept["chosen_on"]
    source = f"{on['images']} image{'s' * (on['images'] != 1)} of {on['data']}, {on['split']}"
    if on.get("oracle"):
        source += ", an oracle's: they were judged by it too"
    doubts = []
    if value < LOWEST:
        doubts.append(f"the threshold is below {LOWEST:g}: most boxes will be the whole photograph")
    if on["images"] < FEWEST:
        doubts.append(f"fewer than {FEWEST} images chose the threshold: it may be far off")
    if kept.get("centred_box", -1) >= kept.get("max_box_acc", 0):
        doubts.append(
            "a fixed box in the middle, which has not seen the image, was right as often as these boxes"
        )
    return Threshold(value, str(kept["kind"]), int(kept["size"]), source, tuple(doubts))


def threshold_for(
    model: PooledModel,
    folder: Path,
    given: float | None,
    kind: str = "auto",
    size: int | None = None,
) -> Threshold:
    """The threshold to use, and why: the one given, the calibrated one if it is of such maps, or a default."""
    kept = read_threshold(folder) if given is None else None
    if kept is not None and kind in ("auto", kept.kind) and size in (None, kept.size):
        return kept
    side = size or model.backbone.preprocessing.size
    settled = resolve_map_kind(model, kind, side)
    if given is not None:
        return Threshold(given, settled, side, "as given")
    why = "no threshold was calibrated for this model"
    if kept is not None:
        why = f"{folder / FILE} is for {kept.kind} maps of {kept.size} pixels"
    return Threshold(DEFAULTS[settled], settled, side, f"a default, because {why}", default=True)


def model_digest(folder: Path) -> str:
    """Of the model: two pools without parameters share their weights, so what is built of them counts too."""
    digest = hashlib.sha256()
    for name in ("config.json", "model.safetensors"):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
