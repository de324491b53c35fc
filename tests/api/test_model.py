"""`cenote.Model`: files, folders and images in memory give the same predictions as the commands."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import cenote
from cenote.cli import main
from cenote.data.sources import open_photographs
from cenote.models import save_model
from cenote.predict.embedding import predict_logits
from tests.synthetic import rectangles
from tests.toy_models import localizer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    save_model(localizer(), folder)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for i in range(3):
        rectangles(3).image(i).save(folder / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def model(run: Path) -> cenote.Model:
    return cenote.Model(run, map="cam")


def test_a_file_is_one_prediction_with_the_boxes_of_localize(
    model: cenote.Model, photos: Path, run: Path
) -> None:
    prediction = model.predict(photos / "0.png")
    (box,) = cenote.localize(photos / "0.png", run, map="cam")
    assert (prediction.box, prediction.label) == (box.box, box.label)
    assert 0 < prediction.score <= 1
    assert prediction.size == prediction.picture().size == Image.open(photos / "0.png").size


def test_images_in_memory_are_predicted_as_files(model: cenote.Model, photos: Path) -> None:
    from_file = model.predict(photos / "1.png")
    image = Image.open(photos / "1.png")
    array = np.array(image)
    tensor = torch.from_numpy(array).permute(2, 0, 1)
    for same in (image, array, array / 255, tensor, tensor / 255):
        prediction = model.predict(same)
        assert prediction.box == from_file.box
        assert prediction.score == pytest.approx(from_file.score, abs=1e-4)
        np.testing.assert_allclose(prediction.map, from_file.map, atol=1e-3)
    mixed = model.predict([photos / "1.png", image])
    assert [p.box for p in mixed] == [from_file.box] * 2
    assert str(mixed[1].path) == "image 1"


def test_boxes_as_detections_of_supervision(model: cenote.Model, photos: Path) -> None:
    supervision = pytest.importorskip("supervision", reason="pip install 'cenote[supervision]'")
    prediction = model.predict(photos / "0.png")
    detections = prediction.to_supervision()
    assert isinstance(detections, supervision.Detections)
    assert detections.xyxy.tolist() == [[float(edge) for edge in prediction.box]]
    assert detections.confidence.tolist() == [prediction.boxes[0].score]
    assert detections.data["class_name"].tolist() == [prediction.label]
    assert [model.class_names[i] for i in detections.class_id] == [prediction.label]
    drawn = supervision.BoxAnnotator().annotate(np.array(prediction.image), detections)
    assert (drawn != np.array(prediction.image)).any()
    without = replace(prediction, boxes=[]).to_supervision()
    assert len(without) == 0 and without.xyxy.shape == (0, 4)


def test_a_folder_is_a_list_and_unreadable_files_are_left_out(
    model: cenote.Model, photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "0.png").write_bytes((photos / "0.png").read_bytes())
    (tmp_path / "broken.png").write_bytes(b"no image")
    (prediction,) = model.predict(tmp_path)
    assert prediction.path.name == "0.png"
    assert "broken.png" in caplog.text
    with pytest.raises(ValueError, match=r"broken\.png"):
        model.predict(tmp_path / "broken.png")
    with pytest.raises(ValueError, match=r"broken\.png"):
        model.embed(tmp_path)


@pytest.mark.parametrize(
    ("photo", "message"),
    [
        ("missing.jpg", "missing.jpg"),
        ([], "no photographs"),
        (3, "got 3"),
        (np.zeros((2, 3, 4, 5)), "(2, 3, 4, 5)"),
        (np.full((4, 4, 3), 7.0), "from 0 to 1, got 7"),
        (np.zeros((4, 4, 3), np.int32), "int32"),
    ],
)
def test_wrong_images_are_named(model: cenote.Model, photo: object, message: str) -> None:
    with pytest.raises(ValueError) as error:
        model.predict(photo)
    assert message in str(error.value)


def test_a_wrong_argument_is_named(model: cenote.Model) -> None:
    with pytest.raises(
        TypeError, match=r"^cenote\.Model\.predict has no argument 'bach'; .*'batch'"
    ):
        model.predict("cat.jpg", bach=2)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"^cenote\.discover has no argument 'sise'"):
        cenote.discover(np.zeros((8, 8, 3)), sise=3)


def test_a_folder_without_a_model_is_not_taken_for_a_backbone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no saved model"):
        cenote.Model(tmp_path)


def test_discover_gives_a_box_of_each_photograph(photos: Path, run: Path) -> None:
    boxes = cenote.discover(photos, model=run)
    assert {box.path.name for box in boxes} == {"0.png", "1.png", "2.png"}
    assert all(box.label is None for box in boxes)


def test_vectors_are_in_the_order_of_the_files(
    model: cenote.Model, run: Path, photos: Path, tmp_path: Path
) -> None:
    vectors = model.embed(photos)
    for i in range(3):
        np.testing.assert_allclose(model.embed(photos / f"{i}.png")[0], vectors[i], atol=1e-5)
    assert main(["embed", str(photos), "-o", str(tmp_path / "v.npy"), "--model", str(run)]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), vectors, atol=1e-5)
    rows = list(csv.DictReader((tmp_path / "v.csv").open()))
    assert [Path(row["file"]).name for row in rows] == ["0.png", "1.png", "2.png"]


def test_parquet_has_files_labels_and_vectors(
    model: cenote.Model, run: Path, photos: Path, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "data" / "cat").mkdir(parents=True)
    (tmp_path / "data" / "cat" / "0.png").write_bytes((photos / "0.png").read_bytes())
    out = tmp_path / "v.parquet"
    assert main(["embed", str(tmp_path / "data"), "-o", str(out), "--model", str(run)]) == 0
    (row,) = parquet.read_table(out).to_pylist()
    assert row["label"] == "cat" and Path(row["file"]).name == "0.png"
    np.testing.assert_allclose(row["vector"], model.embed(photos / "0.png")[0], atol=1e-5)


def test_predict_writes_the_most_probable_classes(
    model: cenote.Model, run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "classes.csv"
    arguments = ["predict", str(photos), str(tmp_path / "missing.jpg"), "-o", str(out)]
    assert main([*arguments, "--model", str(run), "--top", "2"]) == 1
    assert "missing.jpg" in capsys.readouterr().err
    rows = list(csv.DictReader(out.open()))
    assert [(Path(row["file"]).name, row["rank"]) for row in rows] == [
        (f"{i}.png", str(rank)) for i in range(3) for rank in (1, 2)
    ]
    logits = predict_logits(model.network, open_photographs([str(photos)])).vectors
    expected = [[*"abc"][i] for i in logits.argsort(descending=True)[:, :2].flatten().tolist()]
    assert [row["label"] for row in rows] == expected
    scores = torch.tensor([float(row["score"]) for row in rows]).view(3, 2)
    torch.testing.assert_close(scores, logits.softmax(1).topk(2).values, atol=1e-3, rtol=0)
    capsys.readouterr()
    assert main(["predict", str(run), str(photos), "--top", "2"]) == 0
    assert list(csv.DictReader(capsys.readouterr().out.splitlines())) == rows


def test_bad_options_of_predict_and_embed(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, message in (
        (["embed", str(photos), "-o", str(tmp_path / "v.txt")], ".npy or .parquet"),
        (["predict", str(photos), "-o", str(tmp_path / "c.csv"), "--top", "0"], "--top"),
        (["predict", str(photos), "-o", str(tmp_path / "c.csv"), "--model", "lite9"], "lite9"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_a_text_is_where_the_command_finds_it(photos: Path) -> None:
    prediction = cenote.attend(photos / "0.png", text="a dog")
    assert prediction.label is None and prediction.map.max() == 1
    opened = cenote.Model("text-space", text="a cat")
    assert not np.allclose(opened.predict(photos / "0.png").map, prediction.map)
    with pytest.raises(ValueError, match="takes no pool"):
        cenote.Model("text-space", text="a cat", pool="gap")
