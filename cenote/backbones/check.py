"""Does an architecture work as a backbone? Asked of all of timm's, and answered by running them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .backbone import Backbone
from .catalogue import family
from .cls import class_tokens
from .create import create_backbone
from .features import Features
from .shapes import shapes_only

ONE_SIZE, WHEN_MADE = "one size only", "another size only when it is made (img_size)"


@dataclass(frozen=True)
class Check:
    name: str
    family: str  # timm's module
    ok: bool = False
    parameters: int = 0
    dim: int = 0
    grid: tuple[int, int] = (0, 0)  # at the architecture's own input size
    cls: bool = False
    cls_removable: bool = False
    any_size: bool = False  # another size, and not a square one, at run time
    why: str = ""  # what does not work


def check_backbone(name: str, values: bool = True, limit: float = 600e6) -> Check:
    """Create it with random weights and run it.

    With `values` it is run in earnest, and the patch tokens must sit where the picture changes.
    Without, or above `limit` parameters, only shapes are computed, on the meta device.
    """
    try:
        return _check(name, values and parameters(name) <= limit)
    except _NeedsValues as problem:
        if problem.parameters <= limit:
            return _check(name, values=True)
        return Check(
            name, family(name), parameters=problem.parameters, why="too large to run for a check"
        )


def _check(name: str, values: bool) -> Check:
    facts: dict[str, Any] = {}
    try:
        with torch.no_grad() if values else shapes_only():
            backbone = create_backbone(name).eval()
            facts["parameters"] = sum(p.numel() for p in backbone.parameters())
            config: Any = backbone.model.pretrained_cfg
            size = (config["input_size"][1], config["input_size"][2])
            features = _run(backbone, size, values)
            facts |= {"dim": backbone.dim, "grid": features.grid, "cls": features.cls is not None}
            notes = [
                _removal(backbone, size, values, facts),
                _other_size(name, backbone, size, facts),
            ]
        return Check(name, family(name), ok=True, why="; ".join(filter(None, notes)), **facts)
    except Exception as error:  # whatever it is, it is the result
        if not values and "meta tensors" in str(error):
            raise _NeedsValues(facts.get("parameters", 0)) from error
        return Check(name, family(name), **facts, why=_sentence(error))


class _NeedsValues(Exception):
    def __init__(self, parameters: int) -> None:
        self.parameters = parameters


def _run(backbone: Backbone, size: tuple[int, int], values: bool) -> Features:
    """The features of one image, if they are what they must be."""
    images = torch.randn(1, 3, *size)
    features: Features = backbone(images)
    tokens, grid, cls = features
    if tokens.shape != (1, grid[0] * grid[1], backbone.dim):
        raise ValueError(f"tokens {tuple(tokens.shape)} do not fit the grid {grid[0]}x{grid[1]}")
    if max(grid) > 1:
        strides = [s / g for s, g in zip(size, grid, strict=True)]
        if abs(strides[0] / strides[1] - 1) > 0.35:
            raise ValueError(
                f"the grid {grid[0]}x{grid[1]} does not have the shape of {size[0]}x{size[1]} pixels"
            )
    if cls is not None and cls.shape != (1, backbone.dim):
        raise ValueError(f"the CLS token is {tuple(cls.shape)}")
    if values:
        if not tokens.isfinite().all():
            raise ValueError("its features are not finite with random weights")
        if min(grid) > 2 and not points_at_the_change(backbone, images, features):
            raise ValueError(
                "its tokens are not where the picture changes: their order is not that of the grid"
            )
    return features


def points_at_the_change(backbone: Backbone, images: Tensor, before: Features) -> bool:
    """Change one corner of the picture: the token that changes most lies in that quarter of the
    map.
    """
    h, w = images.shape[-2:]
    changed = images.clone()
    changed[..., : h // 4, -(w // 4) :] += 2.0  # above, on the right
    after: Features = backbone(changed)
    difference = (after.tokens - before.tokens).norm(dim=-1).view(before.grid)
    if difference.max() < 2 * difference.mean():
        return True  # every token sees everything (LeViT): no verdict
    y, x = divmod(int(difference.argmax()), before.grid[1])
    return y < (before.grid[0] + 1) // 2 and x >= before.grid[1] // 2


def _removal(backbone: Backbone, size: tuple[int, int], values: bool, found: dict[str, Any]) -> str:
    """Remove CLS and see that it is gone, that registers are not, and that the patches stay what
    they were.
    """
    if not backbone.has_cls:
        return ""
    registers = backbone.prefix - sum(
        token.shape[1] for token in class_tokens(backbone.model).values()
    )
    try:
        backbone.remove_cls()
    except ValueError as refusal:
        return "CLS stays: " + re.sub(r".*cannot be removed, (.*): keep_cls.*", r"\1", str(refusal))
    features = _run(backbone, size, values)
    prefix_tokens = [
        n for n, p in backbone.named_parameters() if re.search(r"(cls|dist)_token", n) and p.numel()
    ]
    if features.cls is not None or prefix_tokens:
        raise ValueError(f"CLS is still there after its removal: {', '.join(prefix_tokens)}")
    if features.grid != found["grid"] or backbone.prefix != registers:
        raise ValueError("removing CLS changed the patch tokens or the registers")
    found["cls_removable"] = True
    return ""


def _other_size(name: str, backbone: Backbone, size: tuple[int, int], found: dict[str, Any]) -> str:
    """A lower, wider picture: at run time, or else in a model made for it."""
    h, w = (max(round(s / g), 1) for s, g in zip(size, found["grid"], strict=True))
    new_size = (max(size[0] // h - 2, 1) * h, (size[1] // w + 1) * w)
    try:
        _run(backbone, new_size, values=False)
    except Exception as error:
        if "meta tensors" in str(error):
            raise
        try:
            _run(create_backbone(name, img_size=new_size).eval(), new_size, values=False)
        except Exception:
            return ONE_SIZE
        return WHEN_MADE
    found["any_size"] = True
    return ""


def _sentence(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0][:160]
    return first if isinstance(error, ValueError) else f"{type(error).__name__}: {first}"


def parameters(name: str) -> int:
    """Parameters of an architecture, without making its weights."""
    with shapes_only():
        return sum(p.numel() for p in create_backbone(name).parameters())
