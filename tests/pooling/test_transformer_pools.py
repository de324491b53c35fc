"""ViT and CaiT as pools: the equations written out, their rows of Algorithm 1, and timm's
blocks.
"""

from functools import partial

import pytest
import torch
from timm.models.cait import LayerScaleBlockClassAttn
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from cenote.pooling import Pool, create_pool
from tests.pooling.comparing import check_equal, shaken

DIM, HEADS, GRID = 12, 4, (2, 3)
CASES = [
    ("vit", {}),
    ("vit", {"depth": 3, "norm": True}),
    ("cait", {}),
    ("cait", {"depth": 2, "norm": True}),
]


def layer_norm(x: Tensor, norm: nn.Module) -> Tensor:
    if isinstance(norm, nn.Identity):
        return x
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight + norm.bias


def self_attention(f: Tensor, attn: nn.Module) -> tuple[Tensor, Tensor]:
    """[SimPool Eqs. B41-B44] for one image, all rows of f (M, D), head by head; also the row of
    maps of the first token.
    """
    q, k, v = (f @ m.weight.T + m.bias for m in (attn.q, attn.k, attn.v))
    z, maps, d = [], [], DIM // HEADS
    for h in range(HEADS):
        part = slice(h * d, (h + 1) * d)
        a = (q[:, part] @ k[:, part].T / d**0.5).exp()
        a = a / a.sum(1, keepdim=True)
        z.append(a @ v[:, part])
        maps.append(a[0, 1:])
    return torch.cat(z, 1) @ attn.proj.weight.T + attn.proj.bias, torch.stack(maps)


def mlp(x: Tensor, layers: nn.Module) -> Tensor:
    h = x @ layers[0].weight.T + layers[0].bias
    return h * 0.5 * (1 + torch.erf(h / 2**0.5)) @ layers[2].weight.T + layers[2].bias


def oracle(pool: Pool, x: Tensor) -> tuple[Tensor, Tensor]:
    """Every row of every block, though only the CLS of the last is wanted; for CaiT the patches are
    put back.
    """
    us, maps = [], []
    for image in x:
        f = torch.cat([pool.cls, image])
        for b in pool.blocks:
            y, a = self_attention(layer_norm(f, b.norm1), b.attn)
            f = f + y * getattr(b, "gamma1", 1)  # [SimPool Eq. B39], [SimPool Eq. B50]
            f = f + mlp(layer_norm(f, b.norm2), b.mlp) * getattr(
                b, "gamma2", 1
            )  # [SimPool Eq. B40], [SimPool Eq. B51]
            if pool.name == "cait":
                f = torch.cat([f[:1], image])
        us.append(layer_norm(f[:1], pool.norm))
        maps.append(a)
    return torch.stack(us), torch.stack(maps)


@pytest.mark.parametrize("scale", [1e-2, 1, 1e2])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_equals_the_equations(name: str, options: dict[str, object], scale: float) -> None:
    pool = shaken(name, **options)
    x = (scale * torch.randn(2, 6, DIM, dtype=torch.float64)).requires_grad_()
    check_equal(pool.pool(x, GRID), oracle(pool, x), [x, *pool.parameters()])


@pytest.mark.parametrize(("name", "options"), CASES)
def test_equals_its_row(name: str, options: dict[str, object]) -> None:
    pool = shaken(name, **options)
    x = torch.randn(2, 6, DIM, dtype=torch.float64, requires_grad=True)
    check_equal(pool.pool(x, GRID), pool.algorithm().run(x, GRID), [x, *pool.parameters()])


def timm_block(ours: nn.Module) -> nn.Module:
    """timm's block of the same kind with the same weights."""
    names = {"mlp.0.": "mlp.fc1.", "mlp.2.": "mlp.fc2.", "gamma1": "gamma_1", "gamma2": "gamma_2"}
    state = {}
    for key, value in ours.state_dict().items():
        for mine, theirs in names.items():
            key = key.replace(mine, theirs)
        state[key] = value
    theirs = LayerScaleBlockClassAttn if hasattr(ours, "gamma1") else Block
    if theirs is Block:
        for kind in ("weight", "bias"):
            state[f"attn.qkv.{kind}"] = torch.cat([state.pop(f"attn.{m}.{kind}") for m in "qkv"])
    block = theirs(DIM, HEADS, qkv_bias=True, norm_layer=partial(nn.LayerNorm, eps=1e-6)).double()
    block.load_state_dict(state)
    return block


@pytest.mark.parametrize("depth", [1, 2])
def test_vit_equals_timm(depth: int) -> None:
    pool, x = shaken("vit", depth=depth), torch.randn(3, 5, DIM, dtype=torch.float64)
    f = torch.cat([pool.cls.expand(3, 1, -1), x], 1)
    for block in pool.blocks:
        f = timm_block(block)(f)
    torch.testing.assert_close(pool(x), f[:, 0])


@pytest.mark.parametrize("depth", [1, 2])
def test_cait_equals_timm(depth: int) -> None:
    pool, x = shaken("cait", depth=depth), torch.randn(3, 5, DIM, dtype=torch.float64)
    u = pool.cls.expand(3, 1, -1)
    for block in pool.blocks:
        u = timm_block(block)(x, u)
    torch.testing.assert_close(pool(x), u[:, 0])


@pytest.mark.parametrize("name", ["vit", "cait"])
def test_refusals(name: str) -> None:
    with pytest.raises(ValueError, match=r"heads=5\b.*\b12\b.*\b4\b"):
        create_pool(name, DIM, heads=5)
    with pytest.raises(ValueError, match=rf"'{name}'.*depth\b.*\b0\b"):
        create_pool(name, DIM, depth=0)
    assert create_pool(name, 7).blocks[0].attn.heads == 1  # a default never fails
