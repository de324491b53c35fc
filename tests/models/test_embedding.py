"""An embedding is one linear layer behind pool and norm; maps, saving, export and a head go on
working with it.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from cenote.models import PooledModel, create_model, load, save_model
from cenote.models.export import OutputAndMap
from tests.toy_models import NARROW, assert_same_model, images, narrow_resnet


def small(pool: str = "gsp", classes: int = 0, **options: Any) -> PooledModel:
    return narrow_resnet(pool, classes, **{"embedding_dim": 12, **options})


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("pool", ["gap", "gsp", "slot"])
@torch.no_grad()
def test_it_is_a_linear_layer_on_the_pooled_vector(pool: str, norm: str | None) -> None:
    model = small(pool, embedding_norm=norm)
    u = model.pool_features(model.features(images()))[0].flatten(
        1
    )  # slot has several vectors: all in a row
    u = F.layer_norm(u, u.shape[1:]) if norm else u
    weight, bias = model.embedding.linear.weight, model.embedding.linear.bias
    torch.testing.assert_close(model.embed(images()), u @ weight.T + bias, rtol=1e-4, atol=1e-5)
    assert model.vector_dim == 12 and model(images()).shape == (2, 12)


@torch.no_grad()
def test_behind_the_last_norm() -> None:
    model = create_model(
        "vit_tiny_patch16_224", "gap", 0, depth=-11, img_size=32, norm="after", embedding_dim=8
    ).eval()
    x = torch.rand(2, 3, 32, 32)
    u = model.pool_features(model.features(x))[0]
    torch.testing.assert_close(model.embed(x), model.embedding(model.after(u)))
    assert not isinstance(model.after, torch.nn.Identity)


@pytest.mark.parametrize("norm", [None, "layer"])
@torch.no_grad()
def test_it_is_saved(norm: str | None, tmp_path: Path) -> None:
    model = small(embedding_norm=norm)
    save_model(model, tmp_path)
    back = load(tmp_path)
    assert back.vector_dim == 12
    assert_same_model(model, back)
    torch.testing.assert_close(back.embed(images()), model.embed(images()))


def test_models_without_one_are_described_as_before() -> None:
    assert "embedding_dim" not in narrow_resnet("gap").config


def test_the_width_of_a_vit_is_still_timms() -> None:
    model = create_model(
        "vit_tiny_patch16_224",
        "gap",
        0,
        depth=-11,
        img_size=32,
        embed_dim=24,
        num_heads=2,
        embedding_dim=7,
    )
    assert model.backbone.dim == 24 and model.vector_dim == 7


@pytest.mark.parametrize("norm", [None, "layer"])
@torch.no_grad()
def test_a_class_activation_map_adds_up_to_the_logit(norm: str | None) -> None:
    model = small("gap", 5, embedding_norm=norm)
    assert model.head is not None and model.head.dim == 12
    logits = model(images())
    for k in range(5):
        parts = model.attend(images(), "cam", classes=k).mean((1, 2, 3))
        torch.testing.assert_close(
            parts + model.head.linear.bias[k], logits[:, k], rtol=1e-4, atol=1e-5
        )


@torch.no_grad()
def test_maps_and_export() -> None:
    model = small()
    maps = model.attend(images())
    torch.testing.assert_close(maps.sum((2, 3)), torch.ones(2, 1))
    vector, same = OutputAndMap(model, "embedding")(images())
    torch.testing.assert_close(vector, model.embed(images()))
    torch.testing.assert_close(same, maps)
    several = small("slot", 5)
    assert several.attend(images()).shape[1] == several.pool.k  # type: ignore[union-attr]
    with pytest.raises(ValueError):
        several.attend(images(), "cam")


def test_the_backbones_own_classifier_is_not_for_an_embedding() -> None:
    model = create_model("resnet18", "gap", None, embedding_dim=64, **NARROW)
    assert model.head is None  # though it would fit


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"embedding_dim": 0}, r"embedding_dim\b.*\b0\b"),
        ({"embedding_norm": "batch"}, "layer.*'batch'"),
    ],
)
def test_bad_input(options: dict[str, Any], values: str) -> None:
    with pytest.raises(ValueError, match=values):
        small(**options)
