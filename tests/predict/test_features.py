"""Cached features are those of the backbone, computed once for each image's contents."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.backbones import Backbone, Preprocessing, create_backbone
from cenote.data import Dataset, Record, pack
from cenote.predict.feature_cache import FeatureCache, cached_features, describe_features
from tests.synthetic import squares

SMALL = Preprocessing(size=32, crop=1.0)


def backbone(name: str = "vit_tiny_patch16_224") -> Backbone:
    torch.manual_seed(0)
    options = {"img_size": 32, "depth": 1} if name.startswith("vit") else {"layers": (1, 1, 1, 1)}
    return create_backbone(name, **options).eval()


@torch.inference_mode()
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18"])
def test_they_are_the_backbones_own(name: str, tmp_path: Path) -> None:
    net, data = backbone(name), squares(9, bad=(4,))
    cached = cached_features(net, data, SMALL, FeatureCache(tmp_path), dtype="float32", batch=4)
    assert cached.positions.tolist() == [0, 1, 2, 3, 5, 6, 7, 8] and len(cached.bad) == 1
    assert cached.labels.tolist() == [i % 3 for i in cached.positions]
    images = torch.stack([SMALL.transform()(data.image(i)) for i in (8, 0)])
    tokens, grid, cls, _ = net(images)
    found = cached.features([7, 0])
    torch.testing.assert_close(found.tokens, tokens, rtol=1e-4, atol=1e-5)
    assert found.grid == grid and (found.cls is None) == (cls is None)
    if cls is not None:
        torch.testing.assert_close(found.cls, cls, rtol=1e-4, atol=1e-5)
    flipped = cached_features(
        net, data, SMALL, FeatureCache(tmp_path), view="flip", dtype="float32"
    )
    torch.testing.assert_close(
        flipped.features([7]).tokens, net(images[:1].flip(-1)).tokens, rtol=1e-4, atol=1e-5
    )


def test_an_image_goes_through_the_backbone_once(tmp_path: Path) -> None:
    for i in range(6):
        pixels = np.random.default_rng(i).integers(0, 255, (20, 20, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    data = pack([Record(f"{i}.png", "a") for i in range(6)], tmp_path, "six")
    net, seen = backbone(), []
    net.register_forward_hook(lambda module, given, out: seen.append(len(given[0])))
    cache = FeatureCache(tmp_path / "cache")

    def counted(data: Dataset = data) -> int:
        seen.clear()
        found = cached_features(net, data, SMALL, cache)
        assert len(found) == 6
        return sum(seen) - 1  # one image of zeros tells the shape

    assert [counted(), counted()] == [6, 0]
    (tmp_path / "0.png").rename(tmp_path / "x.png")  # known by its contents
    data = pack(
        [Record("x.png" if i == 0 else f"{i}.png", "a") for i in range(6)], tmp_path, "renamed"
    )
    assert counted(data) == 0
    Image.new("RGB", (20, 20), "red").save(tmp_path / "1.png")  # changed
    assert counted(data) == 1
    with torch.no_grad():
        next(net.parameters()).add_(1e-3)
    assert counted(data) == 6


def test_what_changes_features_changes_their_name() -> None:
    net = backbone()
    one = describe_features(net, SMALL)
    assert one == describe_features(backbone(), SMALL)
    assert (
        describe_features(net, Preprocessing(size=32)) != one
        and describe_features(net, SMALL, "flip") != one
    )
    other = create_backbone(
        "vit_tiny_patch16_224", img_size=32, depth=1, act_layer="relu"
    )  # no other tensors
    other.load_state_dict(net.state_dict())
    assert (
        describe_features(other, SMALL)["weights"] == one["weights"]
        and describe_features(other, SMALL) != one
    )
