"""The networks that timm does not have: shapes and parameters as published, attention as its
equations say, and SAR's last block, maps and pools as with any ViT.
"""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from cenote.backbones import create_backbone
from cenote.backbones.networks.bn_inception import BRANCHES, INCEPTIONS, STEM
from cenote.backbones.networks.cvt import ConvAttention
from cenote.backbones.networks.pvt import SpatialReductionAttention
from cenote.backbones.networks.t2t_vit import TokenPerformer
from cenote.models import create_model, load, save_model
from cenote.models.attention_maps import AttentionLogits, cls_attention
from cenote.models.surgery import LastBlock

TRANSFORMERS = ("pvt_small", "t2t_vit_14", "cvt_13")


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "count", "published", "size", "grid", "dim"),
    [
        ("pvt_small", 24_485_864, 24.5, 224, 7, 512),  # SAR Table 2
        ("t2t_vit_14", 21_469_902, 21.5, 224, 14, 384),
        ("cvt_13", 19_997_480, 20.0, 224, 14, 384),
        # The published weights have 11.3 million parameters; the paper's text says 13.6.
        ("bn_inception", 11_295_240, 11.3, 224, 7, 1024),
        ("resnet20", 269_722, 0.27, 32, 8, 64),  # He et al., Table 6
    ],
)
def test_size_and_shape_as_published(
    name: str, count: int, published: float, size: int, grid: int, dim: int
) -> None:
    backbone = create_backbone(name).eval()
    assert parameters(backbone) == count
    digits = 2 if published < 1 else 1
    assert round(count / 1e6, digits) == published
    assert backbone.preprocessing.size == size
    features = backbone(torch.randn(1, 3, size, size))
    assert features.tokens.shape == (1, grid * grid, dim) and features.grid == (grid, grid)
    assert (features.cls is not None) == (name in TRANSFORMERS)
    wide = backbone(torch.randn(1, 3, 64, 96))
    assert wide.grid == (64 * grid // size, 96 * grid // size)


@torch.no_grad()
def test_bn_inception_has_the_papers_layers() -> None:
    """Channels and side after each row of Figure 5. It prints 576 channels for 4c and 4d and 1024
    for 4e, which are not the sums of their branches.
    """
    network = create_backbone("bn_inception").eval().model
    shapes = {}
    for name, module in network.inceptions.items():  # type: ignore[operator, union-attr]
        module.register_forward_hook(
            lambda module, inputs, out, name=name: shapes.update({name: tuple(out.shape[1:3])})
        )
    network.forward_features(torch.randn(1, 3, 224, 224))  # type: ignore[operator]
    assert shapes == {
        "3a": (256, 28),
        "3b": (320, 28),
        "3c": (576, 14),
        "4a": (576, 14),
        "4b": (576, 14),
        "4c": (608, 14),
        "4d": (608, 14),
        "4e": (1056, 7),
        "5a": (1024, 7),
        "5b": (1024, 7),
    }


def test_bn_inception_loads_the_published_names(tmp_path: Path) -> None:
    layers = dict(STEM)
    for row in INCEPTIONS:
        for theirs, ours in BRANCHES.items():
            layers[f"inception_{row}_{theirs}"] = f"inceptions.{row}.branches.{ours}"
    network = create_backbone("bn_inception").model
    ours, published = network.state_dict(), {}
    for theirs, path in layers.items():
        for part, suffix in enumerate(("", "_bn")):
            for kind in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                value = ours.get(f"{path}.{part}.{kind}")
                if value is not None:
                    published[f"{theirs}{suffix}.{kind}"] = torch.rand(value.shape).to(value.dtype)
    published |= {
        "last_linear.weight": torch.rand(1000, 1024),
        "last_linear.bias": torch.rand(1000),
    }
    assert len(published) == len(ours)
    save_file(published, tmp_path / "bn.safetensors")
    state = create_backbone("bn_inception", weights=tmp_path / "bn.safetensors").model.state_dict()
    torch.testing.assert_close(
        state["stem.0.0.weight"][:, 0], published["conv1_7x7_s2.weight"][:, 2]
    )
    double = "inceptions.4e.branches.two.2.1.running_var"
    torch.testing.assert_close(state[double], published["inception_4e_double_3x3_2_bn.running_var"])


def test_they_have_no_weights_to_download() -> None:
    with pytest.raises(ValueError, match="'pvt_small' has no weights"):
        create_backbone("pvt_small", pretrained=True)
    with pytest.raises(ValueError, match=r"'pvt_smal'.*'pvt_small'"):
        create_backbone("pvt_smal")
    with pytest.raises(ValueError, match=r"'cvt_13'.*'depths'"):
        create_backbone("cvt_13", depths=(1, 1, 1))


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int, scale: float) -> Tensor:
    """softmax(q k^T scale) v of each head, one query at a time."""
    out = torch.zeros_like(q)
    for part in torch.arange(q.shape[-1]).chunk(heads):
        for b in range(len(q)):
            for i in range(q.shape[1]):
                scores = torch.stack([q[b, i, part] @ key[part] for key in k[b]]) * scale
                out[b, i, part] = scores.softmax(0) @ v[b][:, part]
    return out


