"""Maps land where they belong, and pages hold what they were given."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from cenote.backbones import Preprocessing
from cenote.models import create_model
from cenote.predict.input_size import InputSize
from cenote.predict.photos import (
    MAX_PICTURE,
    PhotoPredictor,
    combine_maps,
    open_photo,
    unique_names,
)
from cenote.report import SheetEntry, contact_sheet, draw_box, highlight, overlay, stretch
from cenote.report.attend import attend_photos


class Brightness(nn.Module):
    """A stand-in for a model whose map is known: the mean brightness of each 16 x 16 patch."""

    def __init__(self, poison: float | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.pool, self.head, self.poison = None, None, poison
        self.name, self.register_neurons = "brightness", {}
        self.preprocessing = Preprocessing(size=64, mean=(0, 0, 0), std=(1, 1, 1))

    @property
    def backbone(self) -> "Brightness":
        return self

    def stride(self) -> tuple[float, float]:
        return 16.0, 16.0

    def map_kinds(self) -> list[str]:
        return ["pool"]

    def attend(self, images: Tensor, kind: str) -> Tensor:
        if kind != "pool":
            raise ValueError(f"brightness has no map '{kind}'")
        a = nn.functional.avg_pool2d(images.mean(1, keepdim=True), 16)
        if (
            self.poison is not None
        ):  # a picture of this very brightness has features that are not finite
            bad = (images.flatten(1).mean(1) - self.poison).abs() < 0.02
            if bad.any() and len(images) > 1:
                raise ValueError(
                    "features of some image are NaN"
                )  # as a pool with check_finite does
            a[bad] = torch.nan
        return a


def with_square(size: tuple[int, int], box: tuple[int, int, int, int]) -> Image.Image:
    image = Image.new("RGB", size, (0, 0, 0))
    image.paste((255, 255, 255), box)
    return image


def run(paths: list[Path], out: Path, **options: object) -> dict[str, np.ndarray]:
    predictor = PhotoPredictor(Brightness(), "pool", size=256, **options)  # type: ignore[arg-type]
    attend_photos(predictor, paths, out)
    return dict(np.load(out / "attention.npz"))


@pytest.mark.parametrize(
    ("size", "place"),
    [
        ((300, 300), (0.5, 0.25)),
        ((640, 200), (0.7, 0.65)),
        ((150, 480), (0.0, 0.0)),
        ((150, 480), (0.7, 0.6)),
        ((1500, 1100), (0.1, 0.5)),  # drawn smaller than it is
        ((90, 61), (0.5, 0.25)),
    ],
)
def test_the_box_lands_on_a_bright_square(
    tmp_path: Path, size: tuple[int, int], place: tuple[float, float]
) -> None:
    side = 0.3 * min(size)
    x, y = place[0] * size[0], place[1] * size[1]
    truth = np.array([x, y, min(x + side, size[0]), min(y + side, size[1])]).round().astype(int)
    with_square(size, tuple(truth)).save(tmp_path / "a.png")
    (box,) = run([tmp_path / "a.png"], tmp_path / "out", share=0.9)["boxes"]
    cell = (
        max(size) / 256 * 16 * (min(size) / max(size)) ** 0.5
    )  # a cell of the map in pixels of the file
    assert np.abs(box - truth).max() <= cell
    assert box[2] <= size[0] and box[3] <= size[1] and (box >= 0).all()


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_boxes_and_pictures_are_upright(tmp_path: Path, orientation: int) -> None:
    upright = with_square((320, 192), (224, 16, 304, 96))  # at the upper right
    back = {1: 0, 3: 180, 6: 90, 8: 270}[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright.rotate(back, expand=True).save(tmp_path / "a.jpg", exif=exif, quality=95)
    data = run([tmp_path / "a.jpg"], tmp_path / "out", share=0.9)
    assert np.abs(data["boxes"][0] - [224, 16, 304, 96]).max() <= 16
    assert data["sizes"].tolist() == [[320, 192]]
    shown = np.asarray(Image.open(tmp_path / "out" / "a.overlay.jpg").convert("L"))
    assert shown.shape == (192, 320) and shown[56, 264] > 2 * shown[150, 60]


def test_stretch_keeps_the_centre_of_mass() -> None:
    for cell in [(0, 0), (2, 5), (4, 6)]:
        a = np.zeros((5, 7))
        a[cell] = 1
        wide = stretch(a, (700, 300))
        ys, xs = np.unravel_index(wide.argmax(), wide.shape)
        assert cell[0] * 60 <= ys < (cell[0] + 1) * 60 and cell[1] * 100 <= xs < (cell[1] + 1) * 100
        assert wide.min() >= 0


def test_overlay_is_brightest_where_the_map_is() -> None:
    photo, a = Image.new("RGB", (140, 100), (90, 90, 90)), np.zeros((5, 7))
    a[1, 5] = 1
    shown = np.asarray(overlay(photo, a).convert("L")).astype(int)
    assert abs(shown[30, 110] - shown.max()) <= 3 and shown[80, 20] < 60
    assert overlay(photo, np.zeros((5, 7))).size == photo.size  # a map without mass is no error


def test_highlight_keeps_the_inside_and_dims_the_outside() -> None:
    photo, mask = Image.new("RGB", (20, 10), (200, 100, 50)), np.zeros((10, 20), bool)
    mask[2:5, 3:9] = True
    shown = np.asarray(highlight(photo, mask))
    assert (shown[mask] == (200, 100, 50)).all() and shown[~mask].max() < 60


@pytest.mark.parametrize("box", [(0, 0, 20, 10), (3, 2, 4, 3), None])
def test_a_box_of_any_size_is_drawn(box: tuple[int, int, int, int] | None) -> None:
    photo = Image.new("RGB", (20, 10), "white")
    assert (draw_box(photo, box) != photo) == (box is not None)
    assert photo == Image.new("RGB", (20, 10), "white")  # the photograph itself is left alone


def test_a_sheet_holds_any_shapes_and_captions() -> None:
    shapes = [(300, 200), (10, 400), (1, 1), (900, 20)]
    entries = [
        SheetEntry([Image.new("RGB", shape, "red")] * 3, "name " * 40, "note\n") for shape in shapes
    ]
    page = contact_sheet(entries, heading="a heading " * 40)
    reds = np.asarray(page)[..., 0].astype(int) - np.asarray(page)[..., 1] > 200
    assert page.width == 2 * (3 * 220 + 2 * 6) + 3 * 28 and reds.any()


def test_input_sizes_keep_the_shape_and_whole_strides() -> None:
    input_size = InputSize((32, 32), 448)
    assert input_size((4000, 3000)) == (512, 384) and input_size((10, 10)) == (448, 448)
    assert input_size((1, 10_000)) == (32, 1792)  # squeezed rather than endless
    assert InputSize((14, 14), 448)((100, 200)) == (322, 630)
    assert InputSize((32, 32), 448, fixed=224)((100, 900)) == (224, 224)


def test_large_photographs_are_drawn_smaller(tmp_path: Path) -> None:
    Image.new("RGB", (3000, 1000)).save(tmp_path / "a.png")
    photo = open_photo(tmp_path / "a.png", "a", Preprocessing(), InputSize((32, 32), 448))
    assert photo.size == (3000, 1000) and photo.picture.width == MAX_PICTURE
    assert photo.pixels.shape == (3, 256, 768) and photo.class_pixels.shape == (3, 224, 224)


def test_names_never_collide() -> None:
    paths = [
        "a/cat.jpg",
        "b/cat.jpg",
        "b/cat.png",
        "b/CAT.jpg",
        "b/cat.jpeg",
        "x/b/cat.jpg",
        "x/b/cat.JPG",
    ]
    names = unique_names([Path(path) for path in paths])
    assert names[:3] == ["cat", "b-cat", "b-cat-png"] and len(
        {name.casefold() for name in names}
    ) == len(paths)


def test_maps_are_combined() -> None:
    maps = np.array([[[1.0, 3.0]], [[30.0, 10.0]]])
    assert np.allclose(combine_maps(maps), [[0.5, 0.5]])  # each counts the same
    assert np.allclose(combine_maps(maps, 1), [[0.75, 0.25]])
    assert np.allclose(
        combine_maps(np.array([[[-1.0, 2.0]]])), [[0, 1]]
    )  # what speaks against the class does not count
    assert np.allclose(combine_maps(np.array([[[-3.0, -1.0]]])), [[0, 1]])
    assert not combine_maps(np.zeros((1, 2, 2))).any()


def test_features_that_are_not_finite_fail_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "cenote")
    for name, grey in [("a", 10), ("bad", 128), ("c", 250)]:
        Image.new("RGB", (64, 64), (grey,) * 3).save(tmp_path / f"{name}.png")
    predictor = PhotoPredictor(Brightness(poison=128 / 255), "pool", size=64)  # type: ignore[arg-type]
    outcome = attend_photos(predictor, [tmp_path], tmp_path / "out")
    (message,) = caplog.messages
    assert outcome.done == 2 and str(tmp_path / "bad.png") in message
    assert [Path(file).stem for file in np.load(tmp_path / "out" / "attention.npz")["files"]] == [
        "a",
        "c",
    ]


def test_maps_of_different_grids_lie_in_one_array(tmp_path: Path) -> None:
    for name, size in [("a", (256, 256)), ("b", (512, 128))]:
        Image.new("RGB", size, "white").save(tmp_path / f"{name}.png")
    data = run([tmp_path], tmp_path / "out")
    assert data["maps"].shape == (2, 1, 16, 32) and data["grids"].tolist() == [[16, 16], [8, 32]]
    assert (data["maps"][1, 0, :8, :] > 0.9).all() and not data["maps"][1, 0, 8:].any()


def test_pages_of_an_earlier_longer_run_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cenote.report.sheet.ENTRIES_PER_SHEET", 2)
    for i in range(5):
        Image.new("RGB", (64, 64), "white").save(tmp_path / f"{i}.png")
    out = tmp_path / "out"
    run([tmp_path], out)
    assert sorted(p.stem for p in out.glob("contact*")) == [
        "contact_sheet",
        "contact_sheet_2",
        "contact_sheet_3",
    ]
    run([tmp_path / "1.png"], out)
    assert [p.stem for p in out.glob("contact*")] == ["contact_sheet"]


def test_a_run_does_not_look_at_its_own_pictures(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64), "white").save(tmp_path / "a.png")
    for _ in range(2):
        data = run([tmp_path], tmp_path)
        assert [Path(file).name for file in data["files"]] == ["a.png"]


@pytest.mark.parametrize(
    ("block", "head", "names"),
    [
        ("all", None, ["block 0", "block 1"]),
        (None, "all", ["head 0", "head 1", "head 2"]),
        ("all", "all", [f"block {b}, head {h}" for b in (0, 1) for h in (0, 1, 2)]),
    ],
)
def test_maps_have_the_names_of_their_block_and_head(
    block: Any, head: Any, names: list[str]
) -> None:
    model = create_model("vit_tiny_patch16_224", "cls", 0, depth=-10, img_size=64)
    predictor = PhotoPredictor(model, "cls", size=64, block=block, head=head)
    assert predictor.name_maps(len(names)) == names


def test_labels_are_below_their_pictures() -> None:
    white = [Image.new("RGB", (50, 50), "white") for _ in range(3)]
    plain = contact_sheet([SheetEntry(white, "photograph")])
    sheet = contact_sheet([SheetEntry(white, "photograph", labels=["", "head 0", "head 1"])])
    assert sheet.height == plain.height + 20 and sheet.width == plain.width
    line = np.asarray(sheet.convert("L"))[248:268]  # between the pictures and the title
    ink = [(line[:, 28 + i * 226 : 28 + i * 226 + 220] < 200).any() for i in range(3)]
    assert ink == [False, True, True]
