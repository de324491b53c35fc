"""An index with the model and the words that a question to it needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..options import suggest
from .evaluation import parse_method
from .filters import Filter
from .methods import find_method
from .places import split_model
from .query import SearchRequest, method_of
from .store import IndexDescription, Store, open_store
from .words import WordMemory, load_words, remember_words, words_digest

if TYPE_CHECKING:
    from ..models.image_text import ImageText


SHOWN = 12  # names of a list of any length


class Opened(NamedTuple):
    store: Store
    model: ImageText
    words: WordMemory | None


def choose_method(method: str, weight: float | None) -> tuple[str, dict[str, Any]]:
    """Its name and options, "freedom:k=5"; a weight of the text is `weicom:weight=X`."""
    if method == "auto":
        return method, {} if weight is None else dict(
            parse_method(f"weicom:weight={weight}").options
        )
    asked = parse_method(method if weight is None else f"{method}:weight={weight}")
    return asked.method, dict(asked.options)


def model_of(store: Store, exact: bool = True) -> ImageText:
    """The model that made an index; with faiss from here on, where it has such an index and need not be exact."""
    from ..models.image_text import create_image_text

    check_there(store)
    if not exact and (approximate := getattr(store, "open_approximate", None)):
        approximate()
    refused = list[ValueError]()
    for name in dict.fromkeys((store.description.model, _beside(store).model)):
        try:
            model = create_image_text(name)
            store.description.refuse_other(model, store.where)
        except ValueError as error:
            refused.append(error)
        else:
            store.description = replace(store.description, model=name)
            return model
    raise refused[0]


def _beside(store: Store) -> IndexDescription:
    """Where else a moved index may have its model and word list."""
    beside: Callable[[], IndexDescription] | None = getattr(store, "beside", None)
    return beside() if beside else store.description


def check_there(store: Store) -> None:
    """The file or folder of an index's model."""
    before, file = split_model(store.description.model)
    if os.path.isabs(file) and not os.path.exists(file):
        option = f"--model {before}{'FILE' if before else 'FOLDER'}"
        again = f"`cenote index IMAGES -o {store.where} {option}` tells where it is now"
        remedy = again if hasattr(store, "describe") else "put it back there"
        raise ValueError(
            f"the model that {store.where} was made with is no more in {file}: {remedy}"
        )


def check_filter(filter: Filter, store: Store) -> None:
    """A class or domain that no image has is a typing error, not a question without an answer."""
    asked = [(Filter(classes=(name,)), "label", "class", name) for name in filter.classes]
    asked += [(Filter(domains=(name,)), "domain", "domain", name) for name in filter.domains]
    for alone, column, what, name in asked:
        if not len(store.select(alone)):
            known = store.distinct_values(column)
            some = ", ".join(known[:SHOWN]) + (
                f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
            )
            same = next(
                (one for one in known if one.casefold() == name.casefold()), name
            )  # "DOG" is not near "dog"
            told = f"{suggest(same, known)} ({some})" if known else f": not one has a {what}"
            raise ValueError(f"no image of {store.where} has the {what} '{name}'{told}")


def words_of(store: Store, model: ImageText, words: str | None = None) -> WordMemory:
    """The index's own word list, or another one, whose words the index does not know by heart."""
    kept = store.description.words
    if not words and kept.get("name") and not os.path.exists(kept["name"]):
        raise ValueError(
            f"the word list of {store.where} is no more in {kept['name']}: give it with --words"
        )
    memory = remember_words(
        model, load_words(words, model) if words or not kept else _own_words(store, model)
    )
    if memory.digest != kept.get("digest"):
        store.drop_words()  # ids of another list
    return memory


def _own_words(store: Store, model: ImageText) -> list[str]:
    for kept in (store.description.words, _beside(store).words):
        listed = load_words(kept["name"] or None, model)
        if words_digest(listed) == kept.get("digest"):
            return listed
    name = store.description.words["name"]
    raise ValueError(
        f"the word list {name} is no more what {store.where} was made with: give it with --words"
    )


def open_for(
    question: SearchRequest, index: str, words: str | None = None, exact: bool = False
) -> Opened:
    """What this question needs; what is wrong with it is said before anything large is opened."""
    method_of(question, bool(words))
    store = open_store(index)
    method = method_of(question, bool(words or store.description.words))
    wanted = find_method(method).words
    if words and not wanted:
        raise ValueError(f"--words {words}: '{method}' reads no word list, freedom and searle do")
    check_filter(question.filter, store)
    if words:
        load_words(words)  # before the model, which takes longer
    model = model_of(store, exact)
    return Opened(store, model, words_of(store, model, words) if wanted else None)
