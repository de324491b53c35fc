"""The served index: what it contains, search, and its images. Runs in the worker."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from cachetools import LRUCache
from PIL import Image
from starlette.exceptions import HTTPException

from ..data.digests import digest_of
from ..search.images import EntryImages
from ..search.methods import METHODS
from ..search.query import ImageInput, Searcher
from ..search.store import ImageEntry
from .photos import Photo, PhotoRequired, encode_photo, read_photo_file
from .schemas import EntryId, IndexInfo, MethodInfo

SAFE_INTEGER = 2**53  # larger numbers, which Milvus has, lose digits in JavaScript
MAX_SAMPLE = 5000  # rows that classes and suggestions are read from
MAX_STARTING_ENTRIES = 24
MAX_NAMES = 400  # of classes, and of domains
FILE_BYTES = 64 << 20  # of all cached photographs
DESCRIPTIONS = {
    "text": "images that fit the text",
    "image": "images similar to this one",
    "sum": "sum of the image vector and the text vector",
    "average": "mean of the image vector and the text vector",
    "product": "image score times text score",
    "normalised-sum": "sum of the image score and the text score, normalized",
    "weicom": "weighted sum of the image score and the text score, normalized",
    "freedom": "the image is translated into words, each combined with the text",
    "freedom-e": "FreeDom, words and text combined before encoding",
    "freedom-l": "FreeDom without the neighbours of the image",
    "freedom-e+": "FreeDom, words combined before encoding, with the neighbours of the image",
    "freedom-l+": "FreeDom with the neighbours of the image, all words with equal weight",
    "freedom-word": "FreeDom with the nearest word only",
    "basic": "product of centred image and text scores",
}


class ServedIndex:
    """An index and its model. The word list is opened when a search needs it."""

    def __init__(self, address: str) -> None:
        self.searcher = Searcher.open(address)
        self.store = self.searcher.store
        self.model = self.searcher.model  # loaded now, not with the first request
        self.images = EntryImages()
        self.files: LRUCache[str, bytes] = LRUCache(FILE_BYTES, len)  # photographs to search with
        self.sample = self.store.sample(MAX_SAMPLE)

    def info(self) -> IndexInfo:
        classes = Counter(entry.label for _, entry in self.sample if entry.label)
        domains = Counter(entry.domain for _, entry in self.sample if entry.domain)
        names = sorted(classes)[:MAX_NAMES]
        rarest_domains = [name for name, _ in domains.most_common()[::-1][:3]]
        methods = [
            MethodInfo(
                name=name,
                about=DESCRIPTIONS.get(name, name),
                image=method.image,
                text=method.text,
            )
            for name, method in METHODS.items()
            if not method.pseudo_words
        ]
        return IndexInfo(
            images=len(self.store),
            model=os.path.basename(self.store.description.model),
            methods=methods,
            classes=names,
            domains=sorted(domains)[:MAX_NAMES],
            entries=[entry_id(row) for row, _ in self.starting_entries()],
            suggestions=[*names[:: max(1, len(names) // 8)][:8], *rarest_domains],
        )

    def starting_entries(self) -> list[tuple[int, ImageEntry]]:
        """Choose entries of every class in turn, spread over the index."""
        by_class = dict[str | None, list[tuple[int, ImageEntry]]]()
        for row, entry in self.sample:
            by_class.setdefault(entry.label, []).append((row, entry))
        rounds = math.ceil(MAX_STARTING_ENTRIES / max(len(by_class), 1))
        entries = dict[int, ImageEntry]()
        for i in range(rounds):
            for rows in by_class.values():
                entries.update(rows[i * len(rows) // rounds :][:1])
        return list(entries.items())[:MAX_STARTING_ENTRIES]

    def image_of(
        self, photo: str | None, row: int | None, content: bytes | None
    ) -> ImageInput | None:
        """Return what to search with: a row of the index, a file, or None for a text alone."""
        if row is not None:
            self.entries([row])
            return row
        if photo is None:
            return None
        if rows := self.store.rows_with_digest(photo):  # by the digest of the file
            return rows[0]
        if content is None:
            content = self.files.get(photo)
        if content is None:
            raise PhotoRequired
        with suppress(ValueError):  # larger than the cache
            self.files[photo] = content
        return content

    def entries(self, rows: Sequence[int]) -> list[ImageEntry]:
        try:
            return self.store.entries(torch.tensor(rows))
        except (KeyError, ValueError):
            raise HTTPException(404, "the index does not contain this image") from None

    def image(self, entry: ImageEntry) -> Image.Image:
        image = self.images(entry)
        if image is None:
            name = os.path.basename(entry.path)
            raise HTTPException(410, f"{name} was removed, or cannot be read any more")
        return image

    def photo(self, entry: ImageEntry) -> Photo:
        """Return an image as if it had been uploaded.

        Its digest is not the index's if the file has changed since.
        """
        image = self.image(entry)
        content = read_photo_file(Path(entry.path), entry.time > 0)
        digest = entry.digest if content is None else digest_of(content).hex()
        return encode_photo(image, content, digest, entry.label or "")


def entry_id(row: int) -> EntryId:
    return row if row < SAFE_INTEGER else str(row)
