"""The most recently used of something, so many bytes of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """`size` says how many bytes a value takes, and a key counts too; the last one stays, whatever it takes."""

    def __init__(self, room: int, size: Callable[[V], int] | None = None) -> None:
        self.room, self.taken = room, 0
        self.size: Callable[[Any], int] = size or len
        self.values: OrderedDict[K, V] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self.values

    def __iter__(self) -> Iterator[K]:
        return iter(self.values)

    def get(self, key: K) -> V | None:
        if key in self.values:
            self.values.move_to_end(key)
        return self.values.get(key)

    def put(self, key: K, value: V) -> None:
        if key in self.values:
            self.taken -= self._bytes(key, self.values.pop(key))
        self.values[key] = value
        self.taken += self._bytes(key, value)
        while self.taken > self.room and len(self.values) > 1:
            self.taken -= self._bytes(*self.values.popitem(last=False))

    def clear(self) -> None:
        self.values.clear()
        self.taken = 0

    def _bytes(self, key: K, value: V) -> int:
        return len(repr(key)) + self.size(value)
