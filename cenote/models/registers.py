"""Test-time registers: clean maps of ViTs that were trained without registers.

In many ViTs a few patches, often of the background, have a norm far above all others, and attention
is drawn to them [Darcet et al. 2024]. A few neurons of the MLPs cause this [Jiang et al. 2025]. Here
their activations move to one more token, which is no patch of the image: a register, without
training.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from ..backbones import Backbone
from ..backbones.cls import class_tokens
from ..data import Dataset
from ..data.ground_truth import evenly_spaced
from ..data.loading import load

log = logging.getLogger(__name__)
OUTLIER = 3.0  # times the median norm of a block's patches, above it a patch is an outlier
NORMAL = 2.0  # times the median norm, which an outlier is not above behind any block in the end
MAX_NEURONS = 64  # that move; published: 10 for CLIP's ViT-B/16, 45 for DINOv2's ViT-L/14
MAX_REMAINING = 0.5  # share of the outliers, above it the neurons are not their cause
MAX_IMAGES = 64
CHUNK = 4  # images at a time: the activations of all blocks are in memory
Neurons = dict[int, list[int]]  # of the MLPs, by block


def fit_register(backbone: Backbone, images: Dataset) -> bool:
    """Add a register for the outliers in at most MAX_IMAGES images, if there are any."""
    check_register(backbone)
    sample = images.select(evenly_spaced(list(range(len(images))), MAX_IMAGES))
    loader = load(sample, backbone.preprocessing.whole(), batch=CHUNK)
    batches = [batch.images for batch in loader if len(batch.indices)]
    device = next(backbone.parameters()).device
    neurons = find_register_neurons(backbone, torch.cat(batches).to(device)) if batches else {}
    if neurons:
        add_register(backbone, neurons)
    else:
        reason = "no patch has an outlier norm that a few neurons cause"
        log.info("'%s' gets no register, its maps are unchanged: %s", backbone.name, reason)
    return bool(neurons)


def check_register(backbone: Backbone) -> None:
    """Raise ValueError if a register cannot be added."""
    tokens = sum(token.shape[1] for token in class_tokens(backbone.model).values())
    if backbone.prefix > tokens:
        raise ValueError(f"'{backbone.name}' has registers already: use it without --registers")
    is_vit = type(backbone) is Backbone and isinstance(backbone.model, VisionTransformer)
    if not is_vit or not all(hasattr(getattr(b, "mlp", None), "fc2") for b in _blocks(backbone)):
        raise ValueError(
            f"'{backbone.name}' is not a plain ViT of timm, which test-time registers are for: use "
            "it without --registers"
        )


def add_register(backbone: Backbone, neurons: Neurons) -> None:
    """Add a token of zeros behind CLS, and move the largest activations of neurons to it.

    Hooks do it, which copies of the backbone have, too, but saved models do not.
    """
    check_register(backbone)
    register, blocks = backbone.prefix, _blocks(backbone)
    blocks[0].register_forward_pre_hook(partial(_insert_token, register))
    for block, indices in neurons.items():
        fc2: Any = blocks[block].mlp.fc2
        fc2.register_forward_pre_hook(partial(_move_activations, register, indices))
    backbone.register_neurons = neurons


def _insert_token(position: int, block: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    x = inputs[0]  # (B, prefix + N, D)
    return torch.cat([x[:, :position], torch.zeros_like(x[:, :1]), x[:, position:]], 1)


def _move_activations(
    register: int, neurons: list[int], fc2: nn.Module, inputs: tuple[Tensor, ...]
) -> Tensor:
    x = inputs[0].clone()  # (B, prefix + 1 + N, hidden)
    activations = x[:, register:, neurons]  # of register and patches (B, 1 + N, k)
    largest = activations.gather(1, activations.abs().argmax(1, keepdim=True))  # (B, 1, k)
    x[:, register:, neurons] = torch.cat([largest, torch.zeros_like(activations[:, 1:])], 1)
    return x


@torch.no_grad()
def find_register_neurons(backbone: Backbone, images: Tensor) -> Neurons:
    """Return the neurons that cause outliers in images (n, 3, H, W); none if there are no outliers.

    Outliers are those of the block where they stand out most. Neurons up to this block are ranked by
    their mean absolute activation at the outliers. Of the first 1, 2, 4, ..., MAX_NEURONS the
    smallest number is taken with which the fewest of these patches stay above NORMAL.
    """
    ratios = _norm_ratios(backbone, images)
    block = int(ratios.flatten(1).amax(1).argmax())
    outliers = ratios[block] > OUTLIER  # (n, N)
    count, best = int(outliers.sum()), Neurons()
    if not count:
        return best
    ranking, neurons = _rank_neurons(backbone, images, outliers, block), 1
    fewest = int(MAX_REMAINING * count) + 1
    while neurons <= MAX_NEURONS and fewest:
        candidates = Neurons()
        for layer, index in ranking[:neurons]:
            candidates.setdefault(layer, []).append(index)
        # A copy with the same weights.
        trial = copy.deepcopy(backbone, {id(p): p for p in backbone.parameters()})
        add_register(trial, candidates)
        remaining = int((_norm_ratios(trial, images).amax(0)[outliers] > NORMAL).sum())
        if remaining < fewest:
            best, fewest = candidates, remaining
        neurons *= 2
    if best:
        names = ", ".join(f"{i} of block {layer}" for layer in best for i in best[layer])
        log.info("outlier patches: %d, with a register for neuron %s: %d", count, names, fewest)
    return best


def _rank_neurons(
    backbone: Backbone, images: Tensor, outliers: Tensor, last: int
) -> list[tuple[int, int]]:
    """Return (block, neuron) by the mean absolute activation at outliers (n, N), largest first."""
    layers = [block.mlp.fc2 for block in _blocks(backbone)[: last + 1]]
    totals: Any = 0
    for chunk, mask in zip(images.split(CHUNK), outliers.split(CHUNK), strict=True):
        activations = [inputs for inputs, _ in _observe(backbone, chunk, layers)]
        totals += torch.stack([a[:, backbone.prefix :][mask].abs().sum(0) for a in activations])
    order = totals.flatten().argsort(descending=True)[:MAX_NEURONS].tolist()
    return [divmod(i, totals.shape[1]) for i in order]


def _norm_ratios(backbone: Backbone, images: Tensor) -> Tensor:
    """Return the norms of the patches behind each block over their median, (blocks, n, N)."""
    chunks = []
    for chunk in images.split(CHUNK):
        outputs = [output for _, output in _observe(backbone, chunk, _blocks(backbone))]
        chunks.append(torch.stack([x[:, backbone.prefix :].norm(dim=-1) for x in outputs]))
    norms = torch.cat(chunks, 1)
    return norms / norms.flatten(1).median(1).values[:, None, None]


def _observe(
    backbone: Backbone, images: Tensor, layers: Sequence[nn.Module]
) -> list[tuple[Tensor, Tensor]]:
    """Run the backbone once; return input and output of layers in the order in which they run."""
    seen = list[tuple[Tensor, Tensor]]()

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append((inputs[0], output))

    handles = [layer.register_forward_hook(keep) for layer in layers]
    try:
        backbone(images)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _blocks(backbone: Backbone) -> Any:
    return backbone.model.blocks
