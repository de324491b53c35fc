"""The registry of composition methods, and how one is applied to queries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..options import check_known, check_names, check_number
from . import weicom
from .basic import basic
from .combiner import combiner
from .composition import ComposedQuery, CompositionContext, Scorer, weighted_texts
from .database import Database
from .freedom import freedom
from .inversion import invertible, pic2word, searle
from .supplied import supplied

if TYPE_CHECKING:
    from ..models.image_text import ImageText
    from .words import WordMemory

# Limits of numbers, and the values of texts, by the name of the option.
AT_LEAST_1 = ("k", "n", "m", "components", "concepts", "batch", "steps", "epochs")
AT_LEAST_0 = ("expansion", "contextual", "harris", "regularisation", "seed")
LIMITS: dict[str, dict[str, float]] = {
    **{name: {"least": 1} for name in AT_LEAST_1},
    **{name: {"least": 0} for name in AT_LEAST_0},
    **{name: weicom.WEIGHT_LIMITS for name in ("weight", "contrast")},
    "lr": {"above": 0},
    "length": {"above": 0},
}
CHOICES = {
    "weights": ("frequency", "uniform"),
    "memory": ("database", "none", "other", "both"),
    "injected": ("class", "domain"),
}
# Options that name a file.
FILES = ("mean", "subjects", "styles", "scale", "texts", "images", "captions")


class CompositionMethod(NamedTuple):
    """A function (queries, context, **options) -> scorers, and what it needs."""

    function: Callable[..., list[Scorer]]
    image: bool = True  # a query needs an image
    text: bool = True
    words: bool = False  # a word list is needed
    pseudo_words: bool = False  # the model's text encoder must accept pseudo-words
    evaluation: bool = False  # for cenote evaluate-search, which has its files or its network
    preset: Mapping[str, Any] = {}  # options that define a variant

    @property
    def options(self) -> dict[str, Any]:
        """Return names and defaults of the options that a user can set."""
        parameters = list(inspect.signature(self.function).parameters.values())[2:]
        defaults = {p.name: self.preset.get(p.name, p.default) for p in parameters}
        if "fusion" in self.preset:
            defaults.pop("fusion")
        return defaults

    def check(self, name: str, options: Mapping[str, Any]) -> None:
        """Raise ValueError for a wrong name or value of an option."""
        defaults = self.options
        check_names(name, options, defaults)
        for key, value in options.items():
            what, default = f"{name}'s {key}", defaults[key]
            if key in CHOICES and isinstance(value, str) and value not in CHOICES[key]:
                raise ValueError(f"{what} must be one of {', '.join(CHOICES[key])}, got '{value}'")
            if key in FILES and isinstance(value, str) and value and not Path(value).is_file():
                raise ValueError(f"{what} is a file, '{value}' does not exist")
            if key == "network" and isinstance(value, str):
                raise ValueError(f"{what} is trained by cenote evaluate-search, got '{value}'")
            if key == "template":
                parts = [part for part in ("{word}", "{text}", "$") if part in default]
                if not all(part in value for part in parts) or value.count("$") > 1:
                    raise ValueError(f"{what} needs {' and one '.join(parts)}, got '{value}'")
            if isinstance(default, int | float):
                limits = LIMITS[key]
                if key == "m" and options.get("injected"):
                    limits = {"least": 0}  # the injected word is enough
                check_number(what, value, whole=isinstance(default, int), **limits)

    def check_inputs(self, name: str, has_image: bool, has_text: bool) -> None:
        """Raise ValueError if an image or a text is missing."""
        for noun, needs, has, other in (
            ("an image", self.image, has_image, "text"),
            ("a text", self.text, has_text, "image"),
        ):
            if needs and not has:
                raise ValueError(f"'{name}' needs {noun}: give one, or use the method '{other}'")


def _freedom_variant(**preset: Any) -> CompositionMethod:
    return CompositionMethod(freedom, words=True, preset=preset)


# FreeDom's variants are the components of [Dissertation Table 4.4].
_ALONE = {"memory": "none", "weights": "uniform"}
METHODS: dict[str, CompositionMethod] = {
    "text": CompositionMethod(weicom.text, image=False),
    "image": CompositionMethod(weicom.image, text=False),
    "sum": CompositionMethod(weicom.added),
    "average": CompositionMethod(weicom.average),
    "product": CompositionMethod(weicom.product),
    "normalised-sum": CompositionMethod(weicom.normalised_sum),
    "weicom": CompositionMethod(weicom.weicom),
    "freedom-word": _freedom_variant(fusion="word", m=1, **_ALONE),  # Eq. 4.7
    "freedom-e": _freedom_variant(fusion="early", **_ALONE),  # Eq. 4.9
    "freedom-l": _freedom_variant(fusion="late", **_ALONE),  # Eq. 4.11
    "freedom-e+": _freedom_variant(fusion="early", weights="uniform"),  # Eq. 4.15
    "freedom-l+": _freedom_variant(fusion="late", weights="uniform"),  # Eq. 4.16
    "freedom": _freedom_variant(fusion="late"),  # Eq. 4.17
    "basic": CompositionMethod(basic),
    "searle": CompositionMethod(searle, words=True, pseudo_words=True),
    "pic2word": CompositionMethod(pic2word, pseudo_words=True),
    "supplied": CompositionMethod(supplied, evaluation=True),
    "combiner": CompositionMethod(combiner, evaluation=True),
}
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


def find_method(name: str) -> CompositionMethod:
    check_known("method", name, METHODS)
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
    method, options = find_method(name), dict[str, object]()
    defaults = method.options
    for assignment in assignments:
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals:
            example = f"{name}:{next(iter(defaults), 'k')}=3"
            raise ValueError(f"options are NAME=VALUE, such as {example}, got '{assignment}'")
        options[key] = value
        if isinstance(defaults.get(key), int | float):
            options[key] = _parse_number(value)
    method.check(name, options)
    return MethodSpec(name, options)


def _parse_number(text: str) -> int | float | str:
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
    composition = find_method(method)
    composition.check(method, options)
    check_model(method, model)
    for query in queries:
        has_text = bool(query.texts) or query.text is not None
        composition.check_inputs(method, query.image is not None, has_text)
        writes_words = composition.words or composition.pseudo_words
        if writes_words and all(weight < 0 for _, weight in weighted_texts(query)):
            raise ValueError(f"'{method}' combines words: give a wanted text, or use weicom")
    if not len(database):
        raise ValueError("the database is empty: index some images first")
    if composition.words and words is None:
        raise ValueError(f"'{method}' needs a text memory: remember_words(model, load_words())")
    if not queries:
        return []
    context = CompositionContext(database, model, words)
    return composition.function(queries, context, **{**composition.preset, **options})
