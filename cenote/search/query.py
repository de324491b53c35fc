"""Search an index: by image, by text, or by both."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from ..data import read_image
from ..data.digests import digest_of
from ..data.images import full_size
from ..models.image_text import ClassSpace, Vocabulary
from ..options import check_number
from ..predict.openvino_engine import embed_images
from ..unit import unit
from .composition import ComposedQuery, Scorer, text_vectors
from .database import top_k
from .doubt import ScoreJudge, TextFamiliarity, cosine_scale
from .feedback import QUERY, refine
from .freedom import K, M, N
from .fusion import MAX_CANDIDATES, TextEvidence, find_evidence, relative_shares
from .load import image_text_device, load_model, load_word_memory, open_store
from .map import IndexMap, Point, draw_map
from .maxsim import (
    LocalQuery,
    cell_matches,
    embed_with_local,
    local_network,
    maxsim,
    stored_local,
)
from .methods import MethodSpec, compose_all, find_method, parse_method
from .results import RankedImage, best_results, results_without_duplicates
from .shares import input_shares
from .store import Filter, Store, TextMatch
from .words import load_words

if TYPE_CHECKING:
    from ..models.image_text import ImageText, LocalNetwork
    from .words import WordMemory

CANDIDATES = 500  # of a nearest-neighbour search, which are then ranked exactly
MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000  # of a term: their products fit float32
MAX_UNKNOWN = 5  # words in a note
EVEN = 0.5  # an image with a lower score is more likely wrong than right
NO_ROW = -1  # of no image
ImageInput = str | Path | bytes | int  # a file, the contents of a file, or a row of the index


SORT_KEYS: dict[str, Callable[[RankedImage], Any]] = {
    "score": lambda result: -result.score,
    "date": lambda result: -result.entry.date,
    "name": lambda result: (os.path.basename(result.entry.path), result.entry.path),
    "size": lambda result: -result.entry.size,
}


@dataclass(frozen=True)
class SearchRequest:
    """What to search for. Texts may have a weight, "dog^2"; several images are averaged.

    `like` and `unlike` are examples, such as results of an earlier search. Without an image and a
    text, the liked images are the query.
    """

    images: tuple[ImageInput, ...] = ()
    texts: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    method: str = "auto"
    top: int = 10
    cut: float | None = None  # smallest score of a relevant image
    sort: Literal["score", "date", "name", "size"] = "score"
    near_duplicates: Literal["hide", "show"] = "hide"
    filter: Filter = field(default_factory=Filter)
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method
    visual_only: bool = False  # ignore the texts that are stored with the images
    like: tuple[ImageInput, ...] = ()
    unlike: tuple[ImageInput, ...] = ()
    rerank: Literal["none", "maxsim"] = "none"  # by local vectors of the index
    candidates: int = 100  # results that are re-ranked
    region: tuple[Point, ...] = ()  # corners of a polygon on the map of the index, to search inside

    def __post_init__(self) -> None:
        if not self.query_images and not self.terms:
            raise ValueError("an empty query finds nothing: give an image, a text or both")
        for name, choices in (
            ("sort", SORT_KEYS),
            ("near_duplicates", ("hide", "show")),
            ("rerank", ("none", "maxsim")),
        ):
            if getattr(self, name) not in choices:
                value = getattr(self, name)
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got '{value}'")
        for name in ("top", "candidates"):
            check_number(name, getattr(self, name), whole=True, least=1)
        if self.rerank != "none" and (not self.images or self.terms or self.like or self.unlike):
            raise ValueError(
                f"{self.rerank} compares cells of images: give an image, without texts and examples"
            )
        if self.cut is not None:
            check_number("cut", self.cut)
        if len(self.region) in (1, 2):
            raise ValueError(f"a region must have at least 3 points, got {len(self.region)}")
        for x, y in self.region:
            if not (0 <= x <= 1 and 0 <= y <= 1):
                raise ValueError(f"points of a region must be from 0 to 1, got {x},{y}")
        if self.method != "auto":
            self._check_method(self.method)

    @cached_property
    def terms(self) -> list[tuple[str, float]]:
        """Texts with their weights, negative for unwanted ones."""
        unwanted = [(text, -weight) for text, weight in map(parse_term, self.without)]
        return [*map(parse_term, self.texts), *unwanted]

    @property
    def query_images(self) -> tuple[ImageInput, ...]:
        """Images of the query itself; the liked ones if there is nothing else."""
        if self.images or self.terms:
            return self.images
        return self.like

    def resolve_method(self, has_words: bool) -> str:
        """Return the method, with "auto" resolved for an index with or without a word list.

        For an image and a text FreeDom, or WeiCom without a word list, or if a weight of the text
        is given, or no text is wanted: FreeDom composes what is wanted.
        """
        if self.method != "auto":
            return self.method
        if not self.query_images:
            method = "text"
        elif not self.terms:
            method = "image"
        elif has_words and self.texts and "weight" not in self.options:
            method = "freedom"
        else:
            method = "weicom"
        self._check_method(method)
        return method

    def _check_method(self, name: str) -> None:
        method, has_image, has_text = find_method(name), bool(self.query_images), bool(self.terms)
        method.check_inputs(name, has_image, has_text)
        for noun, is_ignored in (
            ("an image", has_image and not method.image),
            ("a text", has_text and not method.text),
        ):
            if is_ignored:
                raise ValueError(f"'{name}' ignores {noun}: leave it out, or use another method")
        method.check(name, self.options)


class SearchAnswer(NamedTuple):
    results: list[RankedImage]
    method: str
    relevant: int  # images that reach the cut; at least that number if `exact` is False
    searched: int  # images that pass the filter
    exact: bool  # every image was scored, not only the candidates of a nearest-neighbour search
    why: dict[str, Any]
    proxies: tuple[int, ...] = ()  # rows of the neighbours that FreeDom took words from
    texts: tuple[TextFamiliarity, ...] = ()  # whether the model knows the texts that are wanted
    unlikely: bool = False  # even the best image is more likely wrong than right

    @property
    def notes(self) -> list[str]:
        """Sentences about texts that the model does not know, and about doubtful results."""
        notes, unknown = [], [text for text in self.texts if not text.known]
        if unknown:
            consequence = "results for it are a guess"
            if self.method == "text" and not self.results:
                consequence = (
                    "no image was found, and no folder, file name, label or caption contains it"
                )
            elif self.results and all(result.matches for result in self.results):
                consequence = "these images were found by the texts that are stored with them"
            note = f"the model does not know {_quoted(unknown)}: {consequence}"
            if nearest := ", ".join(name for text in unknown for name in text.nearest):
                note += f"; nearest words that it knows: {nearest}"
            notes.append(note)
        elif self.results and all(result.doubtful for result in self.results):
            notes.append(f"no image seems to show {_quoted(self.texts)}: these are the nearest")
        elif self.unlikely:
            best = max(result.score for result in self.results)
            notes.append(
                f"perhaps no image shows {_quoted(self.texts)}: the best score is {best:.2f}"
            )
        words = [word for text in self.texts for word in text.unknown_words]
        if words and self.results:
            quoted = ", ".join(f'"{word[:40]}"' for word in words[:MAX_UNKNOWN])
            notes.append(f"the model does not know {quoted}: it searched for the other words")
        return notes


def _quoted(texts: Sequence[TextFamiliarity]) -> str:
    return ", ".join(f'"{text.text[:40]}"' for text in texts)


def parse_term(text: str) -> tuple[str, float]:
    """Split "dog^2" into ("dog", 2.0)."""
    if not text.strip():
        raise ValueError("an empty text finds nothing: give a word, or leave it out")
    name, caret, weight = text.strip().rpartition("^")
    if not caret:
        name, weight = weight, "1"
    try:
        number = float(weight)
    except ValueError:
        number = 0.0
    if not name.strip() or not MIN_WEIGHT <= number <= MAX_WEIGHT:
        raise ValueError(
            f"'{text}' is not a search term: use dog, or dog^2 to weight it twice "
            f"(weights are from {MIN_WEIGHT} to {MAX_WEIGHT})"
        )
    return name.strip(), number


def choose_method(method: str, weight: float | None) -> MethodSpec:
    """Parse "freedom:k=5"; a weight of the text is the option of WeiCom."""
    option = "" if weight is None else f":weight={weight}"
    if method == "auto":
        return MethodSpec(method, parse_method(f"weicom{option}").options)
    return parse_method(method + option)


class Searcher:
    """An index with its model and word list, which are loaded when a request needs them.

    `word_list` is a file that replaces the index's own list; `exact` ignores an approximate index;
    `load` returns the model, by default that of the index.
    """

    def __init__(
        self,
        store: Store,
        word_list: str | None = None,
        exact: bool = False,
        load: Callable[[], ImageText] | None = None,
    ) -> None:
        self.store, self.word_list, self.exact, self.load = store, word_list, exact, load
        self._map: IndexMap | None = None

    @classmethod
    def open(cls, address: str, word_list: str | None = None, exact: bool = False) -> Searcher:
        return cls(open_store(address), word_list, exact)

    @cached_property
    def model(self) -> ImageText:
        model = self.load() if self.load else load_model(self.store)
        if not self.exact:
            self.store.open_approximate()
        return model

    @cached_property
    def judge(self) -> ScoreJudge:
        return ScoreJudge(self.store, self.model)

    @cached_property
    def words(self) -> WordMemory:
        if self.word_list:
            load_words(self.word_list)  # an error before the model is loaded
        return load_word_memory(self.store, self.model, self.word_list)

    @property
    def map(self) -> IndexMap:
        """The map of the index, drawn again if its images have changed."""
        if self._map is None or self._map.version != self.store.version:
            self._map = draw_map(self.store)
        return self._map

    def ask(self, request: SearchRequest) -> SearchAnswer:
        method = request.resolve_method(bool(self.word_list or self.store.description.words))
        needs_words = find_method(method).words
        if self.word_list and not needs_words:
            raise ValueError(
                f"--words {self.word_list}: '{method}' uses no word list, freedom and searle do"
            )
        words = self.words if needs_words else None
        if request.region:
            request = _inside_region(request, self.map)
        return _answer(request, method, self.store, self.judge, words)


def ask(
    request: SearchRequest, store: Store, model: ImageText, words: WordMemory | None = None
) -> SearchAnswer:
    """Search an index with a model and a word list that are loaded already."""
    store.description.check_model(model, store.where)
    judge = ScoreJudge(store, model)
    if request.region:
        request = _inside_region(request, draw_map(store))
    return _answer(request, request.resolve_method(words is not None), store, judge, words)


def _inside_region(request: SearchRequest, index_map: IndexMap) -> SearchRequest:
    """Limit a request to the images inside its region."""
    rows = index_map.rows_inside(request.region)
    if request.filter.rows:
        rows = tuple(set(rows) & set(request.filter.rows)) or (NO_ROW,)
    return replace(request, filter=replace(request.filter, rows=rows), region=())


def _answer(
    request: SearchRequest, method: str, store: Store, judge: ScoreJudge, words: WordMemory | None
) -> SearchAnswer:
    """Return the best `top` images that reach the cut, without near-duplicates, then sorted."""
    model = judge.model
    images, like, unlike = (
        [_look_up(image, store) for image in group]
        for group in (request.query_images, request.like, request.unlike)
    )
    why = _explain(request, method, images)
    view = store.select(request.filter)
    if not len(view):
        if not request.filter:
            raise ValueError(f"{store.where} is empty: `cenote index` adds images")
        return SearchAnswer([], method, 0, 0, True, why)
    composition = find_method(method)
    # Neighbours or a trained mapping describe the image: they come from the whole index.
    uses_index = composition.words or composition.pseudo_words
    query = _compose_query(request, images, store, model)
    options = _options(request, method, words)
    (scorer,) = compose_all(method, [query], store if uses_index else view, model, words, **options)
    inputs = _inputs(request, query, model)
    if like or unlike:
        examples = _vectors(like, store, model), _vectors(unlike, store, model)
        query_vector = QUERY * unit(scorer.direction)
        scorer = refine(scorer, *examples, store.moments())
        inputs["examples"] = scorer.direction - query_vector
        why["examples"] = {"like": len(like), "unlike": len(unlike)}
    if len(inputs) > 1:
        why["shares"] = input_shares(scorer.direction, inputs, store.moments())
    wanted_texts = [text for text, weight in request.terms if weight > 0]
    texts, evidence, shares = tuple(judge.assess(wanted_texts)), None, None
    scale = 1.0
    if not images and not request.visual_only:
        unknown = {text.text for text in texts if not text.known}
        evidence = find_evidence(view, request.terms, store, unknown)
    visual, visual_rows, is_exact = _score(scorer, view, request.top, evidence)
    is_text_query = method == "text" and bool(wanted_texts) and not (like or unlike)
    if is_text_query:
        scale = cosine_scale(model, wanted_texts)
        if nearest := [name for text in texts if text.known for name in text.nearest]:
            why["nearest"] = list(dict.fromkeys(nearest))
        shares = judge.shares(visual, scale)
    scores, rows = visual, visual_rows
    if shares is not None:
        scores = shares
    local_query = None
    if request.rerank == "maxsim":
        local_query = _local_query(images, store, model)
        rows = _first_rows(scores, rows, max(request.candidates, request.top))
        scores = maxsim(local_query.vectors.flatten(0, 1), rows, store)
        is_exact &= len(rows) == len(visual_rows)
        why["maxsim"] = {"candidates": len(rows), "cells": local_query.vectors.shape[1]}
    is_relevant = torch.ones_like(rows, dtype=torch.bool)
    if evidence is not None:
        why["matches"] = evidence.fields
        scores = evidence.fuse(relative_shares(visual) if shares is None else shares, rows)
        is_relevant &= ~torch.isin(rows, evidence.excluded)
    if request.cut is not None:
        is_relevant &= scores >= request.cut
    if is_text_query and isinstance(model, Vocabulary) and not any(text.score for text in texts):
        is_relevant &= _matches_text(rows, evidence)  # no word of it is known at all
    rows, scores = rows[is_relevant], scores[is_relevant]
    rank = best_results
    if request.near_duplicates == "hide":  # the query images are known to the user as well
        rank = results_without_duplicates
        query_images = [*images, *like, *unlike]
        query_rows = torch.tensor([row for image in query_images for row in image.rows])
        is_other = ~torch.isin(rows, query_rows.long())
        rows, scores = rows[is_other], scores[is_other]
    results = _with_evidence(rank(scores, rows, view, request.top), visual, visual_rows, evidence)
    if shares is not None:
        is_guess = not any(text.known for text in texts)
        is_guess |= judge.is_absent(scorer.direction, visual, scale)
        results = _mark_doubtful(results, judge, scale, is_guess)
    if local_query is not None:
        results = _with_cells(results, local_query, store, local_network(model))
    # Ties keep the more relevant image first.
    sort_key = SORT_KEYS[request.sort]
    results = sorted(results, key=lambda result: (result.doubtful, sort_key(result)))
    why |= scorer.why
    proxies = scorer.why.get("proxies", ())
    if "proxies" in why:
        entries = store.entries(torch.tensor(proxies, dtype=torch.long))
        why["proxies"] = [entry.path for entry in entries]
    is_unlikely = (
        shares is not None
        and isinstance(model, ClassSpace)  # the curve of shares was fitted to it
        and all(result.score < EVEN and not result.matches for result in results)
    )
    return SearchAnswer(
        results,
        method,
        len(scores),
        len(view),
        is_exact,
        why,
        tuple(proxies),
        texts,
        unlikely=is_unlikely and len(results) > 0,
    )


def _matches_text(rows: Tensor, evidence: TextEvidence | None) -> Tensor:
    """Return (N,) bool: a text of the image matches."""
    if evidence is None:
        return torch.zeros_like(rows, dtype=torch.bool)
    return torch.isin(rows, evidence.rows[evidence.wanted > 0])


def _mark_doubtful(
    results: Sequence[RankedImage], judge: ScoreJudge, scale: float, is_guess: bool
) -> list[RankedImage]:
    """Mark images without a matching text: all, or those that unrelated texts rank as high."""
    shares = judge.shares(torch.tensor([result.visual for result in results]), scale)
    assert shares is not None
    is_doubtful = judge.calibration.is_doubtful(shares) | is_guess
    return [
        result._replace(doubtful=doubtful and not result.matches)
        for result, doubtful in zip(results, is_doubtful.tolist(), strict=True)
    ]


def _first_rows(scores: Tensor, rows: Tensor, count: int) -> Tensor:
    """Return the rows of the best scores, ascending."""
    return rows[top_k(scores[None], count)[1][0]].sort().values


def _with_cells(
    results: Sequence[RankedImage], query: LocalQuery, store: Store, model: LocalNetwork
) -> list[RankedImage]:
    """Add where the results match the query."""
    rows = torch.tensor([result.row for result in results], dtype=torch.long)
    return [
        result._replace(
            cells=cell_matches(query, local, (result.entry.width, result.entry.height), model)
        )
        for result, local in zip(results, stored_local(store, rows), strict=True)
    ]


class _QueryImage(NamedTuple):
    name: str
    rows: list[int]  # of the same image in the index
    content: bytes = b""  # of its file; empty if the request names a row


def _look_up(image: ImageInput, store: Store) -> _QueryImage:
    """Find an image in the index by its contents."""
    if isinstance(image, int):
        (entry,) = store.entries(torch.tensor([image]))
        return _QueryImage(entry.path, store.rows_with_digest(entry.digest))
    name, content = "the photograph", image
    if not isinstance(content, bytes):
        name = str(image)
        try:
            content = Path(name).read_bytes()
        except OSError as error:
            raise ValueError(f"{name}: {error.strerror or error}") from None
    return _QueryImage(name, store.rows_with_digest(digest_of(content).hex()), content)


def _explain(
    request: SearchRequest, method: str, images: Sequence[_QueryImage]
) -> dict[str, object]:
    return {
        "method": method,
        "terms": [{"text": text, "weight": weight} for text, weight in request.terms],
        "images": [image.name for image in images],
    }


def _compose_query(
    request: SearchRequest, images: Sequence[_QueryImage], store: Store, model: ImageText
) -> ComposedQuery:
    """Average the images at unit length."""
    mean, row = None, None
    if images:
        mean = unit(_vectors(images, store, model).mean(0))
    if len(images) == 1:
        row = next(iter(images[0].rows), None)
    texts = tuple(text for text, _ in request.terms)
    weights = tuple(weight for _, weight in request.terms)
    return ComposedQuery(mean, texts, weights, inside=row)


@torch.no_grad()
def _vectors(images: Sequence[_QueryImage], store: Store, model: ImageText) -> Tensor:
    """Return vectors (N, D) of unit length; images of the index are not embedded again."""
    vectors = [torch.empty(0, store.dim)]
    for image in images:
        if image.rows:
            vectors.append(store.vectors(torch.tensor(image.rows[:1])))
        else:
            _, pixels = _read_pixels(image, store, model)
            vectors.append(embed_images(model, pixels).float().cpu())
    return torch.cat(vectors)


@torch.no_grad()
def _local_query(images: Sequence[_QueryImage], store: Store, model: ImageText) -> LocalQuery:
    """Return the local vectors of the query; images of the index are not embedded again."""
    vectors, sizes = list[Tensor](), list[tuple[int, int]]()
    stored_local(store, torch.empty(0, dtype=torch.long))  # an error before an image is embedded
    for image in images:
        if image.rows:
            row = torch.tensor(image.rows[:1])
            (entry,) = store.entries(row)
            vectors.append(stored_local(store, row))
            sizes.append((entry.width, entry.height))
        else:
            photo, pixels = _read_pixels(image, store, model)
            k = store.description.local_vectors
            row = embed_with_local(local_network(model), k, pixels).float().cpu()[:, store.dim :]
            vectors.append(row.unflatten(1, (k, -1)))
            sizes.append(full_size(photo))
    return LocalQuery(torch.cat(vectors), sizes)


def _read_pixels(image: _QueryImage, store: Store, model: ImageText) -> tuple[Image.Image, Tensor]:
    """Return the picture and the input (1, 3, H, W) of the model, on its device."""
    transform = model.transform(store.description.scaled_decoding)
    photo = read_image(image.name, content=image.content, min_side=transform.min_side)
    return photo, transform(photo)[None].to(image_text_device(model))


def _inputs(request: SearchRequest, query: ComposedQuery, model: ImageText) -> dict[str, Tensor]:
    """Return the vectors of the image and of the text, as far as the request has them."""
    inputs = dict[str, Tensor]()
    if request.images and query.image is not None:
        inputs["image"] = query.image
    if query.texts:
        inputs["text"] = text_vectors(model, [query])[0]
    return inputs


def _options(request: SearchRequest, method: str, words: WordMemory | None) -> Mapping[str, Any]:
    """Limit FreeDom's k, n and m to a tenth of a short word list.

    If half of all words are near they say nothing, and twenty neighbours outvote the image.
    """
    if words is None or not method.startswith("freedom"):
        return request.options
    limit = max(len(words.words) // 10, 1)
    return {"k": min(K, limit), "n": min(N, limit), "m": min(M, limit), **request.options}


def _score(
    scorer: Scorer, view: Store, top: int, evidence: TextEvidence | None
) -> tuple[Tensor, Tensor, bool]:
    """Return scores and rows, rows ascending, and whether all images were scored.

    Images that match by text are among the candidates of a nearest-neighbour search.
    The score of a single vector without an offset is a cosine, whatever its length.
    """
    scanned = view.scan(scorer.vectors)
    if scanned is None:
        count = max(CANDIDATES, 5 * top)
        rows = view.nearest(scorer.direction[None], count)[1][0].sort().values
        if evidence is not None:
            rows = torch.cat([rows, evidence.strongest(max(MAX_CANDIDATES, 5 * top))]).unique()
        scores = scorer.scores(view.vectors(rows))
    else:
        similarities, rows = scanned
        scores = scorer.of_similarities(similarities)
    if len(scorer.vectors) == 1 and not scorer.offsets.any():
        scores = scores / scorer.vectors[0].norm().clamp(min=1e-12)
    return scores, rows, scanned is not None


def _with_evidence(
    results: Sequence[RankedImage], visual: Tensor, rows: Tensor, evidence: TextEvidence | None
) -> list[RankedImage]:
    """Add the visual score and the matching texts to results; `rows` are ascending."""
    result_rows = [result.row for result in results]
    places = torch.searchsorted(rows, torch.tensor(result_rows, dtype=torch.long))
    matches: list[tuple[TextMatch, ...]] = [()] * len(results)
    if evidence is not None:
        matches = evidence.matches(result_rows)
    return [
        result._replace(visual=score, matches=texts)
        for result, score, texts in zip(results, visual[places].tolist(), matches, strict=True)
    ]
