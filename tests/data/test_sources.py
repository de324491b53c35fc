"""Files that Cenote wrote are not opened as photographs; files of others in such folders are."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data.sources import open_photographs
from cenote.data.write_boxes import ImageBoxes, open_writers


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 8)).save(path)


def names(*given: Path) -> list[str]:
    dataset = open_photographs([str(path) for path in given])
    return sorted(str(dataset.path(i)) for i in range(len(dataset)))


@pytest.mark.parametrize("kind", ["coco", "csv", "voc", "yolo", "label-studio"])
def test_output_of_an_earlier_run_is_left_out(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo, out = tmp_path / "trip" / "a.jpg", tmp_path / "trip" / "found"
    picture(photo)
    for folder in (
        out,
        out / "lost",
        tmp_path / "trip",
    ):  # of one method, of one of several, and into the photographs
        with open_writers(folder, [kind], masks=True) as writers:
            for writer in writers:
                mask = np.ones((8, 12), bool)
                writer.add(ImageBoxes(photo, "a", (12, 8), None, [(0, 0, 12, 8)], [1.0], [mask]))
        assert (folder / "masks" / "a.png").exists()
    for name in (
        "pictures/a.jpg",
        "pictures/contact_sheet_1.jpg",
        "found.jpg",
        "discover_lost.jpg",
    ):
        picture(out / name)
    assert names(tmp_path) == names(tmp_path / "trip") == [str(photo)]
    assert (
        len(names(out / "masks")) == 1
        and len(names(out / "found.jpg", out / "masks" / "a.png")) == 2
    )  # as named
    monkeypatch.chdir(tmp_path)
    assert names(Path()) == ["trip/a.jpg"]


def test_of_a_killed_run_and_of_several_methods(tmp_path: Path) -> None:
    picture(tmp_path / "a.jpg")
    picture(tmp_path / "killed" / "masks" / "a.png")
    (tmp_path / "killed" / ".boxes.123.json").write_text("{")
    picture(tmp_path / "several" / "found.jpg")
    (tmp_path / "several" / "results.json").write_text("{}")
    assert names(tmp_path) == [str(tmp_path / "a.jpg")]


def test_the_same_names_of_others_are_photographs(tmp_path: Path) -> None:
    for name in ("pictures/a.jpg", "masks/a.jpg", "found.jpg", "contact_sheet.jpg"):
        picture(tmp_path / name)
    assert len(names(tmp_path)) == 4
    (tmp_path / "boxes.csv").write_text("image,x,y,w,h\n")
    (tmp_path / "boxes.json").write_text('{"images": []}')
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "Annotations" / "a.xml").write_text("<annotation></annotation>")
    assert len(names(tmp_path)) == 4
