"""The object map: where the object of a photograph is, without labels and without training.

A patch is taken for object if it differs from the border of its image and is not at the margin.
Fisher's linear discriminant [Fisher 1936] between these patches and all others, over the patches of
a set of images, corrects most of the wrong guesses: what the objects of the set have in common gets
a high score, also at the margin, and what backgrounds share a low one. The map of an image is the
projection of its patches on the discriminant.

The statistics are sums over patches, a D x D matrix. The features of the images of the fit are kept
until the direction is known, in two bytes per number, so that no image runs through the network twice.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..backbones import Backbone, Features, Preprocessing
from ..data import Dataset
from ..data.files import write_atomically
from ..data.ground_truth import evenly_spaced
from ..data.loading import load
from ..metrics.contours import EIGHT
from ..models import PooledModel
from ..models.cam import map_of_features, minmax
from ..models.class_map import ForwardPass, depends_on_class
from ..models.saving import model_digest
from ..models.surgery import without_last_stride
from ..progress import progress_bar
from .distributed import device_of
from .input_size import InputSize, stride_of, supported_size
from .openvino_engine import run_frozen

log = logging.getLogger(__name__)
FILE = "object_map.safetensors"
SCALE = 12 / 7  # of the training size: 384 pixels for a model trained at 224
MAX_IMAGES = 64  # for the statistics: more change the boxes little
CONTRAST = 0.27  # of the range of an image's distances to its border, above it a patch is object
MARGIN = 1 / 8  # of the sides of an image, where patches are background
BORDER = 1 / 14  # of the sides, whose mean is what patches are compared with
RIDGE = 3.0  # times the mean variance of a channel, added to the covariance
THRESHOLD = 0.5  # of the map, at the boundary of the object
# What share of the range of the projection becomes 0.5. Patches of a convolutional network differ
# in length, and few of an object have high peaks; behind a LayerNorm lengths are nearly equal.
BOUNDARY, BOUNDARY_EQUAL_LENGTHS = 0.2, 0.55
EQUAL_LENGTHS = 0.3  # standard deviation of the lengths over their mean
CHUNK = 4  # images at a time: a map twice as fine takes four times the memory
MIN_SET = 8  # images, below which the direction that is stored beside the model is used
# Share of the border that is object, above which the map is doubtful: 0.02 for birds, 0.05 for pets,
# 0.16 for COCO, but 0.38 for aerial photographs, which have no object, and 0.32 for noise.
MAX_BORDER = 0.25
MIN_SPREAD = 0.02  # standard deviation over images of the maps' values, below which all are alike
MIN_DEVIATION = 0.02  # of the pixels of an image that is not blank, after normalization


class UnreadableImagesError(ValueError):
    pass


class NoObjectError(ValueError):
    """No patch of a set of images stands out."""


class ObjectDirection(NamedTuple):
    """The discriminant of a set of images."""

    weight: Tensor  # (D,)
    exponent: float  # of the projection's share of its range: the boundary of objects is at 0.5
    images: int  # in the set, without blank ones
    border: float = 0.0  # share of the images' border that is object
    spread: float = 1.0  # standard deviation over images of the maps' values

    def project(self, features: Features) -> Tensor:
        """Return maps (B, H, W) in [0, 1]."""
        scores = features.tokens.float() @ self.weight.to(features.tokens.device)  # (B, N)
        maps: Tensor = minmax(scores.unflatten(1, features.grid)[:, None])[:, 0]
        return maps**self.exponent

    def judged_by(self, maps: Tensor) -> ObjectDirection:
        """Return the direction with the border and the spread of its maps (B, H, W)."""
        border = ~_inside(maps.shape[1], maps.shape[2], BORDER, maps.device)
        share = (maps[:, border] > THRESHOLD).float().mean()
        spread = maps.std(0, correction=0).mean()
        return self._replace(border=float(share), spread=float(spread))

    def doubts(self) -> tuple[str, ...]:
        """Return a warning if the images seem to have no object in front of a background."""
        if self.images > 1 and self.spread < MIN_SPREAD:
            reason = "the images hardly differ, or the network does not distinguish them"
            return (f"the maps of these images are all alike: {reason}",)
        if self.border > MAX_BORDER:
            share = f"{self.border:.0%} of the border of these images is taken for object"
            return (f"{share}: they may have no object in front of a background",)
        return ()


class PatchStatistics:
    """Sums over the patches of images, from which the discriminant follows."""

    def __init__(self, dim: int) -> None:
        self.images = self.patches = 0
        self.objects = 0  # patches that are taken for object
        self.total = torch.zeros(dim, dtype=torch.float64)
        self.object_total = torch.zeros(dim, dtype=torch.float64)
        self.products = torch.zeros(dim, dim, dtype=torch.float64)
        self.length_total = 0.0

    def add(self, features: Features) -> None:
        """Add the patches of a batch of images."""
        finite = features.tokens.isfinite().flatten(1).all(1)
        features = features._replace(tokens=features.tokens[finite])
        tokens, seeds = features.tokens.float(), object_seeds(features).flatten()
        patches = tokens.flatten(0, 1)  # (B N, D)
        self.images += len(tokens)
        self.patches += len(patches)
        self.objects += int(seeds.sum())
        self.total += patches.sum(0).double().cpu()
        self.object_total += patches[seeds].sum(0).double().cpu()
        self.products += (patches.T @ patches).double().cpu()
        self.length_total += float(patches.norm(dim=1).sum())

    def direction(self) -> ObjectDirection:
        """Return the discriminant; raise NoObjectError if no patch stands out."""
        if not 0 < self.objects < self.patches:
            raise NoObjectError("no object stands out: all patches of these images are alike")
        mean = self.total / self.patches
        covariance = self.products / self.patches - mean.outer(mean)
        ridge = RIDGE * covariance.diagonal().mean() * torch.eye(len(mean), dtype=mean.dtype)
        object_mean = self.object_total / self.objects
        background_mean = (self.total - self.object_total) / (self.patches - self.objects)
        weight = torch.linalg.solve(covariance + ridge, object_mean - background_mean)
        # The mean square of the lengths is the trace of the mean product.
        mean_square = float(self.products.trace()) / self.patches
        exponent = _exponent(self.length_total / self.patches, mean_square)
        return ObjectDirection(weight.float(), exponent, self.images)


def _exponent(mean_length: float, mean_square: float) -> float:
    """Return the exponent by the mean of the patches' lengths and of their squares."""
    variation = max(mean_square - mean_length**2, 0.0) ** 0.5
    boundary = BOUNDARY
    if variation < EQUAL_LENGTHS * mean_length:
        boundary = BOUNDARY_EQUAL_LENGTHS
    return math.log(0.5) / math.log(boundary)


