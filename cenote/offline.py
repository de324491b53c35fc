"""What an index names must not make this program contact a host, unless the user allows it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Any

from .extras import MissingExtra

SWITCH = "CENOTE_ONLINE"  # 1: an index may download its model, and images of other hosts
CONNECTIONS = ("socket.connect", "socket.getaddrinfo")
_lock = threading.RLock()  # the flags below are of the whole process
_is_offline: ContextVar[bool] = ContextVar("offline", default=False)


@contextmanager
def offline(name: str) -> Iterator[None]:
    """Open what an index names from files and caches only; an error names the remedy."""
    if os.environ.get(SWITCH) == "1":
        yield
        return
    remedy = f"{SWITCH}=1 lets an index contact other hosts"
    if "://" in name and "file://" not in name:
        raise ValueError(f"{name} is on another host: {remedy}")
    from huggingface_hub import constants

    flags: list[Any] = [constants]
    if "hf:" in name and find_spec("datasets"):
        from datasets import config  # before the flag changes: it keeps what it finds

        flags.append(config)
    _refuse_connections()
    with _lock:
        before = [module.HF_HUB_OFFLINE for module in flags]
        token = _is_offline.set(True)
        try:
            for module in flags:
                module.HF_HUB_OFFLINE = True
            yield
        except (MissingExtra, MemoryError):
            raise
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            message = f"{name} cannot be opened from this machine ({reason}); {remedy}"
            raise ValueError(message) from error
        finally:
            _is_offline.reset(token)
            for module, value in zip(flags, before, strict=True):
                module.HF_HUB_OFFLINE = value


@cache
def _refuse_connections() -> None:
    """Weights that do not come from the hub are downloaded by urllib."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CONNECTIONS and _is_offline.get():
            raise ConnectionError("no connection is allowed")

    sys.addaudithook(refuse)
