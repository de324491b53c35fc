"""Group 3 against loops, timm's modules with the same weights, and its own row of the framework."""

import pytest
import torch
from timm.layers import ConvMlp, GatherExcite, SEModule
from timm.layers.cbam import CbamModule
from torch import nn

from cenote.pooling import as_tokens, create_pool
from cenote.pooling.batchnorm import BatchNorm
from tests.pooling.comparing import agree, lively

SCALES = (1e-2, 1.0, 1e2)
GRID = (3, 4)


def maps(scale, dim=24, grid=GRID):
    return scale * torch.randn(
        2, dim, *grid, dtype=torch.double, generator=torch.Generator().manual_seed(0)
    )


def mlp(pool, u):
    hidden = pool.fc1.weight @ u + (0 if pool.fc1.bias is None else pool.fc1.bias)
    return pool.fc2.weight @ hidden.relu() + (0 if pool.fc2.bias is None else pool.fc2.bias)


def se_oracle(pool, image):
    u = sum(image.unbind()) / len(image)
    q = torch.sigmoid(mlp(pool, u))
    return sum(q * v for v in image) / len(image)


def cbam_oracle(pool, image):
    simplified = pool.form == "simplified"
    u = mlp(pool, image.mean(0))
    if not simplified:
        u = u + mlp(pool, image.amax(0))
    if pool.form == "averaged":
        u = u / 2
    v = (torch.sigmoid(u) * image).view(*GRID, -1)
    reach, z = pool.kernel // 2, 0
    for i in range(GRID[0]):
        for j in range(GRID[1]):
            s = pool.conv.bias[0]
            for r in range(max(0, i - reach), min(GRID[0], i + reach + 1)):
                for c in range(max(0, j - reach), min(GRID[1], j + reach + 1)):
                    w = pool.conv.weight[0, :, r - i + reach, c - j + reach]
                    s = s + w[0] * v[r, c].mean()
                    if not simplified:
                        s = s + w[1] * v[r, c].amax()
            z = z + torch.sigmoid(s) * v[i, j]
    return z / len(image)


def ge_oracle(pool, image):
    w, bn = pool.gather.weight.flatten(1), pool.norm
    gathered = torch.stack(
        [sum(w[c, j] * image[j, c] for j in range(len(image))) for c in range(pool.dim)]
    )
    gathered = (gathered - bn.running_mean) / (bn.running_var + bn.eps).sqrt() * bn.weight + bn.bias
    return torch.sigmoid(mlp(pool, gathered)) * image.mean(0)


POOLS = [
    ("se", {"reduction": 4}, se_oracle),
    ("cbam", {"reduction": 4}, cbam_oracle),
    ("cbam", {"reduction": 4, "kernel": 3}, cbam_oracle),
    ("cbam", {"reduction": 4, "form": "averaged"}, cbam_oracle),
    ("cbam", {"reduction": 4, "form": "simplified"}, cbam_oracle),
    ("ge", {"reduction": 4, "grid": GRID}, ge_oracle),
]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("name", "options", "oracle"), POOLS)
def test_oracle_and_row(name, options, oracle, scale):
    pool = lively(create_pool(name, 24, **options))
    x, parameters = as_tokens(maps(scale))[0], list(pool.parameters())
    agree(
        lambda t: pool(t, GRID),
        lambda t: torch.stack([oracle(pool, image) for image in t]),
        x,
        parameters,
    )
    agree(lambda t: pool(t, GRID), lambda t: pool.algorithm().run(t, GRID)[0][:, 0], x, parameters)


@pytest.mark.parametrize("dim", [24, 64, 200])
def test_se_is_timms(dim):
    pool, peer = create_pool("se", dim).double(), SEModule(dim).double()
    peer.load_state_dict(
        {k: v if v.ndim == 1 else v[..., None, None] for k, v in pool.state_dict().items()}
    )
    agree(pool.on_map, lambda x: peer(x).mean((2, 3)), maps(1.0, dim))


