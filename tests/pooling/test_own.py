"""The laws of the pools for an encoder's own pooling, with timm's layers as its head."""

import copy

import pytest
import torch
from timm.layers import AttentionPool2d, AttentionPoolLatent, RotAttentionPool2d
from torch import Tensor, nn
from torch.testing import assert_close

from cenote.pooling import NoAttention, create_pool
from cenote.pooling.own import OwnPool, take_head

DIM, GRID = 32, (3, 4)


class Encoder(nn.Module):
    """An encoder with the interface of timm's, of which only the head matters."""

    def __init__(self, pool: nn.Module | None = None, skipped: int = 0) -> None:
        super().__init__()
        self.blocks, self.attn_pool, self.skipped = nn.Linear(DIM, DIM), pool, skipped
        self.fc_norm, self.fc = nn.LayerNorm(DIM), nn.Linear(DIM, 10)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        if self.attn_pool is None:
            x = x[:, self.skipped :].mean(1)
        else:
            x = self.attn_pool(x[:, self.skipped :] if x.ndim == 3 else x)
        x = self.fc_norm(x)
        return x if pre_logits else self.fc(x)


def latent(**options: object) -> nn.Module:
    return AttentionPoolLatent(DIM, num_heads=4, mlp_ratio=2, norm_layer=nn.LayerNorm, **options)


# The encoder, the layout of its features, and the prefix tokens that count and that do not.
CASES = {
    "latent": (lambda: Encoder(latent()), "tokens", 0, 0),
    "latent with prefix": (lambda: Encoder(latent()), "tokens", 2, 0),
    "mean of latents, qk norm": (
        lambda: Encoder(latent(latent_len=3, pool_type="avg", qk_norm=True), 1),
        "tokens",
        0,
        1,
    ),
    "2d": (lambda: Encoder(AttentionPool2d(DIM, GRID, head_dim=8)), "NCHW", 0, 0),
    "rotary 2d": (lambda: Encoder(RotAttentionPool2d(DIM, ref_feat_size=3, head_dim=8)), "NCHW", 0, 0),
    "average": (lambda: Encoder(None, 2), "tokens", 0, 2),
}  # fmt: skip
WITH_A_MAP = [name for name in CASES if name != "average"]
every_case = pytest.mark.parametrize("case", CASES)
every_case_with_a_map = pytest.mark.parametrize("case", WITH_A_MAP)


def make(case: str) -> tuple[OwnPool, Encoder, Tensor]:
    """Return the pool, the encoder that it comes from, and tokens (2, prefix + N, D)."""
    torch.manual_seed(0)
    create, layout, prefix, unused = CASES[case]
    encoder = create().eval()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.3)
    tokens = torch.randn(2, prefix + GRID[0] * GRID[1], DIM)
    pool = OwnPool(DIM, take_head(encoder, as_features(tokens, layout, prefix, unused))[0],
                   layout, prefix, unused).eval()  # fmt: skip
    pool.inspect(tokens, GRID)
    return pool, encoder, tokens


def as_features(tokens: Tensor, layout: str, prefix: int, unused: int) -> Tensor:
    """The input of the encoder's head; tokens that do not count are noise."""
    if layout == "NCHW":
        return tokens.mT.unflatten(2, GRID)
    noise = torch.randn(len(tokens), unused, DIM)
    return torch.cat([tokens[:, :prefix], noise, tokens[:, prefix:]], 1)


def grid_of(pool: OwnPool) -> tuple[int, int] | None:
    return None if pool.prefix else GRID


@every_case
def test_it_equals_the_encoders_head(case: str) -> None:
    pool, encoder, tokens = make(case)
    expected = encoder.forward_head(as_features(tokens, *CASES[case][1:]), pre_logits=True)
    assert_close(pool(tokens, grid_of(pool)), expected)
    names = {name.partition(".")[0] for name, _ in pool.head.named_parameters()}
    assert names <= {"attn_pool", "fc_norm"}, "the blocks and the classifier are not part of it"
    assert pool.out_dim == DIM


@every_case_with_a_map
def test_maps_are_distributions_over_the_positions(case: str) -> None:
    pool, _, tokens = make(case)
    u, a = pool.attend(tokens, grid_of(pool))
    assert_close(u, pool(tokens, grid_of(pool)))
    assert a.shape == (2, 4, *(GRID if grid_of(pool) else (12,))) and (a >= 0).all()
    total = a.flatten(2).sum(-1)
    if pool.sums_to_one:
        assert_close(total, torch.ones_like(total))
    else:  # some mass is on other tokens
        assert (total < 1).all()


