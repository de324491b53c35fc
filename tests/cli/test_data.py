"""`cenote data` as a user runs it: what it prints, writes and returns, on good, odd and broken data."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.cli import main
from cenote.data import Box, Record, pack, read_folders
from cenote.predict.label_errors import LabelErrors
from cenote.report.dataset_sheet import choose_positions, contents_sheet, draw_truth
from cenote.report.label_errors import write_label_errors
from tests.data.broken import BAD, GOOD, make_bad, make_good, noise
from tests.shared_data import shared_data
from tests.synthetic import rectangles

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mess(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "mess"
    make_good(root / "odd")
    make_bad(root / "broken")
    return root


def test_a_folder_of_every_kind_of_file(mess: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", str(mess)]) == 0  # some are usable
    out = capsys.readouterr().out
    assert out.startswith(f"mess: {len(GOOD) + len(BAD)} images in {mess}\n")
    for name in BAD:
        assert f"  broken/{name}: " in out
    for kind in GOOD.values():
        assert f"{kind} " in out.replace("\n              ", " ")


def test_exit_1_only_if_nothing_was_usable(
    mess: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", str(mess / "broken"), "-o", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("cenote data: ") and captured.err.count("\n") == 1
    assert f"{len(BAD)} files" in captured.out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "name a folder"),
        (["nowhere"], "nowhere does not exist"),
        (["cubb:nowhere"], "did you mean 'cub'?"),
        (["{mess}", "--split", "train"], "has no split 'train'"),
        (["{mess}", "--errors"], "--errors needs a folder for its files: -o FOLDER"),
        (
            ["{mess}", "--sheet", "page.txt"],
            "page.txt: a contact sheet is a .jpg, .png or .webp file",
        ),
    ],
)
def test_sentences(
    mess: Path, argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", *(arg.format(mess=mess) for arg in argv)]) == 2
    err = capsys.readouterr().err
    assert sentence in err and "Traceback" not in err and err.count("\n") == 1


def test_the_folder_gets_a_report_and_a_sheet(
    mess: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["data", str(mess), "-o", str(out), "--sheet", str(tmp_path / "page.png")]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["report.json", "sheet.jpg"]
    report = json.loads((out / "report.json").read_text())
    assert report["images"] == len(GOOD) + len(BAD) and report["readable"] == len(GOOD)
    with Image.open(tmp_path / "page.png") as page, Image.open(out / "sheet.jpg") as sheet:
        assert page.size == sheet.size and page.width > 8 * 220
    assert str(out / "sheet.jpg") in capsys.readouterr().out


def test_json_is_all_that_is_printed(
    mess: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", str(mess), "--json", "--sheet", str(tmp_path / "a.jpg")]) == 0
    assert {
        Path(fault["file"]).name for fault in json.loads(capsys.readouterr().out)["broken"]
    } == set(BAD)


def test_published_data_sets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--list"]) == 0
    text = capsys.readouterr().out
    assert main(["data", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"cub", "cub-retrieval"} <= {row["name"] for row in listed}
    for row in listed:
        assert f"\n{row['name']}\n    {row['title']}\n" in text and row["source"] in text
        assert all(line in text for line in row["tree"].splitlines())


def test_text_alone_does_not_wait_for_torch(mess: Path) -> None:
    code = "import sys; from cenote.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    argv = [sys.executable, "-c", code, "data", str(mess)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("mess: ")


def test_the_sheet_has_classes_in_turn_and_leaves_broken_files_out(mess: Path) -> None:
    records = [Record(f"{i}.jpg", label) for i, label in enumerate("a" * 50 + "b" * 3 + "c" * 20)]
    dataset = pack(records, mess, "d")
    chosen = choose_positions(dataset, range(73), 12)
    labels = [records[i].label for i in chosen]
    assert labels == ["a"] * 5 + ["b"] * 3 + ["c"] * 4 and chosen[:5] == [
        0,
        10,
        20,
        30,
        40,
    ]  # spread over its class
    assert contents_sheet(read_folders(mess)).width > 0
    with pytest.raises(ValueError, match="broken"):
        contents_sheet(read_folders(mess / "broken"))


def test_boxes_and_masks_are_drawn_where_they_are() -> None:
    image = Image.new("RGB", (300, 240), "white")
    mask = np.zeros((240, 300), np.uint8)
    mask[60:180, 90:210] = 1
    mask[:, 270:] = 255
    record = Record("", boxes=(Box(30, 30, 270, 210),))
    drawn = np.asarray(draw_truth(image, record, mask)).astype(int)
    tinted = (drawn[..., 0] - drawn[..., 1]) > 40
    assert tinted[120, 150] and not tinted[15, 150] and not tinted[120, 60]  # pink only inside
    assert (drawn[120, 30:33] != 255).any() and (drawn[30:33, 150] != 255).any()  # left and top
    assert drawn[15, 15].tolist() == [255, 255, 255]
    assert len(set(drawn[15, 285].tolist())) == 1 and drawn[15, 285, 0] < 240  # ignored: grey
    outside = draw_truth(
        noise(0), Record("", boxes=(Box(-50, -50, 500, 500, "a"), Box(900, 900, 950, 950))), None
    )
    assert outside.size == (220, 147)  # a tiny image grows: lines would hide it


def test_real_photographs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", str(shared_data("pets")), "--sheet", str(tmp_path / "pets.jpg")]) == 0
    out = capsys.readouterr().out
    assert "37 classes" in out and "740" in out
    with Image.open(tmp_path / "pets.jpg") as page:
        assert page.height > 5 * 220  # 40 of them


def test_errors_ranks_all_images_and_changes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, out = tmp_path / "photos", tmp_path / "out"
    for name, colour in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
        (photos / name).mkdir(parents=True)
        for i in range(8):
            picture = Image.blend(noise(i, (32, 32)), Image.new("RGB", (32, 32), colour), 0.8)
            picture.save(photos / name / f"{i}.png")
    (photos / "red" / "broken.jpg").write_bytes(b"not an image")
    files = {path: path.read_bytes() for path in photos.rglob("*.*")}
    assert main(["data", str(photos), "--errors", "-o", str(out), "--workers", "0"]) == 0
    text = capsys.readouterr().out
    assert "of 16 labels" in text and "outlier" in text and str(out / "errors.csv") in text
    for name, columns in (("errors.csv", 4), ("outliers.csv", 3)):
        with (out / name).open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        assert header[:2] == ["file", "label"] and header[-1] == "score" and len(rows) == 16
        assert all(len(row) == columns for row in rows)
        scores = [float(row[-1]) for row in rows]
        assert scores == sorted(scores, reverse=True)
    # A contact sheet only of what is probably wrong.
    wrong = [float(row["score"]) > 0.5 for row in read_rows(out / "errors.csv")]
    unusual = [float(row["score"]) > 3 for row in read_rows(out / "outliers.csv")]
    assert (out / "errors.jpg").exists() == any(wrong + unusual) == ("errors.jpg" in text)
    assert files == {path: path.read_bytes() for path in photos.rglob("*.*")}


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("wrong", [0.1, 0.9])
def test_the_sheet_of_errors_shows_what_is_probably_wrong(tmp_path: Path, wrong: float) -> None:
    images = rectangles(6)
    (tmp_path / "errors.jpg").touch()  # of an earlier run
    scores = np.array([wrong, 0.2, 0.1, 0, 0, 0])
    errors = LabelErrors(1 - scores, scores, images.labels)
    assert write_label_errors(images, errors, np.zeros(6), tmp_path) == (wrong > 0.5)
    assert (tmp_path / "errors.jpg").exists() == (wrong > 0.5)
