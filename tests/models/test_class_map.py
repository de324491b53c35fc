"""The map that speaks for a class: of several vectors, that of the one that gave it its logit.
Oracle: a loop.
"""

import pytest
import torch

from cenote.models import PooledModel, create_model
from cenote.models.cam import map_of_features
from cenote.models.class_map import ForwardPass, depends_on_class, resolve_map_kind
from tests.toy_models import narrow_resnet

IMAGES = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
CLASSES = torch.tensor([2, 0, 1])


def make(pool: str, **options: object) -> PooledModel:
    return narrow_resnet(pool, pool_options=options)


@torch.no_grad()
def test_of_several_vectors_the_one_that_decided() -> None:
    model = make("slot", k=4)
    assert model.pool is not None and model.head is not None
    features = model.features(IMAGES)
    u, a = model.pool_features(features)
    found = map_of_features(model, features, CLASSES)
    for i, label in enumerate(CLASSES.tolist()):
        logits = [float(model.head.linear(u[i, k])[label]) for k in range(4)]
        best, second = sorted(range(4), key=lambda k: -logits[k])[:2]
        assert logits[best] - logits[second] > 1e-3, "with a tie, rounding would choose the map"
        torch.testing.assert_close(found[i], a[i, best], rtol=1e-4, atol=1e-5)
        assert logits[best] == pytest.approx(
            float(model(IMAGES)[i, label]), rel=1e-4, abs=1e-5
        )  # the model's answer


@torch.no_grad()
def test_heads_of_one_vector_are_averaged_and_a_pool_without_a_map_has_a_cam() -> None:
    several = make("jepa")
    features = several.features(IMAGES)
    a = several.pool_features(features)[1]
    assert a is not None and a.shape[1] > 1 and several.pool is not None and several.pool.k == 1
    torch.testing.assert_close(map_of_features(several, features, CLASSES), a.mean(1))
    plain = make("gap")
    found = map_of_features(plain, plain.features(IMAGES), CLASSES)
    torch.testing.assert_close(found, plain.attend(IMAGES, "cam", classes=CLASSES)[:, 0])
    with pytest.raises(ValueError, match="'gap'"):
        map_of_features(plain, plain.features(IMAGES), CLASSES, "pool")


@torch.no_grad()
def test_a_sight_is_what_the_model_says() -> None:
    model = make("simpool")
    for kind in ("pool", "cam"):
        sight = ForwardPass(model, IMAGES, kind)
        assert sight.logits is not None
        torch.testing.assert_close(sight.logits, model(IMAGES))
        options = {"classes": CLASSES} if kind == "cam" else {}
        torch.testing.assert_close(
            sight.maps(CLASSES), model.attend(IMAGES, kind, **options).mean(1)
        )


def test_kinds() -> None:
    assert (
        resolve_map_kind(make("gap"), "auto", 64) == "cam"
        and resolve_map_kind(make("simpool"), "auto", 64) == "pool"
    )
    with pytest.raises(ValueError, match="'resnet18'"):
        resolve_map_kind(make("gap"), "cls", 64)
    for size in (3, 31):
        with pytest.raises(ValueError, match=rf"size\b.*\b32\b.*\b{size}\b"):
            resolve_map_kind(make("gap"), "auto", size)
    assert resolve_map_kind(make("gap"), "auto", 32) == "cam"
    vit = create_model("vit_micro", "cls", 3).eval()
    assert resolve_map_kind(vit, "auto", 64) == "cls" and not depends_on_class(vit, "cls")
    assert depends_on_class(make("gap"), "cam") and not depends_on_class(make("simpool"), "pool")
    assert depends_on_class(make("slot", k=4), "pool")


def test_a_backbone_of_unknown_stride_takes_any_size() -> None:
    model = make("simpool")
    vars(model.backbone.model)["feature_info"] = None
    with pytest.raises(ValueError, match="stride"):
        model.backbone.stride()
    assert resolve_map_kind(model, "auto", 32) == "pool"
