"""Group 7 against loops over their papers' equations, least squares, torch.cov, and their rows of
the framework.
"""

import math

import pytest
import torch
from torch import nn

from cenote.pooling import NoAttention, create_pool
from tests.pooling.comparing import agree, features, lively

SCALES = (1e-2, 1.0, 1e2)


def crow(pool, image):
    n, d = image.shape
    s = [sum(image[j]).clamp_min(0) for j in range(n)]
    total = sum(v**pool.a for v in s) ** (1 / pool.a)
    alpha = [(v / total) ** (1 / pool.b) if v > 0 else 0 for v in s]
    share = [sum(bool(image[j, c] > 0) for j in range(n)) / n for c in range(d)]
    boost = [math.log((d * pool.eps + sum(share)) / (pool.eps + q)) for q in share]
    return torch.stack(
        [boost[c] * sum(a * image[j, c] for j, a in enumerate(alpha)) for c in range(d)]
    )


def delf(pool, image):
    one, _, two, _ = pool.score
    scores = [
        torch.log1p((two.weight[0] @ (one.weight @ v + one.bias).relu() + two.bias[0]).exp())
        for v in image
    ]
    return sum(a * v for a, v in zip(scores, image, strict=True))


def gemax(pool, image):
    n, d = image.shape
    penalty = pool.ridge * sum(v @ v for v in image) / n
    system = torch.cat(
        [image, penalty.sqrt() * torch.eye(d, dtype=image.dtype)]
    )  # ‖Xᵀu - 1‖² + λ‖u‖²
    target = torch.cat([torch.ones(n), torch.zeros(d)]).to(image)
    return torch.linalg.lstsq(system, target[:, None]).solution[:, 0]


def batch_norm(bn, y, dim):
    shape = [-1 if i == dim else 1 for i in range(y.ndim)]
    mean, var, weight, bias = (
        v.view(shape) for v in (bn.running_mean, bn.running_var, bn.weight, bn.bias)
    )
    return (y - mean) / (var + bn.eps).sqrt() * weight + bias


def gsop(pool, image):
    y = batch_norm(pool.norm, image @ pool.reduce.weight.mT + pool.reduce.bias, 1).relu()
    rows = batch_norm(
        pool.row_norm, torch.cov(y.mT, correction=0), 0
    )  # each row has statistics of its own
    outs = [
        pool.row.weight[4 * r + i, 0] @ row + pool.row.bias[4 * r + i]
        for r, row in enumerate(rows)
        for i in range(4)
    ]
    return torch.sigmoid(pool.expand.weight @ torch.stack(outs) + pool.expand.bias) * image.mean(0)


def solar(pool, image):
    f, g = (
        batch_norm(m[1], image @ m[0].weight.mT + m[0].bias, 1).relu() for m in (pool.f, pool.g)
    )
    h = image @ pool.h.weight.mT + pool.h.bias
    ys = []
    for i, v in enumerate(image):
        a = torch.stack([f[i] @ g[j] / math.sqrt(f.shape[1]) for j in range(len(image))]).softmax(0)
        ys.append(v + pool.v.weight @ sum(a[j] * h[j] for j in range(len(image))) + pool.v.bias)
    y = torch.stack(ys).clamp_min(1e-6)
    return (y**pool.gamma).mean(0) ** (1 / pool.gamma)


def netvlad(pool, image):
    x = torch.stack([v / v.norm() for v in image])
    a = (x @ pool.weight.mT + pool.bias).softmax(1)  # N x k
    residuals = x[:, None] - pool.centroids  # N x k x D
    z = (a[..., None] * residuals).sum(0)
    z = torch.stack([v / v.norm() for v in z])
    return z / z.norm()


def weldon(pool, image):
    ordered = [sorted(image[:, c].unbind()) for c in range(image.shape[1])]
    return torch.stack(
        [sum(v[-pool.top :]) / pool.top + sum(v[: pool.low]) / max(1, pool.low) for v in ordered]
    )


POOLS = [
    (crow, {}),
    (crow, {"a": 3.0, "b": 1.5}),
    (delf, {"hidden": 7}),
    (gemax, {}),
    (gemax, {"ridge": 0.01}),
    (gsop, {"hidden": 3}),
    (solar, {"reduction": 2}),
    (netvlad, {"k": 3, "alpha": 2.0}),
    (weldon, {}),
    (weldon, {"top": 1, "low": 4}),
    (weldon, {"top": 2, "low": 0}),
]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("tokens", [4, 12])  # fewer and more positions than channels
@pytest.mark.parametrize(("oracle", "options"), POOLS)
def test_oracle_and_row(oracle, options, tokens, scale):
    pool = lively(create_pool(oracle.__name__, 5, **options))
    x, parameters = features(scale, (2, tokens, 5)), list(pool.parameters())
    agree(pool, lambda t: torch.stack([oracle(pool, image) for image in t]), x, parameters)
    row = lambda t: pool.algorithm().run(t)[0]  # noqa: E731
    agree(pool, row if pool.k > 1 else lambda t: row(t)[:, 0], x, parameters)


def test_crow_weighs_rare_channels_and_strong_positions_more():
    x = torch.tensor(
        [[[4.0, 0.0], [1.0, 1.0]]]
    )  # channel 0 is on everywhere, channel 1 at one of two positions
    u, a = create_pool("crow", 2).attend(x)
    norm = math.sqrt(4**2 + 2**2)
    assert a[0, 0].tolist() == pytest.approx([math.sqrt(4 / norm), math.sqrt(2 / norm)])
    weights = torch.tensor([math.log(1.5 / 1), math.log(1.5 / 0.5)])
    torch.testing.assert_close(u[0], weights * (a[0, 0] @ x[0]), rtol=1e-4, atol=0)


def test_gemax_makes_every_feature_equally_similar():
    x = features(1.0, (2, 4, 5))
    u = create_pool("gemax", 5, ridge=1e-9)(x)
    torch.testing.assert_close(
        (x @ u[..., None])[..., 0], torch.ones(2, 4, dtype=torch.double), rtol=0, atol=1e-5
    )
    with pytest.raises(NoAttention, match="'gemax'"):
        create_pool("gemax", 5).attend(x)


def test_solar_starts_as_gem():
    x = features(1.0)
    torch.testing.assert_close(
        create_pool("solar", 5).double()(x), create_pool("gem", 5, gamma=3.0).double()(x)
    )


def test_netvlad_starts_as_vlad_assigns_and_has_length_one():
    torch.manual_seed(0)
    pool, x = create_pool("netvlad", 5, k=4).double(), features(3.0)
    u, a = pool.attend(x)
    torch.testing.assert_close(u.flatten(1).norm(dim=1), torch.ones(2, dtype=torch.double))
    unit = nn.functional.normalize(x, dim=-1)
    assert torch.equal(a.argmax(1), torch.cdist(unit, pool.centroids.expand(2, -1, -1)).argmin(-1))
    torch.testing.assert_close(a.sum(1), torch.ones(2, 12, dtype=torch.double))


def test_refusals():
    with pytest.raises(ValueError, match=r"'weldon'.*\b4\b.*\b3\b"):
        create_pool("weldon", 5, low=4)(features(1.0, (1, 3, 5)))
    with pytest.raises(ValueError, match=r"'weldon'.*top\b.*\b0\b"):
        create_pool("weldon", 5, top=0)
    with pytest.raises(ValueError, match=r"'gemax'.*ridge\b.*\b0\b"):
        create_pool("gemax", 5, ridge=0)
