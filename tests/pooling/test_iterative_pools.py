"""Group 2 against loops, scipy's k-means, and its own row of the framework."""

import math

import pytest
import scipy.cluster.vq
import torch

from cenote.pooling import create_pool
from cenote.pooling.otk import inverse_root, sinkhorn
from tests.pooling.comparing import agree, features

SCALES = (1e-2, 1.0, 1e2)


# OTK


def otk_oracle(pool, x):
    u, vectors = pool.references, []
    for image in x:
        n, k = len(image), len(u)
        s = torch.stack(
            [torch.stack([-(v - r).square().sum() / pool.eps for r in u]) for v in image]
        )  # p x k
        for _ in range(pool.iterations):
            s = s - torch.logsumexp(s, 1, keepdim=True) - math.log(n)  # each position sends 1/p
            s = s - torch.logsumexp(s, 0, keepdim=True) - math.log(k)  # each reference receives 1/k
        vectors.append(s.exp().mT @ pool.psi(image[None])[0])
    return torch.stack(vectors)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "options", [{}, {"k": 2, "eps": 0.7, "iterations": 5}, {"anchors": 4, "sigma": 2.0}]
)
def test_otk(options, scale):
    torch.manual_seed(0)
    pool = create_pool("otk", 5, **options).double()
    x, parameters = features(scale), list(pool.parameters())
    agree(pool, lambda t: otk_oracle(pool, t), x, parameters)
    agree(pool, lambda t: pool.algorithm().run(t)[0], x, parameters)
    torch.testing.assert_close(
        pool.attend(x)[1].sum(-1), torch.full((2, pool.k), 1 / pool.k, dtype=torch.double)
    )


def test_sinkhorn_reaches_both_marginals_and_the_plan_of_the_linear_domain():
    s = features(1.0, (1, 3, 7))
    plan = sinkhorn(s, 100)[0]
    torch.testing.assert_close(plan.sum(0), torch.full((7,), 1 / 7, dtype=torch.double))
    row, column, kernel = torch.ones(3).double(), torch.ones(7).double(), s[0].exp()
    for _ in range(100):
        row = 1 / 3 / (kernel @ column)
        column = 1 / 7 / (kernel.mT @ row)
    torch.testing.assert_close(plan, row[:, None] * kernel * column)


def test_nystroem_features_give_the_kernel_of_the_anchors():
    torch.manual_seed(0)
    pool, x = create_pool("otk", 5, anchors=6).double(), features(1.0)
    kernel = lambda a, b: (-torch.cdist(a, b).square() / (2 * 5)).exp()  # noqa: E731
    w = pool.anchors[None]
    psi = pool.psi(x)
    inner = torch.linalg.inv(kernel(w, w) + 1e-3 * torch.eye(6))
    torch.testing.assert_close(psi @ psi.mT, kernel(x, w) @ inner @ kernel(w, x))


@pytest.mark.parametrize("spread", [0.0, 1e-9, 1.0])
def test_inverse_root_and_its_gradient_where_eigenvectors_fail(spread):
    torch.manual_seed(0)
    m = (torch.eye(4) + spread * torch.randn(4, 4)).double()
    m = (m @ m.mT).requires_grad_()
    values, vectors = torch.linalg.eigh(m.detach() + 1e-3 * torch.eye(4))
    torch.testing.assert_close(inverse_root(m).detach(), vectors * values.rsqrt() @ vectors.mT)
    assert torch.autograd.gradcheck(inverse_root, m)


# k-means


def start(pool, n):
    """The columns of X that U⁰ is drawn from."""
    bounds = [i * n // pool.k for i in range(pool.k + 1)]
    return [
        a + int(float(r) * (b - a)) for r, a, b in zip(pool.draw, bounds, bounds[1:], strict=False)
    ]


def lloyd(pool, x):
    """-> centroids, and the cluster each position was last in."""
    vectors, clusters = [], []
    for image in x:
        u = [image[i] for i in start(pool, len(image))]
        for _ in range(pool.iterations):
            distances = [[float((v - c).detach().square().sum()) for c in u] for v in image]
            nearest = [row.index(min(row)) for row in distances]
            new = []
            for j in range(pool.k):
                members = [v for v, c in zip(image, nearest, strict=True) if c == j]
                new.append(sum(members) / len(members) if members else u[j])
            moved = max(float((a - b).detach().norm()) for a, b in zip(u, new, strict=True))
            u = new
            if moved < pool.tol:
                break
        vectors.append(torch.stack(u))
        clusters.append(nearest)
    return torch.stack(vectors), clusters


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "options", [{}, {"k": 4, "iterations": 2, "seed": 3}, {"k": 1}, {"tol": 0.6}]
)
def test_kmeans(options, scale):
    pool, x = create_pool("kmeans", 5, **options).double(), features(scale, (16, 12, 5))
    u = (lambda t: pool(t)[:, None]) if pool.k == 1 else pool
    agree(u, lambda t: lloyd(pool, t)[0], x)
    _, a = pool.attend(x)
    assert a.argmax(1).tolist() == lloyd(pool, x)[1]
    torch.testing.assert_close(
        a @ x, u(x)
    )  # an image that is done keeps the map its centroids came from


