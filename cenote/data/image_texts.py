"""What may be said of an image: its captions, and short texts made of its class, domain and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from . import Dataset, Record
from .digests import digest_of
from .samplers import mix_seed

TEXT_KINDS = ("both", "captions", "templates")


def as_phrase(name: str) -> str:
    """bird/crested -> crested bird, art_painting -> art painting."""
    return " ".join(" ".join(reversed(name.split("/"))).replace("_", " ").split())


def text_groups(record: Record, kind: str = "both") -> list[list[str]]:
    """Texts of one record by group: a step draws a group, then a text of it.

    A caption is said with the domain and without. Templates are the class, the domain, both together (`cat sketch`, `a
    sketch of a cat`), and values of attributes with the class and alone. `captions` leaves them to images without one.
    """
    domain = as_phrase(record.domain or "")
    captions = [line for line in (record.caption or "").splitlines() if line.strip()]
    told = [f"{_a(domain)} of {line}" for line in captions] if domain else []
    groups = [told + captions] if kind != "templates" else []
    if kind != "captions" or not captions:
        name = as_phrase(record.label or "")
        kinds = (
            [name, domain, f"{name} {domain}", f"{_a(domain)} of {_a(name)}"]
            if name and domain
            else [name, domain]
        )
        values = [as_phrase(value) for value in record.attributes.values()]
        about = [f"{value} {name}" for value in values if name and value != name] + [
            v for v in values if v != name
        ]
        groups += [
            kinds,
            kinds,
            about,
        ]  # twice: what a thing is, and in which style, is asked for most
    return [found for group in groups if (found := [text for text in dict.fromkeys(group) if text])]


def _a(word: str) -> str:
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}"


class ImageTexts:
    """The texts of a data set, each distinct one once, with the images that they are true of."""

    def __init__(self, dataset: Dataset, kind: str = "both") -> None:
        if kind not in TEXT_KINDS:
            raise ValueError(f"texts is one of {', '.join(TEXT_KINDS)}, got '{kind}'")
        self.ids: dict[str, int] = {}
        self.groups = [
            [
                [self.ids.setdefault(text, len(self.ids)) for text in group]
                for group in text_groups(record, kind)
            ]
            for record in dataset
        ]
        self.all = list(self.ids)
        self.things = list(
            dict.fromkeys(as_phrase(record.label) for record in dataset if record.label)
        )
        self.true = [frozenset(i for group in groups for i in group) for groups in self.groups]

    @property
    def described(self) -> list[int]:
        """The images of which something can be said."""
        return [i for i, groups in enumerate(self.groups) if groups]

    @cached_property
    def digest(self) -> str:
        return digest_of(
            *(f"{text}\n".encode() for text in self.all), repr(self.groups).encode()
        ).hex()

    def drawn(self, image: int, seed: int, epoch: int) -> int:
        """The text of this image in this epoch."""
        number, groups = mix_seed(seed, epoch, image), self.groups[image]
        group = groups[number % len(groups)]
        return group[(number // len(groups)) % len(group)]

    def truth(self, images: Sequence[int], texts: Sequence[int]) -> Tensor:
        """(B, U): which of these texts are true of which images."""
        rows = [[text in self.true[image] for text in texts] for image in images]
        return torch.tensor(rows, dtype=torch.bool).reshape(len(images), len(texts))
