"""Methods of weakly supervised localization by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ...options import check_known, check_names
from ..cam import why_no_cam
from ..head import PoolAndHead, WsolMethod
from .acol import AdversarialErasing
from .adl import AttentionDropout
from .bae import RethinkingCam
from .has import HideAndSeek
from .ivr import InferiorValueRemoval
from .ki import InSampleContrast
from .spg import SelfProducedGuidance

METHODS: dict[str, type[WsolMethod]] = {
    "has": HideAndSeek,
    "acol": AdversarialErasing,
    "spg": SelfProducedGuidance,
    "adl": AttentionDropout,
    "bae": RethinkingCam,
    "ki": InSampleContrast,
    "ivr": InferiorValueRemoval,
}
for _name, _kind in METHODS.items():
    _kind.name = _name


def find_method(name: str) -> type[WsolMethod]:
    check_known("method of localization", name, METHODS)
    return METHODS[name]


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError if a method has no option of a name."""
    check_names(name, options, list(inspect.signature(find_method(name)).parameters)[1:])


def create_method(name: str, model: PoolAndHead, options: Mapping[str, Any]) -> WsolMethod:
    """Create a method for a model that has its pool and head."""
    check_options(name, options)
    kind = find_method(name)
    if kind.needs_cam and (problem := why_no_cam(model)):
        raise ValueError(f"--wsol {name} needs class activation maps: {problem}")
    method = kind(model, **options)
    method.options = dict(options)
    return method
