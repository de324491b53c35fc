"""Where does a model look, in each of these photographs? Pictures, boxes and numbers in a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..data import BadImage, find_images
from ..metrics import largest_box, mass_mask
from ..metrics.masks import Box
from ..models import PooledModel
from ..predict.open_model import class_names
from ..predict.photos import Photo, Sides, names_for, open_photo
from .maps import stretch
from .outputs import Outputs, is_output

T = TypeVar("T")
Sight = tuple[Tensor, Tensor | None]  # maps, logits


def say(sentence: str) -> None:
    """A line on stderr that does not break the progress bar."""
    tqdm.write(sentence, file=sys.stderr)


@dataclass(frozen=True)
class Seen:
    """What the model saw in one photograph."""

    photo: Photo
    maps: np.ndarray  # (m, H, W) as the model gave them
    map: np.ndarray  # (h, w) over the picture, non-negative
    mask: np.ndarray  # (h, w) bool
    box: Box | None  # in pixels of the file, upright
    class_id: int | None = None
    class_name: str = ""
    score: float = float("nan")  # the class's probability


@dataclass
class Outcome:
    """How a run ended: which photographs are done, which failed and why, where the results lie."""

    folder: Path
    done: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)  # file, reason


def attend_photos(
    model: PooledModel,
    paths: Sequence[str | Path],
    out: Path,
    kind: str = "auto",
    size: int = 448,
    share: float = 0.6,
    batch: int = 8,
    head: int | None = None,
    classify: bool = True,
    say: Callable[[str], None] = say,
) -> Outcome:
    """Overlays, masks, boxes and a contact sheet of photographs, folders and globs, and the maps themselves.

    `head` picks one of several maps; without it their mean is shown. `classify=False` tells no classes, for a model
    whose decisions mean nothing yet. A photograph that cannot be read is named
    through `say` and the others go on.
    """
    _check(size, share, batch)
    outcome = Outcome(out)

    def failed(sentence: str, reason: str = "") -> None:
        outcome.failed.append((sentence, reason))
        say(f"skipped {sentence}" + (f": {reason}" if reason else ""))

    files = find_images(paths, on_missing=lambda sentence: failed(*sentence.rsplit(": ", 1)))
    files = [file for file in files if not is_output(file, out)]
    if not files:
        raise ValueError(
            "no photographs found"
            if outcome.failed
            else "no photographs: name files, folders or globs"
        )
    if model.pool is not None:
        model.pool.check_finite = True
    kind, sides = rehearse(model.eval(), kind, size, head, say)
    names = class_names(model) if classify else None
    outputs = Outputs(out, model, kind, size, share)
    with tqdm(total=len(files), unit="photo", disable=None, file=sys.stderr) as bar:
        for group in _chunks(list(zip(files, names_for(files), strict=True)), 4 * batch):
            photos: list[Photo] = []
            for path, name in group:
                try:
                    photos.append(open_photo(path, name, model.backbone.preprocessing, sides))
                except BadImage as error:
                    failed(str(path), error.reason)
            results = _see_all(model, photos, kind, batch)
            for photo in photos:
                maps, logits = results[photo.name]
                if not torch.isfinite(maps).all() or (
                    logits is not None and not torch.isfinite(logits).all()
                ):
                    failed(str(photo.path), "its features are NaN or infinite")
                    continue
                outputs.add(_interpret(photo, maps, logits, names, share, head))
                outcome.done += 1
            bar.update(len(group))
    if not outcome.done:
        raise ValueError(f"none of the {len(files)} photographs could be used")
    outputs.finish(outcome.failed)
    return outcome


def rehearse(
    model: PooledModel, kind: str, size: int, head: int | None, say: Callable[[str], None]
) -> tuple[str, Sides]:
    """Look at an empty picture first: what is wrong with the model or the kind of map shows before any work.

    Gives what kind "auto" came to, and how photographs are sized for this model.
    """
    from ..models.attend import possible

    kind = next(iter(possible(model)), kind) if kind == "auto" else kind
    down, across = (max(1, round(s)) for s in model.backbone.stride())
    own = model.backbone.preprocessing.size
    sides = Sides(size, (down, across))
    try:
        maps = _try(model, kind, sides((4, 3)))
    except ValueError as first:
        try:
            maps = _try(model, kind, (own, own))
        except ValueError:
            raise first from None
        sides = Sides(own, (down, across), fixed=(own, own))
        say(
            f"'{model.backbone.name}' takes {own} x {own} pixels only: photographs are squeezed to that"
        )
    count = maps.shape[1]
    if head is not None and not 0 <= head < count:
        raise ValueError(f"this model gives {count} map(s) a photograph: there is no map {head}")
    return kind, sides


def one_map(maps: np.ndarray, head: int | None = None) -> np.ndarray:
    """(m, H, W) -> (H, W), non-negative: one of them, or their mean, each map counting the same.

    Of a class activation map only what speaks for the class counts; if nothing does, its best place is shown.
    """
    chosen = maps if head is None else maps[head : head + 1]
    positive = np.clip(chosen, 0, None).astype(np.float64)
    mass = positive.sum((-2, -1), keepdims=True)
    above = chosen - chosen.min((-2, -1), keepdims=True)
    positive = np.where(mass > 0, positive, above)
    mass = positive.sum((-2, -1), keepdims=True)
    return np.asarray((positive / np.where(mass > 0, mass, 1)).mean(0))


def _check(size: int, share: float, batch: int) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"share is more than 0 and at most 1, got {share}")
    if batch < 1:
        raise ValueError(f"a batch holds at least one photograph, got {batch}")
    if not 32 <= size <= 4096:
        raise ValueError(f"size is from 32 to 4096 pixels, got {size}")


def _try(model: PooledModel, kind: str, size: tuple[int, int]) -> Tensor:
    empty = torch.zeros(1, 3, *size[::-1], device=next(model.parameters()).device)
    return look(model, empty, empty, kind)[0]


def _see_all(
    model: PooledModel, photos: Sequence[Photo], kind: str, batch: int
) -> dict[str, Sight]:
    """Name -> (maps (m, H, W), logits), in batches of photographs of one size."""
    by_size: dict[tuple[torch.Size, torch.Size], list[Photo]] = {}
    for photo in photos:
        by_size.setdefault((photo.pixels.shape, photo.glance.shape), []).append(photo)
    parts = (part for same in by_size.values() for part in _chunks(same, batch))
    return {
        photo.name: result
        for part in parts
        for photo, result in zip(part, _see(model, part, kind), strict=True)
    }


def _see(model: PooledModel, photos: Sequence[Photo], kind: str) -> list[Sight]:
    device = next(model.parameters()).device
    glances, images = (
        torch.stack(x).to(device) for x in ([p.glance for p in photos], [p.pixels for p in photos])
    )
    try:
        maps, logits = look(model, images, glances, kind)
    except ValueError:  # features that are not finite: the rest of the batch must not suffer for it
        if len(photos) == 1:
            return [(torch.full((1, 1, 1), torch.nan), None)]
        return [result for photo in photos for result in _see(model, [photo], kind)]
    return [
        (maps[i].float().cpu(), None if logits is None else logits[i].float().cpu())
        for i in range(len(photos))
    ]


@torch.no_grad()
def look(model: PooledModel, images: Tensor, glances: Tensor, kind: str) -> Sight:
    """Maps (B, m, H, W) of `images` and logits of `glances`, the same photographs at the model's own size."""
    logits = None if model.head is None else model(glances)
    predicted = (
        {"classes": logits.argmax(-1)} if logits is not None and kind in ("cam", "gradcam") else {}
    )
    return model.attend(images, kind=kind, **predicted).detach(), logits


def _interpret(
    photo: Photo,
    maps: Tensor,
    logits: Tensor | None,
    names: Sequence[str] | None,
    share: float,
    head: int | None,
) -> Seen:
    a = stretch(one_map(maps.numpy(), head), photo.picture.size)
    mask = mass_mask(a, share).numpy()
    box = largest_box(mask)
    if box is not None:
        across, down = photo.size[0] / photo.picture.width, photo.size[1] / photo.picture.height
        box = (
            round(box[0] * across),
            round(box[1] * down),
            round(box[2] * across),
            round(box[3] * down),
        )
    if logits is None or names is None:
        return Seen(photo, maps.numpy(), a, mask, box)
    score, best = logits.softmax(-1).max(-1)
    return Seen(photo, maps.numpy(), a, mask, box, int(best), names[int(best)], float(score))


def _chunks(items: Sequence[T], n: int) -> Iterable[Sequence[T]]:
    return (items[i : i + n] for i in range(0, len(items), n))
