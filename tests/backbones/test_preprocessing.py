"""The transform of a backbone, and the identity of its options."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from cenote.backbones import Preprocessing
from cenote.predict.feature_cache import describe_features
from tests.toy_models import localizer


def picture(mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 255, (90, 120, 3), np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_is_the_transform_of_torchvision(mode: str, interpolation: str) -> None:
    preprocessing = Preprocessing(size=32, interpolation=interpolation)
    resize = v2.InterpolationMode(interpolation)
    pixels = [v2.ToDtype(torch.float32, scale=True)]
    pixels += [v2.Normalize(preprocessing.mean, preprocessing.std)]
    start = [v2.ToImage(), v2.RGB()]
    theirs = v2.Compose([*start, v2.Resize(36, resize), v2.CenterCrop(32), *pixels])
    ours = preprocessing.transform()
    assert torch.allclose(ours(picture(mode)), theirs(picture(mode)), atol=1e-4)
    whole = v2.Compose([*start, v2.Resize((24, 40), resize), *pixels])
    ours = preprocessing.whole((24, 40))
    assert torch.allclose(ours(picture(mode)), whole(picture(mode)), atol=1e-4)


def test_can_be_sent_to_a_worker() -> None:
    transform = Preprocessing(size=32, scaled_decoding=True).transform()
    copy = pickle.loads(pickle.dumps(transform))
    assert torch.equal(copy(picture()), transform(picture())) and copy.min_side == 72


def test_scaled_decoding_is_part_of_the_identity() -> None:
    plain = Preprocessing()
    scaled = replace(plain, scaled_decoding=True)
    assert plain != scaled and plain.identity() != scaled.identity()
    backbone = localizer().backbone
    assert describe_features(backbone, plain) != describe_features(backbone, scaled)


def test_identity_without_it_is_that_of_earlier_versions() -> None:
    """Feature caches, and indexes of a small CLIP, stay valid."""
    plain = Preprocessing()
    assert set(plain.identity()) == {"size", "crop", "interpolation", "mean", "std"}
    assert "scaled" not in repr(plain)
