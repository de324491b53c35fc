"""What users type: the address of an index, dates and sizes. Checked without importing torch."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
DATE_FORMATS = ("%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M")


def is_milvus(address: str) -> bool:
    """Return whether an address is one of Milvus; any other is a folder."""
    return "://" in address or address.partition("?")[0].endswith(".db")


def check_index_folder(address: str) -> None:
    """Raise ValueError if a folder does not contain an index."""
    if not (Path(address).expanduser() / "index.json").is_file():
        raise no_index(address)


def no_index(where: str) -> ValueError:
    remedy = f"`cenote index PHOTOS -o {where}` creates one"
    if Path(where).is_dir():  # of photographs, which an index must not be mixed with
        remedy = f"`cenote index {where} -o INDEX` makes its images searchable in INDEX"
    return ValueError(f"no index at {where}: {remedy}")


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
