"""The attentive probes: the equations with explicit keys and values, the rows of Algorithm 1, timm
and torch.
"""

from functools import partial

import pytest
import torch
from timm.layers import AttentionPool2d, AttentionPoolLatent, AttentionPoolPrr
from torch import Tensor, nn

from cenote.pooling import Pool, create_pool
from cenote.pooling.attention import CrossAttention, head_count
from tests.pooling.comparing import check_equal, shaken

DIM, HEADS, GRID = 12, 3, (2, 3)
H = {"heads": HEADS}
CASES: list[tuple[str, dict[str, object]]] = [
    ("abmilp", {"hidden": 5}),
    ("abmilp", {"hidden": 5, "gated": True, "bias": True, "k": 2}),
    ("ep", {"queries": 4}),
    ("ep", {"queries": 5, "out_dim": 10}),
    ("clip", H),
    ("clip", {**H, "pos_grid": GRID, "out_dim": 7}),
    ("map", H),
    ("map", {**H, "k": 2}),
    ("aim", {**H, "queries": 2}),
    ("aim", {**H, "queries": 2, "average": False}),
    ("jepa", {**H, "k": 2}),
    ("jepa", {**H, "proj": False}),
    ("cae", H),
    ("coca", {**H, "k": 2}),
    ("prr", H),
    ("prr", {**H, "query": "first", "norm": True}),
]


def linear(x: Tensor, layer: nn.Module) -> Tensor:
    if isinstance(layer, nn.Identity):
        return x
    return x @ layer.weight.T + (0 if layer.bias is None else layer.bias)


def attend(attn: nn.Module, u: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Queries u (k, D) over one image's tokens (N, D), query by query and head by head."""
    q, k, v = linear(u, attn.q), linear(keys, attn.k), linear(values, attn.v)
    rows, maps, d = [], [], DIM // HEADS
    for i in range(len(u)):
        heads = []
        for part in torch.arange(DIM).split(d):
            maps.append((k[:, part] @ q[i, part] / d**0.5).softmax(0))
            heads.append(maps[-1] @ v[:, part])
        rows.append(torch.cat(heads))
    return linear(torch.stack(rows), attn.proj), torch.stack(maps)


def norm(x: Tensor, layer: nn.Module) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + layer.eps).sqrt() * layer.weight + layer.bias


def mlp(x: Tensor, layers: nn.Module) -> Tensor:
    h = linear(x, layers[0])
    return linear(h * 0.5 * (1 + torch.erf(h / 2**0.5)), layers[2])


def abmilp(p: Pool, x: Tensor) -> tuple[Tensor, Tensor]:
    h = linear(x, p.v).tanh()
    if p.gate is not None:
        h = h / (1 + (-linear(x, p.gate)).exp())
    a = linear(h, p.w).T.softmax(1)
    return a @ x, a


def ep(p: Pool, x: Tensor) -> tuple[Tensor, Tensor]:
    a = torch.stack([(x @ q / DIM**0.5).softmax(0) for q in p.query])
    values = linear(x, p.v).chunk(p.queries, 1)
    return torch.cat([a[q] @ v for q, v in enumerate(values)])[None], a


def clip(p: Pool, x: Tensor) -> tuple[Tensor, Tensor]:
    f = torch.cat([x.mean(0, keepdim=True), x]) + (0 if p.pos_grid is None else p.pos)
    u, a = attend(p.attn, f[:1], f, f)
    return u, a[:, 1:]


def map_(p: Pool, x: Tensor) -> tuple[Tensor, Tensor]:
    y, a = attend(p.attn, p.query, x, x)
    return y + mlp(norm(y, p.norm), p.mlp), a


def aim(p: Pool, x: Tensor) -> tuple[Tensor, Tensor]:
    x = (x - p.norm.running_mean) / (p.norm.running_var + 1e-6).sqrt()
    y, a = attend(p.attn, p.query, x, x)
    return (y.mean(0, keepdim=True) if p.average else y), a