def test_kmeans_agrees_with_scipy():
    pool, x = create_pool("kmeans", 5, tol=0.0).double(), features(1.0)
    for image, centroids in zip(x, pool(x), strict=True):
        first = image[start(pool, len(image))].numpy()
        expected, _ = scipy.cluster.vq.kmeans2(image.numpy(), first, iter=5, minit="matrix")
        torch.testing.assert_close(centroids, torch.from_numpy(expected))


def test_kmeans_draws_one_column_of_each_stretch():
    for n in range(3, 50):
        columns = start(create_pool("kmeans", 5, seed=n), n)
        assert all(i * n // 3 <= column < (i + 1) * n // 3 for i, column in enumerate(columns))


def test_kmeans_ties_and_empty_clusters():
    x = torch.ones(1, 6, 2)
    u, a = create_pool("kmeans", 2).attend(x)
    assert a[0].sum(-1).tolist() == pytest.approx([1, 0, 0])  # all to the lowest index
    torch.testing.assert_close(u, torch.ones(1, 3, 2))  # the empty ones keep their centroid


def test_kmeans_freezes_each_image_alone():
    x = torch.cat([features(1e-4), features(1.0)])  # the first two move less than tol at once
    once, five = create_pool("kmeans", 5, iterations=1)(x), create_pool("kmeans", 5)(x)
    torch.testing.assert_close(once[:2], five[:2], rtol=1e-12, atol=1e-16)
    assert not torch.allclose(once[2:], five[2:])


def test_kmeans_needs_k_tokens():
    with pytest.raises(ValueError, match=r"'kmeans'.*\b3\b.*\b2\b"):
        create_pool("kmeans", 5)(torch.ones(1, 2, 5))


# Slot attention


def slot_oracle(pool, x):
    def norm(v, layer):
        return (v - v.mean()) / (v.var(correction=0) + layer.eps).sqrt() * layer.weight + layer.bias

    w_i, w_h, b_i, b_h = pool.gru.weight_ih, pool.gru.weight_hh, pool.gru.bias_ih, pool.gru.bias_hh
    vectors = []
    for image in x:
        u = [pool.mu + pool.log_sigma.exp() * noise for noise in pool.noise]
        normed = [norm(v, pool.norm_x) for v in image]
        keys, values = [pool.wk.weight @ v for v in normed], [pool.wv.weight @ v for v in normed]
        for _ in range(pool.iterations):
            queries = [pool.wq.weight @ norm(s, pool.norm_u) for s in u]
            s = torch.stack(
                [torch.stack([q @ k / math.sqrt(pool.dim) for q in queries]) for k in keys]
            )  # p x k
            a = s.softmax(1) + pool.eps
            a = a / a.sum(0)
            new = []
            for j, h in enumerate(u):
                z = sum(a[i, j] * v for i, v in enumerate(values))
                (ir, iz, i_n), (hr, hz, hn) = (w_i @ z + b_i).chunk(3), (w_h @ h + b_h).chunk(3)
                r, gate = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
                g = (1 - gate) * torch.tanh(i_n + r * hn) + gate * h
                hidden = (pool.mlp[0].weight @ norm(g, pool.norm_mlp) + pool.mlp[0].bias).relu()
                new.append(g + pool.mlp[2].weight @ hidden + pool.mlp[2].bias)
            u = new
        vectors.append(torch.stack(u))
    return torch.stack(vectors)


@pytest.mark.parametrize("scale", SCALES)
def test_slot(scale):
    torch.manual_seed(0)
    pool = create_pool("slot", 5).double().eval()
    x, parameters = features(scale), list(pool.parameters())
    agree(pool, lambda t: slot_oracle(pool, t), x, parameters)
    agree(pool, lambda t: pool.algorithm().run(t)[0], x, parameters)


def test_slot_has_eleven_d_squared_weights_and_fresh_noise_only_in_training():
    pool, x = create_pool("slot", 16), torch.randn(2, 4, 16)
    assert sum(p.numel() for p in pool.parameters() if p.ndim == 2) == 11 * 16**2
    assert not torch.equal(pool(x), pool(x))
    pool.eval()
    assert torch.equal(pool(x), pool(x))
    assert torch.equal(pool.noise, create_pool("slot", 16).noise)
    assert not torch.equal(pool.noise, create_pool("slot", 16, seed=1).noise)
