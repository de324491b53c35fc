"""DINO's views are what torchvision's own classes make of the same draws, with the published settings."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torchvision.transforms import InterpolationMode, v2

from cenote.data.transforms import MEAN, STD, MultiCrop


class Blur(v2.Transform):
    """Pillow's, of a radius drawn for each picture."""

    def make_params(self, flat_inputs):
        return {"radius": float(torch.empty(()).uniform_(0.1, 2.0))}

    def transform(self, inpt, params):
        return inpt.filter(ImageFilter.GaussianBlur(params["radius"]))


def published(size: int, scale: tuple[float, float], blur: float, solarize: float) -> v2.Compose:
    jitter = v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
    return v2.Compose(
        [
            v2.RandomResizedCrop(
                (size, size), scale, interpolation=InterpolationMode.BICUBIC, antialias=True
            ),
            v2.RandomHorizontalFlip(0.5),
            v2.RandomApply([jitter], p=0.8),
            v2.RandomGrayscale(0.2),
            v2.RandomApply([Blur()], p=blur),
            *([v2.RandomSolarize(128, p=solarize)] if solarize else []),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
            v2.ToPureTensor(),
        ]
    )


def noise(height: int, width: int) -> Image.Image:
    return Image.fromarray(
        np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    )


@pytest.mark.parametrize("seed", range(12))
def test_views_are_those_of_the_published_pipelines(seed: int) -> None:
    image = noise(60, 90)
    ours = MultiCrop(48, 24, local=4, local_scale=(0.05, 0.25))
    torch.manual_seed(seed)
    found = ours(image)
    torch.manual_seed(seed)
    large, small = (48, (0.25, 1.0)), (24, (0.05, 0.25))
    pipelines = [
        published(*large, 1.0, 0.0),
        published(*large, 0.1, 0.2),
        *[published(*small, 0.5, 0.0)] * 4,
    ]
    for view, pipeline in zip(found, pipelines, strict=True):
        torch.testing.assert_close(view, pipeline(image), atol=1e-6, rtol=1e-6)
        assert view.is_contiguous() and type(view) is torch.Tensor


def test_defaults_are_simpool_s() -> None:
    first, second, small = MultiCrop().views
    assert tuple(first.crop.size) == tuple(second.crop.size) == (224, 224) and tuple(
        small.crop.size
    ) == (96, 96)
    assert first.crop.scale == second.crop.scale == (0.25, 1.0) and small.crop.scale == (0.05, 0.25)
    assert [(view.blur, view.solarize) for view in (first, second, small)] == [
        (1.0, 0.0),
        (0.1, 0.2),
        (0.5, 0.0),
    ]
    assert len(MultiCrop()(noise(240, 240))) == 8
