"""Predict maps, masks and boxes of photographs of any size, uncropped."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..backbones import Preprocessing
from ..data import BadImage, Dataset, Record, pack, read_image
from ..data.images import full_size, stretch
from ..data.loading import UnreadableImage
from ..metrics import largest_box, mass_mask
from ..metrics.arrays import Array
from ..metrics.boxes import Box
from ..models import PooledModel
from ..models.registers import check_register, fit_register
from ..models.text_map import TextMap
from .boxes import boxes_from_map, object_masks, predict_maps
from .distributed import device_of
from .input_size import InputSize, stride_of, supported_size
from .maps import MapPredictor
from .object_map import THRESHOLD
from .open_model import class_names

log = logging.getLogger(__name__)
SIZE = 448  # by default, of other maps than object maps
MAX_PICTURE = 1024  # longest side of the pictures that are drawn; boxes are in pixels of the file


@dataclass(frozen=True)
class Photograph:
    path: Path
    name: str  # its pictures' name
    size: tuple[int, int]  # (width, height) of the file, upright
    picture: Image.Image  # at most MAX_PICTURE pixels wide and high
    pixels: Tensor  # (3, h, w): for the map; empty for an object map
    class_pixels: Tensor  # (3, h, w): for the class

    def in_picture(self, box: Box) -> Box:
        """Return a box in pixels of the picture."""
        return _scaled(box, self.size, self.picture.size)


@dataclass(frozen=True)
class PhotoPrediction:
    """Map, mask, box and class of one photograph."""

    photo: Photograph
    maps: Array  # (m, H, W) as the model predicts them
    map: Array  # (h, w) of the picture's size, non-negative
    mask: Array  # (h, w) bool
    box: Box | None  # in pixels of the file
    class_id: int | None = None
    class_name: str = ""
    score: float = float("nan")  # the class's probability


class FailedPhoto(NamedTuple):
    path: str
    reason: str


@dataclass
class PhotoPredictor:
    """Predict maps of photographs whose area is about `size` x `size` pixels for the model.

    Object maps and their boxes are those of `cenote localize`.

    `head` is one of several maps, "all" shows each, None their mean; `block` is a block of a ViT for
    CLS attention, by default the last, and "all" shows the map of each. `share` is how much of the map's mass the mask
    and the box contain; those of an object map are above its threshold. `classify=False` predicts
    no classes, for a model that is not trained. `bare` is a backbone without a trained pool: kind
    "auto" is the object map, where it has enough positions, as it is for a model without another
    map; kind "own" is the map of the pooling. `folder` is that of a saved model, whose stored
    object map is for few photographs.
    `registers` adds a test-time register to a ViT whose patches have outliers.
    """

    model: PooledModel
    kind: str = "auto"
    size: int | None = None
    share: float = 0.6
    batch: int = 8
    head: int | Literal["all"] | None = None
    block: int | Literal["all"] | None = None
    classify: bool = True
    bare: bool = False
    folder: Path | None = None
    registers: bool = False
    objects: MapPredictor | None = field(init=False, default=None)  # for kind "object"
    input_size: InputSize = field(init=False)
    names: list[str] | None = field(init=False, default=None)  # of the classes
    heads: int = field(init=False, default=1)  # maps of a block, or of a photograph

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be more than 0 and at most 1, got {self.share}")
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, got {self.batch}")
        if self.size is not None and not 32 <= self.size <= 4096:
            raise ValueError(f"size must be from 32 to 4096 pixels, got {self.size}")
        model = self.model.eval()
        if self.registers:
            check_register(model.backbone)
        if model.pool is not None:
            model.pool.check_finite = True
        # Grad-CAM needs another package, and no map at all would be an error.
        bare = self.bare or set(model.map_kinds()) <= {"gradcam"}
        if self.kind == "own" and set(model.map_kinds()) <= {"gradcam"}:
            raise ValueError(
                f"'{model.backbone.name}' has no map of its own, it averages its features and has no "
                "classifier: --map object, or train a pool with a map (cenote fit)"
            )
        if self.kind == "object" or (self.kind == "auto" and bare):
            self._create_object_maps()
        if self.kind in ("auto", "own"):
            self.kind = next(iter(model.map_kinds()), "auto")
        if self.classify:
            self.names = class_names(model)
        if self.block is not None and self.kind != "cls":
            raise ValueError(f"blocks have CLS attention, not a {self.kind} map: --map cls")
        if self.block == "all" and isinstance(self.head, int):
            raise ValueError("--block all shows the mean of the heads, or every one: --head all")
        self.size = self.size or SIZE
        if self.objects is not None:
            if self.head is not None:
                raise ValueError("there is one object map, without heads: --map cls or --map pool")
            return
        self.input_size, self.heads = supported_size(
            model.backbone, InputSize(stride_of(model.backbone), self.size), self._count_heads
        )
        if isinstance(self.head, int) and not 0 <= self.head < self.heads:
            raise ValueError(
                f"this model gives {self.heads} map(s) a photograph, counted from 0: got --head "
                f"{self.head}"
            )

    def _count_heads(self, images: Tensor) -> int:
        maps, _ = self._forward(images, images)
        if self.block != "all":
            return maps.shape[1]
        blocks = self.model.attend(images, kind="cls", block=None).shape[1]
        return maps.shape[1] // blocks

    def name_maps(self, count: int) -> list[str]:
        """Return the names of the maps of a photograph, by block and head."""
        heads = [f"head {i}" if self.kind == "cls" else f"map {i}" for i in range(self.heads)]
        if self.block != "all":
            return heads
        blocks = [f"block {i}" for i in range(count // self.heads)]
        if self.head is None:
            return blocks
        return [f"{block}, {head}" for block in blocks for head in heads]

    def _create_object_maps(self) -> None:
        try:
            self.objects = MapPredictor.create(
                self.model, "object", self.size, self.batch, classify=self.classify
            )
        except ValueError as error:
            if self.kind == "object":
                raise
            log.info("%s: the map is that of its pool", error)
        else:
            self.kind, self.size = "object", self.objects.size

    def fit(self, paths: Sequence[Path]) -> tuple[str, ...]:
        """Fit register and object maps to the photographs they are for; return warnings."""
        if self.registers:
            fit_register(self.model.backbone, _as_dataset(paths))
        if self.objects is None:
            return ()
        self.objects.fit(_as_dataset(paths), self.folder)
        return self.objects.doubts()

    def describe(self) -> str:
        """Say which map it is."""
        description = self._describe_map()
        if self.model.backbone.register_neurons:
            return f"{description}, with a test-time register"
        return description

    def _describe_map(self) -> str:
        if self.objects is not None:
            return self.objects.describe()
        if isinstance(self.model, TextMap):
            return f"map of '{self.model.text}'"
        parts = {"block": self.block, "head": self.head}
        chosen = [f"{name} {value}" for name, value in parts.items() if value is not None]
        return ", ".join([f"{self.kind} map", *chosen])

    @property
    def shows_each(self) -> bool:
        """Whether the contact sheet shows each of several maps."""
        return "all" in (self.head, self.block)

    def __call__(self, paths: Sequence[Path]) -> Iterator[PhotoPrediction | FailedPhoto]:
        """Predict photographs, those of equal size that follow each other in batches.

        A photograph that cannot be read may come before earlier ones.
        """
        if self.objects is not None:
            yield from self._predict_objects(self.objects, paths)
            return
        preprocessing, batch = self.model.backbone.preprocessing, list[Photograph]()
        for path, name in zip(paths, unique_names(paths), strict=True):
            try:
                photo = open_photo(path, name, preprocessing, self.input_size)
            except BadImage as error:
                yield FailedPhoto(str(path), error.reason)
                continue
            if batch and (len(batch) == self.batch or photo.pixels.shape != batch[0].pixels.shape):
                yield from self._predict(batch)
                batch = []
            batch.append(photo)
        if batch:
            yield from self._predict(batch)

    def _predict_objects(
        self, predictor: MapPredictor, paths: Sequence[Path]
    ) -> Iterator[PhotoPrediction | FailedPhoto]:
        names = unique_names(paths)
        for result in predict_maps(predictor, _as_dataset(paths)):
            path = paths[result.position]
            if isinstance(result, UnreadableImage):
                yield FailedPhoto(str(path), result.message.removeprefix(f"{path}: "))
                continue
            photo = open_photo(path, names[result.position], self.model.backbone.preprocessing)
            picture = result._replace(size=photo.picture.size)
            boxes = boxes_from_map(predictor, result, THRESHOLD).boxes
            in_picture = boxes_from_map(predictor, picture, THRESHOLD)
            mask = next(iter(object_masks(in_picture)), np.zeros(photo.picture.size[::-1], bool))
            score_map = stretch(in_picture.map, photo.picture.size)
            box = next(map(tuple, boxes.tolist()), None)
            prediction = PhotoPrediction(photo, result.map[None], score_map, mask, box)
            yield self._with_class(prediction, result.class_id, result.probability)

    def _predict(self, photos: Sequence[Photograph]) -> Iterator[PhotoPrediction | FailedPhoto]:
        device = device_of(self.model)
        images = torch.stack([photo.pixels for photo in photos]).to(device)
        class_images = torch.stack([photo.class_pixels for photo in photos]).to(device)
        try:
            maps, logits = self._forward(images, class_images)
        except ValueError:  # features that are not finite: repeat the other photographs without it
            if len(photos) > 1:
                for photo in photos:
                    yield from self._predict([photo])
                return
            maps, logits = torch.full((1, 1, 1, 1), torch.nan), None
        for i, photo in enumerate(photos):
            outputs = [output[i].float().cpu() for output in (maps, logits) if output is not None]
            if all(bool(output.isfinite().all()) for output in outputs):
                yield self._interpret(photo, *outputs)
            else:
                yield FailedPhoto(str(photo.path), "its features are NaN or infinite")

    @torch.no_grad()
    def _forward(self, images: Tensor, class_images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return maps (B, m, H, W) of `images` and logits of `class_images`."""
        logits, options = None, self._cls_options()
        if self.model.head is not None:
            logits = self.model(class_images)
            if self.kind in ("cam", "gradcam"):
                options = {"classes": logits.argmax(-1)}
        return self.model.attend(images, kind=self.kind, **options).detach(), logits

    def _cls_options(self) -> dict[str, Any]:
        if self.kind != "cls":
            return {}
        block: int | None = -1
        if self.block is not None:
            block = None if self.block == "all" else self.block
        return {"block": block, "heads": "mean" if self.head is None else "all"}

    def _interpret(
        self, photo: Photograph, maps: Tensor, logits: Tensor | None = None
    ) -> PhotoPrediction:
        head = self.head if isinstance(self.head, int) else None
        score_map = stretch(combine_maps(maps.numpy(), head), photo.picture.size)
        mask = mass_mask(score_map, self.share).numpy()
        box = largest_box(mask)
        if box is not None:
            box = _scaled(box, photo.picture.size, photo.size)
        prediction = PhotoPrediction(photo, maps.numpy(), score_map, mask, box)
        if logits is None:
            return prediction
        score, best = self.model.probabilities(logits).max(-1)
        return self._with_class(prediction, int(best), float(score))

    def _with_class(
        self, prediction: PhotoPrediction, class_id: int | None, score: float
    ) -> PhotoPrediction:
        if class_id is None or self.names is None:
            return prediction
        name = self.names[class_id]
        return replace(prediction, class_id=class_id, class_name=name, score=score)


