"""A page: a title, a sentence, blocks, and how it was made."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from ... import __version__
from .blocks import Block


def made_with() -> dict[str, str]:
    """The versions and the machine behind a number."""
    import torch

    found = {"cenote": __version__, "torch": torch.__version__}
    try:
        found["timm"] = version("timm")
    except PackageNotFoundError:  # a checkout on the path
        found["timm"] = "unknown"
    found |= {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    return found | {"threads": str(torch.get_num_threads())}


@dataclass(frozen=True)
class Page:
    title: str
    lead: str
    blocks: tuple[Block, ...]
    command: str = ""  # what a reader types to make it again
    seconds: float | None = None
    made_with: Mapping[str, str] = field(default_factory=made_with)
