"""Predict maps, masks and boxes of photographs of any size, uncropped."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..backbones import Preprocessing
from ..data import BadImage, Record, pack, read_image
from ..data.images import full_size, stretch
from ..metrics import largest_box, mass_mask
from ..metrics.arrays import Array
from ..metrics.boxes import Box
from ..models import PooledModel
from .distributed import device_of
from .input_size import InputSize, stride_of, supported_size
from .object_map import MIN_SET, THRESHOLD, ObjectMapper, read_direction
from .open_model import class_names

log = logging.getLogger(__name__)
MAX_PICTURE = 1024  # longest side of the pictures that are drawn; boxes are in pixels of the file


@dataclass(frozen=True)
class Photograph:
    path: Path
    name: str  # its pictures' name
    size: tuple[int, int]  # (width, height) of the file, upright
    picture: Image.Image  # at most MAX_PICTURE pixels wide and high
    pixels: Tensor  # (3, h, w): for the map
    class_pixels: Tensor  # (3, h, w): for the class

    @property
    def shapes(self) -> tuple[torch.Size, torch.Size]:
        return self.pixels.shape, self.class_pixels.shape


@dataclass(frozen=True)
class PhotoPrediction:
    """Map, mask, box and class of one photograph."""

    photo: Photograph
    maps: Array  # (m, H, W) as the model predicts them
    map: Array  # (h, w) of the picture's size, non-negative
    mask: Array  # (h, w) bool
    picture_box: Box | None  # in pixels of the picture
    class_id: int | None = None
    class_name: str = ""
    score: float = float("nan")  # the class's probability

    @property
    def box(self) -> Box | None:
        """The box in pixels of the file."""
        if self.picture_box is None:
            return None
        (width, height), picture = self.photo.size, self.photo.picture
        across, down = width / picture.width, height / picture.height
        x0, y0, x1, y1 = self.picture_box
        return round(x0 * across), round(y0 * down), round(x1 * across), round(y1 * down)


class FailedPhoto(NamedTuple):
    path: str
    reason: str


@dataclass
class PhotoPredictor:
    """Predict maps of photographs whose area is about `size` x `size` pixels for the model.

    `head` is one of several maps, None their mean. `share` is how much of the map's mass the mask
    and the box contain; those of an object map are above its threshold. `classify=False` predicts
    no classes, for a model that is not trained. `bare` is a backbone without a trained pool: kind
    "auto" is the object map, where it has enough positions. `folder` is that of a saved model,
    whose stored object map is for few photographs.
    """

    model: PooledModel
    kind: str = "auto"
    size: int = 448
    share: float = 0.6
    batch: int = 8
    head: int | None = None
    classify: bool = True
    bare: bool = False
    folder: Path | None = None
    object_mapper: ObjectMapper | None = field(init=False, default=None)  # for kind "object"
    input_size: InputSize = field(init=False)
    names: list[str] | None = field(init=False, default=None)  # of the classes

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be more than 0 and at most 1, got {self.share}")
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, got {self.batch}")
        if not 32 <= self.size <= 4096:
            raise ValueError(f"size must be from 32 to 4096 pixels, got {self.size}")
        model = self.model.eval()
        if model.pool is not None:
            model.pool.check_finite = True
        if self.kind == "object" or (self.kind == "auto" and self.bare):
            self._create_object_mapper()
        if self.kind == "auto":
            self.kind = next(iter(model.map_kinds()), "auto")
        if self.classify:
            self.names = class_names(model)
        count, stride = 1, stride_of(model.backbone)
        if self.object_mapper is not None:  # finer than the model that predicts the class
            self.input_size = replace(self.object_mapper.input_size, stride=stride)
        else:
            self.input_size, (maps, _) = supported_size(
                model.backbone,
                InputSize(stride, self.size),
                lambda images: self._forward(images, images),
            )
            count = maps.shape[1]
        if self.head is not None and not 0 <= self.head < count:
            raise ValueError(
                f"this model gives {count} map(s) a photograph: there is no map {self.head}"
            )

    def _create_object_mapper(self) -> None:
        try:
            self.object_mapper = ObjectMapper(self.model.backbone, self.size)
        except ValueError as error:
            if self.kind == "object":
                raise
            log.info("%s: the map is that of its pool", error)
        else:
            self.kind = "object"

    def fit(self, paths: Sequence[Path]) -> tuple[str, ...]:
        """Fit object maps to the photographs they are for; return warnings. Others need no fit."""
        mapper = self.object_mapper
        if mapper is None:
            return ()
        if len(paths) < MIN_SET and self.folder is not None:
            mapper.direction = read_direction(self.folder)
        if mapper.direction is None:
            records = (Record(str(path)) for path in paths)
            try:
                mapper.fit(pack(records, Path(), "photographs"))
            except ValueError as error:  # no patch stands out
                return (str(error),)
        return mapper.doubts()

    def describe(self) -> str:
        """Say which map it is."""
        if self.object_mapper is not None:
            return self.object_mapper.describe()
        return f"{self.kind} map"

    def __call__(self, paths: Sequence[Path]) -> Iterator[PhotoPrediction | FailedPhoto]:
        """Predict photographs, those of equal size that follow each other in batches.

        A photograph that cannot be read may come before earlier ones.
        """
        preprocessing, batch = self.model.backbone.preprocessing, list[Photograph]()
        for path, name in zip(paths, unique_names(paths), strict=True):
            try:
                photo = open_photo(path, name, preprocessing, self.input_size)
            except BadImage as error:
                yield FailedPhoto(str(path), error.reason)
                continue
            if batch and (len(batch) == self.batch or photo.shapes != batch[0].shapes):
                yield from self._predict(batch)
                batch = []
            batch.append(photo)
        if batch:
            yield from self._predict(batch)

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
        logits, options = None, {}
        if self.model.head is not None:
            logits = self.model(class_images)
            if self.kind in ("cam", "gradcam"):
                options = {"classes": logits.argmax(-1)}
        if self.object_mapper is not None:
            return self.object_mapper.maps(images)[:, None], logits
        return self.model.attend(images, kind=self.kind, **options).detach(), logits

    def _interpret(
        self, photo: Photograph, maps: Tensor, logits: Tensor | None = None
    ) -> PhotoPrediction:
        score_map = stretch(combine_maps(maps.numpy(), self.head), photo.picture.size)
        mask = self._mask(score_map)
        prediction = PhotoPrediction(photo, maps.numpy(), score_map, mask, largest_box(mask))
        if logits is None or self.names is None:
            return prediction
        score, best = self.model.probabilities(logits).max(-1)
        name = self.names[int(best)]
        return replace(prediction, class_id=int(best), class_name=name, score=float(score))

    def _mask(self, score_map: Array) -> Array:
        if self.object_mapper is not None:
            return np.asarray(score_map > THRESHOLD * score_map.max())
        return mass_mask(score_map, self.share).numpy()


def open_photo(
    path: Path, name: str, preprocessing: Preprocessing, input_size: InputSize
) -> Photograph:
    """Read a photograph once, for the model and for the pictures.

    The class is predicted at the size the model was trained at, because its confidence falls with
    the size (lite0 at twice its size says "pizza" with 8% instead of 67%), while its map gets
    finer.
    """
    model_side = max(input_size.max_short_side, preprocessing.size)
    image = read_image(path, min_side=preprocessing.min_side(model_side, MAX_PICTURE // 2))
    size = full_size(image)
    pixels = preprocessing.whole(input_size(size)[::-1])(image)
    class_size = replace(input_size, target=preprocessing.size)(size)
    class_pixels = pixels
    if class_size != input_size(size):
        class_pixels = preprocessing.whole(class_size[::-1])(image)
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
