"""Models of Hugging Face transformers with random weights, in folders and in a cache of the hub."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from PIL import Image
from torch import Tensor
from torch.testing import assert_close

from cenote.backbones import Backbone, create_backbone
from cenote.backbones.sources import sha256
from cenote.models import create_model, load
from cenote.models.image_text import create_image_text

T = pytest.importorskip("transformers")

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
VIT = {**SMALL, "intermediate_size": 64, "patch_size": 8}
STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}
SWIN = {"embed_dim": 8, "depths": [1, 1, 2], "num_heads": [1, 2, 4], "window_size": 4}
TEXT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9}
TEXT |= {"bos_token_id": 0, "eos_token_id": 1}
# By model type: the configuration, and the stride of the map.
MODELS: dict[str, tuple[Any, int]] = {
    "vit": (T.ViTConfig(**VIT, image_size=32), 8),
    "dinov2": (T.Dinov2Config(**SMALL, image_size=28, patch_size=7, mlp_ratio=2), 7),
    "dinov2_with_registers": (
        T.Dinov2WithRegistersConfig(**SMALL, image_size=28, patch_size=7, num_register_tokens=3),
        7,
    ),
    "dinov3_vit": (T.DINOv3ViTConfig(**VIT, image_size=32, num_register_tokens=3), 8),
    "siglip_vision_model": (T.SiglipVisionConfig(**VIT, image_size=32), 8),
    "siglip2_vision_model": (T.Siglip2VisionConfig(**VIT, num_patches=16), 8),
    "clip_vision_model": (T.CLIPVisionConfig(**VIT, image_size=32), 8),
    "convnext": (T.ConvNextConfig(**STAGES, image_size=64), 32),
    "swin": (T.SwinConfig(**SWIN, image_size=64), 16),
}
WITH_CLS = ["vit", "dinov2", "dinov2_with_registers", "dinov3_vit", "clip_vision_model"]
REGISTERS = {"dinov2_with_registers": 3, "dinov3_vit": 3}
PROCESSORS = {
    "clip": T.CLIPImageProcessor(size={"shortest_edge": 37}, crop_size={"height": 32, "width": 32}),
    "convnext": T.ConvNextImageProcessor(size={"shortest_edge": 64}, crop_pct=0.8),
    "convnext 0.9": T.ConvNextImageProcessor(size={"shortest_edge": 64}, crop_pct=0.9),
    "convnext 384": T.ConvNextImageProcessor(size={"shortest_edge": 384}),
    "siglip": T.SiglipImageProcessor(size={"height": 32, "width": 32}),
    "dinov3": T.DINOv3ViTImageProcessor(size={"height": 48, "width": 48}),
}


def write_model(folder: Path, model: Any, noise: float = 0.1) -> Any:
    """Save a model whose weights are all random, norms and biases included."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    return model.eval()


def write(folder: Path, name: str) -> Any:
    return write_model(folder, T.AutoModel.from_config(MODELS[name][0]))


def random_images(height: int, width: int, count: int = 2) -> Tensor:
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(0))