def test_the_map_of_a_latent_is_the_softmax_of_its_query() -> None:
    pool, encoder, tokens = make("latent")
    layer = encoder.attn_pool
    for b in range(2):
        query = layer.q(layer.latent[0, 0])
        keys = layer.kv(tokens[b])[:, :DIM]  # (N, D)
        for h in range(4):
            part = slice(8 * h, 8 * (h + 1))
            expected = (keys[:, part] @ query[part] / 8**0.5).softmax(0)
            assert_close(pool.attend(tokens, GRID)[1][b, h].flatten(), expected)


@pytest.mark.parametrize("case", ["2d", "rotary 2d"])
def test_the_map_of_a_2d_pool_weighs_the_values(case: str) -> None:
    """The vector is the weighted mean of values: of the positions, and of their mean token."""
    pool, encoder, tokens = make(case)
    layer = encoder.attn_pool
    x = torch.cat([tokens.mean(1, keepdim=True), tokens], 1)
    if case == "2d":
        x = x + layer.pos_embed
    v = layer.qkv(x)[..., 2 * DIM :].unflatten(2, (4, 8)).transpose(1, 2)  # (B, heads, 1 + N, d)
    a = pool.attend(tokens, GRID)[1].flatten(2)  # (B, heads, N)
    a = torch.cat([1 - a.sum(-1, keepdim=True), a], -1)
    pooled = (a[..., None] * v).sum(2).flatten(1)
    assert_close(layer(as_features(tokens, "NCHW", 0, 0), pre_logits=True), pooled)


def test_an_average_has_no_map() -> None:
    pool, _, tokens = make("average")
    with pytest.raises(NoAttention, match="'own'"):
        pool.attend(tokens, GRID)


@every_case
def test_an_image_does_not_depend_on_its_batch(case: str) -> None:
    pool, _, tokens = make(case)
    assert_close(pool(tokens, grid_of(pool))[:1], pool(tokens[:1], grid_of(pool)))


@every_case
def test_every_parameter_gets_a_gradient_unless_frozen(case: str) -> None:
    pool, _, tokens = make(case)
    pool.train()(tokens, grid_of(pool)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in pool.parameters())
    pool.freeze()
    assert not any(p.requires_grad for p in pool.parameters())


def test_a_frozen_pool_keeps_its_statistics() -> None:
    encoder = Encoder()
    encoder.fc_norm = nn.BatchNorm1d(DIM)
    tokens = torch.randn(4, 12, DIM)
    pool = OwnPool(DIM, take_head(encoder.eval(), tokens)[0])
    before = copy.deepcopy(pool.state_dict())
    pool.freeze()
    pool.train()(tokens)
    assert_close(pool.state_dict(), before)
    assert pool.training and not pool.head.training


@every_case
def test_half_precision(case: str) -> None:
    pool, _, tokens = make(case)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(pool(tokens, grid_of(pool)), pool(tokens, grid_of(pool)).float())
    assert pool(tokens.bfloat16(), grid_of(pool)).isfinite().all()


@every_case
def test_traces_without_breaks(case: str) -> None:
    pool, _, tokens = make(case)
    torch._dynamo.reset()
    compiled = torch.compile(pool.vectors_and_maps, fullgraph=True, backend="eager")
    assert_close(compiled(tokens, grid_of(pool)), pool.vectors_and_maps(tokens, grid_of(pool)))


@pytest.mark.parametrize("case", ["latent with prefix", "rotary 2d", "average"])
def test_exports_with_a_dynamic_batch(case: str) -> None:
    pool, _, tokens = make(case)
    grid = grid_of(pool)
    shapes = ({0: torch.export.Dim.DYNAMIC}, grid and (None, None))
    program = torch.export.export(pool, (tokens, grid), dynamic_shapes=shapes)
    more = torch.randn(5, *tokens.shape[1:])
    assert_close(program.module()(more, grid), pool(more, grid))


def test_taking_the_head_leaves_the_encoder_as_it_was() -> None:
    encoder = Encoder(latent())
    encoder.fc.requires_grad_(False)
    trained = {name for name, p in encoder.named_parameters() if p.requires_grad}
    head, _ = take_head(encoder, torch.randn(1, 12, DIM))
    assert {name for name, p in encoder.named_parameters() if p.requires_grad} == trained
    assert not any(m._forward_pre_hooks for m in (*encoder.modules(), *head.modules()))
    assert all(p.grad is None for p in encoder.parameters())
    copied = {p.data_ptr() for p in head.parameters()}
    assert not copied & {p.data_ptr() for p in encoder.parameters()}


def test_it_has_no_meaning_without_an_encoder() -> None:
    with pytest.raises(ValueError, match="create_model"):
        create_pool("own", DIM)
