"""Stride removal: the last one or two stages keep their resolution, and dilation keeps their
receptive field.
"""

from __future__ import annotations

from typing import Any

from ...backbones import Backbone, create_backbone

GAINS = (1, 2, 4)


def create_finer_backbone(name: str, gain: int, **options: Any) -> Backbone:
    """`create_backbone` with a map `gain` times finer: timm's output_stride, whose weights are the
    same.

    Every `gain`-th position of a ResNet's new map is a position of the old one. (Not quite for the
    d-variants at 4: timm does not dilate the average pooling in their shortcuts. Nor where a block
    looks at the whole map, as SE does.)
    """
    if gain not in GAINS:
        raise ValueError(f"stride is 1 (as it is), 2 or 4 (times finer), got {gain!r}")
    if gain == 1:
        return create_backbone(name, **options)
    sentence = f"the stride of '{name}' cannot be removed: ResNet, RegNet, ConvNeXt, EfficientNet and their kin can"
    try:
        backbone = create_backbone(name, **options, output_stride=32 // gain)
    except (AssertionError, TypeError, NotImplementedError) as error:  # timm's way of saying no
        raise ValueError(sentence) from error
    except ValueError as error:
        raise (ValueError(sentence) if "output_stride" in str(error) else error) from error
    info = getattr(backbone.model, "feature_info", None)
    if not info or info[-1]["reduction"] != 32 // gain:  # or it swallowed the option
        raise ValueError(sentence)
    return backbone
