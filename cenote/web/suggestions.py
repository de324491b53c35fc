"""What the page suggests: words that find their images, and images of many classes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from ..models.image_text import ImageText
from ..models.image_text.image_only import ImageOnly
from ..search.composition import encode_texts
from ..search.database import top_k
from ..search.query import Searcher, SearchRequest
from ..search.store import IndexedImage

T = TypeVar("T")
MAX_TESTED = 100  # names whose search is tried
MAX_WORDS = 8
MAX_DOMAINS = 3
MAX_TRIES = 24  # searches for an image and a text
TOP = 10  # results that are counted
MAX_SHARE = 0.5  # of the images that a suggested name may have: chance would find them
MIN_PRECISION = 0.5  # of a word that is suggested, if any reaches it


class Suggestions(NamedTuple):
    words: list[str]  # the best first
    example: tuple[int, str] | None  # a row and a text, to search for together


def suggest(searcher: Searcher, sample: Sequence[IndexedImage]) -> Suggestions:
    """Suggest names of classes and domains with which images of the sample are found."""
    if not sample or isinstance(searcher.model, ImageOnly):
        return Suggestions([], None)
    vectors = searcher.store.vectors(torch.tensor([row for row, _ in sample])).float()
    classes, domains = (
        _best(_precisions(searcher.model, vectors, names))
        for names in (
            [class_of(image) for image in sample],
            [image.entry.domain for image in sample],
        )
    )
    words = list(dict.fromkeys([*classes, *domains[:MAX_DOMAINS]]))
    # A text that the model knows first: the page opens with it.
    texts = sorted(searcher.judge.assess(words), key=lambda text: not text.known)
    return Suggestions([text.text for text in texts], _example(searcher, sample))


def class_of(image: IndexedImage) -> str:
    """Return the class of an image, or the name of its folder."""
    return image.entry.label or PurePath(image.entry.path).parent.name


def words_of(name: str) -> str:
    """Return the words of the name of a folder: "001.Black_footed_Albatross"."""
    return re.sub(r"^\d+[._-]+", "", name).replace("_", " ").strip() or name


def _precisions(model: ImageText, vectors: Tensor, names: Sequence[str | None]) -> dict[str, float]:
    """Search for the words of each name; return the precision among the first images.

    At most TOP, and as many as have the name.
    """
    counts = Counter(name for name in names if name)
    distinctive = [name for name in counts if counts[name] <= MAX_SHARE * len(names)]
    tested = spread(sorted(distinctive), MAX_TESTED)
    if not tested:
        return {}
    texts = encode_texts(model, [words_of(name) for name in tested])
    precisions = dict[str, float]()
    for name, places in zip(tested, top_k(texts @ vectors.T, TOP)[1].tolist(), strict=True):
        first = places[: counts[name]]
        precisions[name] = sum(names[place] == name for place in first) / len(first)
    return precisions


def _best(precisions: dict[str, float]) -> list[str]:
    """Return the words of some names, those with the highest precision first."""
    names = [name for name, precision in precisions.items() if precision >= MIN_PRECISION]
    ranked = sorted(spread(names, MAX_WORDS) or precisions, key=lambda name: -precisions[name])
    return [words_of(name) for name in ranked[:MAX_WORDS]]


def _example(searcher: Searcher, sample: Sequence[IndexedImage]) -> tuple[int, str] | None:
    """Try images of one domain with the name of another; return the pair that works best."""
    counts = Counter((entry.label, entry.domain) for _, entry in sample)
    first = dict[tuple[str, str], int]()
    for row, entry in sample:
        if entry.label and entry.domain:
            first.setdefault((entry.label, entry.domain), row)
    pairs = [
        (row, label, domain)
        for (label, source), row in first.items()
        for name, domain in first
        if name == label and domain != source
    ]
    best, example = MIN_PRECISION, None
    for row, label, domain in spread(pairs, MAX_TRIES):
        top = min(TOP, counts[label, domain])
        request = SearchRequest((row,), (words_of(domain),), top=top)
        entries = [result.entry for result in searcher.ask(request).results]
        hits = sum((entry.label, entry.domain) == (label, domain) for entry in entries)
        precision = hits / top
        if precision > best or (example is None and precision >= best):
            best, example = precision, (row, words_of(domain))
    return example


def spread_over_classes(
    sample: Sequence[IndexedImage], count: int, preferred: Collection[str] = ()
) -> list[IndexedImage]:
    """Return images of as many classes as possible; classes of `preferred` alone, if there are any.

    The classes are spread evenly over their sorted names, then again with their next images.
    """
    by_class = dict[str, list[IndexedImage]]()
    for image in sample:
        by_class.setdefault(class_of(image), []).append(image)
    labels = sorted(set(by_class) & set(preferred)) or sorted(by_class)
    labels = spread(labels, count)
    images = list[IndexedImage]()
    per_class = -(-count // len(labels)) if labels else 0
    columns = [spread(by_class[label], per_class) for label in labels]
    for place in range(per_class):
        images += [column[place] for column in columns if place < len(column)]
    return images[:count]


def spread(items: Sequence[T], count: int) -> list[T]:
    """Return `count` items from the middles of as many equal parts."""
    count = min(count, len(items))
    return [items[(2 * i + 1) * len(items) // (2 * count)] for i in range(count)]
