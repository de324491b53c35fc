"""A question to an index: by image, by text, by both; what is relevant, in which order, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..data import read_image
from ..data.digests import digest_of
from ..options import check_number
from ..unit import unit
from .composition import ComposedQuery, Scorer
from .filters import Filter
from .freedom import K, M, N
from .methods import compose, find_method
from .ranking import SORTS, SearchResult, all_of, in_order, without_twins
from .store import Store

if TYPE_CHECKING:
    from ..models.image_text import ImageText
    from .words import WordMemory

CANDIDATES = 500  # that an approximate search hands on to exact ranking
LEAST, MOST = 0.001, 1000  # weights of a term: float32 has room for their products
ImageInput = (
    str | Path | bytes | int
)  # an image: its file, what is in the file, or its row in the index


@dataclass(frozen=True)
class SearchRequest:
    """What is wanted. Texts may have a weight, "dog^2"; of several images the mean is asked for."""

    images: tuple[ImageInput, ...] = ()
    texts: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    method: str = "auto"
    top: int = 10
    cut: float | None = None  # the least score that is relevant
    sort: str = "score"  # after the cut-off
    near_duplicates: str = "hide"
    filter: Filter = field(default_factory=Filter)
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method


class SearchAnswer(NamedTuple):
    results: list[SearchResult]
    method: str
    relevant: int  # images at or above the cut-off; at least so many where `exact` is False
    searched: int  # images that passed the filter
    exact: bool  # every image was scored, not only the candidates of a nearest-neighbour search
    why: dict[str, Any]
    proxies: tuple[int, ...] = ()  # rows of the images that told FreeDom what the image means


def ask(
    question: SearchRequest, store: Store, model: ImageText, words: WordMemory | None = None
) -> SearchAnswer:
    """The best `top` images that reach the cut-off, near-duplicates hidden, then sorted as asked."""
    method = method_of(question, words is not None)
    store.description.refuse_other(model, store.where)
    terms = _terms(question)
    images = [_look_up(image, store) for image in question.images]
    told = {
        "method": method,
        "terms": [{"text": text, "weight": weight} for text, weight in terms],
        "images": [image.name for image in images],
    }
    if unknown := [word for text, _ in terms for word in getattr(model, "unknown", _nothing)(text)]:
        told["unknown"] = unknown
    view = store.select(question.filter)
    if not len(view):
        if not question.filter:
            raise ValueError(f"{store.where} holds no images: `cenote index` puts some in")
        return SearchAnswer([], method, 0, 0, True, told)
    query = ComposedQuery(
        _vector(images, store, model),
        tuple(text for text, _ in terms),
        tuple(weight for _, weight in terms) if any(weight != 1 for _, weight in terms) else None,
        inside=images[0].rows[0] if len(images) == 1 and images[0].rows else None,
    )
    chosen = find_method(method)
    memory = words if chosen.words else None
    # What an image means, its neighbours or a trained mapping tell: all of them, whatever is asked for.
    whole = store if chosen.words or chosen.made_up else view
    plan = compose(method, query, whole, model, memory, **_options(question, method, memory))
    scores, rows, exact = _scored(plan, view, question.top)
    hide = question.near_duplicates == "hide"
    kept = scores >= (-torch.inf if question.cut is None else question.cut)
    if hide:  # who asks with an image knows that one already
        kept &= ~torch.isin(
            rows, torch.tensor([row for image in images for row in image.rows], dtype=torch.long)
        )
    scores, rows = scores[kept], rows[kept]
    results = (without_twins if hide else all_of)(scores, rows, view, question.top)
    why, proxies = told | _plain(plan, store), tuple(plan.why.get("proxies", ()))
    return SearchAnswer(
        in_order(results, question.sort), method, len(scores), len(view), exact, why, proxies
    )


def parse_term(text: str) -> tuple[str, float]:
    """("dog", 2.0) of "dog^2"."""
    name, power, weight = text.strip().rpartition("^")
    name = name.strip() if power else weight
    try:
        number = float(weight) if power else 1.0
    except ValueError:
        number = 0.0
    if not name or not LEAST <= number <= MOST:
        raise ValueError(
            f"'{text}' is no search term: write dog, or dog^2 to weigh it twice (weights are from {LEAST} to {MOST})"
        )
    return name, number


def method_of(question: SearchRequest, words: bool) -> str:
    """The method that answers it, with or without a word list; what no method answers is refused before any work.

    FreeDom for an image and a text, where there is a word list and no weight of the text was asked for, which is
    WeiCom's. FreeDom composes what is wanted, so where a text is only not wanted it is WeiCom, too.
    """
    image, text = bool(question.images), bool(_terms(question))
    if not image and not text:
        raise ValueError("an empty question finds nothing: give an image, a text or both")
    if question.sort not in SORTS:
        raise ValueError(f"results are sorted by {', '.join(SORTS)}, not '{question.sort}'")
    if question.near_duplicates not in ("hide", "show"):
        raise ValueError(
            f"near-duplicates are hidden or shown (hide, show), not '{question.near_duplicates}'"
        )
    check_number("top", question.top, whole=True, least=1)
    if question.cut is not None:
        check_number("the cut-off", question.cut)
    method = question.method
    if method == "auto" and not (image and text):
        method = "image" if image else "text"
    elif method == "auto":
        method = (
            "freedom" if words and question.texts and "weight" not in question.options else "weicom"
        )
    chosen = find_method(method)
    for given, used, what in ((image, chosen.image, "an image"), (text, chosen.text, "a text")):
        if given != used:
            does = f"needs {what}: give one" if used else f"does not look at {what}: leave it out"
            raise ValueError(f"'{method}' {does}, or use another method")
    chosen.check(method, question.options)
    return method


def _terms(question: SearchRequest) -> list[tuple[str, float]]:
    wanted, unwanted = map(parse_term, question.texts), map(parse_term, question.without)
    return [*wanted, *((text, -weight) for text, weight in unwanted)]


def _options(question: SearchRequest, method: str, words: WordMemory | None) -> dict[str, Any]:
    """FreeDom's k, n and m are at most a tenth of a short list: where half of all words are near, they say nothing,
    and twenty neighbours outvote the image itself."""
    if words is None or not method.startswith("freedom"):
        return dict(question.options)
    few = max(len(words.words) // 10, 1)
    return {"k": min(K, few), "n": min(N, few), "m": min(M, few), **question.options}


class _Image(NamedTuple):
    """An image that is asked with."""

    name: str
    rows: list[int]  # of this very image in the index, if it is there
    content: bytes  # of its file; of what was asked for by its row nothing is read


def _look_up(image: ImageInput, store: Store) -> _Image:
    """By its contents, as an index knows them: where a file of the index is now does not matter."""
    if isinstance(image, int):
        (entry,) = store.entries(torch.tensor([image]))
        return _Image(entry.path, store.find(entry.digest), b"")
    try:
        content = image if isinstance(image, bytes) else Path(image).read_bytes()
    except OSError as error:
        raise ValueError(f"{image!s}: {error.strerror or error}") from None
    name = "the photograph" if isinstance(image, bytes) else str(image)
    return _Image(name, store.find(digest_of(content).hex()), content)


def _vector(images: Sequence[_Image], store: Store, model: ImageText) -> Tensor | None:
    """(D,); an image of the index is not embedded again."""
    vectors = []
    for image in images:
        if image.rows:
            vectors.append(store.vectors(torch.tensor(image.rows[:1])))
        else:
            with torch.inference_mode():
                pixels = model.transform()(read_image(image.name, content=image.content))[None]
                vectors.append(model.embed_images(pixels).float().cpu())
    return unit(torch.cat(vectors).mean(0)).clone() if vectors else None


def _nothing(text: str) -> list[str]:
    """Of a model that cannot tell."""
    return []


def _scored(plan: Scorer, view: Store, top: int) -> tuple[Tensor, Tensor, bool]:
    """Scores and rows, rows ascending; the candidates alone where a scan would take too long.

    The score of a single vector is a cosine, whatever its length is, unless it is measured from a mean (an offset).
    """
    scanned = view.scan(plan.vectors)
    if scanned is None:
        rows = view.nearest(plan.direction[None], max(CANDIDATES, 5 * top))[1][0].sort().values
        scores = plan.scores(view.vectors(rows))
    else:
        scores, rows = plan.of_similarities(scanned[0]), scanned[1]
    if len(plan.vectors) == 1 and not plan.offsets.any():
        scores = scores / plan.vectors[0].norm().clamp(min=1e-12)
    return scores, rows, scanned is not None


def _plain(plan: Scorer, store: Store) -> dict[str, Any]:
    """As JSON takes it; FreeDom's proxies as paths."""
    why = dict(plan.why)
    if "proxies" in why:
        rows = torch.tensor(why["proxies"], dtype=torch.long)
        why["proxies"] = [entry.path for entry in store.entries(rows)]
    return why
