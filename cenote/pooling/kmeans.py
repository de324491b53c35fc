import torch
from torch import Tensor

from .base import Pool
from .framework import FEATURES, Algorithm, Component, Variables, squared_distance
from .registry import register


@register(
    "kmeans", group=2, title="k-means", source="Lloyd, Least Squares Quantization in PCM, 1982"
)
class KMeans(Pool):
    """The k centroids of an image's features after at most T steps of Lloyd's algorithm
    [SimPool Eqs. B16-B20].

    It starts from k columns of X, one from each of k equal stretches of positions, by a seeded draw
    that is the same for every image. Ties go to the lowest index, an empty cluster keeps its
    centroid, and an image none of whose centroids moved by `tol` is done. Assignments are constants
    to the gradient.
    """

    permutation_invariant = False  # the draw is of positions

    def __init__(
        self, dim: int, k: int = 3, iterations: int = 5, tol: float = 0.01, seed: int = 0
    ) -> None:
        super().__init__(dim, k)
        self.check_whole(iterations=iterations)
        self.min_tokens = k
        self.iterations, self.tol = iterations, tol
        self.register_buffer("draw", torch.rand(k, generator=torch.Generator().manual_seed(seed)))

    draw: Tensor

    def algorithm(self) -> Algorithm:
        tol, k = self.tol, self.k
        converged = torch.zeros((), dtype=torch.bool)  # (B, 1, 1) once it runs: which images

        def init(c: Variables) -> Tensor:
            nonlocal converged
            converged = torch.zeros_like(c.x[:, :1, :1], dtype=torch.bool)
            n = c.x.shape[1]
            i = torch.arange(k, device=c.x.device)
            first, end = i * n // k, (i + 1) * n // k - 1  # of each stretch
            index = first + (self.draw.float() * (end + 1 - first)).long()
            return c.x[:, torch.minimum(index, end)]

        def similarity(c: Variables) -> Tensor:
            x = c.x.detach()
            # Distances are small beside the norms: keep their digits.
            centre = x.mean(1, keepdim=True)
            return -squared_distance(c.u.detach() - centre, x - centre)

        def attention(c: Variables) -> Tensor:
            nearest = c.s.argmax(1, keepdim=True)  # (B, 1, N), ties keep the lower index
            clusters = torch.arange(k, device=c.x.device)[:, None]
            member = (nearest == clusters).to(c.x.dtype)  # (B, k, N)
            a = member / member.sum(-1, keepdim=True).clamp_min(1)
            if c.t:
                a = torch.where(converged, c.a, a)
            return a

        def phi_u(c: Variables) -> Tensor:
            nonlocal converged
            empty = c.a.sum(-1, keepdim=True) == 0  # (B, k, 1)
            u = torch.where(empty, c.u, c.z)  # of an image that is done, A stays, and so does Z
            moved = (u - c.u).detach().square().sum(-1, keepdim=True).amax(1, keepdim=True)
            converged = converged | (moved < tol**2)
            return u

        return Algorithm(
            init=Component("random", init),
            phi_q=Component("U", lambda c: c.u),
            phi_k=FEATURES,
            similarity=Component("-‖x-y‖²", similarity),
            attention=Component("η₂(argmax₁(S))", attention),
            phi_x=FEATURES,
            phi_u=Component("Z", phi_u),
            iterations=self.iterations,
        )
