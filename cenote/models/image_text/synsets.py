"""WordNet's nouns that ImageNet-21k has, and how close they are to the 1,000 classes that
classifiers know.

Names and definitions are timm's; hypernyms.txt has what each synset is a kind of.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

HYPERNYMS = Path(__file__).with_name("hypernyms.txt")
SUBSETS = ("imagenet22k", "imagenet1k")  # the first lacks a class of the second
# The similarity of two synsets is the information of what they have in common, to this power.
POWER = 6
WORDS = re.compile(r"[^\W_]+")
FUNCTION_WORDS = """
a an the this that these those some any my your his her its our their one two three four five of on
in at by to for from with without and or not as is are be it i you he she we they over under behind
near next into onto very photo photos photograph picture pictures image images
"""
PLURALS = (
    ("ies", "y"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("sses", "ss"),
    ("xes", "x"),
    ("zes", "z"),
    ("ves", "f"),
    ("ves", "fe"),
    ("men", "man"),
    ("es", ""),
    ("", "s"),  # binoculars, sunglasses; not "gras", grass
)
IRREGULAR_PLURALS = {
    "mice": "mouse",
    "geese": "goose",
    "teeth": "tooth",
    "feet": "foot",
    "children": "child",
    "oxen": "ox",
    "people": "person",
}
MIN_FAMILIARITY = 0.5  # of a text that is known
NAMED = 0.01  # least coverage of a noun of ImageNet-21k, however far it is from the classes
# A hypernym has at least MIN_KINDS classes among its kinds. It is covered by them if they are at least
# MIN_KINDS_SHARE of its kinds in ImageNet-21k: 118 of 190 dogs, but 22 of 187 kinds of furniture.
MIN_KINDS, MIN_KINDS_SHARE = 5, 0.5


class Phrase(NamedTuple):
    """Words of a text that name synsets; no synsets for a word that is not in the list."""

    words: str
    synsets: tuple[int, ...]


class Synsets:
    """Synsets by number; `classes` are those of ImageNet's 1,000 classes."""

    def __init__(self) -> None:
        from timm.data.imagenet_info import ImageNetInfo

        lines = HYPERNYMS.read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines if not line.startswith("#")]
        numbers = {row[0]: i for i, row in enumerate(rows)}
        self.parents = [[numbers[name] for name in row[1].split()] for row in rows]
        self.names = [row[2].split(", ") if len(row) == 3 else [] for row in rows]
        self.definitions = [""] * len(rows)
        for info in map(ImageNetInfo, SUBSETS):
            for synset in info.label_names():
                description = info.label_name_to_description(synset, detailed=True)
                names, _, self.definitions[numbers[synset]] = description.partition(": ")
                self.names[numbers[synset]] = names.split(", ")
        self.classes = [numbers[synset] for synset in info.label_names()]
        self._weigh([i for i, definition in enumerate(self.definitions) if definition])
        self.by_name = dict[str, list[int]]()
        for i, synonyms in enumerate(self.names):
            for name in {plain(name) for name in synonyms}:
                self.by_name.setdefault(name, []).append(i)
        self.longest = max(name.count(" ") + 1 for name in self.by_name)
        self.endings = dict[str, list[int]]()  # "wheaten terrier" of "soft-coated wheaten terrier"
        for i in self.classes:
            for words in (plain(name).split() for name in self.names[i]):
                for start in range(1, len(words) - 1):
                    self.endings.setdefault(" ".join(words[start:]), []).append(i)

    def _weigh(self, imagenet: Sequence[int]) -> None:
        """Compute what each ancestor adds to the information of its descendants.

        The information of a synset is -log of the share of ImageNet-21k that is a kind of it.
        """

        @cache
        def ancestors(synset: int) -> frozenset[int]:
            return frozenset({synset}).union(*map(ancestors, self.parents[synset]))

        self.ancestors = [list(ancestors(synset)) for synset in range(len(self.parents))]
        kinds = np.bincount(np.concatenate([self.ancestors[synset] for synset in imagenet]))
        self.kinds = dict[int, list[int]]()  # rows of `classes` that are kinds of a synset
        for row, synset in enumerate(self.classes):
            for ancestor in self.ancestors[synset]:
                self.kinds.setdefault(ancestor, []).append(row)
        self.hypernyms = {i for i, rows in self.kinds.items() if len(rows) >= MIN_KINDS}
        self.covered = {
            i for i in self.hypernyms if len(self.kinds[i]) >= MIN_KINDS_SHARE * kinds[i]
        }
        information = np.log(len(imagenet) / kinds) ** POWER
        above = [information[parents].max(initial=0) for parents in self.parents]
        self.added = np.maximum(information - above, 0)
        self.total = np.array([self.added[synsets].sum() for synsets in self.ancestors])
        columns = sorted({i for synset in self.classes for i in self.ancestors[synset]})
        self.column = np.full(len(self.parents), -1)  # of the ancestors of the 1,000 classes
        self.column[columns] = np.arange(len(columns))
        shares = self._shares(self.classes).double()  # (1000, columns)
        cholesky = torch.linalg.cholesky(shares @ shares.T)
        # (columns, 1000): an orthonormal basis of the span of the classes
        self.span = torch.linalg.solve_triangular(cholesky, shares, upper=False).T.float()

    def features(self, synsets: Sequence[int]) -> Tensor:
        """Return (N, columns), whose dot products with those of classes are similarities.

        A row has the square roots of what its ancestors add, as a share of their sum. What the
        classes can say of it, its projection on their span, has length one.
        """
        rows = self._shares(synsets)
        used = rows.any(0).nonzero()[:, 0]  # few of the columns
        lengths = (rows[:, used] @ self.span[used]).norm(dim=1, keepdim=True)
        return rows / lengths.clamp(min=1e-6)

    def _shares(self, synsets: Sequence[int]) -> Tensor:
        shares = np.zeros((len(synsets), self.column.max() + 1), np.float32)
        for row, synset in zip(shares, synsets, strict=True):
            shared = self._shared(synset)
            row[self.column[shared]] = np.sqrt(self.added[shared] / max(self.total[synset], 1e-9))
        return torch.from_numpy(shares)

    def coverage(self, synset: int) -> float:
        """Return the share of its information that the nearest of the 1,000 classes has, 0 to 1.

        1 if it is one of them, or if one of them is a kind of it.
        """
        covered = self.total[self._shared(synset)].max(initial=0)
        return float((covered / max(self.total[synset], 1e-9)) ** (1 / POWER))

    def _shared(self, synset: int) -> NDArray[np.intp]:
        """Return the ancestors of a synset that one of the 1,000 classes has, too."""
        ancestors = np.array(self.ancestors[synset])
        return ancestors[self.column[ancestors] >= 0]

    def phrases(self, text: str) -> Iterator[Phrase]:
        """Yield the longest names in the text, from left to right, and the words between them."""
        words, start = plain(text).split(), 0
        while start < len(words):
            if words[start] in function_words():
                start += 1
                continue
            for length in range(min(self.longest, len(words) - start), 0, -1):
                phrase = " ".join(words[start : start + length])
                synsets = self.named(phrase)
                if synsets:
                    break
            yield Phrase(phrase, tuple(synsets))
            start += length

    def familiarity(self, text: str) -> float:
        """Return 0 to 1: how well the 1,000 classes cover the text.

        The mean of the best phrase and of all of them: "red car" is known by the car.
        """
        senses = (phrase.synsets for phrase in self.phrases(text))
        coverages = [
            max([NAMED, *map(self.coverage, synsets)]) if synsets else 0.0 for synsets in senses
        ]
        if not coverages:
            return 0.0
        return (max(coverages) + sum(coverages) / len(coverages)) / 2

    def unknown_words(self, text: str) -> list[str]:
        """Return the words that neither name a synset nor are in a definition, each once."""
        words = (phrase.words for phrase in self.phrases(text) if not phrase.synsets)
        return [word for word in dict.fromkeys(words) if word not in self.defining_words]

    @cached_property
    def defining_words(self) -> frozenset[str]:
        """Words of definitions and names: adjectives, verbs."""
        texts = itertools.chain(self.definitions, self.by_name)
        return frozenset(word for text in texts for word in plain(text).split())

    @cached_property
    def class_names(self) -> list[str]:
        """First names of the 1,000 classes."""
        return [self.names[synset][0] for synset in self.classes]

    @cached_property
    def known_names(self) -> list[str]:
        """Names of which the 1,000 classes cover at least half, in lower case."""
        coverages = [self.coverage(synset) for synset in range(len(self.names))]
        return [
            name
            for name, synsets in self.by_name.items()
            if max(coverages[synset] for synset in synsets) >= MIN_FAMILIARITY
        ]

    def named(self, phrase: str) -> list[int]:
        """Return the synsets of a name in the singular or plural, as one word or two, or the classes
        whose names end with it."""
        phrase = IRREGULAR_PLURALS.get(phrase, phrase)
        synsets = self.by_name.get(phrase, [])
        if phrase.endswith("s") and not phrase.endswith("ss"):  # "shoes" is a place, too
            synsets = list(dict.fromkeys([*synsets, *self.by_name.get(phrase[:-1], [])]))
        if synsets:
            return synsets
        for ending, singular in PLURALS:
            if phrase.endswith(ending) and len(phrase) >= len(ending) + 2:
                name = phrase[: len(phrase) - len(ending)] + singular
                if name in self.by_name and not (singular == "s" and name.endswith("ss")):
                    return self.by_name[name]
        if " " not in phrase:
            return []
        is_compound = min(map(len, phrase.split())) > 1  # "cell phone", not "s p a"
        synsets = self.named(phrase.replace(" ", "")) if is_compound else []
        return synsets or self.endings.get(phrase, [])


@cache
def imagenet_synsets() -> Synsets:
    """Return the synsets; they are read once."""
    return Synsets()


@cache
def function_words() -> frozenset[str]:
    return frozenset(FUNCTION_WORDS.split())


def content_words(text: str) -> list[str]:
    """Return the words of a text that are about what is in an image."""
    return [word for word in plain(text).split() if word not in function_words()]


def plain(text: str) -> str:
    """Return the words of a text, in lower case, without accents, one space between them."""
    letters = unicodedata.normalize("NFKD", text.lower().replace("'", ""))
    return " ".join(WORDS.findall("".join(c for c in letters if not unicodedata.combining(c))))
