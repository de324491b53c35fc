"""Downloads that fail at once where there is no network."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies


def reachable(seconds: float = 5.0) -> bool:
    """Whether the Hugging Face hub answers. Behind a proxy only the proxy can know, so yes."""
    from huggingface_hub import constants

    if getproxies():
        return True
    address = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), seconds).close()
    except OSError:
        return False
    return True


@contextmanager
def without_retries() -> Iterator[None]:
    """No network: read the hub's local cache only. By itself the hub asks six times for every file,
    for a minute.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not reachable()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
