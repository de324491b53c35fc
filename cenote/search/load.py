"""Open an index by its address, and load its model and its word list."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..device import default_device
from ..offline import offline
from ..options import suggest
from ..predict.distributed import device_of
from .local_store import LocalStore
from .maxsim import check_local, describe_local
from .milvus_store import MilvusStore
from .store import Filter, IndexDescription, Store, absolute_model_name, split_model_name
from .words import WordMemory, load_words, remember_words, words_digest

if TYPE_CHECKING:
    from ..models.image_text import ImageText

BACKENDS: list[type[Store]] = [MilvusStore, LocalStore]  # the first that accepts an address
DOWNLOADED = ("open_clip/", "timm/")  # models whose weights may come from another host
MAX_NAMES = 12  # of a list in a message


def find_backend(address: str | Path) -> type[Store]:
    return next(backend for backend in BACKENDS if backend.accepts(str(address)))


def open_store(address: str | Path, description: IndexDescription | None = None) -> Store:
    """Open a folder or Milvus (`http://host:19530/name`, a `*.db` file).

    With a description the index is created if it does not exist.
    """
    return find_backend(address).open(address, description)


def find_store(address: str | Path) -> Store | None:
    """Open the index at this address, or return None if there is none."""
    return find_backend(address).find(str(address))


def open_image_text(name: str, **options: Any) -> ImageText:
    """Load an image-text model and move it to the default device."""
    from ..models.image_text import create_image_text

    model = create_image_text(name, **options)
    if isinstance(model, nn.Module):
        model.to(default_device())
    return model


def image_text_device(model: ImageText) -> torch.device:
    """Return the device of a model; one that is not a module runs on the CPU."""
    if isinstance(model, nn.Module):
        return device_of(model)
    return torch.device("cpu")


def load_model(store: Store) -> ImageText:
    """Load the model that an index was made with."""
    check_model_file(store)
    # Earlier releases had version 1 of the text-space model only: its identity names no version.
    options = {"version": 1} if store.description.identity.startswith("text-space/") else {}
    name = store.description.model
    with offline(name) if name.startswith(DOWNLOADED) else nullcontext():
        model = open_image_text(name, **options)
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
        words = load_words(word_list, model)
        store.use_words = words_digest(words) == stored.get("digest")
    else:
        words = _stored_word_list(store, stored["name"], model)
    return remember_words(model, words)


def _stored_word_list(store: Store, name: str, model: ImageText) -> list[str]:
    if name and not os.path.exists(name):
        reason = f"is not in {name} any longer"
    else:
        words = load_words(name or None, model)
        if words_digest(words) == store.description.words.get("digest"):
            return words
        reason = f"in {name or 'the default list'} has changed"
    raise ValueError(f"the word list of {store.where} {reason}: give it with --words")


def check_filter(filter: Filter, store: Store) -> None:
    """Raise ValueError for a class or domain that no image has: it is a typing error."""
    conditions = [("class", "label", name, Filter(classes=(name,))) for name in filter.classes]
    conditions += [("domain", "domain", name, Filter(domains=(name,))) for name in filter.domains]
    for noun, column, name, condition in conditions:
        if len(store.select(condition)):
            continue
        values, hint = store.distinct_values(column), f": no image has a {noun}"
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

    `words` is a file, None for the index's own or the default, or "none" for no words. `local` is
    the number of local vectors of each image.
    """

    def __init__(
        self,
        address: str,
        model: str | None = None,
        words: str | None = None,
        dtype: str | None = None,
        local: int | None = None,
    ) -> None:
        self.address, self.dtype, self.local = address, dtype, local
        if local is not None:
            check_local(local)
            if not find_backend(address).stores_local:
                raise ValueError("--local: Milvus stores one vector per image: name a folder")
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
        stored = existing.words.get("name")
        if words is None:
            self.word_list = stored
        elif self.word_list != stored and not (
            self.word_list
            and words_digest(load_words(self.word_list)) == existing.words.get("digest")
        ):
            names = {None: "no word list", "": "the default word list"}
            raise _other_option(address, names.get(stored, f"the word list {stored}"), "--words")
        if dtype not in (None, existing.dtype):
            raise _other_option(address, existing.dtype, "--precision")
        if local not in (None, existing.local_vectors):
            made_with = f"{existing.local_vectors or 'no'} local vectors"
            raise _other_option(address, made_with, "--local")
        if (self.model_name, self.word_list) != (existing.model, stored):
            self.load()  # rejects another model
            new_words = existing.words and {**existing.words, "name": self.word_list}
            self.store.describe(replace(existing, model=self.model_name, words=new_words))

    def open(self) -> Store:
        """Return the index; a new one is created."""
        if self.store is None:
            model, memory = self.load()
            local = {}
            if self.local is not None:
                local = describe_local(model, self.local, image_text_device(model))
            description = IndexDescription.create(
                self.model_name, model, memory, self.word_list or "", self.dtype or "float32", local
            )
            self.store = open_store(self.address, description)
        return self.store

    def load(self) -> tuple[ImageText, WordMemory | None]:
        """Return the model and the word list, if the index stores words."""
        if self.loaded is None:
            from ..models.image_text.image_only import ImageOnly

            model, memory = self.model, None
            if isinstance(model, ImageOnly):
                if self.word_list:
                    raise ValueError(f"--words: '{model.name}' has no texts, leave it out")
                self.word_list = None
            if self.word_list is not None:
                if self.store is None:
                    words = load_words(self.word_list or None, model)
                else:
                    words = _stored_word_list(self.store, self.word_list, model)
                memory = remember_words(model, words)
            self.loaded = model, memory
        return self.loaded

    @cached_property
    def model(self) -> ImageText:
        if self.store is not None and self.model_name == self.store.description.model:
            return load_model(self.store)
        model = open_image_text(self.model_name)
        if self.store is not None:
            self.store.description.check_model(model, self.address)
        return model


def _other_option(address: str, made_with: str, option: str) -> ValueError:
    remedy = f"leave {option} out, or name a new index"
    return ValueError(f"{address} was made with {made_with}: {remedy}")
