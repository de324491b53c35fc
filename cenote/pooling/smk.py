from torch import nn

from .how import HOW
from .registry import register


@register(
    "smk",
    group=7,
    title="SMK",
    source="Tolias et al., Learning and Aggregating Deep Local Descriptors, 2020",
)
class SMK(HOW):
    """HOW with its FC learned: u = η²(Σ_j ‖x_j‖ W(avg₃(X)_j - m)), W and m trainable, ‖x_j‖ the
    attention.

    W starts orthogonal; `fit` starts it from the PCA whitening instead, as HOW's authors do.
    """

    trainable = True

    def __init__(self, dim: int, out_dim: int | None = None, kernel: int = 3) -> None:
        super().__init__(dim, out_dim, kernel)
        nn.init.orthogonal_(self.weight)
