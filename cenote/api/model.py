"""A model for photographs: classes, maps, boxes and vectors in one call."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from PIL import Image
from torch import Tensor

from ..allocator import keep_memory
from ..data import BadImage, Dataset
from ..data.loading import UnreadableImage
from ..data.memory import ImageLike, images_in_memory, is_image
from ..data.sources import open_photographs
from ..data.video import is_video_name
from ..device import default_device
from ..extras import require
from ..metrics.arrays import Array
from ..metrics.boxes import Box
from ..models import PooledModel
from ..options import errors_name_arguments
from ..predict.boxes import BoxPrediction, predict_boxes
from ..predict.discovery import DEFAULT_METHOD, discover_objects
from ..predict.embedding import Loading, embed_dataset
from ..predict.maps import MapPredictor
from ..predict.novelty import ClassMeans, read_class_means
from ..predict.open_model import class_names, open_model, open_text_map
from ..predict.thresholds import Threshold, threshold_for
from ..progress import progress_bar
from ..report.maps import draw_box, overlay

log = logging.getLogger(__name__)
Photos = ImageLike | Sequence[ImageLike]  # a file, a folder, a glob, an image, or several of them


class PhotoBox(NamedTuple):
    """A box of a photograph: x0, y0, x1, y1 in pixels of the upright file, maxima exclusive."""

    path: Path
    box: Box
    # Probability of the class, times the highest value of the map in the box; 1 if discovered.
    score: float
    label: str | None  # class; None for a model without a head


@dataclass(frozen=True)
class Prediction:
    """Class, map and boxes of a photograph; `path` is "image 0" for the first one in memory."""

    path: Path
    size: tuple[int, int]  # (width, height) of the upright photograph
    label: str | None  # the most probable class; None for a model without a head
    score: float  # its probability
    map: Array = field(repr=False)  # (S, S) in [0, 1], of the whole photograph
    boxes: list[PhotoBox]  # the best first; more than one for a model of several classes
    dataset: Dataset = field(repr=False)
    position: int = field(repr=False)  # in the data set
    class_names: list[str] | None = field(repr=False, default=None)  # of the model
    # Whether the photograph is unlike the training images, so that the class means little; None if
    # the model is not one that Cenote trained, or has several classes per image.
    unlike_training: bool | None = None

    @property
    def box(self) -> Box | None:
        """The first box, None if nothing stands out."""
        return self.boxes[0].box if self.boxes else None

    @property
    def image(self) -> Image.Image:
        """The photograph, upright and in RGB."""
        return self.dataset.image(self.position)

    def picture(self) -> Image.Image:
        """Draw the map and the box on the photograph."""
        return draw_box(overlay(self.image, self.map), self.box)

    def to_supervision(self) -> Any:
        """Return the boxes as `supervision.Detections`; the class of a model without a head is 0."""
        supervision = require("supervision", extra="supervision")
        numbers = {name: number for number, name in enumerate(self.class_names or ())}
        ids = [numbers.get(box.label or "", 0) for box in self.boxes]
        return supervision.Detections(
            xyxy=np.array([box.box for box in self.boxes], float).reshape(-1, 4),
            confidence=np.array([box.score for box in self.boxes], float),
            class_id=np.array(ids, int),
            data={"class_name": np.array([box.label or "object" for box in self.boxes], str)},
        )

    def _repr_png_(self) -> Any:
        return self.picture()._repr_png_()  # shown by notebooks


class Model:
    """A saved model, or a backbone, for photographs.

    `model` is the folder of a saved model, or the name of a backbone: timm's,
    "hf-hub:OWNER/NAME", "hf:OWNER/NAME" (transformers), or "lite0", whose weights need no download.
    `pool`, `weights`: as for `cenote attend`. `map`, `size` and `threshold`: as for `cenote
    localize`. With a `text` maps and boxes show where it is; `model` is an image-text model then,
    by default "text-space".
    """

    @errors_name_arguments
    def __init__(
        self,
        model: str | Path | PooledModel = "lite0",
        *,
        pool: str | None = None,
        weights: str | Path | None = None,
        map: str = "auto",
        size: int | None = None,
        threshold: float | None = None,
        text: str | None = None,
    ) -> None:
        keep_memory()
        self.folder: Path | None = None
        if text is not None:
            self.network: PooledModel = _open_text_map(model, text, pool, weights, map)
            map = "text"
        elif isinstance(model, PooledModel):
            self.network = model
        elif (Path(model) / "config.json").is_file():
            self.folder = Path(model)
            self.network = open_model(weights=_path(weights), pool=pool, folder=self.folder)[0]
        elif Path(model).is_dir():
            raise ValueError(f"{model} contains no saved model: cenote fit saves one")
        else:
            self.network = open_model(str(model), _path(weights), pool)[0]
        self.network = self.network.eval().to(default_device())
        self.class_names = class_names(self.network)
        self._map_options = threshold, map, size

    @cached_property
    def maps(self) -> tuple[Threshold, MapPredictor]:
        """The threshold of boxes, and what predicts the maps."""
        return threshold_for(self.network, self.folder, *self._map_options)

    @cached_property
    def class_means(self) -> ClassMeans | None:
        """The mean vectors of the classes, which notice photographs unlike the training images."""
        return read_class_means(self.folder)

    def __repr__(self) -> str:
        pool = "cls" if self.network.pool is None else self.network.pool.label
        classes = len(self.class_names or ())
        return f"<{self.network.backbone.name}, {pool}, {classes} classes>"

    @property
    def results(self) -> dict[str, Any]:
        """What the training of a saved model measured: its results.json."""
        if self.folder is None:
            raise ValueError("this model was not trained by Cenote: it has no results")
        return dict(json.loads((self.folder / "results.json").read_text(encoding="utf-8")))

    @overload
    def predict(self, photos: Sequence[ImageLike], batch: int = ...) -> list[Prediction]: ...

    @overload
    def predict(self, photos: ImageLike, batch: int = ...) -> Any: ...

    @errors_name_arguments
    def predict(self, photos: Any, batch: int = 32) -> Any:
        """Return a `Prediction` of one photograph, a list for several, a folder or a glob.

        Of several, those that cannot be read are logged and left out.
        """
        dataset = as_dataset(photos)
        predictions = list(self.iterate(dataset, batch, strict=_is_single(photos)))
        return predictions[0] if _is_single(photos) else predictions

    def iterate(
        self, dataset: Dataset, batch: int = 32, strict: bool = False
    ) -> Iterator[Prediction]:
        """Predict the photographs of a data set; `strict`: raise if one cannot be read."""
        threshold, predictor = self.maps
        predictor = replace(predictor, batch=batch, class_means=self.class_means)
        predictor.fit(dataset, self.folder)
        predictions = predict_boxes(predictor, dataset, threshold.value)
        for prediction in progress_bar("photographs", len(dataset), iterable=predictions, delay=1):
            if isinstance(prediction, UnreadableImage):
                if strict:
                    path = dataset.path(prediction.position)
                    raise BadImage(path, prediction.message.removeprefix(f"{path}: "))
                log.warning("skipped %s", prediction.message)
                continue
            yield self._interpret(dataset, prediction)

    def _interpret(self, dataset: Dataset, prediction: BoxPrediction) -> Prediction:
        path, boxes = dataset.path(prediction.position), []
        for of_class in (prediction, *prediction.further):
            label = self._label(of_class.class_id)
            for corners, score in zip(of_class.boxes, of_class.scores, strict=True):
                x0, y0, x1, y1 = (int(value) for value in corners)
                boxes.append(PhotoBox(path, (x0, y0, x1, y1), float(score), label))
        return Prediction(
            path,
            prediction.size,
            self._label(prediction.class_id),
            prediction.probability,
            prediction.map,
            boxes,
            dataset,
            prediction.position,
            self.class_names,
            prediction.unlike_training,
        )

    def _label(self, class_id: int | None) -> str | None:
        if class_id is None or self.class_names is None:
            return None
        return self.class_names[class_id]

    @errors_name_arguments
    def embed(self, photos: Photos) -> Array:
        """Return vectors (n, D), float32, of all photographs; raise if one cannot be read."""
        dataset = as_dataset(photos)
        with progress_bar("vectors", len(dataset), delay=1) as bar:
            outputs = embed_dataset(self.network, dataset, Loading(progress=bar.update))
        if outputs.bad:
            raise ValueError(outputs.bad[0])
        return outputs.vectors[outputs.positions.argsort()].numpy()


def as_dataset(photos: Photos | Dataset) -> Dataset:
    """Open photographs: files, folders, globs and images in memory, one or several."""
    if isinstance(photos, Dataset):
        return photos
    if isinstance(photos, str | Path):
        photos = [photos]
    if isinstance(photos, Image.Image | np.ndarray | Tensor):
        return images_in_memory([photos])
    if not isinstance(photos, list | tuple):
        raise ValueError(f"photographs are paths, PIL images, arrays or tensors, got {photos!r}")
    if any(map(is_image, photos)):
        return images_in_memory(photos)
    dataset = open_photographs([str(photo) for photo in photos])
    if not len(dataset):
        raise ValueError("no photographs found: name files, folders or globs, or give images")
    return dataset


def _is_single(photos: Photos) -> bool:
    if not isinstance(photos, str | Path):
        return is_image(photos)
    return Path(photos).is_file() and not is_video_name(photos)


def _open_text_map(
    model: str | Path | PooledModel, text: str, *options: str | Path | None
) -> PooledModel:
    if isinstance(model, PooledModel) or options != (None, None, "auto"):
        raise ValueError(
            "a text needs the name of an image-text model, and takes no pool, weights or map"
        )
    return open_text_map("text-space" if model == "lite0" else str(model), text)


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


@errors_name_arguments
def attend(photos: Photos, model: str | Path = "lite0", **options: Any) -> Any:
    """Show where a model looks: a `Prediction` of one photograph, or a list.

    Options are those of `Model`: `attend("cat.jpg", "vit_small_patch14_dinov2", map="cls")`,
    `attend("cat.jpg", "open_clip/ViT-B-16/openai", text="a cat")`.
    """
    return Model(model, **options).predict(photos)


@errors_name_arguments
def localize(photos: Photos, model: str | Path = "lite0", **options: Any) -> list[PhotoBox]:
    """Return the boxes of photographs; no boxes and no training are needed.

    `model` is the folder of a saved model or a backbone, options are those of `Model`. Photographs
    that cannot be read are logged and left out.
    """
    predictions = Model(model, **options).iterate(as_dataset(photos))
    return [box for prediction in predictions for box in prediction.boxes]


@errors_name_arguments
def discover(
    photos: Photos, model: str | Path = "lite0", *, method: str = DEFAULT_METHOD, **options: Any
) -> list[PhotoBox]:
    """Find objects without any labels, as `cenote discover` does, one method at a time.

    Options are those of `cenote.predict.discovery.PatchFeatureExtractor`, such as size=448.
    """
    dataset, opened = as_dataset(photos), Model(model)
    _, _, results = discover_objects(
        opened.network, dataset, (method,), folder=opened.folder, **options
    )
    boxes = []
    for result in progress_bar("objects", len(dataset), iterable=results, delay=1):
        if isinstance(result, UnreadableImage):
            log.warning("skipped %s", result.message)
            continue
        for x0, y0, x1, y1 in result.objects[method].boxes.tolist():
            box = (round(x0), round(y0), round(x1), round(y1))
            boxes.append(PhotoBox(dataset.path(result.position), box, 1.0, None))
    return boxes