def object_seeds(features: Features) -> Tensor:
    """Return (B, N) bool: patches that differ from the border of their image, not at the margin."""
    rows, columns = features.grid
    tokens = features.tokens.float()
    border = ~_inside(rows, columns, BORDER, tokens.device).flatten()
    reference = tokens[:, border].mean(1, keepdim=True)  # (B, 1, D)
    distance = (tokens - reference).norm(dim=-1)  # (B, N)
    low, high = distance.amin(1, keepdim=True), distance.amax(1, keepdim=True)
    contrast: Tensor = distance > low + CONTRAST * (high - low)
    return contrast & _inside(rows, columns, MARGIN, tokens.device).flatten()


def _inside(rows: int, columns: int, margin: float, device: torch.device) -> Tensor:
    """Return (H, W) bool: the centre of the cell is not in the margin; an edge cell always is."""

    def axis(cells: int) -> Tensor:
        centre = (torch.arange(cells, device=device) + 0.5) / cells
        inside = (centre > margin) & (centre < 1 - margin)
        inside[0] = inside[-1] = False
        return inside

    return axis(rows)[:, None] & axis(columns)


class TwoSizes:
    """Transform that resizes the whole image to two squares: for the class and for the map."""

    def __init__(self, preprocessing: Preprocessing, map_size: int) -> None:
        self.for_class = preprocessing.whole()
        self.for_map = preprocessing.whole((map_size, map_size))
        self.min_side = preprocessing.min_side(preprocessing.size, map_size)

    def __call__(self, image: Image.Image) -> tuple[Tensor, Tensor]:
        return self.for_class(image), self.for_map(image)


