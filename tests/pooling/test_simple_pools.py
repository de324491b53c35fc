"""Group 1 against the equations in loops, scipy's means, and its own row of the framework."""

import math

import pytest
import scipy.special
import scipy.stats
import torch

from cenote.pooling import create_pool, f_alpha
from tests.pooling.comparing import agree, features

SCALES = (1e-2, 1.0, 1e2)


def per_channel(x, fn):
    """fn on the list of an image's values in one channel."""
    return torch.stack(
        [torch.stack([fn(image[:, c].unbind()) for c in range(x.shape[2])]) for image in x]
    )


def log_mean_exp(values, r):
    top = max(float((r * v).detach()) for v in values)
    return (top + torch.log(sum(torch.exp(r * v - top) for v in values) / len(values))) / r


ORACLES = {
    "gap": lambda pool, v: sum(v) / len(v),
    "max": lambda pool, v: max(v),
    "gap+max": lambda pool, v: sum(v) / len(v) + max(v),
    "gem": lambda pool, v: (
        (sum(e.clamp_min(1e-6) ** pool.gamma for e in v) / len(v)) ** (1 / pool.gamma)
    ),
    "lse": lambda pool, v: log_mean_exp(v, pool.r),
    "glsep": lambda pool, v: log_mean_exp(v, 1) + math.log(len(v)),
    "tap": lambda pool, v: mean([e for e in v if e > pool.theta * max(v) or e == max(v)]),
}


def mean(values):
    return sum(values) / len(values)


OPTIONS = [(name, {}) for name in ORACLES] + [
    ("gem", {"gamma": 3.7}),
    ("gem", {"learnable": False}),
    ("gem", {"gamma": 1.25, "learnable": False}),
    ("lse", {"r": 0.5}),
    ("lse", {"r": -4.0}),
    ("tap", {"theta": 0.7}),
]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_oracle_and_row(name, options, scale):
    pool = create_pool(name, 5, **options).double()
    x, parameters = features(scale), list(pool.parameters())
    agree(pool, lambda t: per_channel(t, lambda values: ORACLES[name](pool, values)), x, parameters)
    agree(pool, lambda t: pool.algorithm().run(t)[0][:, 0], x, parameters)


def test_average_option_is_half_the_sum():
    x = features(1.0)
    torch.testing.assert_close(
        create_pool("gap+max", 5, average=True)(x), create_pool("gap+max", 5)(x) / 2
    )


def test_lse_and_glsep_agree_with_scipy():
    x = features(30.0)
    lse = scipy.special.logsumexp(10 * x.numpy(), axis=1, b=1 / x.shape[1]) / 10
    torch.testing.assert_close(create_pool("lse", 5).double()(x).detach(), torch.from_numpy(lse))
    torch.testing.assert_close(
        create_pool("glsep", 5)(x), torch.from_numpy(scipy.special.logsumexp(x.numpy(), axis=1))
    )


def test_lse_passes_through_zero():
    x = features(1.0)
    pool = create_pool("lse", 5, r=0.0).double()
    u = pool(x)
    assert (u - x.mean(1)).abs().max() < 0.02  # its limit at r = 0
    u.sum().backward()
    assert pool.r.grad.isfinite() and pool.r.grad > 0  # u grows with r: the value may leave zero
    low, high = (create_pool("lse", 5, r=r).double()(x) for r in (-1e3, 1e3))
    torch.testing.assert_close(
        torch.stack([low, high]), torch.stack([x.amin(1), x.amax(1)]), rtol=0, atol=1e-2
    )


def test_gem_does_not_overflow_when_gamma_has_grown():
    x = features(1e4).abs().float()
    u = create_pool("gem", 5, gamma=60.0)(x)
    torch.testing.assert_close(u, x.amax(1), rtol=0.05, atol=0)  # 12^(1/60) = 1.04