def output(model: Any, images: Tensor, **options: Any) -> Any:
    """Run transformers' own model."""
    if model.config.model_type == "siglip2_vision_model":
        from transformers.models.siglip2.image_processing_siglip2 import convert_image_to_patches

        patches = torch.stack([convert_image_to_patches(image, 8) for image in images])
        mask = torch.ones(patches.shape[:2], dtype=torch.int32)
        shapes = torch.tensor([[images.shape[2] // 8, images.shape[3] // 8]] * len(images))
        return model(patches, mask, shapes, **options)
    if model.config.model_type in ("vit", "siglip_vision_model", "clip_vision_model"):
        options["interpolate_pos_encoding"] = True
    return model(images, **options)


def native_side(backbone: Backbone) -> int:
    return backbone.native_size()[0]


@pytest.mark.parametrize("name", MODELS)
def test_features_are_the_last_hidden_state(name: str, tmp_path: Path) -> None:
    model, stride = write(tmp_path, name), MODELS[name][1]
    backbone = create_backbone(f"hf:{tmp_path}", pretrained=True).eval()
    images = random_images(4 * stride, 6 * stride)
    features = backbone(images)
    assert features.grid == (4, 6) and backbone.stride() == (stride, stride)
    expected = output(model, images).last_hidden_state
    if expected.ndim == 4:
        expected = expected.flatten(2).mT
    prefix = REGISTERS.get(name, 0) + (name in WITH_CLS)
    assert_close(features.tokens, expected[:, prefix:])
    assert backbone.prefix == prefix and backbone.has_cls == (name in WITH_CLS)
    if backbone.has_cls:
        assert_close(features.cls, expected[:, 0])
    features.tokens.square().sum().backward()
    behind = ("model.pooler.", "model.fc_norm.")
    for key, parameter in backbone.named_parameters():
        assert parameter.grad is not None or key.startswith(behind), key


@pytest.mark.parametrize("name", MODELS)
def test_the_own_pooling_gives_pooler_output_also_when_saved(name: str, tmp_path: Path) -> None:
    model = write(tmp_path / "model", name)
    pooled = create_model(f"hf:{tmp_path / 'model'}", "own", 0, pretrained=True).eval()
    side = native_side(pooled.backbone)
    images = random_images(side, side)
    assert_close(pooled.embed(images), output(model, images).pooler_output)
    pooled.save(tmp_path / "saved")
    digest = sha256(tmp_path / "model" / "model.safetensors")
    shutil.rmtree(tmp_path / "model")
    loaded = load(tmp_path / "saved")
    assert_close(loaded.embed(images), pooled.embed(images))
    assert loaded.backbone.source == {"name": f"hf:{tmp_path / 'model'}", "sha256": digest}
    versions = json.loads((tmp_path / "saved" / "config.json").read_text())["versions"]
    assert versions["transformers"] == T.__version__


@pytest.mark.parametrize("name", WITH_CLS)
def test_cls_attention_is_that_of_eager_attention(name: str, tmp_path: Path) -> None:
    write(tmp_path, name)
    eager = T.AutoModel.from_pretrained(tmp_path, attn_implementation="eager")
    model = create_model(f"hf:{tmp_path}", "cls", 0, pretrained=True).eval()
    images = random_images(*[native_side(model.backbone)] * 2)
    attention = output(eager, images, output_attentions=True).attentions[-1]  # (B, h, N, N)
    expected = attention[:, :, 0, -16:].mean(1).view(2, 1, 4, 4)
    assert_close(model.attend(images, "cls"), expected)
    assert model.attend(images, "rollout").shape == (2, 1, 4, 4)


@pytest.mark.parametrize("name", ["siglip_vision_model", "siglip2_vision_model"])
def test_the_map_of_the_attention_pool(name: str, tmp_path: Path) -> None:
    original = write(tmp_path, name)
    model = create_model(f"hf:{tmp_path}", "own", 0, pretrained=True).eval()
    images = random_images(16, 24)
    tokens = output(original, images).last_hidden_state
    probe = original.head.probe.expand(2, -1, -1)
    weights = original.head.attention(probe, tokens, tokens, average_attn_weights=False)[1]
    assert_close(model.attend(images, "pool"), weights[:, :, 0].unflatten(-1, (2, 3)))


@pytest.mark.parametrize("name", ["swin", "convnext"])
def test_maps_of_windows_and_convolutions_are_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path, name)
    model = create_model(f"hf:{tmp_path}", "own", 3, pretrained=True).eval()
    with pytest.raises(ValueError, match="kind='cam'"):
        model.attend(random_images(64, 64), "rollout")
    assert model.attend(random_images(64, 96), "cam", classes=[0, 1]).ndim == 4


@pytest.mark.parametrize("name", WITH_CLS)
def test_a_pool_over_patches_removes_cls(name: str, tmp_path: Path) -> None:
    write(tmp_path / "model", name)
    model = create_model(f"hf:{tmp_path / 'model'}", "simpool", 3, pretrained=True).eval()
    assert not model.backbone.has_cls and model.backbone.prefix == REGISTERS.get(name, 0)
    images = random_images(*[native_side(model.backbone)] * 2)
    calls: list[int] = []
    layer = next(m for n, m in model.backbone.named_modules() if n.endswith("q_proj"))
    layer.register_forward_hook(lambda m, given, out: calls.append(out.shape[1]))
    model(images).sum().backward()
    assert calls == [16 + REGISTERS.get(name, 0)]
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    model.save(tmp_path / "saved")
    assert_close(load(tmp_path / "saved")(images), model(images))


@pytest.mark.parametrize("size", [(90, 90), (91, 60), (57, 90)])
@pytest.mark.parametrize("name", PROCESSORS)
def test_the_preprocessing_is_that_of_the_image_processor(
    name: str, size: tuple[int, int], tmp_path: Path
) -> None:
    write(tmp_path, "dinov3_vit")
    PROCESSORS[name].save_pretrained(tmp_path)
    preprocessing = create_backbone(f"hf:{tmp_path}").preprocessing
    pixels = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)
    expected = PROCESSORS[name](image, return_tensors="pt")["pixel_values"][0]
    # DINOv3 resizes floats, the others whole numbers.
    assert_close(preprocessing.transform()(image), expected, atol=0.02, rtol=0)


def test_siglip_2_of_any_shape_has_a_size(tmp_path: Path) -> None:
    write(tmp_path, "siglip2_vision_model")
    T.Siglip2ImageProcessor(patch_size=8, max_num_patches=36).save_pretrained(tmp_path)
    preprocessing = create_backbone(f"hf:{tmp_path}").preprocessing
    assert (preprocessing.size, preprocessing.interpolation) == (48, "bilinear")


def test_the_image_part_of_image_text_models(tmp_path: Path) -> None:
    vision = {**VIT, "image_size": 32}
    clip = T.CLIPModel(T.CLIPConfig(vision_config=vision, text_config=TEXT))
    siglip_vision = {**VIT, "num_patches": 16}
    text = {**TEXT, "projection_size": 32}
    siglip = T.Siglip2Model(T.Siglip2Config(vision_config=siglip_vision, text_config=text))
    images = random_images(32, 32)
    for model in (clip, siglip):
        folder = tmp_path / type(model).__name__
        original = write_model(folder, model).vision_model
        pooled = create_model(f"hf:{folder}", "own", 0, pretrained=True).eval()
        assert_close(pooled.embed(images), output(original, images).pooler_output)


def test_a_pooler_without_weights_is_not_used(tmp_path: Path) -> None:
    original = write_model(tmp_path / "model", T.ViTForImageClassification(MODELS["vit"][0]))
    model = create_model(f"hf:{tmp_path / 'model'}", "own", 0, pretrained=True).eval()
    images = random_images(32, 32)
    assert model.pool is None
    assert_close(model.embed(images), original.vit(images).last_hidden_state[:, 0])
    model.save(tmp_path / "saved")
    assert_close(load(tmp_path / "saved").embed(images), model.embed(images))


def test_a_repository_of_the_hub_without_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"hf:owner/name.*hf:FOLDER"):
        create_backbone("hf:owner/name", pretrained=True)
    folder = tmp_path / "hub" / "models--owner--name"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("1" * 40)
    snapshot = folder / "snapshots" / ("1" * 40)
    model = write(snapshot, "dinov2")
    config = json.loads((snapshot / "config.json").read_text())
    config |= {"auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    config |= {"_attn_implementation": "owner/kernel", "torch_dtype": "float16"}
    (snapshot / "config.json").write_text(json.dumps(config))
    (snapshot / "code.py").write_text("raise SystemExit('code of the repository was run')")
    images = random_images(28, 28)
    backbone = create_backbone("hf:owner/name", pretrained=True).eval()
    assert_close(backbone(images).cls, model(images).pooler_output)


def test_shards(tmp_path: Path) -> None:
    model = write(tmp_path, "dinov2")
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    backbone = create_backbone(f"hf:{tmp_path}", pretrained=True).eval()
    images = random_images(28, 28)
    assert_close(backbone(images).cls, model(images).pooler_output)
    assert backbone.source is not None and len(backbone.source["sha256"]) == 64


def test_refusals(tmp_path: Path) -> None:
    def refused(folder: Path, error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            create_backbone(f"hf:{folder}", pretrained=True)

    refused(tmp_path / "absent", FileNotFoundError, "no such folder")
    refused(tmp_path, FileNotFoundError, r"save_pretrained.*config\.json")
    (tmp_path / "config.json").write_text('{"architecture": "resnet18"}')
    refused(tmp_path, ValueError, "hf-hub:OWNER/NAME")
    (tmp_path / "config.json").write_text('{"model_type": "nobodys"}')
    refused(tmp_path, ValueError, "'nobodys'.*update transformers")
    write(tmp_path / "bin", "dinov2")
    (tmp_path / "bin" / "model.safetensors").rename(tmp_path / "bin" / "pytorch_model.bin")
    refused(tmp_path / "bin", FileNotFoundError, r"may run code.*model\.safetensors")
    write(tmp_path / "other", "dinov2")
    shutil.copy(tmp_path / "other" / "model.safetensors", tmp_path / "bin")
    T.ViTConfig(**VIT, image_size=32).save_pretrained(tmp_path / "bin")
    refused(tmp_path / "bin", ValueError, "ViTModel")
    write_model(tmp_path / "text", T.BertModel(T.BertConfig(**TEXT, intermediate_size=9)))
    refused(tmp_path / "text", ValueError, r"\(bert\) is not a model of images: give")
    write_model(tmp_path / "masked", T.ViTMAEModel(T.ViTMAEConfig(**VIT, image_size=32)))
    refused(tmp_path / "masked", ValueError, "not the positions of a grid: use")
    with pytest.raises(ValueError, match="argument 'depth'"):
        create_backbone(f"hf:{tmp_path / 'other'}", depth=2)


def test_a_fixed_size_is_named(tmp_path: Path) -> None:
    write_model(tmp_path, T.Aimv2VisionModel(T.Aimv2VisionConfig(**VIT, image_size=32)))
    backbone = create_backbone(f"hf:{tmp_path}", pretrained=True)
    with pytest.raises(ValueError, match="its size is 32x32"):
        backbone(random_images(32, 64))


def test_a_saved_model_names_only_arguments_of_the_architecture() -> None:
    with pytest.raises(ValueError, match="output_stride"):
        create_backbone("transformers.swin", output_stride=16)
    with pytest.raises(ValueError, match="_attn_implementation"):
        create_backbone("transformers.swin", _attn_implementation="owner/kernel")


def test_search_by_image_names_a_folder_of_transformers(tmp_path: Path) -> None:
    write(tmp_path, "dinov2")
    model = create_image_text(f"timm/hf:{tmp_path}")
    side = native_side(create_backbone(f"hf:{tmp_path}"))
    assert model.embed_images(random_images(side, side)).shape == (2, model.dim)