def jepa(p: Pool, x: Tensor) -> tuple[Tensor, Tensor]:
    x = norm(x, p.norm1)
    y, a = attend(p.attn, p.query, x, x)
    u = p.query + y
    return u + mlp(norm(u, p.norm2), p.mlp), a


def cae(p: Pool, x: Tensor) -> tuple[Tensor, Tensor]:
    return attend(p.attn, norm(p.query, p.norm_q), norm(x, p.norm_k), norm(x, p.norm_v))


def coca(p: Pool, x: Tensor) -> tuple[Tensor, Tensor]:
    x = norm(x, p.norm_k)
    return attend(p.attn, norm(p.query, p.norm_q), x, x)


def prr(p: Pool, x: Tensor) -> tuple[Tensor, Tensor]:
    x = norm(x, p.norm) if isinstance(p.norm, nn.LayerNorm) else x
    vectors, maps = [], []
    for head in x.split(DIM // HEADS, 1):
        rows = [(head @ token / (DIM // HEADS) ** 0.5).softmax(0) for token in head]
        refined = torch.stack([row @ head for row in rows])
        is_first = p.query == "first"
        vectors.append(refined[0] if is_first else refined.mean(0))
        maps.append(rows[0] if is_first else torch.stack(rows).mean(0))
    return torch.cat(vectors)[None], torch.stack(maps)


ORACLES = {f.__name__.strip("_"): f for f in (abmilp, ep, clip, map_, aim, jepa, cae, coca, prr)}


@pytest.mark.parametrize("scale", [1e-2, 1, 1e2])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_equals_the_equations(name: str, options: dict[str, object], scale: float) -> None:
    pool = shaken(name, **options)
    x = (scale * torch.randn(2, 6, DIM, dtype=torch.float64)).requires_grad_()
    u, a = zip(*(ORACLES[name](pool, image) for image in x), strict=True)
    check_equal(pool.pool(x, GRID), (torch.stack(u), torch.stack(a)), [x, *pool.parameters()])


@pytest.mark.parametrize(("name", "options"), [case for case in CASES if case[0] != "abmilp"])
def test_equals_its_row(name: str, options: dict[str, object]) -> None:
    pool = shaken(name, **options)
    x = torch.randn(2, 6, DIM, dtype=torch.float64, requires_grad=True)
    check_equal(pool.pool(x, GRID), pool.algorithm().run(x, GRID), [x, *pool.parameters()])


def test_aim_in_training_takes_the_statistics_of_the_batch() -> None:
    pool = shaken("aim", **H).train()
    x = 5 + 3 * torch.randn(4, 6, DIM, dtype=torch.float64)
    u = pool(x)
    expected = 0.9 * shaken("aim", **H).norm.running_mean + 0.1 * x.mean((0, 1))
    torch.testing.assert_close(pool.norm.running_mean, expected)
    pool.norm.running_mean, pool.norm.running_var = x.mean((0, 1)), x.var((0, 1), correction=0)
    torch.testing.assert_close(u, pool.eval()(x))


def test_aim_learns_from_a_single_token() -> None:
    pool, x = shaken("aim", **H), torch.randn(1, 1, DIM, dtype=torch.float64)
    torch.testing.assert_close(pool.train()(x), pool.eval()(x))


@pytest.mark.parametrize("own", [0, 2])
def test_cross_attention_equals_torch(own: int) -> None:
    """With the maps, for queries of each image and with `own` tokens in front of the features."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=True).double()
    nn.init.normal_(theirs.in_proj_bias)
    ours = CrossAttention(DIM, HEADS).double()
    for layer, weight, bias in zip(
        (ours.q, ours.k, ours.v),
        theirs.in_proj_weight.chunk(3),
        theirs.in_proj_bias.chunk(3),
        strict=True,
    ):
        layer.load_state_dict({"weight": weight, "bias": bias})
    ours.proj.load_state_dict(theirs.out_proj.state_dict())
    u, x, c = (torch.randn(2, n, DIM, dtype=torch.float64) for n in (4, 6, own))
    f = torch.cat([c, x], 1)
    y, a = theirs(u, f, f, average_attn_weights=False)  # a (B, heads, queries, tokens)
    got = ours(u, x, own=c if own else None)
    torch.testing.assert_close(got, (y, a.transpose(1, 2).flatten(1, 2)[..., own:]))


@pytest.mark.parametrize("size", [(3, 3), (5, 5)])
def test_clip_equals_timm(size: tuple[int, int]) -> None:
    pool = shaken("clip", **H, pos_grid=(3, 3), out_dim=7)
    theirs = AttentionPool2d(DIM, 3, out_features=7, num_heads=HEADS, qkv_separate=True).double()
    theirs.load_state_dict(
        {
            k.replace("attn.", "").replace("pos", "pos_embed"): v
            for k, v in pool.state_dict().items()
        }
    )
    x = torch.randn(2, DIM, *size, dtype=torch.float64)
    exact = size == pool.pos_grid  # timm resizes positions in float32
    torch.testing.assert_close(
        pool.on_map(x), theirs(x), **({} if exact else {"rtol": 1e-5, "atol": 1e-5})
    )


def test_map_equals_timm() -> None:
    pool = shaken("map", **H, k=2)
    theirs = AttentionPoolLatent(
        DIM, num_heads=HEADS, latent_len=2, pool_type="", norm_layer=partial(nn.LayerNorm, eps=1e-6)
    ).double()
    state = {k.replace("attn.", "").replace("mlp.0", "mlp.fc1").replace("mlp.2", "mlp.fc2"): v
             for k, v in pool.state_dict().items()}  # fmt: skip
    state["latent"] = state.pop("query")[None]
    for kind in ("weight", "bias"):
        state[f"kv.{kind}"] = torch.cat([state.pop(f"{m}.{kind}") for m in "kv"])
    theirs.load_state_dict(state)
    x = torch.randn(3, 5, DIM, dtype=torch.float64)
    torch.testing.assert_close(pool(x), theirs(x))


@pytest.mark.parametrize(("query", "theirs"), [("mean", "avg"), ("first", "token")])
@pytest.mark.parametrize("norm", [False, True])
def test_prr_equals_timm(query: str, theirs: str, norm: bool) -> None:
    pool = shaken("prr", **H, query=query, norm=norm)
    layer = AttentionPoolPrr(
        DIM, HEADS, theirs, pre_norm=norm, norm_layer=partial(nn.LayerNorm, eps=1e-6)
    ).double()
    state = {f"pre_{name}": value for name, value in pool.state_dict().items()}
    layer.load_state_dict(state)
    x = torch.randn(3, 5, DIM, dtype=torch.float64)
    torch.testing.assert_close(pool(x), layer(x))


def test_heads() -> None:
    assert [head_count(dim, None, 12) for dim in (768, 1280, 2048, 48, 7, 13, 1)] == [
        12,
        10,
        8,
        12,
        7,
        1,
        1,
    ]
    assert create_pool("clip", 2048).attn.heads == 32
    assert create_pool("clip", 48).attn.heads == 1
    assert create_pool("ep", 48).queries == 24
    for name in ("clip", "map", "aim", "jepa", "cae", "coca", "prr"):
        with pytest.raises(ValueError, match=r"heads=5\b.*\b12\b.*\b4\b"):
            create_pool(name, DIM, heads=5)
    with pytest.raises(ValueError, match=r"queries=5\b.*\b12\b"):
        create_pool("ep", DIM, queries=5)


def test_clip_asks_for_the_grid_it_cannot_guess() -> None:
    pool, x = shaken("clip", **H, pos_grid=(2, 3)), torch.randn(1, 6, DIM, dtype=torch.float64)
    torch.testing.assert_close(pool(x), pool(x, (2, 3)))
    assert not torch.allclose(pool(x), pool(x, (3, 2)))
    with pytest.raises(ValueError, match=r"2x3.*\b4\b"):
        pool(x[:, :4])
