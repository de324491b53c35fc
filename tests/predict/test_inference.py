"""A device that runs out of memory gets smaller batches."""

import logging

import pytest
import torch
from torch import Tensor

from cenote.backbones import Features
from cenote.models import create_model
from cenote.predict.embedding import Loading, embed_dataset
from cenote.predict.inference import Inference
from tests.synthetic import squares

CPU = torch.device("cpu")


class SmallDevice:
    """A function that fails for more than `most` images, as on a device with little memory."""

    def __init__(self, most: int) -> None:
        self.most, self.sizes = most, list[int]()

    def __call__(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        if len(images) > self.most:
            raise torch.OutOfMemoryError("out of memory")
        return 2 * images


def test_smaller_batches_are_tried_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    forward = SmallDevice(most=3)
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


def test_embedding_a_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = {"layers": (1, 1, 1, 1), "channels": (4, 8, 8, 8)}
    model, data = create_model("resnet18", "gap", 3, **narrow), squares(10)
    expected = embed_dataset(model, data, Loading(4))
    forward = model.backbone.forward

    def forward_few(images: Tensor) -> Features:
        if len(images) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return forward(images)

    monkeypatch.setattr(model.backbone, "forward", forward_few)
    result = embed_dataset(model, data, Loading(4))
    assert torch.equal(result.positions, expected.positions)
    torch.testing.assert_close(result.vectors, expected.vectors, rtol=1e-4, atol=1e-5)
