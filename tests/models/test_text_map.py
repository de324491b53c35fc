"""Maps of a text: the equation, open_clip's encoders as timm's, and where things are drawn."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from cenote.data import open_dataset
from cenote.models import create_model
from cenote.models.image_text import ImageText, PositionEncoder, create_image_text
from cenote.models.image_text.small_clip import SmallClip
from cenote.models.image_text.text_encoder import TextTower, Words
from cenote.models.text_map import TextMap, contrast_texts
from cenote.predict.open_model import open_text_map
from tests.shared_data import shared_data

VISION = {"image_size": 32, "layers": 3, "width": 32, "patch_size": 8, "head_width": 16}
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
TIMM = {
    "timm_model_name": "vit_tiny_patch16_224",
    "timm_model_pretrained": False,
    "timm_pool": "",
    "timm_proj": "linear",
    "image_size": 224,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "clip": {"vision_cfg": VISION},
    "quick": {"vision_cfg": VISION, "quick_gelu": True},
    "siglip": {"vision_cfg": TIMM | {"timm_pool": "map", "timm_proj": "none"}, "embed_dim": 192},
    "timm": {"vision_cfg": TIMM},
    "resnet": {"vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8}},
    "average": {"vision_cfg": VISION | {"pool_type": "avg", "final_ln_after_pool": True}},
}


def open_random_clip(name: str, folder: Path) -> Any:
    open_clip = pytest.importorskip("open_clip", reason="needs: pip install 'cenote[clip]'")
    from safetensors.torch import save_file

    config = {"embed_dim": 24, "text_cfg": TEXT, **CONFIGS[name]}
    settings = {"model_cfg": config, "preprocess_cfg": {}}
    (folder / "open_clip_config.json").write_text(json.dumps(settings))
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = open_clip.create_model(f"local-dir:{folder}")
    state = {key: value.contiguous() for key, value in model.state_dict().items()}
    save_file(state, folder / "open_clip_model.safetensors")
    return create_image_text(f"open_clip/local-dir:{folder}")


@torch.no_grad()
def reference_map(visual: Any, pixels: Tensor, direction: Tensor) -> Tensor:
    """SCLIP's attention and MaskCLIP's path, image by image and head by head, in open_clip."""
    x = visual._embeds(pixels)
    *blocks, last = visual.transformer.resblocks
    for block in blocks:
        x = block(x)
    maps = []
    for tokens in last.ln_1(x):
        attn = last.attn
        qkv = nn.functional.linear(tokens, attn.in_proj_weight, attn.in_proj_bias)
        outputs = []
        for q, k, v in zip(*(y.chunk(attn.num_heads, -1) for y in qkv.chunk(3, -1)), strict=True):
            scale = q.shape[-1] ** -0.5
            a = (q @ q.T * scale).softmax(-1) + (k @ k.T * scale).softmax(-1)
            outputs.append(a @ v)
        z = visual.ln_post(attn.out_proj(torch.cat(outputs, -1))) @ visual.proj
        maps.append(nn.functional.normalize(z, dim=-1)[1:] @ direction)
    return torch.stack(maps)


@pytest.mark.parametrize("name", ["clip", "quick"])
def test_the_map_is_that_of_the_equation(name: str, tmp_path: Path) -> None:
    model = open_random_clip(name, tmp_path)
    text_map = TextMap(model, "a dog").eval()
    others = model.embed_texts(contrast_texts(model))
    assert len(others) == 100
    direction = model.embed_texts(["a dog"])[0] - others.mean(0)
    pixels = torch.randn(2, 3, 32, 32)
    expected = reference_map(model.clip.visual, pixels, direction)
    maps = text_map.attend(pixels)
    assert maps.shape == (2, 1, 4, 4)
    torch.testing.assert_close(maps.flatten(1), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(text_map.attend(pixels[1:]), maps[1:], atol=1e-5, rtol=1e-4)
    assert text_map.attend(torch.randn(1, 3, 24, 48)).shape == (1, 1, 3, 6)


@pytest.mark.parametrize("name", ["clip", "quick", "siglip", "timm"])
def test_the_image_encoder_gives_open_clips_vectors(name: str, tmp_path: Path) -> None:
    model = open_random_clip(name, tmp_path)
    assert isinstance(model, PositionEncoder)
    encoder, vectors, _ = model.position_encoder()
    pixels = torch.randn(2, 3, *model.clip.visual.image_size)
    with torch.no_grad():
        torch.testing.assert_close(
            vectors(encoder(pixels)), model.embed_images(pixels), atol=1e-5, rtol=1e-4
        )
    assert TextMap(model, "a dog").eval().attend(pixels).isfinite().all()


@pytest.mark.parametrize("name", ["resnet", "average"])
def test_other_image_encoders_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ViT.*text-space"):
        TextMap(open_random_clip(name, tmp_path), "a dog")


def small_clip(pool: str) -> SmallClip:
    torch.manual_seed(0)
    image = create_model("vit_micro", pool, 0, embedding_dim=16)
    words = Words.of(["a cat", "a red dog"])
    return SmallClip(image, TextTower(len(words), 16), words, things=["cat", "dog"]).eval()


@pytest.mark.parametrize("pool", ["gap", "simpool", "cls", "clip"])
def test_a_small_clip_with_any_pool_has_maps_of_texts(pool: str) -> None:
    model = small_clip(pool)
    maps = [TextMap(model, text).attend(torch.ones(2, 3, 64, 64)) for text in ("cat", "dog")]
    assert maps[0].shape == (2, 1, 8, 8)
    # The mean of two contrasts is subtracted: their maps are opposite.
    torch.testing.assert_close(maps[0], -maps[1], atol=1e-6, rtol=1e-4)


def test_of_average_pooling_a_position_is_an_image_of_its_own() -> None:
    """The map is the similarity of the vector that this token alone would have."""
    model = small_clip("gap")
    text_map = TextMap(model, "cat").eval()
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        tokens = model.image.features(images).tokens[0]
        z = model.image.refine(tokens)
        expected = nn.functional.normalize(z, dim=-1) @ text_map.direction
    torch.testing.assert_close(text_map.attend(images).flatten(), expected, atol=1e-5, rtol=1e-4)


def test_text_space_says_where_the_cat_is() -> None:
    """A photograph of a cat beside one of coffee: each text is in its own half."""
    data = pytest.importorskip("skimage.data", reason="needs: pip install scikit-image")
    photos = [
        Image.fromarray(photo).resize((224, 224)) for photo in (data.chelsea(), data.coffee())
    ]
    model = create_image_text("text-space")
    maps = {}
    for text in ("a cat", "a cup of coffee"):
        text_map = TextMap(model, text).eval()
        transform = text_map.backbone.preprocessing.whole()
        pixels = torch.cat([transform(photo) for photo in photos], -1)[None]
        maps[text] = text_map.attend(pixels)[0, 0].clamp_min(0)
    columns = maps["a cat"].shape[1] // 2
    left = {text: float(a[:, :columns].sum() / a.sum()) for text, a in maps.items()}
    assert left["a cat"] > 0.7 and left["a cup of coffee"] < 0.3


def test_text_space_says_where_a_dog_is() -> None:
    """Average precision of pixels; the strength of any class alone has 83 on 40 other images."""
    peers = pytest.importorskip("sklearn.metrics", reason="needs: pip install scikit-learn")
    pets = open_dataset(shared_data("pets"))
    text_map = TextMap(create_image_text("text-space"), "a dog").eval()
    transform = text_map.backbone.preprocessing.whole()
    scores = []
    for i in [i for i, r in enumerate(pets) if r.label in ("pug", "samoyed", "boxer")][:12]:
        mask = np.asarray(pets.mask(i)) > 0
        pixels = torch.nn.functional.interpolate(transform(pets.image(i))[None], (384, 384))
        a = torch.nn.functional.interpolate(text_map.attend(pixels), mask.shape, mode="bilinear")
        scores.append(peers.average_precision_score(mask.ravel(), a.flatten().numpy()))
    assert np.mean(scores) > 0.8


def test_wrong_texts_and_models_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="empty"):
        open_text_map("text-space", "  ")
    with pytest.raises(ValueError, match=r"'resnet50'.*open_clip/MODEL/WEIGHTS"):
        open_text_map("resnet50", "a dog")
    with pytest.raises(ValueError, match=r"'text', got 'cls'"):
        open_text_map("text-space", "a dog").attend(torch.zeros(1, 3, 64, 64), kind="cls")
    assert not caplog.records
    open_text_map("text-space", "qwertyzxcv")
    assert "does not know 'qwertyzxcv'" in caplog.text


class OnlyVectors:
    """An image-text model without vectors of positions."""

    name = identity = "vectors"
    dim = 4

    def transform(self, scaled_decoding: bool = False) -> Any: ...
    def embed_images(self, pixels: Tensor) -> Any: ...
    def embed_texts(self, texts: Any) -> Any: ...


def test_a_model_without_vectors_of_positions_is_refused() -> None:
    model = OnlyVectors()
    assert isinstance(model, ImageText)
    with pytest.raises(ValueError, match="'vectors' has no vectors of positions"):
        TextMap(model, "a dog")
