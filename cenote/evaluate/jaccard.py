"""Attention Jaccard (VOC12): how well the maps of a model's heads fit segmented objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ..data import BadImage, Dataset
from ..metrics import AttentionJaccard, mass_mask, resize_mask
from ..models.attention_maps import backbone_of
from ..predict.discovery.patch_features import attention_kind, head_maps
from ..predict.distributed import device_of
from ..predict.input_size import stride_of

SHARE = 0.6  # of a map's mass that its mask contains


@torch.inference_mode()
def jaccard(
    model: nn.Module, dataset: Dataset, size: int = 480, compat: bool = False
) -> dict[str, Any]:
    """Compute it in percent over the images with an object in their mask, resized to a square.

    Each head's mask is what contains SHARE of its map, in patches; per class the best head
    counts, then the mean over classes, then over images. `compat` counts void pixels, as the
    published script does.
    """
    model = model.eval()
    backbone, device = backbone_of(model), device_of(model)
    down, across = stride_of(backbone)
    transform = backbone.preprocessing.whole(
        (round(size / down) * down, round(size / across) * across)
    )
    kind = attention_kind(model)
    masked = np.flatnonzero(dataset.has_masks).tolist()
    if not masked:
        raise ValueError(f"attention Jaccard needs masks: {dataset.name} has none")
    score, bad, empty = AttentionJaccard(compat=compat), list[str](), 0
    for i in masked:
        try:
            image, target = dataset.image(i), dataset.mask(i)
        except BadImage as error:
            bad.append(str(error))
            continue
        if target is None or not ((target != 0) & (target != 255)).any():
            empty += 1
            continue
        maps = head_maps(model, transform(image)[None].to(device), kind).float().cpu()
        if not maps.isfinite().all():
            bad.append(f"{dataset.path(i)}: its attention is NaN or infinite")
            continue
        # Negative values of a class activation map count against the class.
        heads = mass_mask(maps.clamp_min(0), SHARE).numpy()  # (heads, H, W)
        resized = [resize_mask(mask, size) for mask in heads]
        score.add(resized, resize_mask(target, size), str(dataset.path(i)))
    if not score.count:
        reason = next(iter(bad), "no mask has an object")
        raise ValueError(f"no image of {dataset.name} could be evaluated: {reason}")
    return {
        "jaccard": 100 * score.result(),
        "images": score.count,
        "without_object": empty,
        "unreadable": bad,
        "size": size,
        "share": SHARE,
        "compat": compat,
    }
