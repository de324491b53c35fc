"""The small networks that come with Cenote are backbones like any other: any size, any gain, saved
by name.
"""

from pathlib import Path

import pytest
import torch

import cenote
from cenote.models import create_model, save_model


@pytest.mark.parametrize(
    ("name", "stride", "grid"),
    [("vit_micro", 1, 8), ("resnet_micro", 1, 2), ("resnet_micro", 4, 8)],
)
def test_made_saved_and_loaded(name: str, stride: int, grid: int, tmp_path: Path) -> None:
    model = create_model(name, "simpool", 5, stride=stride).eval()
    images = torch.randn(2, 3, 64, 64)
    assert model.features(images).grid == (grid, grid) and model.backbone.preprocessing.size == 64
    assert sum(p.numel() for p in model.parameters()) < 1_000_000
    save_model(model, tmp_path)
    torch.testing.assert_close(cenote.load(tmp_path)(images), model(images))
    assert model(torch.randn(1, 3, 96, 96)).shape == (1, 5)


def test_they_have_no_weights_to_download() -> None:
    with pytest.raises(ValueError, match="'vit_micro'"):
        create_model("vit_micro", pretrained=True)
    with pytest.raises(ValueError, match=r"'vit_micrp'.*'vit_micro'"):
        create_model("vit_micrp")
