"""Table 2.1 of the dissertation: ten losses, each five small functions.

A row also says what is the anchor, and what are the positives and negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..options import check_known

Settings = Mapping[str, float]


@dataclass(frozen=True)
class Part:
    """One function and how the table prints it."""

    text: str
    of: Callable[[Tensor, Settings], Tensor]


@dataclass(frozen=True)
class Form:
    """A row. Sums of exponentials stay in the log domain: ρ is log ρ, and σ takes log of the sum."""

    title: str
    source: str
    anchor: str  # "example" or "proxy"
    other: str  # positives and negatives: "example", "proxy", or "proxies" (several of each class)
    tau: Part
    sigma_pos: Part
    sigma_neg: Part
    rho_pos: Part
    rho_neg: Part
    settings: dict[str, float] = field(default_factory=dict)
    additive: bool = False  # ρ itself is summed, it is not an exponential
    together: bool = False  # σ⁻ sums the positives as well: a softmax over all
    select: str = ""  # "easy": the nearest positive against the nearest negative beyond it

    @property
    def proxied(self) -> bool:
        return self.anchor == "proxy" or self.other != "example"

    @property
    def needs_positive(self) -> bool:
        """Whether an anchor without a positive has no loss: it would be -log 0."""
        return self.sigma_pos is MINUS_LOG


def softplus(x: Tensor) -> Tensor:
    # Exact also where F.softplus changes to a straight line.
    return torch.logaddexp(x, torch.zeros_like(x))


SAME = Part("x", lambda x, o: x)
HINGE = Part("[x]₊", lambda x, o: x.relu())
LOG = Part("log x", lambda x, o: x)
MINUS_LOG = Part("-log x", lambda x, o: -x)
LOG_1 = Part("log(1+x)", lambda x, o: softplus(x))
LOG_1_BETA = Part("log(1+x)/β", lambda x, o: softplus(x) / o["beta"])
LOG_1_GAMMA = Part("log(1+x)/γ", lambda x, o: softplus(x) / o["gamma"])

PULL = Part("exp(-β(s-m))", lambda s, o: -o["beta"] * (s - o["m"]))
PUSH = Part("exp(γ(s-m))", lambda s, o: o["gamma"] * (s - o["m"]))
EXP = Part("exp(s/T)", lambda s, o: s / o["temperature"])
# "together": what stands before the + is added where sums are made
EXP_TOO = Part("exp(s₊/T) + exp(s/T)", EXP.of)
CENTRES = Part("exp(β(s-m))", lambda s, o: o["beta"] * (s - o["m"]))
CENTRES_TOO = Part("exp(β(s₊-m)) + exp(βs)", lambda s, o: o["beta"] * s)

X, P, PS = "example", "proxy", "proxies"
FORMS = {
    #                    title, source, anchor, pos/neg, tau, sigma+, sigma-, rho+, rho-, settings
    "contrastive": Form(
        "Contrastive", "Hadsell 2006", X, X, SAME, SAME, SAME,
        Part("-s", lambda s, o: -s), Part("[s-m]₊", lambda s, o: (s - o["m"]).relu()), {"m": 0.5}, additive=True,
    ),
    "lifted-structure": Form(
        "Lifted structure", "Song 2016, Hermans 2017", X, X, HINGE, LOG, LOG,
        Part("exp(-s)", lambda s, o: -s), Part("exp(s-m)", lambda s, o: s - o["m"]), {"m": 1.0},
    ),
    "binomial-deviance": Form(
        "Binomial deviance", "Yi 2014", X, X, SAME, LOG_1, LOG_1, PULL, PUSH, {"beta": 2.0, "gamma": 50.0, "m": 0.5},
    ),
    "multi-similarity": Form(
        "Multi-similarity", "Wang 2019", X, X, SAME, LOG_1_BETA, LOG_1_GAMMA, PULL, PUSH,
        {"beta": 18.0, "gamma": 75.0, "m": 0.77},
    ),
    "proxy-anchor": Form(
        "Proxy Anchor", "Kim 2020", P, X, SAME, LOG_1_BETA, LOG_1_GAMMA,
        # The dissertation prints one margin for both sides (m_neg = m); the loss's authors push
        # negatives below -m, and so does this.
        PULL, Part("exp(γ(s-m₋))", lambda s, o: o["gamma"] * (s - o["m_neg"])),
        {"beta": 32.0, "gamma": 32.0, "m": 0.1, "m_neg": -0.1},
    ),
    # The dissertation prints negatives alone in the denominator of all three: so ProxyNCA was
    # published; the other two are a softmax over all. The option `softmax` of each chooses; per
    # anchor, the loss with it is log(1 + exp(the loss without)).
    "nca": Form(
        "NCA", "Goldberger 2004", X, X, SAME, MINUS_LOG, LOG, EXP, EXP_TOO, {"temperature": 1.0}, together=True,
    ),
    "proxy-nca": Form("ProxyNCA", "Movshovitz-Attias 2017", X, P, SAME, MINUS_LOG, LOG, EXP, EXP, {"temperature": 1.0}),
    "proxy-nca++": Form(
        "ProxyNCA++", "Teh 2020", X, P, SAME, MINUS_LOG, LOG, EXP, EXP_TOO, {"temperature": 0.11}, together=True,
    ),
    "soft-triple": Form(
        "SoftTriple", "Qian 2019", X, PS, SAME, MINUS_LOG, LOG, CENTRES, CENTRES_TOO,
        {"beta": 20.0, "m": 0.01, "gamma": 0.1}, together=True,
    ),
    "epshn": Form(
        "EPSHN", "Xuan 2020", X, X, SAME, MINUS_LOG, LOG, EXP, EXP_TOO, {"temperature": 0.1}, together=True,
        select="easy",
    ),
}  # fmt: skip


def form_named(name: str) -> Form:
    check_known("metric loss", name, [*FORMS, "pml/NAME"])
    return FORMS[name]
