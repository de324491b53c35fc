"""Frozen networks in OpenVINO: equal to PyTorch, and replaced by it wherever that is not possible."""

from __future__ import annotations

import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cenote.backbones import Backbone, Features, create_backbone
from cenote.models import create_model
from cenote.models.image_text import ImageNetwork
from cenote.predict import openvino_engine as engine
from cenote.predict.feature_cache import FeatureCache
from cenote.predict.openvino_engine import ConvertedNetwork, embed_images, one_thread, run_frozen
from tests.toy_models import ColourModel

pytestmark = pytest.mark.skipif(
    not engine.cpu_is_supported(), reason="OpenVINO is not used on CPUs without AVX2"
)
CNN, VIT = "test_resnet", "test_vit"  # timm's smallest networks


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Convert at the first image, into an empty cache."""
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path))
    monkeypatch.setattr(engine, "MIN_PIXELS", 0)


def backbone_of(name: str = CNN) -> Backbone:
    return create_backbone(name).eval().requires_grad_(False)


def images(count: int = 4, size: int = 64) -> Tensor:
    return torch.randn(count, 3, size, size)


def is_converted(network: nn.Module) -> bool:
    return bool(engine._engines[network].converted)


@torch.no_grad()
def assert_equal(network: Backbone, batch: Tensor) -> None:
    features: Features = run_frozen(network, batch)
    expected: Features = network(batch)
    assert features.grid == expected.grid
    scale = float(expected.tokens.abs().max())
    torch.testing.assert_close(features.tokens, expected.tokens, rtol=1e-3, atol=1e-3 * scale)
    if expected.cls is None:
        assert features.cls is None
    else:
        assert features.cls is not None
        torch.testing.assert_close(features.cls, expected.cls, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", [CNN, VIT])
def test_features_equal_those_of_pytorch_for_any_number_of_images(name: str) -> None:
    backbone = backbone_of(name)
    for count in (4, 1, 7):
        assert_equal(backbone, images(count))
        assert is_converted(backbone)


def test_sizes_are_converted_one_by_one() -> None:
    backbone = backbone_of()
    for size in (64, 96):
        assert_equal(backbone, images(2, size))
    assert len(engine._engines[backbone].converted) == 2


def test_positions_of_a_vit_are_resized_as_in_pytorch() -> None:
    backbone = backbone_of(VIT)
    positions = next(value for name, value in backbone.named_parameters() if "pos_embed" in name)
    positions.mul_(50)  # as large as those of trained networks
    for size in (160, 96):
        assert_equal(backbone, images(2, size))
    assert len(engine._engines[backbone].converted) == 2


def test_small_operations_use_one_thread_and_networks_use_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Threads(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.tensor(torch.get_num_threads())

    monkeypatch.setattr(engine, "MIN_PIXELS", 10**9)  # not converted
    before = torch.get_num_threads()
    network = Threads().eval()
    try:
        torch.set_num_threads(3)
        with one_thread():
            assert torch.get_num_threads() == 1
            with torch.no_grad():
                assert run_frozen(network, images(1)) == 3
            assert run_frozen(network, images(1)) == 3  # with gradients
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_few_images_are_computed_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MIN_PIXELS", 15 * 64**2)
    backbone, converted = backbone_of(), []
    for count in (6, 6, 1, 1):  # one image counts as four
        assert_equal(backbone, images(count, 64))
        converted.append(is_converted(backbone))
    assert converted == [False, False, True, True]


def test_a_network_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = backbone_of(), backbone_of()
    second.load_state_dict(first.state_dict())
    assert_equal(first, images())
    monkeypatch.setattr(engine, "_convert", None)
    assert_equal(second, images())
    assert is_converted(second)


@pytest.mark.parametrize("name", [engine.XML, engine.WEIGHTS, "store.json"])
def test_a_damaged_file_is_replaced(name: str, tmp_path: Path) -> None:
    first, second = backbone_of(), backbone_of()
    second.load_state_dict(first.state_dict())
    assert_equal(first, images())
    (path,) = tmp_path.glob(f"*/{name}")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert_equal(second, images())
    assert is_converted(second)
    assert len(path.read_bytes()) > 0.9 * len(content)  # names in it contain numbers


def test_a_cached_network_with_other_results_is_replaced(tmp_path: Path) -> None:
    first, second = backbone_of(), backbone_of()
    other = {name: value + 0.1 for name, value in first.state_dict().items()}
    second.load_state_dict(first.state_dict())
    first.load_state_dict(other)
    digest = engine.weights_digest(second)
    with pytest.MonkeyPatch.context() as patch:  # as if a digest did not notice a difference
        patch.setattr(engine, "weights_digest", lambda network: digest)
        assert_equal(first, images())
    assert_equal(second, images())
    assert is_converted(second) and len(list(tmp_path.glob("*/store.json"))) == 1


def test_without_openvino_pytorch_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_openvino", lambda: __import__("package_that_is_not_there"))
    backbone = backbone_of()
    assert_equal(backbone, images())
    assert not is_converted(backbone)


def test_a_disagreement_leaves_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    call = ConvertedNetwork.__call__

    def disagree(self: ConvertedNetwork, batch: Tensor) -> Any:
        features = call(self, batch)
        return features._replace(tokens=features.tokens * 1.01)

    monkeypatch.setattr(ConvertedNetwork, "__call__", disagree)
    backbone = backbone_of()
    assert_equal(backbone, images())
    assert not is_converted(backbone)


def test_an_unwritable_cache_is_not_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "file"))
    backbone = backbone_of()
    assert_equal(backbone, images())
    assert is_converted(backbone)


def test_gradients_training_mode_and_hooks_need_pytorch() -> None:
    backbone, batch = backbone_of(), images()
    features = run_frozen(backbone, batch.requires_grad_())
    features.tokens.sum().backward()
    assert batch.grad is not None and batch.grad.abs().sum() > 0
    seen: list[Any] = []
    with torch.no_grad():
        run_frozen(backbone.train(), images())
        assert backbone not in engine._engines
        handle = backbone.model.conv1.register_forward_hook(lambda *call: seen.append(call))
        run_frozen(backbone.eval(), images())
        assert len(seen) == 1
        handle.remove()
        run_frozen(backbone, images())
    assert is_converted(backbone)


def test_a_network_that_changes_often_stays_in_pytorch() -> None:
    backbone, batch = backbone_of(), images()
    converted = []
    for _ in range(3):
        assert_equal(backbone, batch)
        converted.append(is_converted(backbone))
        with torch.no_grad():
            next(backbone.parameters()).mul_(2)
    assert converted == [True, True, False]


def test_maps_and_vectors_of_a_model_go_through_it() -> None:
    model = create_model(VIT, "simpool", num_classes=3).eval()
    batch = images()
    with torch.no_grad():
        features = run_frozen(model.backbone, batch)
        torch.testing.assert_close(
            model.embed_features(features), model.embed(batch), rtol=1e-3, atol=1e-3
        )


def test_an_image_text_model_embeds_images_through_it() -> None:
    class WithNetwork(ColourModel):
        image_network = backbone_of()

        def embed_output(self, output: Features) -> Tensor:
            return output.tokens.mean(1)

    model, batch = WithNetwork(), images()
    assert isinstance(model, ImageNetwork) and not isinstance(ColourModel(), ImageNetwork)
    with torch.no_grad():
        expected = model.image_network(batch).tokens.mean(1)
    torch.testing.assert_close(embed_images(model, batch), expected, rtol=1e-3, atol=1e-3)
    assert is_converted(model.image_network)


def _features_in_a_process(folder: str, state: dict[str, Tensor], batch: Tensor) -> Tensor:
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setenv("CENOTE_CACHE", folder)
        patch.setattr(engine, "MIN_PIXELS", 0)
        torch.set_num_threads(1)
        backbone = backbone_of()
        backbone.load_state_dict(state)
        tokens: Tensor = run_frozen(backbone, batch).tokens
        assert is_converted(backbone)
        return tokens.clone()


@pytest.mark.slow  # two processes import torch
def test_two_processes_at_once(tmp_path: Path) -> None:
    backbone, batch = backbone_of(), images()
    with torch.no_grad():
        expected = backbone(batch).tokens
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        arguments = (str(tmp_path), backbone.state_dict(), batch)
        results = pool.starmap(_features_in_a_process, [arguments] * 2, chunksize=1)
    for tokens in results:
        torch.testing.assert_close(tokens, expected, rtol=1e-3, atol=1e-3)
    (description,) = tmp_path.glob("*/store.json")
    assert json.loads(description.read_text())["made_by"]["backbone"] == CNN


def test_a_forked_process_uses_pytorch() -> None:
    backbone = backbone_of()
    assert_equal(backbone, images())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.os, "getpid", lambda: -1)
        patch.setattr(ConvertedNetwork, "__call__", None)
        assert_equal(backbone, images())
    assert_equal(backbone, images())
    assert is_converted(backbone)


def test_the_cache_lists_and_removes_converted_networks(tmp_path: Path) -> None:
    backbone = backbone_of()
    assert_equal(backbone, images())
    cache = FeatureCache()
    (store,) = cache.stores()
    weights = sum(value.nbytes for value in backbone.parameters())
    assert store["made_by"]["backbone"] == CNN and store["bytes"] > weights / 2
    assert cache.prune([store["name"][:8]]) == [store["name"]] and not cache.stores()
    assert_equal(backbone, images())  # it is open in this process


def test_openvino_does_not_report_its_use() -> None:
    assert_equal(backbone_of(), images(2))
    assert "openvino_telemetry" not in sys.modules
    from openvino.tools.ovc import telemetry_utils

    assert telemetry_utils.tm.__name__ == "openvino.tools.ovc.telemetry_stub"


def small_network() -> nn.Sequential:
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(8, 4, 3))
    return nn.Sequential(*layers).eval()


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net[0].weight.mul_(2),
        lambda net: setattr(net[3], "dilation", (2, 2)),
        lambda net: net.__setitem__(1, nn.GELU()),
        lambda net: net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()}),
    ],
    ids=["in place", "attribute", "layer", "state dict"],
)
@torch.no_grad()
def test_a_network_that_changes_is_converted_again(change: Any) -> None:
    network, batch = small_network(), images()
    before = run_frozen(network, batch)
    change(network)
    after = run_frozen(network, batch)
    assert is_converted(network)
    assert before.shape != after.shape or not torch.allclose(before, after, atol=1e-2)
    torch.testing.assert_close(after, network(batch), rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_a_layer_in_training_mode_runs_in_pytorch() -> None:
    network, batch = small_network(), images()
    run_frozen(network, batch)
    network[2].train()
    assert not torch.equal(run_frozen(network, batch), run_frozen(network, batch))


class Outputs(nn.Module):
    """A network with outputs that OpenVINO cannot return as they are."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x * 2)


@pytest.mark.parametrize("make", [lambda y: [y], lambda y: (None, y), lambda y: (y, (y, y))])
@torch.no_grad()
def test_other_outputs_than_tensors_are_left_to_pytorch(make: Any) -> None:
    network, batch = Outputs(make).eval(), images()
    assert str(run_frozen(network, batch)) == str(network(batch))
    assert not is_converted(network)


@torch.no_grad()
def test_nothing_is_converted_while_a_network_trains() -> None:
    backbone = backbone_of()
    with engine.only_pytorch():
        run_frozen(backbone, images())
    assert backbone not in engine._engines
    run_frozen(backbone, images())
    assert is_converted(backbone)


@torch.no_grad()
def test_old_networks_leave_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_CACHED", 2)
    for _ in range(4):
        run_frozen(small_network(), images())
    assert len(FeatureCache().stores()) == 2
