"""What the server asks its worker, and how the worker refuses. Plain values: they travel through a pipe.

Two questions are equal if their answers are; so pixels, which a digest stands for, are not compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Refusal(Exception):
    """An answer that is no result: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(status, sentence)
        self.status, self.sentence = status, sentence


class Unseen(Refusal):
    """The worker does not know a photograph, or not any more: it is asked again with the file."""

    def __init__(
        self, status: int = 404, sentence: str = "this photograph is not here: upload it again"
    ) -> None:
        super().__init__(status, sentence)


def names_only(sentence: str) -> str:
    """Where files lie on this machine is nobody's business: of a path the last part is told."""
    return re.sub(r"(?<![\w.:/])/(?:[^\s/'\"]+/)+", "", sentence)


class Photo(NamedTuple):
    """A photograph in memory. Models see the file as it came; nobody else does, since it may tell camera and place."""

    content: bytes  # a worker's answer to Decode leaves it empty where it is the file that was asked about
    width: int  # of the upright picture
    height: int
    name: str = ""
    shown: bytes = b""  # our own JPEG, smaller and without metadata


@dataclass(frozen=True)
class About:
    """What there is: models, index. Asked again while a tournament adds models."""

    lane = "work"


@dataclass(frozen=True)
class Decode:
    """An uploaded file -> Photo."""

    digest: str
    name: str = field(compare=False)
    content: bytes = field(compare=False, repr=False)
    pixels: int = 0  # at most
    lane = "uploads"


@dataclass(frozen=True)
class Look:
    photo: str
    model: str
    map: str
    threshold: float | None
    content: bytes | None = field(compare=False, repr=False)
    lane = "work"


@dataclass(frozen=True)
class Search:
    photo: str | None
    entry: int | None
    texts: tuple[str, ...]
    without: tuple[str, ...]
    weight: float | None
    method: str
    top: int
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    content: bytes | None = field(compare=False, repr=False)
    lane = "work"


@dataclass(frozen=True)
class Picture:
    """An indexed image as a JPEG. A page of results asks for many at once: they wait in a lane of their own."""

    entry: int
    side: int
    lane = "pictures"


@dataclass(frozen=True)
class Adopt:
    """An indexed image -> {"digest", "photo"}: to be looked at as if it had been uploaded."""

    entry: int
    lane = "uploads"


Question = About | Decode | Look | Search | Picture | Adopt


def without_pixels(question: Question) -> Question:
    """The same question by the digest alone: it is equal to the one with pixels. What is to be decoded keeps them."""
    return replace(question, content=None) if isinstance(question, Look | Search) else question
