"""Texts that describe an image: captions, and phrases of its class, domain and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from . import Dataset, Record
from .digests import digest_of
from .samplers import mix_seed


def as_phrase(name: str) -> str:
    """Return the words of a name: bird/crested -> crested bird, art_painting -> art painting."""
    return " ".join(" ".join(reversed(name.split("/"))).replace("_", " ").split())


def text_groups(record: Record, kind: str = "both") -> list[list[str]]:
    """Return the texts of a record in groups: training draws a group, then a text of it.

    Each caption is also used with the domain ("a sketch of ..."). Templates are the class, the
    domain, both together ("cat sketch", "a sketch of a cat"), and values of attributes with the
    class and alone. With `captions` only images without a caption get templates.
    """
    domain = as_phrase(record.domain or "")
    captions = [line for line in (record.caption or "").splitlines() if line.strip()]
    groups = []
    if kind != "templates":
        with_domain = [f"{_with_article(domain)} of {line}" for line in captions if domain]
        groups.append(with_domain + captions)
    if kind != "captions" or not captions:
        name = as_phrase(record.label or "")
        names = [name, domain]
        if name and domain:
            names += [f"{name} {domain}", f"{_with_article(domain)} of {_with_article(name)}"]
        values = [value for value in map(as_phrase, record.attributes.values()) if value != name]
        about = [f"{value} {name}" for value in values if name] + values
        groups += [names, names, about]  # twice: queries ask mostly for classes and domains
    distinct = ([text for text in dict.fromkeys(group) if text] for group in groups)
    return [group for group in distinct if group]


def _with_article(word: str) -> str:
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}"


class ImageTexts:
    """The distinct texts of a data set, and the images that each of them describes."""

    def __init__(self, dataset: Dataset, kind: str = "both") -> None:
        self.ids: dict[str, int] = {}
        self.groups = [
            [
                [self.ids.setdefault(text, len(self.ids)) for text in group]
                for group in text_groups(record, kind)
            ]
            for record in dataset
        ]
        self.all = list(self.ids)
        labels = [record.label for record in dataset if record.label]
        self.class_names = list(dict.fromkeys(map(as_phrase, labels)))
        self.true = [frozenset(i for group in groups for i in group) for groups in self.groups]

    @property
    def described(self) -> list[int]:
        return [i for i, groups in enumerate(self.groups) if groups]

    @cached_property
    def digest(self) -> str:
        texts = (f"{text}\n".encode() for text in self.all)
        return digest_of(*texts, repr(self.groups).encode()).hex()

    def draw(self, image: int, seed: int, epoch: int) -> int:
        """Return the text of this image in this epoch."""
        number, groups = mix_seed(seed, epoch, image), self.groups[image]
        group = groups[number % len(groups)]
        return group[(number // len(groups)) % len(group)]

    def truth(self, images: Sequence[int], texts: Sequence[int]) -> Tensor:
        """Return (B, U), True where a text describes an image."""
        rows = [[text in self.true[image] for text in texts] for image in images]
        return torch.tensor(rows, dtype=torch.bool).reshape(len(images), len(texts))
