"""BatchNorm that survives a single value in training."""

from torch import Tensor, nn
from torch.nn import functional as F


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm over the last dimension of (B, N, D). Less than two values per channel have no
    variance of their own: they are normalised by the running statistics, in training too.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.shape[0] * x.shape[1] < 2:
            return self.settled(x)
        return super().forward(x.flatten(0, 1)).view(x.shape)

    def settled(self, x: Tensor) -> Tensor:
        """By the running statistics, which stay as they are."""
        flat = x.flatten(0, 1)  # (B N, D)
        y = F.batch_norm(
            flat, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )
        return y.view(x.shape)
