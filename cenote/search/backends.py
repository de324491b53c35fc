"""Find the back end of an index by its address: a folder, or Milvus."""

from __future__ import annotations

from pathlib import Path

from .local_store import LocalStore
from .milvus_store import MilvusStore
from .store import IndexDescription, Store

BACKENDS: list[type[Store]] = [MilvusStore, LocalStore]  # the first that accepts an address


def find_backend(address: str | Path) -> type[Store]:
    return next(backend for backend in BACKENDS if backend.accepts(str(address)))


def open_store(address: str | Path, description: IndexDescription | None = None) -> Store:
    """Open a folder or Milvus (`http://host:19530/name`, a `*.db` file).

    With a description the index is created if it does not exist.
    """
    return find_backend(address).open(str(address), description)


def find_store(address: str | Path) -> Store | None:
    """Open the index at this address, or return None if there is none."""
    return find_backend(address).find(str(address))
