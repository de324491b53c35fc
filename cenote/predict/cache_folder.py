"""Where features and converted networks are cached, and the digest that names their weights."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn

from ..data.digests import digest_of


def cache_folder() -> Path:
    """Return the folder of the cache: CENOTE_CACHE, or one in the user's cache folder."""
    if folder := os.environ.get("CENOTE_CACHE"):
        return Path(folder)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cenote" / "features"


def weights_digest(network: nn.Module) -> str:
    """Return a digest of the names and values of all weights."""
    tensors = []
    for name, value in network.state_dict().items():
        raw = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        tensors.append(digest_of(name.encode(), raw))
    return digest_of(*tensors).hex()
