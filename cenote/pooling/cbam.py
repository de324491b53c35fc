import torch
from torch import Tensor, nn

from .base import Grid, Pool
from .framework import FEATURES, Algorithm, Component, Variables
from .registry import register

# U⁰, φ_Q and s by form.
FORMS = {
    "original": ("[π_A(X) π_max(X)]", "σ(MLP(U)1₂)", "[xᵀy/d max(x∘y)]"),
    "averaged": ("[π_A(X) π_max(X)]", "σ(MLP(U)1₂/2)", "[xᵀy/d max(x∘y)]"),
    "simplified": ("π_A(X)", "σ(MLP(U))", "xᵀy/d"),
}


@register("cbam", group=3, title="CBAM", source="Woo et al., CBAM, 2018", category=True)
class CBAM(Pool):
    """A channel gate q, then a spatial gate a, each from averages and maxima, then the mean
    [SimPool Eqs. B29-B35].

    q = σ(MLP(π_A(X)) + MLP(π_max(X))), V = diag(q)X, a = σ(conv₇[mean; max of V over channels]), u
    = Va/p.

    form="original" adds the two MLPs as Woo et al. do, "averaged" takes their mean [SimPool Eq.
    B30], and "simplified" has averages only in both gates [SimPool Eqs. B36-B37], as the row of
    [SimPool Table 1].
    """

    permutation_invariant = False
    needs_grid = True

    def __init__(
        self, dim: int, reduction: int = 16, kernel: int = 7, form: str = "original"
    ) -> None:
        super().__init__(dim)
        if kernel < 1 or kernel % 2 == 0:
            raise ValueError(f"'cbam' convolves with an odd kernel, got {kernel}")
        self.check_positive(reduction=reduction)
        self.check_choice("form", form, FORMS)
        hidden = max(1, int(dim / reduction + 0.5))
        self.kernel, self.form, self.branches = kernel, form, 1 if form == "simplified" else 2
        self.fc1, self.fc2 = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)
        self.conv = nn.Conv2d(self.branches, 1, kernel, padding=kernel // 2)

    def algorithm(self) -> Algorithm:
        def similarity(c: Variables) -> Tensor:
            v = c.q * c.k
            return torch.stack([v.mean(-1), v.amax(-1)][: self.branches], 1)  # (B, 1 or 2, N)

        init, query, pairs = FORMS[self.form]
        return Algorithm(
            init=Component(init, lambda c: self.squeeze(c.x)),
            phi_q=Component(query, lambda c: self.gate(c.u)),
            phi_k=FEATURES,
            similarity=Component(pairs, similarity),
            attention=Component(f"σ(conv_{self.kernel}(S))/p", lambda c: self.look(c.s, c.grid)),
            phi_v=Component("diag(q)X", lambda c: c.q * c.x),
            phi_x=Component("V diag(a)", lambda c: c.v * c.a.mT),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        q = self.gate(self.squeeze(x))  # (B, 1, D)
        s = q @ x.mT / self.dim
        if self.branches == 2:
            s = torch.cat([s, (q * x).amax(-1)[:, None]], 1)
        a = self.look(s, grid)
        return q * (a @ x), a  # V itself is only ever needed for its maximum

    def squeeze(self, x: Tensor) -> Tensor:
        if self.branches == 1:
            return x.mean(1, keepdim=True)  # (B, 1, D)
        return torch.stack([x.mean(1), x.amax(1)], 1)  # (B, 2, D)

    def gate(self, u: Tensor) -> Tensor:
        """(B, 1 or 2, D) -> (B, 1, D): one MLP for both."""
        branches: Tensor = self.fc2(self.fc1(u).relu())
        if self.form == "averaged":
            return branches.mean(1, keepdim=True).sigmoid()
        return branches.sum(1, keepdim=True).sigmoid()

    def look(self, s: Tensor, grid: Grid | None) -> Tensor:
        """(B, 1 or 2, N) -> (B, 1, N), the spatial gate over p."""
        assert grid is not None
        a: Tensor = self.conv(s.reshape(*s.shape[:2], *grid)).sigmoid()
        return a.flatten(2) / s.shape[-1]
