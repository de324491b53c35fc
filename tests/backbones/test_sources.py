"""timm models in a folder and in the cache of the Hugging Face hub, without a network."""

import json
from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub import constants
from timm.models import save_for_hf
from torch.testing import assert_close

from cenote.backbones import create_backbone
from cenote.backbones.sources import sha256
from cenote.models import create_model, load

ARGUMENTS = {"embed_dim": 48, "depth": 2, "num_heads": 3, "img_size": 32}
SETTINGS = {"input_size": [3, 32, 32], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def write_model(
    folder: Path, name: str = "vit_tiny_patch16_224", **changes: object
) -> torch.Tensor:
    """Write a timm model with random weights as timm does; return the vectors of the images."""
    torch.manual_seed(0)
    arguments = ARGUMENTS if name.startswith("vit") else {}
    model = timm.create_model(name, num_classes=7, **arguments).eval()
    model.pretrained_cfg |= SETTINGS
    save_for_hf(model, folder, model_args=arguments, safe_serialization=True)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    with torch.no_grad():
        return model.forward_head(model.forward_features(IMAGES), pre_logits=True)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the model "owner/name" in an empty cache of the hub, with no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    folder = tmp_path / "hub" / "models--owner--name"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("1" * 40)
    return folder / "snapshots" / ("1" * 40)


@pytest.mark.parametrize("scheme", ["local-dir", "hf-hub"])
@pytest.mark.parametrize("architecture", ["vit_tiny_patch16_224", "test_resnet"])
def test_a_model_is_used_by_its_name_alone(
    scheme: str, architecture: str, tmp_path: Path, hub: Path
) -> None:
    folder = tmp_path / "model" if scheme == "local-dir" else hub
    expected = write_model(folder, architecture)
    name = f"local-dir:{folder}" if scheme == "local-dir" else "hf-hub:owner/name"
    model = create_model(name, "own", pretrained=True).eval()
    assert_close(model.embed(IMAGES), expected)
    assert model.head is not None and model.head.classes == 7
    preprocessing = model.backbone.preprocessing
    assert preprocessing.size == 32 and preprocessing.mean == (0.1, 0.2, 0.3)
    assert model.backbone.name == architecture
    digest = sha256(folder / "model.safetensors")
    model.save(tmp_path / "saved")
    for path in folder.iterdir():
        path.unlink()
    loaded = load(tmp_path / "saved")
    assert_close(loaded(IMAGES), model(IMAGES))
    assert loaded.backbone.source == {"name": name, "sha256": digest}
    assert loaded.backbone.preprocessing == preprocessing


def test_refusals(tmp_path: Path, hub: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        create_backbone(f"local-dir:{tmp_path}", pretrained=True)
    with pytest.raises(OSError, match=r"hf-hub:owner/name.*local-dir:FOLDER"):
        create_backbone("hf-hub:owner/name", pretrained=True)
    write_model(tmp_path / "elsewhere", model_args={"checkpoint_path": "other.pth"})
    with pytest.raises(ValueError, match="checkpoint_path"):
        create_backbone(f"local-dir:{tmp_path / 'elsewhere'}", pretrained=True)
    write_model(tmp_path / "unknown", architecture="vit_of_nobody")
    with pytest.raises(ValueError, match="vit_of_nobody"):
        create_backbone(f"local-dir:{tmp_path / 'unknown'}", pretrained=True)
    (tmp_path / "config.json").write_text('{"model_type": "dinov2"}')
    with pytest.raises(ValueError, match="--weights"):
        create_backbone(f"local-dir:{tmp_path}", pretrained=True)


def test_weights_are_optional(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    backbone = create_backbone(f"local-dir:{tmp_path / 'model'}")
    assert backbone.dim == 48 and backbone.source is None
    with pytest.raises(FileNotFoundError, match=r"pytorch_model\.bin"):
        create_backbone(f"local-dir:{tmp_path / 'model'}", pretrained=True)