@pytest.mark.parametrize("dim", [24, 64, 200])
def test_cbam_is_timms_with_its_batchnorm_folded_into_our_bias(dim):
    peer = lively(CbamModule(dim))
    pool = create_pool("cbam", dim).double()
    bn = peer.spatial.conv.bn
    gain = bn.weight / (bn.running_var + bn.eps).sqrt()
    state = {f"{n}.weight": getattr(peer.channel, n).weight[..., 0, 0] for n in ("fc1", "fc2")}
    state |= {
        "conv.weight": peer.spatial.conv.conv.weight * gain,
        "conv.bias": bn.bias - gain * bn.running_mean,
    }
    pool.load_state_dict(state)
    agree(pool.on_map, lambda x: peer(x).mean((2, 3)), maps(1.0, dim))


@pytest.mark.parametrize("train", [False, True])
def test_ge_is_timms(train):
    """timm 1.0.30 cannot construct its own parameters here (`*dd` for `**dd`), and would pad the
    kernel so that the extent is not global: its forward gets the gather it describes, an unpadded
    depthwise kernel as large as the map.
    """
    pool, peer = create_pool("ge", 64).double(), GatherExcite(64, use_mlp=False)
    peer.gather = nn.Sequential(nn.Conv2d(64, 64, 7, groups=64, bias=False), nn.BatchNorm2d(64))
    peer.mlp = ConvMlp(64, 4)
    peer = (lively(peer) if not train else peer.double()).train(train)
    sources = {
        "gather": peer.gather[0],
        "norm": peer.gather[1],
        "fc1": peer.mlp.fc1,
        "fc2": peer.mlp.fc2,
    }
    state = {
        f"{name}.{k}": v for name, module in sources.items() for k, v in module.state_dict().items()
    }
    state |= {k: v[..., 0, 0] for k, v in state.items() if k.startswith("fc") and v.ndim == 4}
    pool.load_state_dict(state)
    agree(pool.train(train).on_map, lambda x: peer(x).mean((2, 3)), maps(1.0, 64, (7, 7)))


def test_cbam_map_is_the_gate_over_p():
    pool = create_pool("cbam", 24).double()
    nn.init.zeros_(pool.conv.weight)
    nn.init.constant_(pool.conv.bias, 100.0)  # every gate open: the mean of diag(q)X
    _, a = pool.attend_on_map(maps(1.0))
    torch.testing.assert_close(a, torch.full((2, 1, *GRID), 1 / 12, dtype=torch.double))


@pytest.mark.parametrize("grid", [(3, 4), (1, 1), (2, 9), (14, 14)])
def test_ge_kernel_keeps_its_sum_on_every_grid(grid):
    pool = lively(create_pool("ge", 24, grid=GRID))
    kernel = pool.kernel(grid)
    assert kernel.shape == (grid[0] * grid[1], 24)
    torch.testing.assert_close(kernel.sum(0), pool.gather.weight.sum((1, 2, 3)))
    if grid == GRID:
        torch.testing.assert_close(kernel.mT, pool.gather.weight.flatten(1))


def test_ge_gate_does_not_change_with_the_resolution_of_a_constant_map():
    pool = lively(create_pool("ge", 24))
    x = torch.rand(2, 24, 1, 1, dtype=torch.double)
    torch.testing.assert_close(
        pool.on_map(x.expand(-1, -1, 13, 9)), pool.on_map(x.expand(-1, -1, 7, 7))
    )


def test_batchnorm_is_torchs_but_for_one_value_alone():
    ours, peer = BatchNorm(5), nn.BatchNorm1d(5)
    x = torch.randn(3, 4, 5)
    torch.testing.assert_close(ours(x), peer(x.flatten(0, 1)).view(3, 4, 5))
    torch.testing.assert_close(ours.running_var, peer.running_var)
    before = ours.running_mean.clone()
    torch.testing.assert_close(
        ours(x[:1, :1]), peer.eval()(x[0, :1])[None]
    )  # by the running statistics
    assert torch.equal(ours.running_mean, before)


def test_even_kernel_is_refused():
    with pytest.raises(ValueError, match=r"'cbam'.*\b4\b"):
        create_pool("cbam", 8, kernel=4)
