"""Training on images with several classes."""

from pathlib import Path

import torch
from torch import nn

from cenote.data import Record
from cenote.data.dataset import pack
from cenote.evaluate.validators import MultiLabelScore
from cenote.models.head import Head
from cenote.train.build import start_from_shares


def test_probabilities_start_at_the_share_of_images() -> None:
    labels = [("a", "b"), ("a",), (), ("a", "c")] * 50
    records = [Record(f"{i}.jpg", labels=names) for i, names in enumerate(labels)]
    head = Head(8, 3)
    start_from_shares(nn.ModuleDict({"head": head}), pack(records, Path(), "made"))
    torch.testing.assert_close(
        head(torch.zeros(1, 8)).sigmoid()[0], torch.tensor([0.75, 0.25, 0.25]), atol=0.01, rtol=0
    )


def test_score_of_batches() -> None:
    score = MultiLabelScore()
    score.add(torch.tensor([[3.0, 0.0], [1.0, 0.0]]), torch.tensor([[True, False], [False, False]]))
    score.add(torch.tensor([[2.0, 0.0]]), torch.tensor([[True, False]]))
    assert score.result() == 100  # the second class has no image
    nothing = MultiLabelScore()
    nothing.add(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool))
    assert nothing.result() == 0
