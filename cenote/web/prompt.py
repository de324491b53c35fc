"""Whoever connects asks within seconds: connections that say nothing, or a little at a time, are not kept."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS = 10.0  # seconds from the first byte, or the connection, to the end of the headers


class Prompt(H11Protocol):
    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if (
            self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        ):  # headers that have not ended
            self._expect()
        elif self.late is not None:
            self.late.cancel()
            self.late = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.late is not None:
            self.late.cancel()
        super().connection_lost(exc)

    def _expect(self) -> None:
        """Counted from the beginning: more bytes do not give more time."""
        if self.late is None:
            self.late = self.loop.call_later(HEADERS, self.transport.close)
