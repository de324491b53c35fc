"""SimPool against Algorithm 2 written out in loops, against timm, and against released checkpoints'
names.
"""

import math

import pytest
import torch
from timm.layers import SimPool1d, SimPool2d

from cenote.pooling import create_pool
from cenote.pooling.kernels import threads
from cenote.pooling.simpool import SimPool

DIM = 16


def algorithm_2(pool: SimPool, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One image at a time, one position at a time, from the equations."""
    vectors, maps = [], []
    for image in x:
        u0 = sum(image) / len(image)  # [SimPool Eq. 12]
        normed = []
        for token in image:
            mean = token.mean()
            normed.append((token - mean) / torch.sqrt(((token - mean) ** 2).mean() + 1e-6))
        normed = torch.stack(normed) * pool.norm.weight + pool.norm.bias
        q = pool.wq.weight @ u0  # [SimPool Eq. 13]
        scores = torch.stack(
            [(pool.wk.weight @ token) @ q / math.sqrt(len(q)) for token in normed]
        )  # [SimPool Eq. 14]
        a = scores.exp() / scores.exp().sum()  # [SimPool Eq. 15]
        if pool.gamma is None:
            u = sum(w * token for w, token in zip(a, normed, strict=True))
        else:
            v = normed - normed.min()  # [SimPool Eq. 16]
            u = sum(w * token**pool.gamma for w, token in zip(a, v, strict=True)) ** (
                1 / pool.gamma
            )  # [SimPool Eq. 17]
        vectors.append(u)
        maps.append(a)
    return torch.stack(vectors), torch.stack(maps)


def make(dtype=torch.float64, **options) -> SimPool:
    torch.manual_seed(0)
    pool = create_pool("simpool", DIM, **options).to(dtype)
    torch.nn.init.normal_(pool.norm.weight, 1, 0.3)
    torch.nn.init.normal_(pool.norm.bias)
    return pool


def grads(loss: torch.Tensor, x: torch.Tensor, pool: SimPool) -> list[torch.Tensor]:
    return list(
        torch.autograd.grad(
            loss, [x, pool.wq.weight, pool.wk.weight, pool.norm.weight, pool.norm.bias]
        )
    )


@pytest.mark.parametrize("gamma", [None, 1.0, 1.25, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("layout", ["tokens", "map"])
@pytest.mark.parametrize("path", ["compiled", "plain"])
def test_algorithm_2(gamma, scale, layout, path, monkeypatch):
    monkeypatch.setattr(threads, "WORTH_IT", 0 if path == "compiled" else math.inf)
    pool = make(gamma=gamma)
    x = torch.randn(3, 7, DIM, dtype=torch.float64) * scale
    x = x.mT.contiguous().mT.requires_grad_() if layout == "map" else x.requires_grad_()
    u, a = pool.attend(x)
    u_slow, a_slow = algorithm_2(pool, x)
    torch.testing.assert_close(u, u_slow, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(a[:, 0], a_slow, rtol=1e-10, atol=1e-12)
    r, s = torch.randn_like(u), torch.randn_like(a_slow)
    fast = grads((u * r).sum() + (a[:, 0] * s).sum(), x, pool)
    slow = grads((u_slow * r).sum() + (a_slow * s).sum(), x, pool)
    for ours, theirs in zip(fast, slow, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("gamma", "loops"), [(1.25, True), (1.5, False)])
def test_loops_are_for_powers_that_are_fast_in_them(gamma, loops, monkeypatch):
    monkeypatch.setattr(threads, "WORTH_IT", 0)
    u = make(gamma=gamma)(torch.randn(2, 7, DIM, dtype=torch.float64, requires_grad=True))
    functions, names = [u.grad_fn], set()
    while functions:
        function = functions.pop()
        names.add(function.name())
        functions += [parent for parent, _ in function.next_functions if parent is not None]
    assert ("_SimPoolBackward" in names) == loops


def test_parts_of_a_batch_do_not_matter(monkeypatch):
    pool, x = make(gamma=2.0), torch.randn(5, 7, DIM, dtype=torch.float64)
    plain = pool(x)
    monkeypatch.setattr(threads, "WORTH_IT", 0)
    for parts in (1, 2, 5, 100):
        monkeypatch.setattr(threads, "PARTS", parts)
        torch.testing.assert_close(pool(x), plain, rtol=1e-12, atol=1e-12)


def test_function_transforms(monkeypatch):
    """Per-image gradients by torch.func, which the compiled form leaves to plain operations."""
    monkeypatch.setattr(threads, "WORTH_IT", 0)
    pool, x = make(gamma=2.0), torch.randn(3, 7, DIM, dtype=torch.float64)
    one = lambda image: pool(image[None]).sum()  # noqa: E731
    torch.testing.assert_close(
        torch.func.vmap(torch.func.grad(one))(x), torch.stack([torch.func.grad(one)(i) for i in x])
    )


@pytest.mark.parametrize("gamma", [None, 1.25, 2.0])
def test_equals_timm_per_channel(gamma):
    """timm takes the minimum per channel, the paper over the image: equal only where we choose
    theirs.
    """
    theirs = SimPool1d(DIM, gamma=gamma).eval()
    theirs.norm.eps = 1e-6
    pool = create_pool("simpool", DIM, gamma=gamma, floor="channel")
    pool.load_state_dict(theirs.state_dict())
    x = torch.randn(4, 12, DIM)
    torch.testing.assert_close(pool(x), theirs(x), rtol=1e-4, atol=1e-5)
    if gamma is not None:
        paper = create_pool("simpool", DIM, gamma=gamma)
        paper.load_state_dict(theirs.state_dict())
        assert (paper(x) - theirs(x)).abs().max() > 0.5
    two_d = SimPool2d(DIM, gamma=gamma).eval()
    two_d.load_state_dict(theirs.state_dict())
    two_d.norm.eps = 1e-6
    m = torch.randn(2, DIM, 3, 4)
    torch.testing.assert_close(pool.on_map(m), two_d(m), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gamma", [None, 2.0])
def test_released_checkpoint(gamma):
    """The authors' tensor names load, and floor='batch' gives their numbers: the minimum of the
    whole batch.
    """
    g = torch.Generator().manual_seed(3)
    released = {
        "norm_patches.weight": torch.randn(DIM, generator=g),
        "norm_patches.bias": torch.randn(DIM, generator=g),
        "wq.weight": torch.randn(DIM, DIM, generator=g) / 4,
        "wk.weight": torch.randn(DIM, DIM, generator=g) / 4,
    }
    if gamma is not None:
        released["beta"] = torch.tensor([0.25])
    pool = create_pool("simpool", DIM, gamma=gamma, floor="batch")
    pool.load_state_dict(released)
    x = torch.randn(3, 9, DIM, generator=g)
    values = torch.nn.functional.layer_norm(
        x, (DIM,), released["norm_patches.weight"], released["norm_patches.bias"], 1e-6
    )
    q, keys = x.mean(1) @ released["wq.weight"].T, values @ released["wk.weight"].T
    a = (keys @ q[:, :, None] / DIM**0.5).softmax(1)
    if gamma is None:
        expected = (a * values).sum(1)
    else:
        expected = (a * (values - values.min() + 1e-6) ** gamma).sum(1) ** (1 / gamma) + 0.25
    torch.testing.assert_close(pool(x), expected, rtol=1e-4, atol=1e-5)
    pool = create_pool("simpool", DIM, gamma=gamma, floor="batch").double()
    pool.load_state_dict(released)
    assert {p.dtype for p in pool.parameters()} == {
        torch.float64
    }  # beta goes where the other weights are
    network = torch.nn.Sequential(create_pool("simpool", DIM, gamma=gamma, floor="batch"))
    network.load_state_dict({f"0.{name}": tensor for name, tensor in released.items()})
    torch.testing.assert_close(network[0](x), expected, rtol=1e-4, atol=1e-5)


def test_heads_split_channels():
    """m heads are m small SimPools over their own channels of q, K and V."""
    pool, x, d = make(heads=4, gamma=2.0), torch.randn(2, 6, DIM, dtype=torch.float64), DIM // 4
    u, a = pool.attend(x)
    normed = pool.norm(x)
    v = normed - normed.amin((1, 2), keepdim=True)
    q, keys = pool.wq(x.mean(1)), pool.wk(normed)
    for h in range(4):
        part = slice(h * d, (h + 1) * d)
        weights = (keys[:, :, part] @ q[:, part, None] / math.sqrt(d)).softmax(1)
        torch.testing.assert_close(a[:, h], weights[..., 0])
        torch.testing.assert_close(u[:, part], (weights * v[:, :, part] ** 2).sum(1).sqrt())


def test_layers_have_their_own_weights_and_iterations_share():
    layers, iterations = make(layers=3), make(iterations=3)
    count = lambda pool: sum(p.numel() for p in pool.parameters())  # noqa: E731
    assert count(layers) == 3 * 2 * DIM**2 + 2 * DIM and count(iterations) == 2 * DIM**2 + 2 * DIM
    x = torch.randn(2, 6, DIM, dtype=torch.float64)
    u, normed = x.mean(1), iterations.norm(x)
    for _ in range(3):
        a = (iterations.wk(normed) @ iterations.wq(u)[:, :, None] / 4).softmax(1)
        u = (a * normed).sum(1)
    torch.testing.assert_close(iterations(x), u)


def test_starts():
    x = torch.randn(2, 6, DIM, dtype=torch.float64)
    energy = (x**2).sum(-1, keepdim=True)
    for init, u0 in (("norm", (energy * x).sum(1) / energy.sum(1)), ("learned", None)):
        pool = make(init=init)
        u0 = pool.start[0].expand(2, -1) if u0 is None else u0
        normed = pool.norm(x)
        a = (pool.wk(normed) @ pool.wq(u0)[:, :, None] / 4).softmax(1)
        torch.testing.assert_close(pool(x), (a * normed).sum(1))


def test_k_vectors_start_from_k_means():
    pool, x = make(k=2), torch.randn(2, 9, DIM, dtype=torch.float64)
    centroids = create_pool("kmeans", DIM, k=2)(x)
    normed = pool.norm(x)
    a = (pool.wq(centroids) @ pool.wk(normed).mT / 4).softmax(-1)
    torch.testing.assert_close(pool(x), a @ normed)


def test_linear_and_norm_switches():
    """Every row of Table 10 (right): which of q, k, v have a linear map, and which a LayerNorm."""
    x = torch.randn(2, 6, DIM, dtype=torch.float64)
    for linear, norm in (
        ("qkv", "qkv"),
        ("qk", "kv"),
        ("qk", "k"),
        ("qk", "v"),
        ("q", "kv"),
        ("v", "q"),
        ("", ""),
    ):
        torch.manual_seed(0)
        pool = create_pool("simpool", DIM, linear=linear, norm=norm).double()
        q = x.mean(1, keepdim=True)
        q = pool.norm_q(q) if "q" in norm else q
        k = pool.norm(x) if "k" in norm else x
        v = pool.norm(x) if "v" in norm else x
        q, k, v = (
            getattr(pool, f"w{n}")(t) if n in linear else t
            for n, t in (("q", q), ("k", k), ("v", v))
        )
        torch.testing.assert_close(pool(x), ((q @ k.mT / 4).softmax(-1) @ v)[:, 0])
        assert sum(p.numel() for p in pool.parameters() if p.ndim == 2) == len(linear) * DIM**2


def test_keys_are_available():
    pool, x = make(), torch.randn(2, 6, DIM, dtype=torch.float64)
    torch.testing.assert_close(pool.keys(x), pool.norm(x) @ pool.wk.weight.T)


def test_learned_gamma():
    x = torch.randn(2, 6, DIM, dtype=torch.float64)
    learned, fixed = make(gamma=2.0, learn_gamma=True), make(gamma=2.0)
    torch.testing.assert_close(learned(x), fixed(x))
    learned(x).sum().backward()
    assert learned.gamma.grad.abs() > 0
    clamped = make(gamma=9.0, learn_gamma=True, max_gamma=5.0)
    torch.testing.assert_close(clamped(x), make(gamma=5.0)(x))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"floor": "imge"}, r"floor\b.*'imge'"),
        ({"heads": 5}, r"\b5\b.*\b16\b"),
        ({"heads": 4, "similarity": "cosine"}, r"heads\b.*similarity"),
        ({"layers": 2, "iterations": 2}, r"layers\b.*iterations"),
        ({"k": 2, "init": "learned"}, r"\bk\b.*init"),
        ({"tied": True, "linear": "q"}, r"tied\b.*linear"),
        ({"learn_gamma": True}, "learn_gamma"),
        ({"gamma": -1.0}, r"gamma\b.*-1\.0"),
        ({"linear": "qx"}, r"linear\b.*'qx'"),
        ({"init": "zero"}, r"init\b.*'zero'"),
    ],
)
def test_bad_options_are_refused(options, named):
    with pytest.raises(ValueError, match=named):
        create_pool("simpool", DIM, **options)