class ObjectMapper:
    """Predict object maps with a backbone, at `size` pixels and without its last stride.

    Without a direction every image is judged by its own patches alone. `fitted` are the maps of the
    images of the fit, which are not computed again.
    """

    def __init__(
        self,
        backbone: Backbone,
        size: int | None = None,
        direction: ObjectDirection | None = None,
    ) -> None:
        self.backbone = without_last_stride(backbone).eval()
        self.direction = direction
        self.fitted: dict[Path, Tensor] = {}
        stride = stride_of(self.backbone)
        target = round(SCALE * backbone.preprocessing.size) if size is None else size
        preferred = InputSize(stride, target)
        self.input_size, features = supported_size(self.backbone, preferred, self._features)
        self.size = self.input_size((target, target))[0]
        if min(features.grid) < 3:
            raise ValueError(
                f"an object map needs at least 3 x 3 positions; '{backbone.name}' has "
                f"{features.grid[0]} x {features.grid[1]} at this size"
            )

    @torch.no_grad()
    def _features(self, images: Tensor) -> Features:
        features: Features = run_frozen(self.backbone, images)
        return features

    def fit(self, dataset: Dataset, workers: int = 0) -> ObjectDirection:
        """Compute the direction of a set of images from at most MAX_IMAGES of them."""
        sample = dataset.select(evenly_spaced(list(range(len(dataset))), MAX_IMAGES))
        transform = self.backbone.preprocessing.whole((self.size, self.size))
        statistics, device = PatchStatistics(self.backbone.dim), device_of(self.backbone)
        batches = list[tuple[list[int], Features]]()
        loader = load(sample, transform, batch=CHUNK, workers=workers)
        name, count = "object map", len(loader)
        for batch in progress_bar(name, count, iterable=loader, unit_scale=CHUNK, delay=1):
            if len(batch.indices):
                features = self._features(batch.images.to(device))
                used = ~is_blank(batch.images) & features.tokens.isfinite().flatten(1).all(1).cpu()
                features = features._replace(tokens=features.tokens[used])
                statistics.add(features)
                half = features._replace(tokens=features.tokens.half())
                batches.append((batch.indices[used].tolist(), half))
        if not batches:
            raise UnreadableImagesError("none of these images can be read")
        direction = statistics.direction()
        for indices, features in batches:
            paths = [sample.path(i) for i in indices]
            self.fitted |= dict(zip(paths, direction.project(features), strict=True))
        self.direction = direction.judged_by(torch.stack(list(self.fitted.values())))
        return self.direction

    def fit_or_read(self, images: Dataset, folder: Path | None = None, workers: int = 0) -> None:
        """Fit the map to images, or of fewer than MIN_SET read what is stored in `folder`."""
        if len(images) < MIN_SET and folder is not None:
            self.direction = read_direction(folder)
        if self.direction is None:
            try:
                self.fit(images, workers)
            except UnreadableImagesError:
                pass  # each is reported where its map is predicted
            except NoObjectError as error:
                log.info("%s", error)

    @torch.no_grad()
    def maps(self, images: Tensor, paths: Sequence[Path] = ()) -> Tensor:
        """Return maps (B, H, W) in [0, 1]; that of a blank image is zero.

        Maps of files that were in the fit are not computed again.
        """
        maps = {i: self.fitted[path] for i, path in enumerate(paths) if path in self.fitted}
        others = [i for i in range(len(images)) if i not in maps]
        for start in range(0, len(others), CHUNK):
            chunk = others[start : start + CHUNK]
            maps |= dict(zip(chunk, self._maps(images[chunk]), strict=True))
        return torch.stack([maps[i] for i in range(len(images))])

    def _maps(self, images: Tensor) -> Tensor:
        features = self._features(images)
        if self.direction is not None:
            maps = self.direction.project(features)
        else:
            single = [Features(tokens[None], features.grid) for tokens in features.tokens]
            maps = torch.cat([_single_image_map(image) for image in single])
        return maps * ~is_blank(images)[:, None, None]

    def describe(self) -> str:
        """Say what the map is based on."""
        if self.direction is None or self.direction.images == 1:
            return "object map of each photograph by itself"
        description = f"object map of what {self.direction.images} images have in common"
        return description if self.fitted else f"{description}, stored with the model"

    def doubts(self) -> tuple[str, ...]:
        """Return a warning if these images seem to have no object in front of a background."""
        if self.direction is None:
            return ()
        return self.direction.doubts()


