"""Generations of other systems, read from files: rewritten queries, edited images, captions.

They stand for systems whose weights are not here: CIReVL and other language models that rewrite a
query (texts), InstructPix2Pix or decoded images of CompoDiff (images), and FreeDom with captioners
or with an image-caption memory (captions) [Dissertation Sec. 4.4.3].
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.checks import check, errors_in
from ..unit import unit
from .composition import (
    ComposedQuery,
    CompositionContext,
    Scorer,
    encode_texts,
    image_vectors,
    single,
    weighted_texts,
)
from .freedom import TEMPLATE, late_fusion

KINDS = ("texts", "images", "captions")
FIELDS = ("query", "text", "result", "weight")


class Generation(NamedTuple):
    """One line: a text, or the path of an image; a caption may have a weight."""

    line: int
    result: str
    weight: float | None = None


class Generations:
    """The lines of a file by query: its id, its image and text, or its image alone."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        self.by_query: defaultdict[tuple[str, str], list[Generation]] = defaultdict(list)
        for line, entry in _entries(path):
            where = f"{path}, line {line}"
            unknown = [str(name) for name in entry if name not in FIELDS]
            check(
                not unknown, f"{where}: fields are {', '.join(FIELDS)}, got '{', '.join(unknown)}'"
            )
            query, text, result = (_text(entry, name, where) for name in FIELDS[:3])
            check(query and result, f"{where}: query and result must not be empty")
            if kind == "images":
                result = str(path.parent / result)
                check(Path(result).is_file(), f"{where}: no image {result}")
            weight = _weight(entry.get("weight"), where)
            check(weight is None or kind == "captions", f"{where}: only captions have a weight")
            self.by_query[query, text].append(Generation(line, result, weight))
        check(self.by_query, f"{path} has no generations")

    def of(self, name: str | None, image: str, text: str) -> list[Generation]:
        """Return the generations of a query; those for its text replace those for its image."""
        for query in (name or "", image):
            for key in ((query, text), (query, "")):
                if key in self.by_query:
                    return self.by_query[key]
        query = f"the image {image} and the text '{text}'"
        if name is not None:
            query = f"query {name}, {query}"
        raise ValueError(f"{self.path} has no line for {query}")


def _entries(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the lines of a CSV file with a header, or of a .jsonl file, with their numbers."""
    with errors_in(path), open(path, encoding="utf-8-sig", newline="") as file:
        content = file.read()
    if path.suffix != ".jsonl":
        reader = csv.DictReader(io.StringIO(content, newline=""), restkey="a value too many")
        missing = [name for name in ("query", "result") if name not in (reader.fieldnames or ())]
        check(not missing, f"{path}, line 1: the header lacks {' and '.join(missing)}")
        for row in reader:
            yield reader.line_num, row
        return
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}") from error
        check(isinstance(entry, dict), f"{path}, line {number} is not an object: {line[:80]!r}")
        yield number, entry


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    value = entry.get(name)
    if value is None:
        value = ""
    if name == "query" and type(value) is int:
        value = str(value)  # an id
    check(isinstance(value, str), f"{where}: {name} is a text, got {value!r}")
    return str(value).strip()


def _weight(value: Any, where: str) -> float | None:
    if value in (None, ""):
        return None
    try:
        weight = float(value)
    except (TypeError, ValueError):
        weight = math.nan
    check(math.isfinite(weight), f"{where}: a weight is a number, got {value!r}")
    return weight


def read_supplied(options: Mapping[str, Any]) -> Generations:
    """Read the file of `supplied:texts=FILE`, images=FILE or captions=FILE."""
    kinds = [kind for kind in KINDS if options.get(kind)]
    check(len(kinds) == 1, "supplied needs one of texts=FILE, images=FILE, captions=FILE")
    return _read(Path(options[kinds[0]]), kinds[0])


@cache
def _read(path: Path, kind: str) -> Generations:
    return Generations(path, kind)


def supplied(
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    texts: Sequence[Sequence[str]] | str = "",
    images: Sequence[Tensor] | str = "",
    captions: Sequence[Sequence[Generation]] | str = "",
    template: str = TEMPLATE,
) -> list[Scorer]:
    """Search by generations: their mean vector, or FreeDom's late fusion with captions as words.

    `cenote evaluate-search` replaces each file by what it has for each query, images by vectors
    (K, D). The weight of a caption is its similarity to the query image, if none is given
    [Dissertation Sec. 4.4.3].
    """
    if all(isinstance(value, str) for value in (texts, images, captions)):
        raise ValueError("supplied generations are for cenote evaluate-search")
    model = context.model
    if not isinstance(texts, str):
        vectors = [unit(encode_texts(model, list(several)).mean(0)) for several in texts]
        return [single(v, {"texts": list(t)}) for v, t in zip(vectors, texts, strict=True)]
    if not isinstance(images, str):
        return [single(unit(several.mean(0))) for several in images]
    assert not isinstance(captions, str)
    named = []
    for image, lines in zip(image_vectors(queries), captions, strict=True):
        similar = (encode_texts(model, [line.result for line in lines]) @ image).tolist()
        named.append(
            [
                (line.result, similarity if line.weight is None else line.weight)
                for line, similarity in zip(lines, similar, strict=True)
            ]
        )
    vectors = late_fusion([weighted_texts(query) for query in queries], named, context, template)
    return [
        single(v, {"words": [{"word": w, "weight": a} for w, a in pairs]})
        for v, pairs in zip(vectors, named, strict=True)
    ]


def stack_images(lines: Sequence[Generation], by_path: Mapping[str, Tensor]) -> Tensor:
    """Return the vectors (K, D) of a query's images."""
    return torch.stack([by_path[line.result] for line in lines])
