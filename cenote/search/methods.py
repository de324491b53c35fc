"""From an image and a text to what every image of a database is compared with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ..options import check_names, suggest
from .composition import ComposedQuery, Database, Scorer

if TYPE_CHECKING:
    from ..models.image_text import ImageText
    from .words import WordMemory


class CompositionContext(NamedTuple):
    """What a composer may look at beside its queries."""

    database: Database
    model: ImageText
    words: WordMemory | None = None


Composer = Callable[..., list[Scorer]]  # (queries, context, **options)


class CompositionMethod(NamedTuple):
    """Where a composer is, and what a query must have."""

    home: str  # module:function
    image: bool
    text: bool
    words: bool = False
    preset: Mapping[str, Any] = {}  # options that make the variant
    made_up: bool = False  # the model's text encoder is given a made-up word

    @property
    def function(self) -> Composer:
        module, _, name = self.home.partition(":")
        found: Composer = getattr(import_module(f".{module}", __package__), name)
        return found

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of what can be chosen."""
        fixed = {"fusion"} & set(self.preset)
        return {key: value for key, value in self._every().items() if key not in fixed}

    def check(self, name: str, options: Mapping[str, Any]) -> None:
        """Names and values, before anything is loaded: a composer `f` leaves its values to `check_f` of its module."""
        check_names(name, options, self.options)
        module, _, function = self.home.partition(":")
        if check := getattr(import_module(f".{module}", __package__), f"check_{function}", None):
            given = {**self._every(), **options}
            check(**{key: given[key] for key in inspect.signature(check).parameters})

    def _every(self) -> dict[str, Any]:
        parameters = list(inspect.signature(self.function).parameters.values())[2:]
        return {p.name: self.preset.get(p.name, p.default) for p in parameters}


# Table 4.4's components of FreeDom, by what they change.
_LATE, _EARLY = {"fusion": "late"}, {"fusion": "early"}
_ALONE, _UNIFORM = {"memory": "none"}, {"weights": "uniform"}
_FREEDOM = "freedom:freedom"
METHODS: dict[str, CompositionMethod] = {
    "text": CompositionMethod("baselines:text", False, True),
    "image": CompositionMethod("baselines:image", True, False),
    "sum": CompositionMethod("baselines:added", True, True),
    "average": CompositionMethod("baselines:average", True, True),
    "product": CompositionMethod("baselines:product", True, True),
    "normalised-sum": CompositionMethod("baselines:normalised_sum", True, True),
    "weicom": CompositionMethod("weicom:weicom", True, True),
    "freedom-word": CompositionMethod(
        _FREEDOM, True, True, True, {"fusion": "word", "m": 1} | _ALONE | _UNIFORM
    ),  # (4.7)
    "freedom-e": CompositionMethod(_FREEDOM, True, True, True, _EARLY | _ALONE | _UNIFORM),  # (4.9)
    "freedom-l": CompositionMethod(_FREEDOM, True, True, True, _LATE | _ALONE | _UNIFORM),  # (4.11)
    "freedom-e+": CompositionMethod(_FREEDOM, True, True, True, _EARLY | _UNIFORM),  # (4.15)
    "freedom-l+": CompositionMethod(_FREEDOM, True, True, True, _LATE | _UNIFORM),  # (4.16)
    "freedom": CompositionMethod(_FREEDOM, True, True, True, _LATE),  # (4.17)
    "basic": CompositionMethod("basic:basic", True, True),
    "searle": CompositionMethod("inversion:searle", True, True, True, made_up=True),
    "pic2word": CompositionMethod("mapping:pic2word", True, True, made_up=True),
}


def find_method(name: str) -> CompositionMethod:
    if name not in METHODS:
        raise ValueError(f"no method '{name}'{suggest(name, METHODS) or ': ' + ', '.join(METHODS)}")
    return METHODS[name]


def check_model(method: str, model: ImageText) -> None:
    if find_method(method).made_up and not hasattr(model, "embed_with_word"):
        raise ValueError(
            f"'{method}' needs a model whose text encoder takes made-up words, which '{model.name}' is not: "
            "an open_clip model or a folder of cenote clip is"
        )


def compose(
    method: str,
    query: ComposedQuery,
    database: Database,
    model: ImageText,
    words: WordMemory | None = None,
    **options: Any,
) -> Scorer:
    """What `method` makes of one query."""
    return compose_all(method, [query], database, model, words, **options)[0]


def compose_all(
    method: str,
    queries: Sequence[ComposedQuery],
    database: Database,
    model: ImageText,
    words: WordMemory | None = None,
    **options: Any,
) -> list[Scorer]:
    """What `method` makes of many queries at once: neighbours are found and texts encoded together."""
    chosen = find_method(method)
    check_model(method, model)
    chosen.check(method, options)
    for query in queries:
        if chosen.image and query.image is None:
            raise ValueError(f"'{method}' needs an image: give one, or use the method 'text'")
        if chosen.text and not query.texts and query.text is None:
            raise ValueError(f"'{method}' needs a text: give one, or use the method 'image'")
        if query.image is not None and query.image.shape != (database.dim,):
            raise ValueError(
                f"the query has {tuple(query.image.shape)} values and the database vectors of {database.dim}"
            )
    if not len(database):
        raise ValueError("the database is empty: index some images first")
    if chosen.words and words is None:
        raise ValueError(f"'{method}' needs a text memory: remember_words(model, load_words())")
    if not queries:
        return []
    return chosen.function(
        queries, CompositionContext(database, model, words), **{**chosen.preset, **options}
    )
