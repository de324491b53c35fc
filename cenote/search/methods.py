"""The registry of composition methods, and how one is applied to queries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..options import check_names, check_number, suggest
from . import baselines
from .basic import basic, check_basic
from .composition import ComposedQuery, CompositionContext, Scorer, weighted_texts
from .database import Database, check_queries
from .freedom import check_freedom, freedom
from .inversion import check_pic2word, check_searle, invertible, pic2word, searle
from .weicom import check_weicom, weicom

if TYPE_CHECKING:
    from ..models.image_text import ImageText
    from .words import WordMemory


class CompositionMethod(NamedTuple):
    """A function (queries, context, **options) -> scorers, and what it needs."""

    function: Callable[..., list[Scorer]]
    image: bool = True  # a query needs an image
    text: bool = True
    words: bool = False  # a word list is needed
    pseudo_words: bool = False  # the model's text encoder must accept pseudo-words
    preset: Mapping[str, Any] = {}  # options that define a variant
    check_values: Callable[..., None] | None = None  # of its options, by name

    @property
    def options(self) -> dict[str, Any]:
        """Return names and defaults of the options that a user can set."""
        defaults = self._defaults()
        if "fusion" in self.preset:
            defaults.pop("fusion")
        return defaults

    def check(self, name: str, options: Mapping[str, Any]) -> None:
        """Raise ValueError for a wrong name or value of an option."""
        check_names(name, options, self.options)
        if self.check_values is not None:
            values = {**self._defaults(), **options}
            names = inspect.signature(self.check_values).parameters
            self.check_values(**{key: values[key] for key in names})

    def _defaults(self) -> dict[str, Any]:
        parameters = list(inspect.signature(self.function).parameters.values())[2:]
        return {p.name: self.preset.get(p.name, p.default) for p in parameters}


def _freedom_variant(**preset: Any) -> CompositionMethod:
    return CompositionMethod(freedom, words=True, preset=preset, check_values=check_freedom)


# FreeDom's variants are the components of [Dissertation Table 4.4].
_ALONE = {"memory": "none", "weights": "uniform"}
METHODS: dict[str, CompositionMethod] = {
    "text": CompositionMethod(baselines.text, image=False),
    "image": CompositionMethod(baselines.image, text=False),
    "sum": CompositionMethod(baselines.added),
    "average": CompositionMethod(baselines.average),
    "product": CompositionMethod(baselines.product),
    "normalised-sum": CompositionMethod(baselines.normalised_sum),
    "weicom": CompositionMethod(weicom, check_values=check_weicom),
    "freedom-word": _freedom_variant(fusion="word", m=1, **_ALONE),  # Eq. 4.7
    "freedom-e": _freedom_variant(fusion="early", **_ALONE),  # Eq. 4.9
    "freedom-l": _freedom_variant(fusion="late", **_ALONE),  # Eq. 4.11
    "freedom-e+": _freedom_variant(fusion="early", weights="uniform"),  # Eq. 4.15
    "freedom-l+": _freedom_variant(fusion="late", weights="uniform"),  # Eq. 4.16
    "freedom": _freedom_variant(fusion="late"),  # Eq. 4.17
    "basic": CompositionMethod(basic, check_values=check_basic),
    "searle": CompositionMethod(searle, words=True, pseudo_words=True, check_values=check_searle),
    "pic2word": CompositionMethod(pic2word, pseudo_words=True, check_values=check_pic2word),
}


def find_method(name: str) -> CompositionMethod:
    if name not in METHODS:
        raise ValueError(f"no method '{name}'{suggest(name, METHODS) or ': ' + ', '.join(METHODS)}")
    return METHODS[name]


class MethodSpec(NamedTuple):
    """A method with its options, and its title in tables."""

    method: str
    options: Mapping[str, Any] = {}
    title: str = ""

    @property
    def name(self) -> str:
        options = [f"{key}={value}" for key, value in self.options.items()]
        return self.title or ":".join([self.method, *options])


def parse_method(text: str) -> MethodSpec:
    """Parse `weicom:weight=0.3` or `freedom:k=10:m=3` and check names and values."""
    name, *assignments = [field.strip() for field in text.split(":")]
    method, options = find_method(name), dict[str, Any]()
    defaults = method.options
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            example = f"{name}:{next(iter(defaults), 'k')}=3"
            raise ValueError(f"options are NAME=VALUE, such as {example}, got '{assignment}'")
        options[key.strip()] = _parse_value(value.strip())
    check_names(name, options, defaults)
    for key, value in options.items():
        if isinstance(defaults[key], str):
            options[key] = str(value)
        elif isinstance(defaults[key], int | float):
            check_number(f"{name}'s {key}", value, whole=isinstance(defaults[key], int))
        else:
            raise ValueError(f"{name}'s {key} can be set in Python only")
    method.check(name, options)
    return MethodSpec(name, options)


def _parse_value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check_model(method: str, model: ImageText) -> None:
    """Raise ValueError if the model cannot be used with this method."""
    if find_method(method).pseudo_words:
        invertible(model, method)


def compose(
    method: str,
    query: ComposedQuery,
    database: Database,
    model: ImageText,
    words: WordMemory | None = None,
    **options: Any,
) -> Scorer:
    """Return the scorer that `method` makes of one query."""
    return compose_all(method, [query], database, model, words, **options)[0]


def compose_all(
    method: str,
    queries: Sequence[ComposedQuery],
    database: Database,
    model: ImageText,
    words: WordMemory | None = None,
    **options: Any,
) -> list[Scorer]:
    """Return the scorers of many queries: texts are encoded and neighbours searched together."""
    find_method(method).check(method, options)
    return apply_method(method, queries, CompositionContext(database, model, words), options)


def apply_method(
    method: str,
    queries: Sequence[ComposedQuery],
    context: CompositionContext,
    options: Mapping[str, Any],
) -> list[Scorer]:
    """Return the scorers of many queries, with options that have been checked."""
    composition = find_method(method)
    check_model(method, context.model)
    for query in queries:
        _check_query(query, method, composition)
        if query.image is not None:
            check_queries(query.image[None], context.database.dim)
    if not len(context.database):
        raise ValueError("the database is empty: index some images first")
    if composition.words and context.words is None:
        raise ValueError(f"'{method}' needs a text memory: remember_words(model, load_words())")
    if not queries:
        return []
    return composition.function(queries, context, **{**composition.preset, **options})


def _check_query(query: ComposedQuery, name: str, method: CompositionMethod) -> None:
    if method.image and query.image is None:
        raise ValueError(f"'{name}' needs an image: give one, or use the method 'text'")
    if method.text and not query.texts and query.text is None:
        raise ValueError(f"'{name}' needs a text: give one, or use the method 'image'")
    writes_words = method.words or method.pseudo_words
    if writes_words and all(weight < 0 for _, weight in weighted_texts(query)):
        raise ValueError(f"'{name}' combines words: give a text that is wanted, or use weicom")
