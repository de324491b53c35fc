"""Select images of an index by class, domain, folder, date and size, in SQL and in Milvus."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
DATE_FORMATS = ("%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M")


@dataclass(frozen=True)
class Filter:
    """All conditions must hold; one of several names is enough.

    Dates are seconds since 1970, sizes bytes.
    """

    classes: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # absolute, or the beginning of a data set's image names
    since: float | None = None
    until: float | None = None  # exclusive
    smallest: int | None = None
    largest: int | None = None

    def __bool__(self) -> bool:
        return self != Filter()

    def sql(self) -> tuple[str, list[Any]]:
        """Return a condition and its values."""
        conditions, values = list[str](), list[Any]()
        for column, names in self._names():
            conditions.append(f"{column} in ({', '.join('?' * len(names))})")
            values += names
        if self.folders:
            # A range finds a prefix through the index of paths; the character after / is 0.
            ranges = " or ".join(["path >= ? and path < ?"] * len(self.folders))
            conditions.append(f"({ranges})")
            for start, end in self._path_ranges():
                values += [os.fsencode(start), os.fsencode(end)]
        for column, operator, bound in self._bounds():
            conditions.append(f"{column} {operator} ?")
            values.append(bound)
        return " and ".join(conditions) or "1", values

    def milvus(self) -> str:
        """Return an expression; Milvus quotes strings as JSON does."""
        conditions = [f"{column} in {_quote(list(names))}" for column, names in self._names()]
        if self.folders:
            ranges = [
                f"(path >= {_quote(start)} and path < {_quote(end)})"
                for start, end in self._path_ranges()
            ]
            conditions.append("(" + " or ".join(ranges) + ")")
        conditions += [f"{column} {sign} {bound!r}" for column, sign, bound in self._bounds()]
        return " and ".join(conditions)

    def _names(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        for column, names in (("label", self.classes), ("domain", self.domains)):
            if names:
                yield column, names

    def _path_ranges(self) -> list[tuple[str, str]]:
        prefixes = [folder.rstrip("/") for folder in self.folders]
        return [(f"{prefix}/", f"{prefix}0") for prefix in prefixes]

    def _bounds(self) -> list[tuple[str, str, float]]:
        bounds = [
            ("date", ">=", self.since),
            ("date", "<", self.until),
            ("size", ">=", self.smallest),
            ("size", "<=", self.largest),
        ]
        return [(column, sign, bound) for column, sign, bound in bounds if bound is not None]


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def parse_date(text: str, end: bool = False) -> float:
    """Return seconds since 1970 of "2024", "2024-05", "2024-05-17" or "2024-05-17 18:30".

    Local time; with `end` the end of that year, month, day or minute.
    """
    for date_format in DATE_FORMATS:
        try:
            start = datetime.strptime(text.strip(), date_format)
        except ValueError:
            continue
        return (_end(start, date_format) if end else start).timestamp()
    raise ValueError(f"'{text}' is not a date: use 2024, 2024-05, 2024-05-17 or 2024-05-17 18:30")


def _end(start: datetime, date_format: str) -> datetime:
    if date_format == "%Y":
        return start.replace(year=start.year + 1)
    if date_format == "%Y-%m":
        return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    if date_format == "%Y-%m-%d":
        return start + timedelta(days=1)
    return start + timedelta(minutes=1)


def parse_size(text: str) -> int:
    """Return bytes of "200 KB", "1.5MB" or "4096"."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if not match or match[2] not in BYTES:
        raise ValueError(f"'{text}' is not a size: use 4096, 200KB or 1.5MB")
    return round(float(match[1]) * BYTES[match[2]])
