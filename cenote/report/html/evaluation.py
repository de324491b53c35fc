"""The page of `cenote evaluate`: the figures at a glance, then pictures and details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .blocks import Block, Page, Table, TableColumn

COLUMNS = (
    TableColumn("protocol"),
    TableColumn("figure"),
    TableColumn("value", True),
    TableColumn("of"),
)
MAX_NOTES = 5  # unreadable files that are named


class ProtocolReport(Protocol):
    """What the page needs of a protocol's report."""

    unreadable: list[str]

    def figures(self) -> Sequence[tuple[str, float | None, str]]: ...  # name, value, unit


def evaluation_page(
    title: str,
    split: str,
    images: int,
    reports: Mapping[str, ProtocolReport],
    blocks: Mapping[str, Sequence[Block]],
    command: str = "",
    seconds: float | None = None,
) -> Page:
    """Return the page of reports and blocks by protocol."""
    rows = []
    for protocol, report in reports.items():
        for name, value, unit in report.figures():
            rows.append((protocol, name, None if value is None else f"{value:.1f}", unit))
    messages = list(dict.fromkeys(m for report in reports.values() for m in report.unreadable))
    notes = [f"left out: {message}" for message in messages[:MAX_NOTES]]
    if len(messages) > MAX_NOTES:
        notes.append(f"left out: {len(messages) - MAX_NOTES} more")
    glance = Table("At a glance", COLUMNS, tuple(rows), tuple(notes))
    details = [block for name in reports for block in blocks.get(name, ())]
    lead = f"{images} images of {split}: {', '.join(reports)}."
    return Page(title, lead, (glance, *details), command, seconds)
