"""One call for every kind of map, and boxes from it."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import Tensor
from torch.testing import assert_close

from cenote.metrics import largest_box, mass_mask
from cenote.models import PooledModel, create_model, replace_pool
from cenote.models.attention_maps import cls_attention, rollout
from tests.shared_data import shared_data
from tests.toy_models import narrow_resnet

IMAGES = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))


def vit(pool: str, classes: int | None = 5, **options: Any) -> PooledModel:
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", depth=2, embed_dim=48, num_heads=3, dynamic_img_size=True
    )
    return replace_pool(model, pool, classes, **options).eval()


@torch.no_grad()
def test_auto_is_the_pool_s_own_then_cls_then_cam() -> None:
    simpool, cls, gap = vit("simpool"), vit("cls"), vit("gap")
    assert_close(simpool.attend(IMAGES), simpool.pool_features(simpool.features(IMAGES))[1])
    assert_close(cls.attend(IMAGES), cls_attention(cls, IMAGES))
    assert_close(gap.attend(IMAGES), gap.attend(IMAGES, "cam"))
    for model in (simpool, cls, gap):
        assert model.attend(IMAGES).shape == (2, 1, 4, 6)
        assert_close(model.attend(IMAGES), model.attend(IMAGES), rtol=0, atol=0)
        assert_close(model.attend(IMAGES, "rollout"), rollout(model, IMAGES))


@torch.no_grad()
def test_kinds_and_their_options() -> None:
    model = vit("simpool", keep_cls=True)
    assert model.attend(IMAGES, "cls", block=None, heads="all").shape == (2, 6, 4, 6)
    assert model.attend(IMAGES, "cam", classes=[0, 1]).shape == (2, 1, 4, 6)
    everything = vit("simpool", tokens="all")
    assert everything.attend(IMAGES).shape == (2, 1, 4, 6)
    assert (everything.attend(IMAGES).sum((-2, -1)) < 1).all(), "CLS has its share"


@pytest.mark.parametrize(
    ("make", "kind", "values"),
    [
        (
            lambda: vit("simpool"),
            "cls",
            r"vit_tiny_patch16_224.*keep_cls=True.*--map pool or cam or gradcam",
        ),
        (lambda: vit("gap"), "pool", r"'gap'.*--map cam or gradcam"),
        (lambda: vit("cls"), "pool", r"--map cls or gradcam"),
        (lambda: vit("cls"), "cam", "kind='cls'"),
        (lambda: vit("gap", 0), "auto", "'gap'"),
        (lambda: narrow_resnet("gap"), "rollout", "'resnet18'"),
        (lambda: vit("gap"), "heat", "auto, pool, .*'heat'"),
    ],
)
def test_an_impossible_kind_names_the_possible_ones(make: Any, kind: str, values: str) -> None:
    with pytest.raises(ValueError, match=values):
        make().attend(IMAGES, kind)


def test_boxes_lie_around_the_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    model = vit("simpool")
    maps = torch.full((2, 1, 4, 6), 0.001)
    maps[0, 0, 1:3, 2:5] = 1  # rows 1-2, columns 2-4
    maps[1, 0, 3, 0] = 1
    monkeypatch.setattr(model, "attend", lambda *a, **k: maps)
    assert model.localize(IMAGES, share=0.9).tolist() == [[32, 16, 80, 48], [0, 48, 16, 64]]


def test_boxes_of_maps_without_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    model = vit("gap")
    maps = torch.full((2, 1, 4, 6), -2.0)  # a class that nothing speaks for
    maps[1, 0, 0, 5] = -1
    monkeypatch.setattr(model, "attend", lambda *a, **k: maps)
    assert model.localize(IMAGES).tolist() == [[0, 0, 96, 64], [80, 0, 96, 16]]


def test_localize_is_the_largest_component_of_the_mask() -> None:
    model = vit("simpool")
    box = largest_box(mass_mask(model.attend(IMAGES)[1, 0].detach(), 0.5))
    assert box is not None
    assert model.localize(IMAGES, share=0.5)[1].tolist() == [16.0 * side for side in box]


def pets(folder: Path, count: int) -> tuple[Tensor, Tensor]:
    """Whole pictures squeezed to 224 x 224, and the pet's share of each patch, from its trimap."""
    with open(folder / "annotations.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    images, masks = [], []
    for row in rows[:: len(rows) // count][:count]:
        path = next(value for value in row.values() if value and value.endswith((".jpg", ".png")))
        path = folder / (path if path.startswith("images") else f"images/{path}")
        trimap = folder / "trimaps" / f"{path.stem}.png"
        picture = Image.open(path).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
        images.append(torch.tensor(np.asarray(picture)).permute(2, 0, 1) / 127.5 - 1)
        pet = torch.tensor(
            np.asarray(Image.open(trimap).resize((224, 224), Image.Resampling.NEAREST)) != 2
        )
        masks.append(pet.float().unflatten(0, (14, 16)).unflatten(2, (14, 16)).mean((1, 3)))
    return torch.stack(images), torch.stack(masks)


@torch.no_grad()
def test_a_real_vit_looks_at_the_pet() -> None:
    weights, folder = shared_data("weights/vit_tiny_patch16_224.safetensors"), shared_data("pets")
    model = create_model("vit_tiny_patch16_224", "cls", weights=weights).eval()
    images, masks = pets(folder, 16)
    chance = masks.mean((-2, -1))
    inside = (model.attend(images, normalise=True)[:, 0] * masks).sum((-2, -1))
    assert inside.mean() > chance.mean() + 0.1, (
        f"{inside.mean():.2f} of the mass on pets of {chance.mean():.2f} the area"
    )
    assert (inside > chance).float().mean() >= 0.75
