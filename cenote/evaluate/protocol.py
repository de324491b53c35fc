"""Protocols of `cenote evaluate`: one class per protocol, with its name.

A protocol runs on an `Evaluation` and returns a `Report`: a dataclass with the content of
results.json, a table for the terminal and the figures at the top of the page. Its pictures and its
blocks of the page are methods of the protocol, because they need the images.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from ..data import Dataset
from ..models import PooledModel
from ..models.saving import model_digest
from ..predict.embedding import Loading
from ..predict.progress_file import FinishedPasses, files_digest
from ..progress import progress_bar
from ..report.blocks import Block
from .splits import EvaluationSplits

REASONS = {  # why images are left out
    "no_class": "without a class",
    "unknown_class": "of classes that the model does not know",
    "no_mask": "without a mask",
    "without_truth": "without a box or mask",
    "dropped": "of which some variant cannot be made",
}


class Figure(NamedTuple):
    """One number at the top of the page."""

    name: str
    value: float | None
    unit: str


class Report(ABC):
    """Base of the dataclasses that protocols return."""

    unreadable: list[str]
    not_in_json: ClassVar[tuple[str, ...]] = ()  # fields

    def to_json(self) -> dict[str, object]:
        """Return the content of results.json; JSON has no NaN: it becomes null."""
        fields = {name: v for name, v in vars(self).items() if name not in self.not_in_json}
        return dict(without_nan(fields))

    @abstractmethod
    def table(self, split: str) -> str:
        """Return the report as text; `split` is the name of the evaluated images."""

    @abstractmethod
    def figures(self) -> list[Figure]:
        """Return the most important numbers."""


R = TypeVar("R", bound=Report)


@dataclass
class Evaluation:
    """A saved model, the images to evaluate it on, and the folder of the results."""

    folder: Path  # of the saved model
    model: PooledModel
    splits: EvaluationSplits
    out: Path | None = None
    batch: int = 64
    workers: int = 0
    seed: int = 0
    data: Dataset | None = None  # the whole data set, if no split was chosen
    map: str = "auto"  # kind of map for localize; auto is the model's own
    without_match: str = "exclude"  # queries without a match: "exclude" or "miss"
    settings: Mapping[str, object] = field(default_factory=dict)  # of the training of segment
    results: dict[str, object] = field(init=False)  # the content of results.json
    progress_files: list[Path] = field(default_factory=list)  # to remove when results are written
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.results = {"split": self.splits.name, "images": len(self.test)}

    @property
    def test(self) -> Dataset:
        """The images to evaluate on."""
        return self.splits.test

    @property
    def title(self) -> str:
        config = self.model.config
        return f"{self.test.name} · {config['backbone']} + {config['pool']}"

    def training_images(self, purpose: str) -> Dataset:
        if self.splits.train is None:
            raise ValueError(f"{purpose} needs training images in {self.test.name}")
        return self.splits.train

    @contextmanager
    def loading(self, name: str, images: int) -> Iterator[Loading]:
        """Show a progress bar of this number of images while they are read."""
        with progress_bar(name, images) as bar:
            yield Loading(self.batch, self.workers, bar.update)

    def identity(self, masks: bool = False) -> list[Any]:
        """Fingerprint of what invalidates saved progress: model, images, classes, seed."""
        images = self.test
        classes = sha256("\n".join(images.classes).encode() + images.labels.tobytes()).hexdigest()
        names = [model_digest(self.folder), images.name, self.splits.name]
        return [*names, files_digest(images, masks), classes, self.seed]

    def finished_passes(self, protocol: str, masks: bool = False) -> FinishedPasses:
        """Open the results of finished passes: a killed run resumes after them."""
        if self.out is None:
            return FinishedPasses()
        path = self.out / f".{protocol}.json"
        self.progress_files.append(path)
        return FinishedPasses(path, self.identity(masks))


Picture = tuple[str, Callable[[], Any]]  # file name, function that draws a figure or an image


PROTOCOLS: dict[str, type[Protocol[Any]]] = {}


class Protocol(ABC, Generic[R]):
    """One way to evaluate a model, by the name that `--on` takes; an instance for one evaluation.

    class Classify(Protocol[ClassificationReport], name="classify")
    """

    resumable: ClassVar[bool] = False  # with an output folder, after an interruption
    one_class: ClassVar[bool] = False  # images must have one class

    def __init_subclass__(cls, name: str) -> None:
        PROTOCOLS[name] = cls

    @abstractmethod
    def run(self, evaluation: Evaluation) -> R: ...

    def pictures(self, evaluation: Evaluation, report: R) -> Iterable[Picture]:
        """Return the pictures to write beside results.json."""
        return ()

    def blocks(self, evaluation: Evaluation, report: R) -> list[Block]:
        """Return blocks of the HTML page; called after the pictures are written."""
        return []


def without_nan(value: Any) -> Any:
    """Return nested dataclasses, dicts and lists for JSON: NaN and infinite numbers are None."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def left_out(unreadable: Iterable[str] = (), limit: int | None = None, **counts: int) -> list[str]:
    """Return the lines of a table about images that were not used; `counts` by reason."""
    lines = [f"left out: {count_images(n)} {REASONS[reason]}" for reason, n in counts.items() if n]
    messages = [f"left out: {message}" for message in unreadable]
    if limit is not None and len(messages) > limit:
        messages[limit:] = [f"left out: {len(messages) - limit} more"]
    return lines + messages


def count_images(number: int) -> str:
    return f"{number} image{'s' * (number != 1)}"
