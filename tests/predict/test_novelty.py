"""Photographs unlike the training images."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import cenote
from cenote.cli import main
from cenote.data.splits import split
from cenote.models import save_model
from cenote.predict.novelty import (
    ALARMS,
    FILE,
    ClassMeans,
    compute_class_means,
    read_class_means,
    store_class_means,
    threshold_of,
)
from tests.synthetic import rectangles
from tests.toy_models import localizer


def test_the_threshold_raises_few_alarms() -> None:
    """Over many draws, a further value is below the threshold with probability ALARMS at most."""
    values = torch.rand(4000, 40, generator=torch.Generator().manual_seed(0))
    below = [float(row[39]) < threshold_of(row[:39]) for row in values]
    assert np.mean(below) == pytest.approx(ALARMS, abs=0.015)


def test_the_threshold_of_few_values_is_their_minimum() -> None:
    assert threshold_of(torch.tensor([0.5, 0.3, 0.4])) == pytest.approx(0.3)


def test_unlike_is_a_small_cosine_to_every_mean() -> None:
    means = ClassMeans(torch.eye(3)[:2], 0.8)
    vectors = torch.tensor([[5.0, 0, 0], [0, 0.1, 0.01], [1, 1, 0], [0, 0, 9.0]])
    assert means.unlike(vectors) == [False, False, True, True]
    assert means.unlike(vectors[:, None]) == means.unlike(vectors)  # a pool of one vector of k


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, splits = tmp_path_factory.mktemp("run"), split(rectangles(90), quiet=True)
    save_model(localizer(), folder)
    store_class_means(localizer(), splits.train, splits.val, folder)
    return folder


def test_stored_class_means_are_those_of_the_training_images(run: Path) -> None:
    splits = split(rectangles(90), quiet=True)
    expected = compute_class_means(localizer().eval(), splits.train, splits.val)
    stored = read_class_means(run)
    assert stored is not None and stored.threshold == pytest.approx(expected.threshold)
    torch.testing.assert_close(stored.means, expected.means)
    torch.testing.assert_close(stored.means.norm(dim=1), torch.ones(len(stored.means)))


def test_those_of_other_weights_or_of_few_images_are_not_used(run: Path, tmp_path: Path) -> None:
    model = localizer()
    with torch.no_grad():
        next(model.parameters()).add_(1)
    save_model(model, tmp_path)
    (tmp_path / FILE).write_bytes((run / FILE).read_bytes())
    assert read_class_means(tmp_path) is None and read_class_means(None) is None
    (tmp_path / FILE).unlink()
    few = rectangles(9)
    store_class_means(model, few, few, tmp_path)
    assert not (tmp_path / FILE).exists()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    save_model(localizer(), tmp_path)
    (tmp_path / FILE).write_bytes(b"damaged")
    with pytest.raises(ValueError, match=FILE):
        read_class_means(tmp_path)


def test_predictions_say_what_is_unlike_the_training_images(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, out = tmp_path / "photos", tmp_path / "classes.csv"
    photos.mkdir()
    for i in range(4):
        rectangles(4).image(i).save(photos / f"{i}.png")
    Image.new("RGB", (64, 64)).save(photos / "unlike.png")
    model = cenote.Model(run, map="cam")
    unlike = {p.path.name: p.unlike_training for p in model.predict(photos)}
    assert unlike["unlike.png"] is True and unlike["0.png"] is False
    assert main(["predict", str(run), str(photos), "-o", str(out)]) == 0
    assert "unlike the training images" in capsys.readouterr().err
    with out.open(newline="", encoding="utf-8") as file:
        rows = {Path(row["file"]).name: row["unlike_training"] for row in csv.DictReader(file)}
    assert rows["unlike.png"] == "1" and rows["0.png"] == "0"


def test_a_model_without_class_means_says_nothing(run: Path, tmp_path: Path) -> None:
    old, out = tmp_path / "old", tmp_path / "classes.csv"
    save_model(localizer(), old)
    rectangles(1).image(0).save(tmp_path / "0.png")
    assert cenote.Model(old, map="cam").predict(tmp_path / "0.png").unlike_training is None
    assert main(["predict", str(old), str(tmp_path / "0.png"), "-o", str(out)]) == 0
    with out.open(newline="", encoding="utf-8") as file:
        assert [row["unlike_training"] for row in csv.DictReader(file)] == [""]
