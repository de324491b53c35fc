"""i-Mix, MoCHi and Proxy Synthesis equal loops over anchors and mixtures; positivity is the
derivative's sign.
"""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cenote.losses import (
    IMix,
    Mixable,
    MoCHi,
    ProxySynthesis,
    create_metric_loss,
    generic_loss,
    mixtures_of,
    positivity,
)
from cenote.losses.metrix_rivals import pair_similarity
from cenote.losses.mixing import Mixtures, at_most, beta_draws, positive

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def batch(labels: Tensor = LABELS) -> Mixable:
    torch.manual_seed(0)
    images = torch.randn(len(labels), 3, 2, 2, dtype=torch.float64)
    weight = torch.randn(12, 4, dtype=torch.float64)
    return Mixable(
        labels,
        (images.flatten(1) @ weight).requires_grad_(),
        None,
        images,
        None,
        lambda i: i.flatten(1).tanh() @ weight,
    )


def test_i_mix_mixes_two_losses_of_a_mixed_anchor() -> None:
    data, loss = batch(), create_metric_loss("multi-similarity", 3, 4)
    found = IMix(weight=0.3)(loss, data, torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1)
    b, c = at_most(LABELS[:, None] != LABELS, 1, generator).nonzero(as_tuple=True)
    assert b.tolist() == list(range(6)) and (LABELS[b] != LABELS[c]).all()
    lam = beta_draws(1.0, (6,), generator, data.z)
    terms, x = [], F.normalize(data.z, dim=1)
    assert data.images is not None and data.network is not None
    for i in range(6):
        mixed = lam[i] * data.images[b[i]] + (1 - lam[i]) * data.images[c[i]]
        s = F.normalize(data.network(mixed[None]), dim=1) @ x.T
        first, second = (
            generic_loss(s, LABELS.eq(own)[None], "multi-similarity")
            for own in (LABELS[b[i]], LABELS[c[i]])
        )
        terms.append(lam[i] * first + (1 - lam[i]) * second)
    torch.testing.assert_close(found, loss(data.z, LABELS) + 0.3 * torch.stack(terms).mean())


@pytest.mark.parametrize("pairs", [("neg-neg",), ("anc-neg",)])
def test_mochi_adds_hard_negatives(pairs: tuple[str, ...]) -> None:
    """Its value rises: only negatives come in, each a mixture of the two hardest, or of the hardest
    and the anchor.
    """
    data, loss = batch(), create_metric_loss("multi-similarity", 3, 4, m=0.5).double()
    clean = loss(data.z, LABELS)
    found = MoCHi(pairs, hardest=2, synthetic=7)(loss, data, torch.Generator().manual_seed(0))
    assert found > clean
    found.backward()
    x, generator = F.normalize(data.z, dim=1), torch.Generator().manual_seed(0)
    draws = [torch.rand(6, 7, generator=generator) for _ in range(3)]
    rows, labels = [], []
    for a in range(6):
        order = sorted(
            (c for c in range(6) if LABELS[c] != LABELS[a]), key=lambda c: -(x[a] @ x[c]).item()
        )
        row = [x[a] @ x[c] for c in range(6) if c != a]
        label = [float(LABELS[c] == LABELS[a]) for c in range(6) if c != a]
        for k in range(7):
            b, c = order[int(draws[0][a, k] * 2)], order[int(draws[1][a, k] * 2)]
            lam = draws[2][a, k].double()
            if pairs == ("anc-neg",):
                b, lam = a, lam / 2
            row.append(F.cosine_similarity(x[a], lam * x[b] + (1 - lam) * x[c], dim=0))
            label.append(0.0)
        rows.append(torch.stack(row))
        labels.append(label)
    expected = generic_loss(torch.stack(rows), torch.tensor(labels), "multi-similarity", {"m": 0.5})
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["proxy-anchor", "proxy-nca++", "soft-triple"])
def test_proxy_synthesis_makes_classes(name: str) -> None:
    """The loss of twice the batch and of six classes more, whose proxies are mixed as their
    embeddings are.
    """
    data = batch()
    options = {"proxies": 2} if name == "soft-triple" else {}
    loss = create_metric_loss(name, 4, 4, **options).double()
    found = ProxySynthesis()(loss, data, torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1)
    b, c = at_most(LABELS[:, None] != LABELS, 1, generator).nonzero(as_tuple=True)
    lam = beta_draws(0.4, (6, 1), generator, data.z)
    x, p = F.normalize(data.z, dim=1), F.normalize(loss.proxies, dim=1).view(4, -1, 4)
    z = torch.cat([x, lam * x[b] + (1 - lam) * x[c]])
    made = lam[..., None] * p[LABELS[b]] + (1 - lam[..., None]) * p[LABELS[c]]
    larger = create_metric_loss(name, 10, 4, **options).double()
    larger.proxies.data = torch.cat([p, made]).flatten(0, 1).detach()
    torch.testing.assert_close(found, larger(z, torch.cat([LABELS, torch.arange(4, 10)])))
    found.backward()
    assert loss.proxies.grad is not None and loss.proxies.grad.abs().sum() > 0


