"""Networks of the papers that timm does not have, written from their authors' descriptions."""

from collections.abc import Callable

from torch import nn

from .bn_inception import BNInception
from .cvt import CvT13
from .pvt import PvtSmall
from .resnet20 import ResNet20
from .t2t_vit import T2TViT14

# By the name that `create_backbone` takes.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "bn_inception": BNInception,
    "cvt_13": CvT13,
    "pvt_small": PvtSmall,
    "resnet20": ResNet20,
    "t2t_vit_14": T2TViT14,
}
