"""Features of several layers: equal to what forward hooks see, saved, exported, with maps or a
sentence.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cenote.backbones import create_backbone
from cenote.models import PooledModel, create_model, load, save_model
from cenote.models.export import OutputAndMap, export_model
from cenote.models.frozen import FrozenBackbone
from cenote.models.layers import Layers
from cenote.predict.feature_cache import FeatureCache, cached_features, describe_features
from tests.synthetic import squares
from tests.toy_models import NARROW, assert_same_model

VIT = "vit_tiny_patch16_224"
SLIM: dict[str, Any] = {"embed_dim": 48, "num_heads": 3}
IMAGES = torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))


def vit(pool: str, layers: tuple[int, ...], tokens: str = "patches", **options: Any) -> PooledModel:
    torch.manual_seed(0)
    options = {"feature_layers": layers, "tokens": tokens, "depth": -6, **SLIM, **options}
    return create_model(VIT, pool, 5, **options).eval()


def hooked(modules: Any, run: Any) -> list[Tensor]:
    """The outputs of the modules while `run()` computes."""
    seen: list[Tensor] = []
    handles = [m.register_forward_hook(lambda m, i, out: seen.append(out)) for m in modules]
    run()
    for handle in handles:
        handle.remove()
    return seen


def summary_by_hand(model: Any, layers: tuple[int, ...], images: Tensor) -> Tensor:
    """CLS and mean of each block's patch tokens behind the last norm, one after the other."""
    blocks = [model.blocks[i - 1] for i in layers]
    outputs = [model.norm(x) for x in hooked(blocks, lambda: model.forward_features(images))]
    vectors = [[x[:, 0], x[:, 1:].sum(1) / (x.shape[1] - 1)] for x in outputs]
    return torch.stack([vector for pair in vectors for vector in pair], 1)


@torch.no_grad()
def test_tokens_of_a_vit_are_those_that_hooks_see() -> None:
    layers = (2, 3, 6)
    model = vit("simpool", layers, keep_cls=True)
    encoder: Any = model.backbone.model
    blocks = [encoder.blocks[i - 1] for i in layers]
    seen = hooked(blocks, lambda: encoder.forward_features(IMAGES))
    expected = torch.cat([encoder.norm(x) for x in seen], 2)  # (B, 1 + N, 3 D)
    features = model.features(IMAGES)
    assert features.grid == (4, 6) and model.backbone.dim == 3 * 48 and features.cls is not None
    torch.testing.assert_close(features.all_tokens(), expected)
    assert model.attend(IMAGES).shape == (2, 1, 4, 6)
    torch.testing.assert_close(model.attend(IMAGES).sum((2, 3)), torch.ones(2, 1))
    assert model.map_kinds()[0] == "pool"
    assert torch.equal(vit("cls", layers).embed(IMAGES), vit("cls", layers).features(IMAGES).cls)


def test_summary_tokens_of_a_vit_and_their_gradients() -> None:
    layers = (1, 4, 6)
    model = vit("cae", layers, "summary")
    features = model.features(IMAGES)
    assert features.grid == (3, 2) and features.cls is None
    expected = summary_by_hand(model.backbone.model, layers, IMAGES)
    torch.testing.assert_close(features.tokens, expected)
    weights = list(model.backbone.parameters())
    fast, slow = (
        torch.autograd.grad(x.square().mul(torch.arange(6.0)[:, None]).sum(), weights)
        for x in (features.tokens, expected)
    )
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-4)
    model(IMAGES).logsumexp(1).sum().backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None]
    assert not idle
    u, a = model.pool_features(features)
    assert u.shape == (2, 48) and a is not None and a.shape == (2, 12, 3, 2)
    torch.testing.assert_close(a.sum((2, 3)), torch.ones(2, 12))


@torch.no_grad()
def test_summary_tokens_of_stages_are_padded_means() -> None:
    torch.manual_seed(0)
    model = create_model(
        "resnet18", "ep", 5, feature_layers=[3, 5], tokens="summary", backbone_options=NARROW
    ).eval()
    encoder: Any = model.backbone.model
    stages = [encoder.layer2, encoder.layer4]
    middle, last = hooked(stages, lambda: encoder.forward_features(IMAGES))
    tokens, grid, cls, _ = model.features(IMAGES)
    assert grid == (2, 1) and cls is None and tokens.shape == (2, 2, 64)
    torch.testing.assert_close(tokens[:, 0, :16], middle.mean((2, 3)))
    assert not tokens[:, 0, 16:].any()
    torch.testing.assert_close(tokens[:, 1], last.mean((2, 3)))