@pytest.mark.parametrize(
    ("alpha", "p"),
    [(-math.inf, math.inf), (-3, 2), (-1, 1), (1, 0), (3, -1), (math.inf, -math.inf)],
)
def test_six_means_of_f_alpha(alpha, p):
    v, a = features(1.0).abs() + 0.1, torch.rand(2, 3, 12, dtype=torch.double).softmax(-1)
    means = {math.inf: lambda x, weights: x.max(), -math.inf: lambda x, weights: x.min()}
    mean = means.get(p, lambda x, weights: scipy.stats.pmean(x, p, weights=weights))
    expected = [
        [[mean(v[b, :, c].numpy(), a[b, k].numpy()) for c in range(5)] for k in range(3)]
        for b in range(2)
    ]
    torch.testing.assert_close(f_alpha(alpha)(v, a), torch.tensor(expected, dtype=torch.double))


def how_oracle(pool, x, height, width):
    reach, vectors = pool.kernel // 2, []
    for image in x:
        z = 0
        for i in range(height):
            for j in range(width):
                rows = range(max(0, i - reach), min(height, i + reach + 1))
                columns = range(max(0, j - reach), min(width, j + reach + 1))
                near = [image[r * width + c] for r in rows for c in columns]
                value = pool.weight @ (sum(near) / len(near) - pool.mean)
                z = z + image[i * width + j].norm() * value
        vectors.append(z / z.norm())
    return torch.stack(vectors)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("name", "options"),
    [("how", {}), ("how", {"kernel": 1, "out_dim": 3}), ("smk", {"out_dim": 3})],
)
def test_how_and_smk(name, options, scale):
    pool, x = create_pool(name, 5, **options).double(), features(scale)
    pool.fit(features(scale, (6, 12, 5)) + 0.3, (3, 4))
    parameters = list(pool.parameters())
    assert len(parameters) == (2 if name == "smk" else 0)
    agree(lambda t: pool(t, (3, 4)), lambda t: how_oracle(pool, t, 3, 4), x, parameters)
    agree(
        lambda t: pool(t, (3, 4)), lambda t: pool.algorithm().run(t, (3, 4))[0][:, 0], x, parameters
    )
    torch.testing.assert_close(pool.attend(x, (3, 4))[1].flatten(1), x.norm(dim=-1))


def test_how_fit_whitens_the_smoothed_features():
    x = features(1.0, (40, 12, 5)) * torch.tensor([5.0, 1.0, 3.0, 2.0, 4.0]) + 7
    pool = create_pool("how", 5, out_dim=2).double().fit(x, (3, 4))
    v = (pool.smooth(x, (3, 4)).flatten(0, 1) - pool.mean) @ pool.weight.mT
    torch.testing.assert_close(v.mT @ v / len(v), torch.eye(2, dtype=torch.double))
    torch.testing.assert_close(v.mean(0), torch.zeros(2, dtype=torch.double), rtol=0, atol=1e-9)
    assert set(pool.weight.abs().argmax(1).tolist()) == {
        0,
        4,
    }  # the two directions of largest variance


def test_how_fit_on_few_features_does_not_blow_up_the_directions_they_lack():
    pool = create_pool("how", 5).double().fit(features(1.0, (1, 3, 5)), (1, 3))  # rank 2
    singular = torch.linalg.svdvals(pool.weight)
    assert (
        singular[0] / singular[-1] < 1.01e3
        and create_pool("how", 5).fit(torch.ones(1, 3, 5), (1, 3)).weight.isfinite().all()
    )


def test_how_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match=r"'how'.*grid"):
        create_pool("how", 5)(features(1.0))
    with pytest.raises(ValueError, match=r"'how'.*kernel\b.*\b2\b"):
        create_pool("how", 5, kernel=2)
    with pytest.raises(ValueError, match=r"'how'.*\b6\b.*\b5\b"):
        create_pool("how", 5, out_dim=6)
    assert create_pool("how", 5, kernel=1)(features(1.0)).shape == (2, 5)  # no neighbours, no grid