def _scaled(box: Box, size: tuple[int, int], new_size: tuple[int, int]) -> Box:
    """Return a box in an image of `size` (w, h), for the same image of another size."""
    across, down = new_size[0] / size[0], new_size[1] / size[1]
    x0, y0, x1, y1 = box
    return round(x0 * across), round(y0 * down), round(x1 * across), round(y1 * down)


def _as_dataset(paths: Sequence[Path]) -> Dataset:
    return pack((Record(str(path)) for path in paths), Path(), "photographs")


def open_photo(
    path: Path, name: str, preprocessing: Preprocessing, input_size: InputSize | None = None
) -> Photograph:
    """Read a photograph once, for the pictures and, with an input size, for the model.

    The class is predicted at the size the model was trained at, because its confidence falls with
    the size (lite0 at twice its size says "pizza" with 8% instead of 67%), while its map gets
    finer.
    """
    pixels = class_pixels = torch.empty(0)
    sides = [MAX_PICTURE // 2]
    if input_size is not None:
        sides += [input_size.max_short_side, preprocessing.size]
    image = read_image(path, min_side=preprocessing.min_side(*sides))
    size = full_size(image)
    if input_size is not None:
        pixels = preprocessing.whole(input_size(size)[::-1])(image)
        class_pixels = preprocessing.whole()(image)
    if max(size) > MAX_PICTURE:  # a batch of large photographs must not fill the memory
        image.thumbnail((MAX_PICTURE, MAX_PICTURE), Image.Resampling.LANCZOS)
    return Photograph(path, name, size, image, pixels, class_pixels)


def combine_maps(maps: Array, head: int | None = None) -> Array:
    """Return (H, W), non-negative: one of the maps (m, H, W), or their mean with equal weights.

    Of a class activation map only positive values count; without any, the values above the lowest.
    """
    selected = maps if head is None else maps[head : head + 1]
    positive = np.clip(selected, 0, None).astype(np.float64)
    mass = positive.sum((-2, -1), keepdims=True)
    above_lowest = selected - selected.min((-2, -1), keepdims=True)
    positive = np.where(mass > 0, positive, above_lowest)
    mass = positive.sum((-2, -1), keepdims=True)
    return np.asarray((positive / np.where(mass > 0, mass, 1)).mean(0))


def unique_names(paths: Sequence[Path]) -> list[str]:
    """Name each file's pictures by its stem, with folder and suffix if the stem is taken."""
    used: set[str] = set()
    names = []
    for path in paths:
        stem, folder = path.stem[:100], path.resolve().parent.name[:60]
        full = f"{folder}-{stem}-{path.suffix[1:]}"
        numbered = (f"{full}-{i}" for i in range(2, len(paths) + 2))
        candidates = (stem, f"{folder}-{stem}", full, *numbered)
        # Some file systems ignore case.
        name = next(name for name in candidates if name.casefold() not in used)
        used.add(name.casefold())
        names.append(name)
    return names