@torch.no_grad()
def test_the_last_layer_alone_is_the_usual_feature_map() -> None:
    layered, usual = vit("gap", (6,)), vit("gap", ())
    layered.load_state_dict(usual.state_dict())
    torch.testing.assert_close(layered(IMAGES), usual(IMAGES))


def test_layers_behind_the_last_chosen_one_are_removed_and_order_does_not_matter() -> None:
    model = vit("simpool", (4, 2))
    blocks: Any = model.backbone.model.blocks
    assert len(blocks) == 4
    torch.testing.assert_close(model(IMAGES), vit("simpool", (2, 4, 4))(IMAGES))


@pytest.mark.parametrize("tokens", ["patches", "summary"])
def test_saved_and_loaded(tokens: str, tmp_path: Path) -> None:
    model = vit("cae", (2, 5), tokens)
    save_model(model, tmp_path / "whole")
    assert_same_model(model, load(tmp_path / "whole"))
    torch.manual_seed(0)
    backbone = create_backbone("vit_micro")
    frozen = FrozenBackbone(backbone, layers=(1, 3), summary=tokens == "summary")
    model = frozen.create_model(frozen.create_head("cae", 3, tokens), ["a", "b", "c"]).eval()
    save_model(model, tmp_path / "frozen")
    with torch.no_grad():
        torch.testing.assert_close(load(tmp_path / "frozen")(IMAGES), model(IMAGES))


def test_summary_tokens_have_no_map_and_a_sentence_says_so() -> None:
    model = vit("cae", (2, 5), "summary")
    assert model.map_kinds() == []
    for kind in ("auto", "pool", "cls", "rollout", "cam", "gradcam"):
        with pytest.raises(ValueError, match=r"no positions and so no map: .*results\.json"):
            model.attend(IMAGES, kind)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("tokens", ["patches", "summary"])
def test_exported_and_compiled(tokens: str, tmp_path: Path) -> None:
    model = vit("simpool", (2, 5), tokens)
    exported = export_model(model, tmp_path / "m.pt2", "torch")
    grid = {"patches": ("rows", "columns"), "summary": ("2", "2")}[tokens]
    assert exported.outputs["map"] == ("batch", "1", *grid)
    program = torch.export.load(exported.path).module()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for size in (64, 96):
        x = torch.rand(3, 3, size, size)
        for actual, expected in zip(program(x), OutputAndMap(model)(x), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-3, atol=5e-4)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_the_feature_cache_distinguishes_layers(tmp_path: Path) -> None:
    """The weights are the same for all of them: blocks 1 to 4."""
    choices = [((2, 4), False), ((3, 4), False), ((2, 4), True), ((3, 4), True)]
    data, cache, rows = squares(3), FeatureCache(tmp_path), []
    for layers, summary in choices:
        torch.manual_seed(0)
        backbone = create_backbone("vit_micro")
        frozen = FrozenBackbone(backbone, layers=layers, summary=summary).backbone
        features = cached_features(frozen, data, cache=cache).features(range(3))
        with torch.no_grad():
            transform = frozen.preprocessing.transform()
            expected = frozen(torch.stack([transform(data.image(i)) for i in range(3)]))
        torch.testing.assert_close(features.tokens, expected.tokens, rtol=5e-3, atol=5e-3)
        rows.append(features.tokens)
    assert len(cache.stores()) == 4 and not torch.equal(rows[0], rows[1])
    assert rows[2].shape[1:] == (4, 96)
    described = describe_features(frozen, frozen.preprocessing)
    assert described["layers"] == [3, 4] and described["summary"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_layers": (0, 3)}, "has layers 1 to 12, got layer 0"),
        ({"feature_layers": (3, 13)}, "has layers 1 to 12, got layer 13"),
        ({"tokens": "summary"}, r"give feature_layers \(--layers\)"),
        ({"feature_layers": (3,), "norm": "after"}, "norm='before' or 'none'"),
        ({"feature_layers": (3,), "pool": "own"}, "for its last layer"),
        ({"feature_layers": (3,), "fpn": "P3"}, "leave out fpn or feature_layers"),
        ({"backbone": "resnet18", "feature_layers": (4, 5)}, r"--fpn P3\).*--tokens summary"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    arguments = {"backbone": VIT, "pool": "simpool", "num_classes": 2, **options}
    with pytest.raises(ValueError, match=message):
        create_model(**arguments)


def test_networks_whose_layers_timm_does_not_give_are_refused() -> None:
    with pytest.raises(ValueError, match="'resnet20': leave out feature_layers"):
        Layers(create_backbone("resnet20"), (1,))