@pytest.mark.parametrize("rival", [IMix(), MoCHi(), ProxySynthesis()])
@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]])
def test_batches_that_lack_something_train_on(
    rival: IMix | MoCHi | ProxySynthesis, labels: list[int]
) -> None:
    data = batch(torch.tensor(labels))
    loss = create_metric_loss(
        "proxy-anchor" if isinstance(rival, ProxySynthesis) else "multi-similarity", 3, 4
    )
    value = rival(loss, data)
    value.backward()
    assert value.isfinite() and data.z.grad is not None and data.z.grad.isfinite().all()
    assert rival.needs_images == isinstance(rival, IMix) and not rival.needs_maps


def test_wrong_losses_batches_and_options_are_refused() -> None:
    data, pair, proxy = (
        batch(),
        create_metric_loss("nca", 3, 4),
        create_metric_loss("proxy-anchor", 3, 4),
    )
    for rival, loss, named in (
        (IMix(), proxy, "i-Mix.*'proxy-anchor'"),
        (MoCHi(), proxy, "MoCHi"),
        (ProxySynthesis(), pair, "Proxy Synthesis"),
    ):
        with pytest.raises(ValueError, match=named):
            rival(loss, data)
    for kind, wrong in (
        (MoCHi, {"pairs": ("pos-neg",)}),
        (MoCHi, {"pairs": "neg-neg"}),
        (MoCHi, {"hardest": 2.5}),
        (IMix, {"alpha": -1}),
        (IMix, {"weight": float("nan")}),
        (ProxySynthesis, {"alpha": "abc"}),
    ):
        option, value = next(iter(wrong.items()))
        with pytest.raises(ValueError, match=rf"{option}\b.*{re.escape(repr(value))}"):
            kind(**wrong)  # type: ignore[operator]


def test_pair_similarity_is_that_of_the_mixture() -> None:
    x = F.normalize(torch.randn(5, 3, dtype=torch.float64), dim=1)
    b, c, lam = (
        torch.randint(5, (5, 4)),
        torch.randint(5, (5, 4)),
        torch.rand(5, 4, dtype=torch.float64),
    )
    found = pair_similarity(x @ x.T, b, c, lam)
    mixed = lam[..., None] * x[b] + (1 - lam[..., None]) * x[c]
    torch.testing.assert_close(
        found, F.cosine_similarity(x[:, None].expand_as(mixed), mixed, dim=-1)
    )


def test_positivity_is_the_sign_of_the_derivative() -> None:
    torch.manual_seed(0)
    s = (torch.rand(7, 30, dtype=torch.float64) * 0.6 + 0.4).requires_grad_()
    lam, mask = torch.rand(7, 30, dtype=torch.float64), torch.rand(7, 30) < 0.9
    (slope,) = torch.autograd.grad(generic_loss(s, lam, "multi-similarity", mask=mask), s)
    found, expected = positive(Mixtures(s.detach(), lam, mask))
    assert found[mask].equal((slope <= 0)[mask]) and found[mask].any() and not found[mask].all()
    threshold = torch.tensor(
        [[math.log(v / (1 - v)) / 93 + 0.77 for v in row] for row in lam.tolist()]
    ).double()
    assert expected.equal(s.detach() <= threshold)


def test_of_a_single_mixture_theory_is_exact() -> None:
    """[Dissertation Eq. 2.15] has one v: then the derivative's sign is the threshold's."""
    torch.manual_seed(0)
    batch = Mixtures(
        torch.rand(5000, 1), torch.rand(5000, 1), torch.ones(5000, 1, dtype=torch.bool)
    )
    found, expected = positive(batch)
    assert found.equal(expected)
    curve = positivity([batch], bins=10)
    torch.testing.assert_close(curve.empirical, curve.theoretical)
    assert curve.total.sum() == 5000 and curve.lam[0] == pytest.approx(0.05)


def test_the_mixtures_of_a_batch() -> None:
    """Every anchor with every positive and negative, mixed explicitly; two batches fill one
    curve.
    """
    torch.manual_seed(0)
    labels, z = torch.tensor([0, 0, 0, 1, 1, 2]), torch.randn(6, 4, dtype=torch.float64)
    batches = [mixtures_of(z, labels, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    x, lam = F.normalize(z, dim=1), beta_draws(2.0, (6, 6), torch.Generator().manual_seed(0), z)
    expected = [
        (
            a,
            float(lam[b, c]),
            float(F.cosine_similarity(x[a], lam[b, c] * x[b] + (1 - lam[b, c]) * x[c], dim=0)),
        )
        for a in range(6)
        for b in range(6)
        for c in range(6)
        if a != b and labels[a] == labels[b] and labels[a] != labels[c]
    ]
    s, share, mask = batches[0]
    anchors = torch.arange(6)[:, None].expand_as(s)
    found = list(zip(anchors[mask].tolist(), share[mask].tolist(), s[mask].tolist(), strict=True))
    assert sorted(found) == [pytest.approx(row) for row in sorted(expected)]
    curve = positivity(batches, bins=4)
    assert curve.total.sum() == 2 * len(expected) and curve.lam.tolist() == [
        0.125,
        0.375,
        0.625,
        0.875,
    ]
    rows = [
        row
        for batch in batches
        for row in zip(batch.lam[batch.mask], batch.similarity[batch.mask], strict=True)
    ]
    below = [v <= math.log(w / (1 - w)) / 93 + 0.77 for w, v in rows if 0.25 <= w < 0.5]
    assert curve.theoretical[1] == pytest.approx(sum(below) / len(below)) and curve.total[1] == len(
        below
    )
