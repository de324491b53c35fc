"""Attention Jaccard (VOC12): how well the maps of a model's heads fit the objects of segmented images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data import BadImage, Dataset
from ..metrics import AttentionJaccard, mass_mask, resize_mask
from ..models import PooledModel
from ..models.attend import possible
from ..models.attention_hooks import backbone_of
from ..models.attention_maps import cls_attention


@torch.inference_mode()
def jaccard(
    model: nn.Module,
    dataset: Dataset,
    size: int = 480,
    share: float = 0.6,
    compat: bool = False,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """In percent, over the images that have a mask with an object in it, squeezed to `size` x `size`.

    Each head's mask is what holds `share` of its map, in patches; per class the best head counts, then the mean over
    classes, then over images. `compat` counts void pixels, as the published script does.
    """
    model = model.eval()
    backbone, device = backbone_of(model), next(model.parameters()).device
    down, across = (max(1, round(side)) for side in backbone.stride())
    transform = backbone.preprocessing.whole(
        (round(size / down) * down, round(size / across) * across)
    )
    masked = np.flatnonzero(dataset.has_masks).tolist()
    if not masked:
        raise ValueError(f"attention Jaccard needs masks: {dataset.name} has none")
    score, bad, empty = AttentionJaccard(compat=compat), [], 0
    for i in masked:
        if progress:
            progress(1)
        try:
            image, target = dataset.image(i), dataset.mask(i)
        except BadImage as error:
            bad.append(str(error))
            continue
        if target is None or not ((target != 0) & (target != 255)).any():
            empty += 1
            continue
        maps = _maps(model, transform(image)[None].to(device)).float().cpu()  # (heads, H, W)
        if not maps.isfinite().all():
            bad.append(f"{dataset.path(i)}: its attention is NaN or infinite")
            continue
        heads = mass_mask(maps, share).numpy()
        score.add(
            [resize_mask(one, size) for one in heads],
            resize_mask(target, size),
            str(dataset.path(i)),
        )
    if not score.count:
        raise ValueError(
            f"no image of {dataset.name} could be judged: {bad[0] if bad else 'no mask holds an object'}"
        )
    found = {
        "jaccard": 100 * score.result(),
        "images": score.count,
        "without_object": empty,
        "unreadable": bad,
    }
    return {**found, "size": size, "share": share, "compat": compat}


def _maps(model: nn.Module, pixels: Tensor) -> Tensor:
    """Every head's map: CLS attention of a backbone, a model's own where its pool attends."""
    if not isinstance(model, PooledModel):
        return cls_attention(model, pixels, heads="all")[0]
    kind = next(iter(possible(model)), "auto")
    options: dict[str, Any] = {"heads": "all"} if kind == "cls" else {}
    return model.attend(pixels, kind, **options)[0].clamp_min(
        0
    )  # a CAM has a side that speaks against the class
