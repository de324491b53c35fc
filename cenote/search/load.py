"""Load the model and the word list of an index."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..options import suggest
from .backends import find_store, open_store
from .filters import Filter
from .store import IndexDescription, Store, absolute_model_name, split_model_name
from .words import WordMemory, load_words, remember_words, words_digest

if TYPE_CHECKING:
    from ..models.image_text import ImageText

MAX_NAMES = 12  # of a list in a message


def load_model(store: Store) -> ImageText:
    """Load the model that an index was made with."""
    from ..models.image_text import create_image_text

    check_model_file(store)
    model = create_image_text(store.description.model)
    store.description.check_model(model, store.where)
    return model


def check_model_file(store: Store) -> None:
    """Raise ValueError if the file or folder of the model does not exist any longer."""
    prefix, file = split_model_name(store.description.model)
    if os.path.isabs(file) and not os.path.exists(file):
        option = f"--model {prefix}{'FILE' if prefix else 'FOLDER'}"
        remedy = f"`cenote index IMAGES -o {store.where} {option}` stores its new location"
        if store.fixed_description:
            remedy = "put it back"
        raise ValueError(f"the model of {store.where} is not in {file} any longer: {remedy}")


def load_word_memory(store: Store, model: ImageText, word_list: str | None = None) -> WordMemory:
    """Load the word list of an index, or another one; the index stores no words of the latter."""
    stored = store.description.words
    if word_list or not stored:
        memory = remember_words(model, load_words(word_list, model))
    else:
        memory = remember_words(model, _stored_word_list(store, model))
    if memory.digest != stored.get("digest"):
        store.drop_words()
    return memory


def _stored_word_list(store: Store, model: ImageText) -> list[str]:
    name, digest = store.description.words["name"], store.description.words.get("digest")
    if name and not os.path.exists(name):
        reason = f"is not in {name} any longer"
    else:
        words = load_words(name or None, model)
        if words_digest(words) == digest:
            return words
        reason = f"in {name or 'the default list'} has changed"
    raise ValueError(f"the word list of {store.where} {reason}: give it with --words")


def check_filter(filter: Filter, store: Store) -> None:
    """Raise ValueError for a class or domain that no image has: it is a typing error."""
    for name in filter.classes:
        _check_value(name, "label", "class", Filter(classes=(name,)), store)
    for name in filter.domains:
        _check_value(name, "domain", "domain", Filter(domains=(name,)), store)


def _check_value(name: str, column: str, noun: str, filter: Filter, store: Store) -> None:
    if len(store.select(filter)):
        return
    values = store.distinct_values(column)
    hint = f": no image has a {noun}"
    if values:
        shown = ", ".join(values[:MAX_NAMES])
        if len(values) > MAX_NAMES:
            shown += f" and {len(values) - MAX_NAMES} more"
        # Without case: "DOG" is not similar to "dog".
        same = next((value for value in values if value.casefold() == name.casefold()), name)
        hint = f"{suggest(same, values)} ({shown})"
    raise ValueError(f"no image of {store.where} has the {noun} '{name}'{hint}")


class IndexSetup:
    """An index to write, existing or new; its model and word list are loaded when needed.

    `words` is a file, None for the index's own or the default, or "none" for no words.
    """

    def __init__(
        self,
        address: str,
        model: str | None = None,
        words: str | None = None,
        dtype: str | None = None,
    ) -> None:
        self.address, self.dtype = address, dtype or "float32"
        self.store = find_store(address)
        self.loaded: tuple[ImageText, WordMemory | None] | None = None
        self.word_list: str | None = ""  # empty: the default list; None: no words
        if words is not None:
            self.word_list = None if words == "none" else str(Path(words).absolute())
        if self.store is None:
            self.model_name = absolute_model_name(model or "text-space")
            return
        existing = self.store.description
        self.model_name = absolute_model_name(model or existing.model)
        self._check_options(existing, words, dtype)
        if (self.model_name, self.word_list) != (existing.model, existing.words.get("name")):
            self._store_location()

    def _check_options(
        self, existing: IndexDescription, words: str | None, dtype: str | None
    ) -> None:
        stored = existing.words.get("name")
        if words is None:
            self.word_list = stored
        elif self.word_list != stored and not self._is_list_of(existing):
            raise ValueError(
                f"{self.address} was made with {_list_name(stored)}: "
                "leave --words out, or name a new index"
            )
        if dtype not in (None, existing.dtype):
            raise ValueError(
                f"{self.address} was made with {existing.dtype}: "
                "leave --precision out, or name a new index"
            )

    def _is_list_of(self, existing: IndexDescription) -> bool:
        if not self.word_list:
            return False
        return words_digest(load_words(self.word_list)) == existing.words.get("digest")

    def _store_location(self) -> None:
        """Store where the same model or word list is now; `load` rejects another one."""
        self.load()
        assert self.store is not None
        description = self.store.description
        words = description.words and {**description.words, "name": self.word_list}
        self.store.describe(replace(description, model=self.model_name, words=words))

    def open(self) -> Store:
        """Return the index; a new one is created."""
        if self.store is None:
            model, memory = self.load()
            description = IndexDescription.create(
                self.model_name, model, memory, self.word_list or "", self.dtype
            )
            self.store = open_store(self.address, description)
        return self.store

    def load(self) -> tuple[ImageText, WordMemory | None]:
        """Return the model and the word list, if the index stores words."""
        if self.loaded is None:
            model, memory = self._load_model(), None
            if self.word_list is not None:
                memory = remember_words(model, load_words(self.word_list or None, model))
                digest = self.store and self.store.description.words["digest"]
                if digest not in (None, memory.digest):
                    raise ValueError(
                        f"{_list_name(self.word_list)} is not what {self.address} was made with: "
                        "name a new index"
                    )
            self.loaded = model, memory
        return self.loaded

    def _load_model(self) -> ImageText:
        from ..models.image_text import create_image_text

        if self.store is not None and self.model_name == self.store.description.model:
            return load_model(self.store)
        model = create_image_text(self.model_name)
        if self.store is not None:
            self.store.description.check_model(model, self.address)
        return model


def _list_name(word_list: str | None) -> str:
    if word_list is None:
        return "no word list"
    return f"the word list {word_list}" if word_list else "the default word list"
