"""Which images of an index are meant: by class, domain, folder, date and size, as SQL and as Milvus says it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}


@dataclass(frozen=True)
class Filter:
    """All that are given must hold; of several names one is enough. Dates are seconds since 1970, sizes bytes."""

    classes: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    folders: tuple[
        str, ...
    ] = ()  # absolute, or as a data set names its images; and the folders in them
    since: float | None = None
    until: float | None = None  # not included
    smallest: int | None = None
    largest: int | None = None

    def __bool__(self) -> bool:
        return self != Filter()

    def sql(self) -> tuple[str, list[Any]]:
        """A condition and its values."""
        said, values = list[str](), list[Any]()
        for column, names in (("label", self.classes), ("domain", self.domains)):
            if names:
                said.append(f"{column} in ({', '.join('?' * len(names))})")
                values += names
        if self.folders:
            # A range finds a beginning through the index of paths; the letter behind / is 0.
            said.append("(" + " or ".join(["path >= ? and path < ?"] * len(self.folders)) + ")")
            for folder in map(os.fsencode, self.folders):
                values += [folder.rstrip(b"/") + b"/", folder.rstrip(b"/") + b"0"]
        for column, sign, bound in self._bounds():
            said.append(f"{column} {sign} ?")
            values.append(bound)
        return " and ".join(said) or "1", values

    def milvus(self) -> str:
        """An expression; JSON's quotes are Milvus's."""
        said = []
        for column, names in (("label", self.classes), ("domain", self.domains)):
            if names:
                said.append(f"{column} in {json.dumps(list(names), ensure_ascii=False)}")
        if self.folders:
            starts = [
                (folder.rstrip("/") + "/", folder.rstrip("/") + "0") for folder in self.folders
            ]
            ranges = [
                f"(path >= {_quoted(start)} and path < {_quoted(end)})" for start, end in starts
            ]
            said.append("(" + " or ".join(ranges) + ")")
        said += [f"{column} {sign} {bound!r}" for column, sign, bound in self._bounds()]
        return " and ".join(said)

    def _bounds(self) -> list[tuple[str, str, float]]:
        bounds = [("date", ">=", self.since), ("date", "<", self.until)]
        bounds += [("size", ">=", self.smallest), ("size", "<=", self.largest)]
        return [(column, sign, bound) for column, sign, bound in bounds if bound is not None]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def parse_date(text: str, end: bool = False) -> float:
    """Seconds since 1970 of "2024", "2024-05", "2024-05-17" or "2024-05-17 18:30", local time; of its end, if asked."""
    for form in ("%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"):
        try:
            start = datetime.strptime(text.strip(), form)
        except ValueError:
            continue
        return (_after(start, form) if end else start).timestamp()
    raise ValueError(f"'{text}' is no date: write 2024, 2024-05, 2024-05-17 or 2024-05-17 18:30")


def _after(start: datetime, form: str) -> datetime:
    if form == "%Y":
        return start.replace(year=start.year + 1)
    if form == "%Y-%m":
        return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start + (timedelta(days=1) if form == "%Y-%m-%d" else timedelta(minutes=1))


def parse_size(text: str) -> int:
    """Bytes of "200 KB", "1.5MB" or "4096"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if not found or found[2] not in UNITS:
        raise ValueError(f"'{text}' is no size: write 4096, 200KB or 1.5MB")
    return round(float(found[1]) * UNITS[found[2]])
