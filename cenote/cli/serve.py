"""`cenote serve`: parse, serve, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro


def run(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")] = (),
    index: Annotated[str | None, tyro.conf.arg(metavar="INDEX", help_behavior_hint="")] = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_host: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME...", help_behavior_hint="")
    ] = (),
    max_bytes: int = 20_000_000,
    max_pixels: int = 50_000_000,
    queue: int = 64,
) -> None:
    """The page: look at photographs with your models, compare them, search your images, follow a tournament.

    Only this machine is served unless --host says otherwise; photographs that are uploaded stay in memory. Everything
    that the page does is an HTTP API, described at /api. Ctrl-C ends it. Exit code 2: wrong input, nothing was served.

    Args:
        runs: saved models, a tournament (also one that is still running), or a folder of cenote demo.
        index: a folder that cenote index wrote, or Milvus as there.
        host: where it listens; 0.0.0.0 is every network of this machine.
        port: 0 takes a free one.
        allow_host: names by which others may call this server, where --host is not one of them.
        max_bytes: the largest upload.
        max_pixels: the largest photograph.
        queue: questions that may wait; who comes then is asked to come again.
    """
    from cenote.options import check_number
    from cenote.web.runs import find_served
    from cenote.web.serving import serve
    from cenote.web.state import Limits

    if not 0 <= port <= 65535:
        raise ValueError(f"a port is a number from 0 to 65535, got {port}")
    for name, value in (
        ("--max-bytes", max_bytes),
        ("--max-pixels", max_pixels),
        ("--queue", queue),
    ):
        check_number(name, value, whole=True, least=1)
    for folder in runs:
        if (folder / "index.json").is_file():
            raise ValueError(f"{folder} is an index, no run: cenote serve --index {folder}")
    limits = Limits(max_bytes, max_pixels, queue)
    serve(find_served(runs, index), host, port, allow_host, limits, _say)


def _say(sentence: str) -> None:
    print(sentence, flush=True)
