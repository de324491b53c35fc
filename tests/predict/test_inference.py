"""A device that runs out of memory gets smaller batches."""

import logging
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cenote.backbones import Features
from cenote.evaluate.per_image_correct import check_images
from cenote.models import create_model
from cenote.predict.embedding import Loading, embed_dataset, predict_logits
from cenote.predict.feature_cache import FeatureCache, cached_features
from cenote.predict.inference import Inference
from tests.synthetic import squares

CPU = torch.device("cpu")
NARROW = {"layers": (1, 1, 1, 1), "channels": (4, 8, 8, 8)}
OUT_OF_MEMORY = torch.OutOfMemoryError("out of memory")


class SmallDevice:
    """A function that fails for more than `most` images, as on a device with little memory."""

    def __init__(self, most: int, error: RuntimeError = OUT_OF_MEMORY) -> None:
        self.most, self.error, self.sizes = most, error, list[int]()

    def __call__(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        if len(images) > self.most:
            raise self.error
        return 2 * images


@pytest.mark.parametrize(
    "error", [OUT_OF_MEMORY, RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)")]
)
def test_smaller_batches_are_tried_and_reported_once(
    error: RuntimeError, caplog: pytest.LogCaptureFixture
) -> None:
    forward = SmallDevice(3, error)
    run, images = Inference(forward, CPU), torch.arange(10.0)
    with caplog.at_level(logging.INFO, "cenote"):
        for _ in range(2):
            assert torch.equal(run(images), 2 * images)
    assert forward.sizes == [10, 5, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    sentence = "cpu ran out of memory with 10 images at a time: continuing with 2"
    assert caplog.messages == [sentence]


def test_a_single_image_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        Inference(SmallDevice(most=0), CPU)(torch.ones(4))


def test_another_error_is_not_tried_again() -> None:
    forward = SmallDevice(0, RuntimeError("the sizes do not match"))
    with pytest.raises(RuntimeError, match="sizes"):
        Inference(forward, CPU)(torch.ones(4))
    assert forward.sizes == [4]


def test_embedding_a_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = create_model("resnet18", "gap", 3, **NARROW), squares(10)
    expected = embed_dataset(model, data, Loading(4))
    forward, sizes = model.backbone.forward, list[int]()

    def forward_few(images: Tensor) -> Features:
        sizes.append(len(images))
        if len(images) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return forward(images)

    monkeypatch.setattr(model.backbone, "forward", forward_few)
    result = embed_dataset(model, data, Loading(4))
    assert sizes == [4, 2, 2, 2, 2, 2]
    assert torch.equal(result.positions, expected.positions)
    torch.testing.assert_close(result.vectors, expected.vectors, rtol=1e-4, atol=1e-5)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices for which half precision was turned on."""
    devices = list[torch.device]()

    def half_precision(device: torch.device) -> AbstractContextManager[None]:
        devices.append(device)
        return nullcontext()

    monkeypatch.setattr("cenote.predict.inference.half_precision", half_precision)
    return devices


def test_half_precision_is_for_stores_of_half_precision(
    calls: list[torch.device], tmp_path: Path
) -> None:
    backbone, cache = create_model("resnet18", "gap", 3, **NARROW).backbone, FeatureCache(tmp_path)
    cached_features(backbone, squares(4), cache=cache, dtype="float32")
    assert not calls
    cached_features(backbone, squares(4), cache=cache, dtype="float16")
    assert calls == [CPU]


def test_classification_uses_the_precision_of_logits(calls: list[torch.device]) -> None:
    model = create_model("resnet18", "gap", 3, **NARROW)
    check_images(model, squares(4), lambda logits: logits.argmax(1), Loading(4))
    predict_logits(model, squares(4), Loading(4))
    assert calls == [CPU, CPU]