def _single_image_map(features: Features) -> Tensor:
    """Return (1, H, W): the map of one image by its own discriminant.

    Of N patches with D > N channels, X (N, D) after subtracting the mean, the discriminant is
    X^T (X X^T / N + ridge)^-1 s, where X^T s is the difference of the means of object and
    background: N equations instead of D.
    """
    tokens, seeds = features.tokens[0].float(), object_seeds(features)[0]
    (patches, dim), objects = tokens.shape, int(seeds.sum())
    if not 0 < objects < patches:  # all patches are alike, or not finite
        return 0 * tokens.mean(1).view(1, *features.grid)
    if dim <= patches:
        statistics = PatchStatistics(dim)
        statistics.add(features)
        return statistics.direction().project(features)
    centred = tokens - tokens.mean(0)
    products = centred @ centred.T  # (N, N)
    ridge = RIDGE * products.trace() / tokens.numel()
    regularized = products / patches + ridge * torch.eye(patches, device=tokens.device)
    shares = torch.where(seeds, 1 / objects, -1 / (patches - objects))[:, None]
    scores = products @ torch.cholesky_solve(shares, torch.linalg.cholesky(regularized))  # (N, 1)
    lengths = tokens.norm(dim=1)
    exponent = _exponent(float(lengths.mean()), float(lengths.square().mean()))
    maps: Tensor = minmax(scores.view(1, 1, *features.grid))[0]
    return maps**exponent


def is_blank(images: Tensor) -> Tensor:
    """Return (B,) bool: images (B, 3, H, W) of one colour, whose patches differ at the edges only."""
    deviation = images.flatten(2).std(2, correction=0).amax(1)
    return deviation < MIN_DEVIATION


def store_object_map(
    model: PooledModel, images: Dataset, folder: Path, workers: int = 0, size: int | None = None
) -> None:
    """Fit the map to the images of a saved model; without one the model is still good."""
    try:
        save_direction(ObjectMapper(model.backbone, size).fit(images, workers), folder)
    except (ValueError, RuntimeError) as error:  # too few positions, or too little memory
        log.info("no object map is stored: %s", error)


def save_direction(direction: ObjectDirection, folder: Path) -> None:
    """Store a direction beside a model; a shared model may be read-only, which is logged."""
    weight, *numbers = direction
    tensors = {"weight": weight, "numbers": torch.tensor(numbers, dtype=torch.float64)}
    try:
        with write_atomically(folder / FILE) as path:
            save_file(tensors, path, {"model": model_digest(folder)})
    except OSError as error:
        log.info("the object map was not stored: %s", error.strerror or error)


def read_direction(folder: Path) -> ObjectDirection | None:
    """Read the direction that is stored beside a model, None if there is none for its weights."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            exponent, images, *judged = file.get_tensor("numbers").tolist()
            direction = ObjectDirection(file.get_tensor("weight"), exponent, int(images), *judged)
            current = file.metadata()["model"] == model_digest(folder)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it") from error
    return direction if current else None


def object_of_class(object_maps: Tensor, class_maps: Tensor) -> Tensor:
    """Return (B, H, W): of several objects of a map, the one on which the class map is highest.

    Objects are the connected components above the threshold; the others become zero. `class_maps`
    (B, h, w) may be coarser.
    """
    from scipy import ndimage

    finer = F.interpolate(class_maps[:, None], object_maps.shape[1:], mode="bilinear")[:, 0]
    selected = []
    for object_map, class_map in zip(object_maps.cpu(), finer.cpu(), strict=True):
        objects, count = ndimage.label(object_map > THRESHOLD, EIGHT)
        if count > 1:
            peaks = ndimage.maximum(class_map, objects, range(1, count + 1))
            removed = (objects > 0) & (objects != 1 + np.argmax(peaks))
            object_map = object_map.masked_fill(torch.from_numpy(removed), 0)
        selected.append(object_map)
    return torch.stack(selected).to(object_maps)


class ObjectPass(ForwardPass):
    """The classes of images at the size of training, and their object maps."""

    def __init__(
        self, model: PooledModel, images: Tensor, object_maps: Tensor, classify: bool = True
    ) -> None:
        self.model, self.images, self.logits = model, images, None
        if classify:
            super().__init__(model, images, "object", run_frozen(model.backbone, images))
        self.object_maps, self.classify = object_maps, classify

    def maps(self, classes: Tensor) -> Tensor:
        """Return (B, H, W), the same for every class unless an image may have several."""
        if not (self.classify and depends_on_class(self.model, "object")):
            return self.object_maps
        class_maps = map_of_features(self.model, self.features, classes, "cam")
        return object_of_class(self.object_maps, class_maps.float())
