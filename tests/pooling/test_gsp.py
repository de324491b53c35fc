"""GSP's closed form against the published iteration, a root finder, and the properties the paper
proves.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from cenote.pooling import create_pool
from cenote.pooling.kernels import threads
from cenote.pooling.kernels.gsp import costs, solve, weights

DIM = 12


def prop_4_1(x: torch.Tensor, w: torch.Tensor, mu: float, eps: float, steps: int):
    """Proposition 4.1 for one image: rho, pi after so many steps."""
    w = torch.stack([v / max(1.0, float(v.norm())) if v.norm() > 1 else v for v in w])
    f = torch.stack([v / v.norm() if v.norm() > 1 else v for v in x])
    c = torch.stack([torch.stack([(a - b).norm() for b in f]) for a in w])  # (m, n)
    n, kernel, t = len(x), torch.exp(-eps * c), torch.tensor(1.0, dtype=x.dtype)
    for _ in range(steps):
        rho = (1 / n) / (1 + t * kernel.sum(0))
        t = mu / (kernel @ rho).sum()
    return rho, t * kernel * rho


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def path(request, monkeypatch):
    monkeypatch.setattr(threads, "WORTH_IT", 0 if request.param == "compiled" else np.inf)


def make(**options):
    torch.manual_seed(0)
    return create_pool("gsp", DIM, **{"prototypes": 6, **options}).double()


@pytest.mark.parametrize(
    ("mu", "eps", "steps"), [(0.3, 5.0, 200), (0.3, 0.5, 100), (0.7, 20.0, 3000), (0.1, 5.0, 400)]
)
@pytest.mark.parametrize("scale", [0.1, 0.4, 3.0])
def test_published_iteration(mu, eps, steps, scale):
    pool, x = make(mu=mu, eps=eps), torch.randn(2, 10, DIM, dtype=torch.float64) * scale
    u, p = pool.attend(x)
    _, z = pool.with_histogram(x)
    for i in range(2):
        rho, pi = prop_4_1(x[i], pool.prototypes.detach(), mu, eps, steps)
        expected = (1 / 10 - rho) / mu  # [GSP Sec. 4.1]
        torch.testing.assert_close(p[i, 0], expected, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(u[i], expected @ x[i], rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(z[i], pi.sum(1) / mu, rtol=1e-8, atol=1e-10)  # [GSP Sec. 4.3]
        torch.testing.assert_close(pool.transport(x)[1][i], pi.T / mu, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(z.sum(1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("mu", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("eps", [0.5, 5.0, 200.0, 2000.0])
def test_root(mu, eps):
    x = torch.randn(4, 40, DIM, dtype=torch.float64)
    s = (-eps * costs(x, make().prototypes.detach())).logsumexp(-1)
    b = solve(s, mu)
    for row, root in zip(s.numpy(), b[:, 0].tolist(), strict=True):
        exact = brentq(
            lambda t, row=row: (1 / (1 + np.exp(-np.clip(row + t, -700, 700)))).mean() - mu,
            -1e5,
            1e5,
        )
        share = lambda t, row=row: 1 / (1 + np.exp(-np.clip(row + t, -700, 700)))  # noqa: E731
        np.testing.assert_allclose(share(root), share(exact), atol=1e-7)


def test_gradient_is_the_implicit_one():
    """The compiled backward, the autograd form and finite differences of the layer agree."""
    pool, x = make(eps=20.0), torch.randn(2, 10, DIM, dtype=torch.float64) * 0.4
    x.requires_grad_()
    r, rp = torch.randn(2, DIM, dtype=torch.float64), torch.randn(2, 10, dtype=torch.float64)
    u, p = pool.attend(x)
    ours = torch.autograd.grad((u * r).sum() + (p[:, 0] * rp).sum(), [x, pool.prototypes])
    p = weights(
        costs(x, pool.prototypes / pool.prototypes.norm(dim=1, keepdim=True).clamp_min(1)),
        0.3,
        20.0,
    )
    theirs = torch.autograd.grad(
        ((p[:, None] @ x)[:, 0] * r).sum() + (p * rp).sum(), [x, pool.prototypes]
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
    assert torch.autograd.gradcheck(
        lambda w: _with(pool, w)(x.detach()), (pool.prototypes.detach().requires_grad_(),)
    )


def _with(pool, prototypes):
    return lambda x: torch.func.functional_call(pool, {"prototypes": prototypes}, (x,))


def test_the_histogram_takes_what_the_pool_takes():
    pool, x = make().float(), torch.randn(2, 10, DIM)
    u, z = pool.with_histogram(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for ours, theirs in zip(pool.with_histogram(x), (u, z), strict=True):
            torch.testing.assert_close(ours, theirs)
    assert pool.with_histogram(x.half())[1].dtype == torch.float32
    with pytest.raises(ValueError, match=r"'gsp'.*\(2, 12, 3, 4\)"):
        pool.with_histogram(torch.randn(2, DIM, 3, 4))


def test_mu_one_is_gap():
    pool, x = make(mu=1.0), torch.randn(3, 10, DIM, dtype=torch.float64)
    torch.testing.assert_close(pool(x), x.mean(1), rtol=1e-12, atol=1e-12)


def test_mu_towards_one_and_towards_zero():
    x = torch.randn(1, 20, DIM, dtype=torch.float64) * 0.3
    torch.testing.assert_close(make(mu=1 - 1e-9)(x), x.mean(1), atol=1e-6, rtol=1e-6)
    p = make(mu=0.05, eps=500.0).attend(x)[1][0, 0]  # 1 of 20: the token nearest to any prototype
    assert p.argmax() == costs(x, make().prototypes.detach()).amin(-1).argmin() and p.max() > 0.9


@pytest.mark.parametrize("eps", [100.0, 200.0, 1000.0])
def test_sharp_transport_stays_finite_in_float32(eps):
    pool, x = make(eps=eps).float(), (torch.randn(2, 50, DIM) * 0.5).requires_grad_()
    pool(x).square().sum().backward()
    assert (
        x.grad.isfinite().all()
        and pool.prototypes.grad.isfinite().all()
        and pool.prototypes.grad.abs().sum() > 0
    )


def test_plus():
    x = torch.randn(2, 10, DIM, dtype=torch.float64)
    plain = make()(x)
    torch.testing.assert_close(make(plus="max")(x), plain + x.amax(1))
    torch.testing.assert_close(
        make(plus="gem")(x), plain + x.clamp_min(1e-6).pow(3).mean(1).pow(1 / 3)
    )


def test_fit_keeps_the_optimizers_hold():
    pool, x = make(), torch.randn(2, 10, DIM, dtype=torch.float64)
    optimizer = torch.optim.SGD(pool.parameters(), lr=1.0)
    pool.fit(x)
    assert optimizer.param_groups[0]["params"][0] is pool.prototypes
    torch.testing.assert_close(pool.prototypes[0], x[0, 0] / (x[0, 0].norm() / 1.01).clamp(min=1))


def test_prototypes_begin_near_the_ball_that_costs_see():
    """The pool is the one with the full length of long tokens, which an optimizer would turn
    slowly.
    """
    x = 50 * torch.randn(2, 10, DIM, dtype=torch.float64)
    pool, long = make().fit(x), make()
    assert pool.prototypes.norm(dim=1).max() < 1.01 + 1e-12
    with torch.no_grad():
        long.prototypes.copy_(50 * pool.prototypes)
    torch.testing.assert_close(pool(x), long(x))
    tokens = 20 * torch.randn(2, 10, DIM).half()
    lengths = make().half().fit(tokens).prototypes.float().norm(dim=1)
    torch.testing.assert_close(
        lengths, torch.full((6,), 1.01), rtol=2e-3, atol=0
    )  # half floats have 11 bits


def test_prototypes_are_apart_where_tokens_are_few():
    pool = make(prototypes=30).fit(torch.randn(1, 4, DIM, dtype=torch.float64))
    apart = torch.cdist(pool.prototypes, pool.prototypes) + torch.eye(30)
    assert 0.01 < apart.min() < 0.3


@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize("plus", [None, "max"])
def test_local_embeds_every_position_before_all_else(mu, plus):
    x = torch.randn(3, 20, DIM, dtype=torch.float64)
    pool = make(mu=mu, plus=plus, local=5).fit(x)
    inner = create_pool("gsp", 5, prototypes=6, mu=mu, plus=plus).double()
    inner.load_state_dict(
        {name: v for name, v in pool.state_dict().items() if not name.startswith("local.")}
    )
    u, p = pool.attend(x)
    assert u.shape == (3, 5) == (3, pool.out_dim)
    for found, wanted in zip((u, p), inner.attend(pool.local(x)), strict=True):
        torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(pool.with_histogram(x)[1], inner.with_histogram(pool.local(x))[1])
    torch.testing.assert_close(
        pool.algorithm().run(pool.local(x), None)[0][:, 0], u, rtol=1e-4, atol=1e-6
    )
    u.square().sum().backward()
    assert all(w.grad is not None and w.grad.abs().sum() > 0 for w in pool.local.parameters())


def test_prototypes_of_the_background_leave_what_lies_near_them():
    pool, x = make(background=True), torch.randn(2, 10, DIM, dtype=torch.float64) * 0.4
    x.requires_grad_()
    (u, p), (_, z) = pool.attend(x), pool.with_histogram(x)
    for i in range(2):
        rho, pi = prop_4_1(x[i].detach(), pool.prototypes.detach(), 0.3, 5.0, 200)
        torch.testing.assert_close(p[i, 0], rho / 0.7, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(u[i], rho / 0.7 @ x[i], rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(z[i], pi.sum(1) / 0.3, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(pool.transport(x)[1][i], pi.T / 0.3, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(pool.algorithm().run(x, None)[0][:, 0], u)
    r, rp = torch.randn_like(u), torch.randn_like(p[:, 0])
    ours = torch.autograd.grad((u * r).sum() + (p[:, 0] * rp).sum(), [x, pool.prototypes])
    left = 1 / 7 - 3 / 7 * weights(
        costs(x, pool.prototypes / pool.prototypes.norm(dim=1, keepdim=True).clamp_min(1)), 0.3, 5.0
    )
    theirs = torch.autograd.grad(
        ((left[:, None] @ x)[:, 0] * r).sum() + (left * rp).sum(), [x, pool.prototypes]
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mu": 0.0}, r"mu\b.*0\.0"),
        ({"mu": 1.5}, r"mu\b.*1\.5"),
        ({"eps": 0.0}, r"eps\b.*0\.0"),
        ({"plus": "gap"}, r"plus\b.*'gap'"),
        ({"mu": 1.0, "background": True}, r"mu\b.*background"),
    ],
)
def test_bad_options_are_refused(options, named):
    with pytest.raises(ValueError, match=named):
        create_pool("gsp", DIM, **options)
