"""`cenote serve`: parse, serve, print."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import tyro

from ._options import Device

MIN_TOKEN = 16


def run(
    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN...", help_behavior_hint=""),
    ] = (),
    index: Annotated[str | None, tyro.conf.arg(metavar="INDEX", help_behavior_hint="")] = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_host: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="NAME...", help_behavior_hint="")
    ] = (),
    token: Annotated[str | None, tyro.conf.arg(metavar="TOKEN", help_behavior_hint="")] = None,
    no_auth: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    max_bytes: int = 20_000_000,
    max_pixels: int = 50_000_000,
    queue: int = 64,
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None,
    device: Device = "auto",
) -> None:
    """Serve a web page: attention maps of photographs, comparison of models, search, tournaments.

    Only this machine can open it unless --host says otherwise; uploaded photographs are kept in
    memory. Everything that the page does is an HTTP API, described at /api. Ctrl-C stops it.
    Exit code 2: wrong input, nothing was served.

    Args:
        runs: saved models, a tournament (also a running one), or a folder of cenote demo.
        index: a folder that cenote index wrote, or Milvus as there.
        host: address to listen on; 0.0.0.0 means every network of this machine.
        port: port to listen on; 0 chooses a free one.
        allow_host: host names by which clients may reach this server, besides --host.
        token: what clients must send, as a password with any user name or as a bearer token. A
            --host that other machines can reach requires it; CENOTE_TOKEN keeps it out of the list
            of processes.
        no_auth: answer everybody who can reach --host.
        max_bytes: the largest upload.
        max_pixels: the largest photograph.
        queue: requests that may wait; further ones are answered with 503.
        workers: processes that compute answers at the same time; each loads all models (about
            400 MB) and has its share of the cores (default: one per four cores, one on a GPU).
    """
    from cenote.device import use_device
    from cenote.options import check_number
    from cenote.web.server import is_loopback, serve
    from cenote.web.sources import find_sources
    from cenote.web.state import Limits

    check_number("--port", port, whole=True, least=0, most=65535)
    options = {"--max-bytes": max_bytes, "--max-pixels": max_pixels, "--queue": queue}
    if workers is not None:
        options["--workers"] = workers
    for name, value in options.items():
        check_number(name, value, whole=True, least=1)
    token = token or os.environ.get("CENOTE_TOKEN") or None
    if not is_loopback(host) and not token and not no_auth:
        raise ValueError(
            f"--host {host} can be reached by other machines: give a --token, or --no-auth to "
            "answer everybody"
        )
    if token is not None and (len(token) < MIN_TOKEN or not token.isascii()):
        raise ValueError(f"--token needs at least {MIN_TOKEN} characters, all of them ASCII")
    use_device(device)
    sources = find_sources(runs, index)
    limits = Limits(bytes=max_bytes, pixels=max_pixels, queue=queue)
    serve(sources, host, port, allow_host, limits, workers, token)