def test_pvts_attention_against_its_equations() -> None:
    torch.manual_seed(0)
    layer = SpatialReductionAttention(8, heads=2, reduction=2).double()
    z = torch.randn(2, 4 * 6, 8, dtype=torch.double)
    reduced = layer.norm(layer.sr(z.mT.reshape(2, 8, 4, 6)).flatten(2).mT)  # (2, 6, 8)
    k, v = layer.kv(reduced)[..., :8], layer.kv(reduced)[..., 8:]
    expected = layer.proj(attention(layer.q(z), k, v, 2, scale=4**-0.5))
    torch.testing.assert_close(layer(z, (4, 6)), expected)


def test_cvts_attention_against_its_equations() -> None:
    torch.manual_seed(0)
    layer = ConvAttention(8, heads=2).double().eval()
    z = torch.randn(2, 1 + 4 * 6, 8, dtype=torch.double)
    patches, qkv = z[:, 1:].mT.reshape(2, 8, 4, 6), []
    for part, stride in ((layer.q, 1), (layer.k, 2), (layer.v, 2)):
        weight = part.conv.weight
        maps = [F.conv2d(patches[:, [c]], weight[[c]], None, stride, 1) for c in range(8)]
        tokens = part.bn(torch.cat(maps, 1)).flatten(2).mT
        qkv.append(part.linear(torch.cat([z[:, :1], tokens], 1)))
    expected = layer.proj(attention(*qkv, 2, scale=8**-0.5))
    torch.testing.assert_close(layer(z, (4, 6)), expected)


def test_t2ts_attention_against_its_equations() -> None:
    """Performer: a sum over the keys of phi(q) phi(k), normalised; the skip is the value."""
    torch.manual_seed(0)
    layer = TokenPerformer(12, dropout=0.0)
    z = torch.randn(1, 5, 12)
    k, q, v = layer.kqv(layer.norm1(z))[0].split(64, -1)
    m = len(layer.w)
    torch.testing.assert_close(layer.w @ layer.w.T, m * torch.eye(m), rtol=1e-4, atol=1e-4)

    def phi(x: Tensor) -> Tensor:
        return torch.stack([(w @ x - x @ x / 2).exp() / math.sqrt(m) for w in layer.w])

    rows = []
    for query in q:
        weights = torch.stack([phi(query) @ phi(key) for key in k])
        rows.append(weights @ v / (weights.sum() + 1e-8))
    y = v + layer.proj(torch.stack(rows))
    expected = y + layer.mlp(layer.norm2(y))
    torch.testing.assert_close(layer(z)[0], expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_without_cls_the_patches_are_as_if_nobody_saw_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    backbone, x = create_backbone(name).eval(), torch.randn(1, 3, 64, 96)
    nn.init.normal_(backbone.model.cls_token, std=3.0)  # type: ignore[arg-type]
    before = backbone(x)
    keys = 1 + math.prod(backbone.attention_grid(before.grid))
    sdpa = F.scaled_dot_product_attention

    def blind(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
        if k.shape[-2] == keys:
            options["attn_mask"] = (torch.arange(keys) > 0).expand(q.shape[-2], keys)
        return sdpa(q, k, v, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", blind)
        expected = backbone(x).tokens
    assert not torch.allclose(before.tokens, expected, atol=1e-3)
    backbone.remove_cls()
    after = backbone(x)
    assert after.cls is None and after.grid == before.grid and backbone.prefix == 0
    torch.testing.assert_close(after.tokens, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "k"), [("pvt_small", 7), ("t2t_vit_14", 14), ("cvt_13", 7)])
def test_sars_last_block_and_its_maps(name: str, k: int) -> None:
    """[SAR Eqs. 10-11], on attention maps of k x k as the paper says for 224 pixels."""
    torch.manual_seed(0)
    model = create_model(name, "cls", 5, last_block="sar").eval()
    blocks: nn.ModuleList = model.backbone.model.blocks  # type: ignore[assignment]
    last = blocks[-1]
    assert isinstance(last, LastBlock)
    seen: list[tuple[Tensor, dict[str, object], Tensor]] = []
    last.register_forward_hook(
        lambda module, inputs, options, out: seen.append((inputs[0], options, out)),
        with_kwargs=True,
    )
    images = torch.randn(2, 3, 224, 224)
    with AttentionLogits(model) as logits:
        model(images)
    (z, options, out), maps = seen[0], logits.last()
    msa = last.attn(last.norm1(z), **options)
    torch.testing.assert_close(out, last.mlp(msa) + msa)
    assert maps.shape[0] == 2 and maps.shape[2:] == (k, k)
    attn = cls_attention(model, images, heads="all")
    assert attn.shape == maps.shape and bool((attn.sum((-2, -1)) < 1).all())
    maps.var().backward()
    gradients = [p.grad for p in last.attn.parameters() if p.grad is not None]
    assert any(bool(gradient.any()) for gradient in gradients)


@torch.no_grad()
@pytest.mark.parametrize("name", [*TRANSFORMERS, "bn_inception", "resnet20"])
def test_any_pool_and_a_saved_model(name: str, tmp_path: Path) -> None:
    model = create_model(name, "simpool", 5, img_size=64).eval()
    images = torch.randn(2, 3, 64, 64)
    assert not model.backbone.has_cls
    assert model.attend(images).shape[2:] == model.features(images).grid
    save_model(model, tmp_path)
    torch.testing.assert_close(load(tmp_path)(images), model(images))


def test_the_classifier_can_be_replaced() -> None:
    network = create_backbone("resnet20").model
    network.reset_classifier(7)
    assert network.get_classifier().out_features == 7
    network.reset_classifier(0)
    assert isinstance(network.get_classifier(), nn.Identity)
