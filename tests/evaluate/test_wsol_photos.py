"""On real photographs the map of what lite0 sees is on the animal: more precise than chance, and boxes that overlap."""

import numpy as np
import pytest
import torch

from cenote.data import Record, open_dataset, pack
from cenote.evaluate.wsol import localize
from cenote.models import create_model
from cenote.predict.embedding import Loading
from tests.shared_data import shared_data


def test_pets() -> None:
    pets = open_dataset(shared_data("pets"))
    pets = pets.select([i for i in range(0, len(pets), 50) if pets[i].boxes])
    model = create_model("lite0", "gap", pretrained=True).eval()
    model.class_names = [str(i) for i in range(1000)]
    whole = model.backbone.preprocessing.whole()
    with (
        torch.no_grad()
    ):  # the class that it sees takes the place of the breed, which it was not taught
        labels = [str(int(model(whole(pets.image(i))[None]).argmax())) for i in range(len(pets))]
    records: list[Record] = [
        record._replace(label=label) for record, label in zip(pets, labels, strict=True)
    ]
    dataset = pack(records, pets.root, "pets", mask_codes=pets.mask_codes)
    seen: list[int] = []
    result = localize(
        model,
        dataset,
        dataset.select(range(0, len(dataset), 2)),
        resamples=100,
        loading=Loading(4, progress=seen.append),
    )
    report = result.to_json()
    assert sum(seen) == len(dataset) + (len(dataset) + 1) // 2 and not report["unreadable"]
    masks = [dataset.mask(i) for i in range(len(dataset))]
    chance = 100 * np.mean(
        [(mask == 1).sum() / (mask != 255).sum() for mask in masks]
    )  # a map that says nothing
    assert report["pxap"] > chance + 15
    assert report["chosen"]["max_box_acc_v2"]["per_iou"][0] > 85 and report["mean_iou"] > 50
    # The same class again in a batch, unless two are equally likely up to rounding.
    assert report["accuracy"]["top1"] > 90
    assert report["chosen"]["max_box_acc"]["top1"] == pytest.approx(
        report["chosen"]["max_box_acc"]["score"], abs=7
    )
