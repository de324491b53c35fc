"""The index that is served: what is in it, questions to it, and its pictures."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..data.digests import digest_of
from ..search.filters import Filter
from ..search.methods import METHODS, find_method
from ..search.opening import choose_method, model_of, words_of
from ..search.pictures import EntryImages
from ..search.query import ImageInput, SearchAnswer, SearchRequest, ask
from ..search.store import ImageEntry, open_store
from ..search.words import WordMemory
from .photos import encode, file_of, photo_of
from .questions import Adopt, Photo, Picture, Refusal, Search, Unseen, names_only
from .remembered import Remembered

SAFE = 2**53  # JavaScript's whole numbers end here; Milvus's rows do not
SAMPLE, SHOWN, NAMES = 5000, 24, 400
FILES = 64 << 20  # bytes of all of them
ABOUT = {
    "text": "images that fit the text",
    "image": "images that look like this one",
    "sum": "the image and the text added up",
    "average": "the middle between image and text",
    "product": "images that fit the image and the text, each score times the other",
    "normalised-sum": "image and text scores on one scale, added up",
    "weicom": "image and text scores on one scale, with a weight between them",
    "freedom": "the image put into words, each of them joined with the text",
    "freedom-e": "FreeDom, words and text joined before they are read",
    "freedom-l": "FreeDom without the images around this one",
    "freedom-e+": "FreeDom, words joined early, with the images around this one",
    "freedom-l+": "FreeDom with the images around this one, all words alike",
    "freedom-word": "FreeDom with the one nearest word",
    "basic": "image and text scores cleaned of what all images share, multiplied",
}


class Indexed:
    """One index with its model. Words are read when a question first needs them."""

    def __init__(self, address: str) -> None:
        self.address, self.store = address, open_store(address)
        self.model = model_of(self.store, exact=False)
        self.pictures = EntryImages()
        self.memory: WordMemory | None = None
        self.files = Remembered[str, bytes](FILES)  # of photographs that are not in the index
        self.sample = self._sample()

    def about(self) -> dict[str, Any]:
        labels, domains = (
            Counter(v for _, e in self.sample if (v := getattr(e, name)))
            for name in ("label", "domain")
        )
        methods = [
            {
                "name": name,
                "about": ABOUT.get(name, name),
                "image": method.image,
                "text": method.text,
            }
            for name, method in METHODS.items()
            if not method.made_up
        ]
        classes = sorted(labels)[:NAMES]
        some = classes[:: max(1, len(classes) // 8)][:8]
        kinds = [name for name, _ in domains.most_common()[::-1][:3]]
        return {
            "images": len(self.store), "methods": methods, "classes": classes,
            "model": os.path.basename(self.store.description.model),  # of a folder no more: paths are nobody's business
            "domains": sorted(domains)[:NAMES], "entries": [number_of(row) for row, _ in self.shown()],
            "suggestions": [*some, *kinds],
        }  # fmt: skip

    def shown(self) -> list[tuple[int, ImageEntry]]:
        """A few to begin with: of every class in turn, spread over the index."""
        by_class = dict[str | None, list[tuple[int, ImageEntry]]]()
        for row, entry in self.sample:
            by_class.setdefault(entry.label, []).append((row, entry))
        rounds = math.ceil(SHOWN / max(len(by_class), 1))
        picked = [
            one
            for i in range(rounds)
            for some in by_class.values()
            for one in some[i * len(some) // rounds :][:1]
        ]
        return list(dict(picked).items())[:SHOWN]

    def search(self, asked: Search) -> dict[str, Any]:
        started = time.perf_counter()
        image = self._image(asked)
        try:
            _refuse_long(asked.method)
            method, options = choose_method(asked.method, asked.weight)
            chosen = Filter(asked.classes, asked.domains)
            images = () if image is None else (image,)
            question = SearchRequest(
                images,
                asked.texts,
                asked.without,
                method,
                asked.top,
                filter=chosen,
                options=options,
            )
            answer = ask(question, self.store, self.model, self._words(question))
        except ValueError as error:
            raise Refusal(400, names_only(str(error))) from None
        return self._told(answer) | {"seconds": round(time.perf_counter() - started, 4)}

    def picture(self, asked: Picture) -> bytes:
        (entry,) = self._entries([asked.entry])
        image = self.pictures(entry)
        if image is None:
            raise _gone(entry)
        image.thumbnail((asked.side, asked.side))
        return encode(image)

    def adopt(self, asked: Adopt) -> dict[str, Any]:
        (entry,) = self._entries([asked.entry])
        found = self.photo(entry)
        if found is None:
            raise _gone(entry)
        return {"digest": found[0], "photo": found[1]}

    def photo(self, entry: ImageEntry) -> tuple[str, Photo] | None:
        """With its digest, which is no more the index's if the file was changed; None if there is no picture now."""
        image = self.pictures(entry)
        if image is None:
            return None
        content = file_of(Path(entry.path), entry.time > 0)
        digest = entry.digest if content is None else digest_of(content).hex()
        return digest, photo_of(image, content, entry.label or "")

    def _image(self, asked: Search) -> ImageInput | None:
        if asked.entry is not None:
            self._entries([asked.entry])
            return asked.entry
        if asked.photo is None:
            return None
        if rows := self.store.find(
            asked.photo
        ):  # a photograph's name is the digest of its file, as an index has it
            return rows[0]
        if asked.content is not None:
            self.files.put(asked.photo, asked.content)
        content = self.files.get(asked.photo)
        if content is None:
            raise Unseen
        return content

    def _words(self, question: SearchRequest) -> WordMemory | None:
        kept = self.store.description.words
        named = question.method if question.method != "auto" else "freedom"
        both = bool(question.images and question.texts)
        if not both or not find_method(named).words or (question.method == "auto" and not kept):
            return None
        if self.memory is None:
            self.memory = words_of(self.store, self.model)
        return self.memory

    def _entries(self, rows: Sequence[int]) -> list[ImageEntry]:
        """Those of rows that are there."""
        try:
            if max(rows) >= 2**63:
                raise KeyError
            return self.store.entries(torch.tensor(rows))
        except (KeyError, ValueError):
            raise Refusal(404, "the index holds no such image") from None

    def _told(self, answer: SearchAnswer) -> dict[str, Any]:
        results = [
            {
                "entry": number_of(result.row), "score": round(result.score, 6), **_known(result.entry),
                "missing": result.missing, "duplicates": len(result.duplicates),
            }
            for result in answer.results
        ]  # fmt: skip
        why = {
            name: value
            for name, value in answer.why.items()
            if name not in ("images", "proxies", "method")
        }
        if answer.proxies:
            near = zip(answer.proxies, self._entries(answer.proxies), strict=True)
            why["proxies"] = [
                {"entry": number_of(row), "name": os.path.basename(e.path)} for row, e in near
            ]
        return {
            "method": answer.method, "relevant": answer.relevant, "searched": answer.searched, "exact": answer.exact,
            "results": results, "why": why,
        }  # fmt: skip

    def _sample(self) -> list[tuple[int, ImageEntry]]:
        """Of a large index in a folder some rows; Milvus is asked for all of a small one."""
        count = len(self.store)
        if not hasattr(self.store, "matrix"):
            return (
                []
                if count > 10 * SAMPLE
                else [(known.row, known.entry) for known in self.store.images().values()]
            )
        every = getattr(self.store, "rows", None)
        places = (
            torch.linspace(0, count - 1, min(count, SAMPLE)).round().long().unique()
            if count
            else torch.empty(0)
        )
        rows = (places if every is None else every[places.long()]).tolist()
        return list(
            zip(
                map(int, rows),
                self.store.entries(torch.tensor(rows, dtype=torch.long)),
                strict=True,
            )
        )


def _refuse_long(method: str) -> None:
    """One question must not hold the only worker: a mapping trains for minutes, an option may ask for any number."""
    name, given, _ = method.partition(":")
    if given:
        raise Refusal(
            400,
            "a method's options are not taken here, but for weight: `cenote search` takes all of them",
        )
    if name in METHODS and METHODS[name].made_up:
        raise Refusal(
            400, f"'{name}' takes too long for a page: `cenote search --method {name}` answers it"
        )


def _gone(entry: ImageEntry) -> Refusal:
    return Refusal(410, f"{os.path.basename(entry.path)} is gone, or can no more be read")


def number_of(row: int) -> int | str:
    return row if row < SAFE else str(row)


def _known(entry: ImageEntry) -> dict[str, Any]:
    """No more of the path than the file's name."""
    name = entry.path.replace(":", "/").rpartition("/")[2]
    told = {"name": name, "label": entry.label, "domain": entry.domain, "caption": entry.caption}
    return told | {"width": entry.width, "height": entry.height}
