"""Networks so small that two cores train them in minutes: for first tries, tests and honest small
studies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .preprocessing import Preprocessing

PREPROCESSING = Preprocessing(size=64, crop=0.875, interpolation="bilinear")


class Micro(NamedTuple):
    timm_name: str
    options: dict[str, Any]


MICRO = {
    # 0.7 million parameters, 8 x 8 positions
    "vit_micro": Micro(
        "vit_tiny_patch16_224", {"patch_size": 8, "embed_dim": 96, "depth": 6, "num_heads": 3}
    ),
    # 0.4 million, 2 x 2 positions, or 4 x 4 and 8 x 8 with stride=2 and 4
    "resnet_micro": Micro("test_resnet", {}),
}
