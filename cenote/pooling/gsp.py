from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Grid, Pool
from .framework import UNIFORM, Algorithm, Component, Variables, power
from .kernels.gsp import costs, gsp_in_threads, weights
from .kernels.threads import loops_serve
from .registry import register


@register(
    "gsp",
    group=6,
    title="GSP",
    source="Gürbüz et al., Generalized sum pooling for metric learning, 2023",
)
class GSP(Pool):
    """A learned choice of the share mu of the features nearest to m prototypes w
    [GSP Sec. 4.1, Problem P2].

        c_ij = ‖w_i - f_j‖ (norms clipped at one),  p_j = (1/n - rho_j) / mu,  u = sum_j p_j f_j

    rho is the mass that entropy-regularised transport of sharpness `eps` leaves behind. In closed
    form, with s_j = logsumexp_i(-eps c_ij): p_j = sigmoid(s_j + b) / (n mu), where b solves mean_j
    sigmoid(s_j + b) = mu. mu = 1 is GAP (Claim 4.1). eps: 5 for pair losses, 0.5 for proxy losses.
    `plus` adds "max" or "gem" to the vector (GMP+GSP, GeMean+GSP). `background` lets
    prototypes stand for what is left out: p_j = rho_j / (1 - mu) [GSP App. B]. `with_histogram`
    gives z [GSP Sec. 4.3] as well, what the zero-shot loss reads. Training starts the prototypes at
    tokens of the first batch (`fit`); the authors' program pools by GAP until it has 1,024 vectors,
    and takes prototypes that are far apart among these (greedy k-centre).
    """

    sums_to_one = True

    def __init__(
        self,
        dim: int,
        prototypes: int = 64,
        mu: float = 0.3,
        eps: float = 5.0,
        plus: str | None = None,
        background: bool = False,
    ) -> None:
        super().__init__(dim)
        if not 0 < mu <= 1:
            raise ValueError(f"gsp: mu is a share in (0, 1], got {mu}")
        self.check_whole(prototypes=prototypes)
        self.check_positive(eps=eps)
        if background and mu == 1:
            raise ValueError("gsp: with mu = 1 the prototypes take all, no background is left")
        if plus is not None:
            self.check_choice("plus", plus, ("max", "gem"))
        self.mu, self.eps, self.plus, self.background = mu, eps, plus, background
        self.prototypes = nn.Parameter(torch.randn(prototypes, dim) * dim**-0.5)
        self.gamma = nn.Parameter(torch.tensor(3.0)) if plus == "gem" else None

    @torch.no_grad()
    def fit(self, x: Tensor) -> GSP:
        """Start the prototypes at tokens of x (B, N, D), in place: an optimizer keeps hold of them.

        Clipped, as the costs clip them anyway: tokens may be twenty times as long, and steps of an
        optimizer would hardly turn prototypes of that length. Where there are fewer tokens than
        prototypes they are moved apart a little: equal ones would stay equal for ever. The released
        program starts at the k-centres of the tokens instead.
        """
        tokens = self.local(x.to(self.prototypes.dtype)).flatten(0, 1)
        m, dim = self.prototypes.shape
        places = torch.linspace(0, len(tokens) - 1, m, device=x.device).round().long()
        # At 1.01: on the ball itself rounding would decide whether they may grow shorter.
        start = 1.01 * _clip(tokens[places].double() / 1.01)
        if len(tokens) < m:
            rng = torch.Generator().manual_seed(0)  # the same in every process
            noise = torch.randn(m, dim, generator=rng, dtype=torch.float64)
            start = start + 0.1 * dim**-0.5 * noise.to(start.device)
        self.prototypes.copy_(start)
        return self

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        if self.mu == 1:
            p = torch.full_like(x[..., 0], 1 / x.shape[1])  # b -> inf: GAP (Claim 4.1)
            u = x.mean(1)
        elif loops_serve(x):
            u, p = gsp_in_threads(x, _clip(self.prototypes), self.mu, self.eps)
        else:
            p = weights(costs(x, _clip(self.prototypes)), self.mu, self.eps)
            u = (p[:, None] @ x).squeeze(1)
        if self.background:
            p, u = self._rest(p, 1 / x.shape[1]).clamp_min(0), self._rest(u, x.mean(1))
        return self._compose(x, u[:, None]), p[:, None]

    def with_histogram(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors (B, D) and z (B, m): the share of the transported mass that each prototype
        receives, which sums to one [GSP Sec. 4.3]."""
        u, p, shares = self._transport(x)
        with torch.autocast(x.device.type, enabled=False):
            return u, (p @ shares).squeeze(1)

    def transport(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors (B, D) and pi / mu (B, N, m), from position to prototype; sums to one."""
        u, p, shares = self._transport(x)
        return u, p.mT * shares

    def _transport(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors, what each position gives (B, 1, N), and to whom (B, N, m)."""
        u, p = self.attend(x)
        with torch.autocast(x.device.type, enabled=False):
            if self.background:  # back to what the prototypes took
                p = (1 / x.shape[1] - (1 - self.mu) * p) / self.mu
            c = costs(self.local(x.to(p.dtype)), _clip(self.prototypes))  # (B, N, m)
            return u, p, (-self.eps * c).softmax(-1)

    def algorithm(self) -> Algorithm:
        label = "ρ/(1 - μ)" if self.background else "(1/p - ρ)/μ"
        return Algorithm(
            init=Component("U", lambda c: self.prototypes.expand(c.x.shape[0], -1, -1)),
            phi_q=Component("U/max(1,‖U‖)", lambda c: _clip(c.u)),
            phi_k=Component("X/max(1,‖X‖)", lambda c: _clip(c.x)),
            similarity=Component(
                "-‖x-y‖", lambda c: -(c.q[:, :, None] - c.k[:, None]).norm(dim=-1)
            ),
            attention=Component(label, self._fixed_point),
            phi_v=Component("X", lambda c: c.x),
            phi_u=Component("Z", lambda c: self._compose(c.v, c.z)),
        )

    def _rest(self, chosen: Tensor, all: Tensor | float) -> Tensor:
        """What is left of all when the share mu is chosen, again as a mean."""
        return (all - self.mu * chosen) / (1 - self.mu)

    def _compose(self, x: Tensor, u: Tensor) -> Tensor:
        if self.plus == "max":
            return u + x.amax(1, keepdim=True)
        if self.gamma is not None:
            v, uniform = x.clamp_min(1e-6), torch.full_like(x[:, None, :, 0], 1 / x.shape[1])
            return u + power(self.gamma)(v, uniform)
        return u

    def _fixed_point(self, c: Variables) -> Tensor:
        """Prop. 4.1 as published: 100 steps from t = 1."""
        if self.mu == 1:
            return UNIFORM(c)
        n, kernel = c.s.shape[-1], (self.eps * c.s).exp()  # (B, m, N)
        t = torch.ones_like(kernel[:, :1, :1])
        for _ in range(100):
            rho = 1 / n / (1 + t * kernel.sum(1, keepdim=True))
            t = self.mu / (kernel * rho).sum((1, 2), keepdim=True)
        return rho / (1 - self.mu) if self.background else (1 / n - rho) / self.mu  # [GSP Sec. 4.1]


def _clip(x: Tensor) -> Tensor:
    return x / x.square().sum(-1, keepdim=True).clamp_min(1).sqrt()
