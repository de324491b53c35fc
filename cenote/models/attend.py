"""One call for every kind of map: where did the vector, or the decision, come from?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .attention_maps import cls_attention, rollout
from .cam import cam, linear_head, minmax
from .grad_cam import grad_cam

if TYPE_CHECKING:
    from .pooled import PooledModel

KINDS = ("auto", "pool", "cls", "rollout", "cam", "gradcam")


def attend(model: PooledModel, images: Tensor, kind: str = "auto", **options: Any) -> Tensor:
    """Maps (B, m, H, W) of one kind. "auto" is the pool's own, or what comes nearest: CLS
    attention, else CAM.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is one of {', '.join(KINDS)}, got '{kind}'")
    able = possible(model)
    if kind == "auto":
        if not able:
            raise ValueError(
                f"{_why_not_pool(model)}, and without a head there is no class activation map either"
            )
        kind = able[0]
    if kind == "pool":
        if options:
            raise TypeError(f"the pool's own map takes no options, got {', '.join(options)}")
        maps = model.pool_features(model.features(images))[1]
        if maps is None:
            raise ValueError(f"{_why_not_pool(model)}. {_instead(able)}")
        return maps
    if kind == "cls" and not model.backbone.has_cls:
        raise ValueError(
            f"there is no CLS token in '{model.backbone.name}' to attend: it never had one, or the pool replaced it "
            f"(keep_cls=True leaves it there). {_instead(able)}"
        )
    make: Any = {"cls": cls_attention, "rollout": rollout, "cam": cam, "gradcam": grad_cam}[kind]
    maps = make(model, images, **options)
    return maps


def possible(model: PooledModel) -> list[str]:
    """The kinds this model has, the most telling first. (Whether there is attention to roll out
    shows when it runs.)
    """
    able = ["pool"] if model.pool is not None and not model.pool.no_attention else []
    if model.pool is None:
        able.append("cls")
    try:
        linear_head(model)
        able.append("cam")
    except ValueError:
        pass
    if model.pool is not None and model.backbone.has_cls:
        able.append("cls")
    return [*able, "gradcam"] if model.head is not None else able


def localize(
    model: PooledModel, images: Tensor, share: float = 0.6, kind: str = "auto", **options: Any
) -> Tensor:
    """Boxes (B, 4), x0 y0 x1 y1 in pixels of the input: around the largest component of the mask
    that keeps `share` of the map's mass. Several maps are averaged; of a CAM only what speaks for
    the class counts.
    """
    from ..metrics import largest_box, mass_mask

    with torch.no_grad():
        maps = attend(model, images, kind, **options).float().mean(1)  # (B, H, W)
    positive = maps.clamp_min(0)
    # A class that nothing speaks for still has its best place.
    positive = torch.where(positive.sum((-2, -1), keepdim=True) > 0, positive, minmax(maps))
    (h, w), (rows, columns) = images.shape[-2:], maps.shape[-2:]
    cells = [largest_box(mask) or (0, 0, columns, rows) for mask in mass_mask(positive, share)]
    pixels = torch.tensor([w / columns, h / rows, w / columns, h / rows])
    return (torch.tensor(cells) * pixels).to(images.device)


def _why_not_pool(model: PooledModel) -> str:
    if model.pool is None:
        return "this model takes the CLS token, there is no pool with a map of its own"
    return f"'{model.pool.name}' has no attention map of its own: {model.pool.no_attention}"


def _instead(able: list[str]) -> str:
    return (
        f"Possible here: {', '.join(able)}"
        if able
        else "This model has no map (num_classes=... gives it a CAM)"
    )
