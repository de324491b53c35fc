"""Discovery where features are known: boxes land on the object at any size, CorLoc counts what it should."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import Tensor, nn

from cenote.backbones import Backbone, Features, Preprocessing
from cenote.data import Box, Dataset, Record, pack
from cenote.data.table import BoxTable
from cenote.evaluate.discover import centred_boxes, discover, true_boxes
from cenote.models import create_model, replace_pool
from cenote.predict.discovery.patch_features import PatchFeatureExtractor
from cenote.predict.input_size import InputSize
from tests.toy_models import NARROW

GREEN, ORANGE = (60, 140, 60), (250, 120, 10)


class Colours(Backbone):
    """A stand-in for a backbone: a patch's feature is its mean colour against grey."""

    def __init__(self, poison: bool = False) -> None:
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.zeros(1))
        self.model, self.name, self.family, self.dim, self.poison = (
            nn.Identity(),
            "colours",
            "colours",
            3,
            poison,
        )
        self.preprocessing = Preprocessing(size=64, mean=(0.5,) * 3, std=(0.5,) * 3)
        self.register_neurons = {}

    def stride(self) -> tuple[float, float]:
        return 8.0, 8.0

    def forward(self, images: Tensor) -> Features:
        cells = nn.functional.avg_pool2d(images, 8)
        cells = (
            cells - torch.tensor([0.2, 0.0, -0.6])[:, None, None]
        )  # green and orange point away from each other
        if self.poison and images.abs().max() > 0 and images.std((-2, -1)).max() < 0.02:
            cells = cells * torch.nan
        return Features(cells.flatten(2).mT, (cells.shape[2], cells.shape[3]))


def photographs(folder: Path, truths: Iterable[tuple[tuple[int, int], tuple[Box, ...]]]) -> Dataset:
    """Green pictures of these sizes; an orange rectangle is where the first box is."""
    records = []
    for i, (size, boxes) in enumerate(truths):
        image = Image.new("RGB", size, GREEN)
        if boxes:
            image.paste(ORANGE, tuple(round(v) for v in boxes[0][:4]))
        image.save(folder / f"{i}.png")
        records.append(Record(f"{i}.png", boxes=boxes))
    return pack(records, folder, "rectangles")


SIZES = [
    ((160, 120), Box(40, 32, 96, 88)),
    ((96, 200), Box(8, 100, 60, 180)),
    ((333, 97), Box(100, 20, 180, 80)),
]


@pytest.mark.parametrize("size", [None, 48, 200])
@pytest.mark.parametrize("method", ["lost", "tokencut", "maskcut"])
def test_boxes_land_on_the_object(tmp_path: Path, method: str, size: int | None) -> None:
    dataset = photographs(tmp_path, [(shape, (box,)) for shape, box in SIZES])
    seen = []
    report = discover(Colours(), dataset, [method], size=size, on_result=seen.append)
    assert report.methods[method].corloc == 100 and report.keys == "map" and report.images == 3
    for sighting, (shape, box) in zip(seen, SIZES, strict=True):
        assert sighting.size == shape
        found = sighting.objects[method].boxes[0]
        cell = (
            max(shape[0] / (size or min(shape)), 1) * 8 * (1 if size is None else min(shape) / size)
            + 1
        )
        assert np.abs(found - box[:4]).max() <= max(cell, 9), (found, box)
        assert (found[2:] <= np.array(shape) + 1e-9).all() and (found >= 0).all()


def test_corloc_counts_images_with_a_true_box(tmp_path: Path) -> None:
    """A crowd is no object, another object far away is; a hard one counts unless it is left out."""
    good, far = Box(40, 32, 96, 88, "cat"), Box(120, 90, 150, 115, "dog")
    size = (160, 120)
    truths = [
        (size, (good, far)),  # right by its first box
        (size, (good._replace(crowd=True), far)),  # the found one is a crowd: wrong
        (size, (good._replace(difficult=True), far)),  # right, or wrong without hard ones
        (size, (good._replace(truncated=True),)),  # right, or not counted
        (size, (good._replace(crowd=True),)),  # not counted
        (size, ()),  # not counted
    ]
    dataset = photographs(tmp_path, truths)
    report = discover(Colours(), dataset, ["tokencut"])
    assert (report.images, report.images_with_boxes) == (6, 4)
    assert report.methods["tokencut"].corloc == 75
    assert discover(Colours(), dataset, ["tokencut"], hard=False).methods[
        "tokencut"
    ].corloc == pytest.approx(100 / 3)
    overlaps = [case.overlap for case in report.methods["tokencut"].best]
    assert overlaps == sorted(overlaps, reverse=True) and len(overlaps) == 4
    assert report.methods["tokencut"].worst[0].image.endswith("1.png")
    json.dumps(report.to_json())


def test_true_boxes_are_cut_at_the_border() -> None:
    assert true_boxes([Box(-3, 5, 70, 40)], (64, 48)).tolist() == [[0, 5, 64, 40]]
    assert true_boxes([Box(0, 0, 9, 9, crowd=True)], (64, 48)).shape == (0, 4)


def test_the_box_in_the_middle_has_the_side_that_is_best(tmp_path: Path) -> None:
    np.testing.assert_allclose(
        centred_boxes((200, 100))[[49, 99]], [[50, 25, 150, 75], [0, 0, 200, 100]]
    )
    boxes = [Box(60, 45, 100, 75), Box(58, 43, 102, 77), Box(0, 0, 160, 120)]
    report = discover(
        Colours(), photographs(tmp_path, [((160, 120), (b,)) for b in boxes]), ["lost"]
    )
    assert report.methods["centre"].corloc == pytest.approx(200 / 3)
    assert report.centred_side is not None and 0.15 < report.centred_side < 0.4


def test_bad_images_are_named_and_the_others_done(tmp_path: Path) -> None:
    dataset = photographs(tmp_path, [(shape, (box,)) for shape, box in SIZES])
    (tmp_path / "0.png").write_bytes(b"no picture")
    Image.new("RGB", (90, 60), GREEN).save(tmp_path / "1.png")
    report = discover(Colours(poison=True), dataset, ["lost", "tokencut"])
    unread, poisoned = report.unreadable
    assert "0.png" in unread and "1.png" in poisoned and "NaN" in poisoned
    assert report.images == 1 and report.methods["lost"].corloc == 100
    (tmp_path / "2.png").unlink()
    with pytest.raises(ValueError, match=r"rectangles.*0\.png"):
        discover(Colours(poison=True), dataset, ["lost"])


def test_a_box_outside_of_the_image_is_named_and_not_counted_as_missed(tmp_path: Path) -> None:
    dataset = photographs(tmp_path, [*((shape, (box,)) for shape, box in SIZES), ((160, 120), ())])
    ends, corners, *rest = dataset.table.boxes
    corners = corners.copy()
    corners[1] += 500
    dataset.table = dataset.table._replace(boxes=BoxTable(ends, corners, *rest))
    seen: list[object] = []
    report = discover(Colours(), dataset, ["tokencut"], on_result=seen.append)
    assert (report.images, report.images_with_boxes, len(seen)) == (4, 2, 4)
    assert report.methods["tokencut"].corloc == 100
    (message,) = report.unreadable
    assert "1.png" in message and "508, 600, 560, 680" in message and "96 x 200" in message


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    dataset = photographs(tmp_path, [(shape, (box,)) for shape, box in SIZES * 2])
    (tmp_path / "1.png").write_bytes(b"no picture")
    whole = discover(Colours(), dataset, ["lost", "maskcut"])
    file = tmp_path / "progress.jsonl"

    class Killed(Exception):
        pass

    def kill(sighting: object) -> None:
        if sighting.position == 3:  # type: ignore[attr-defined]
            raise Killed

    with pytest.raises(Killed):
        discover(Colours(), dataset, ["lost", "maskcut"], on_result=kill, progress_file=file)
    with file.open("a") as lines:
        lines.write('[4, 160, 120, {"lo')  # the line it died in
    model, looks = Colours(), []
    model.register_forward_hook(lambda m, i, out: looks.append(out))
    again = []
    resumed = discover(
        model, dataset, ["lost", "maskcut"], on_result=again.append, progress_file=file
    )
    assert resumed == whole and [one.position for one in again] == [0, 2, 3, 4, 5]
    assert len(looks) == 1 + 2, "a rehearsal, and the two images that were left"
    with pytest.raises(Killed):
        discover(Colours(), dataset, ["lost", "maskcut"], on_result=kill, progress_file=file)
    other = discover(
        Colours(), dataset, ["lost"], progress_file=file
    )  # another run: it starts anew
    assert set(other.methods) == {"lost", "centre"} and other.images == 5 and not file.exists()


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet18", NARROW),
        ("test_convnext", {}),
        ("vit_tiny_patch16_224", {"depth": 2, "embed_dim": 48, "dynamic_img_size": True}),
    ],
)
def test_every_method_runs_on_every_kind_of_network(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    dataset = photographs(tmp_path, [(shape, (box,)) for shape, box in SIZES[:2]])
    model = replace_pool(timm.create_model(name, **options), "simpool").eval()
    methods = ["lost", "dinoseg", "dinoseg-compat", "tokencut", "maskcut"]
    report = discover(model, dataset, methods)
    assert set(report.methods) == {*methods, "centre"} and not report.unreadable
    assert (report.keys, report.attention) == ("pool", "pool")


def test_a_model_of_one_size_gets_squares(tmp_path: Path) -> None:
    dataset = photographs(tmp_path, [(shape, (box,)) for shape, box in SIZES[:2]])
    model = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=128, window_size=2, embed_dim=24, depths=(1,) * 4
    )
    backbone = Backbone(model, "swin", Preprocessing(size=128))
    assert discover(backbone, dataset, ["tokencut"]).images == 2
    with pytest.raises(ValueError, match=r"'swin' takes 128 x 128 pixels only.*cannot be padded"):
        discover(backbone, dataset, ["tokencut"], pad=True)


def test_positions_are_resampled_as_dino_does() -> None:
    """As in a model that is created with them, and not as without; the model is not changed."""
    model = create_model("test_vit", "cls", 0)
    with_positions = create_model("test_vit", "cls", 0, dino_positions=True)
    with_positions.load_state_dict(model.state_dict())
    pixels = torch.randn(1, 3, 96, 128)
    keys = PatchFeatureExtractor(model, True, False, dino_positions=True).extract(pixels).keys
    expected = PatchFeatureExtractor(with_positions, True, False).extract(pixels).keys
    torch.testing.assert_close(keys, expected)
    plain = PatchFeatureExtractor(model, True, False).extract(pixels).keys
    assert keys is not None and plain is not None and (keys - plain).abs().max() > 1e-4


def test_padding_adds_zeros_to_the_right_and_below_and_boxes_end_at_the_image(
    tmp_path: Path,
) -> None:
    """The published LOST: pixels as they are in whole patches; a box is cut off at the image."""
    size, box = (93, 61), Box(48, 30, 93, 61)  # 12 x 8 patches, the last ones partly outside
    dataset = photographs(tmp_path, [(size, (box,))])
    extractor = PatchFeatureExtractor(Colours(), True, False, pad=True)
    with Image.open(dataset.path(0)) as image:
        padded = extractor.transform(image)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
    expected = torch.zeros(3, 64, 96)
    expected[:, :61, :93] = (pixels - 0.5) / 0.5
    torch.testing.assert_close(padded, expected)
    seen = []
    discover(Colours(), dataset, ["lost"], pad=True, on_result=seen.append)
    (found,) = seen[0].objects["lost"].boxes
    assert np.abs(found - box[:4]).max() <= 8 and (found[2:] == size).all()
    assert seen[0].objects["lost"].masks[0].shape == (8, 12)


@pytest.mark.parametrize(
    ("size", "options", "expected"),
    [
        ((500, 375), {"stride": (16, 16)}, (496, 368)),
        ((500, 375), {"stride": (16, 16), "target": 480}, (640, 480)),
        ((4000, 3000), {"stride": (14, 14)}, (854, 644)),  # short side 640
        ((10, 10000), {"stride": (16, 16)}, (16, 32)),
        ((5, 5), {"stride": (32, 32)}, (32, 32)),
        ((64, 64), {"stride": (32, 32), "minimum": 224}, (224, 224)),  # two by two patches: too few
        ((500, 375), {"stride": (16, 16), "minimum": 224}, (496, 368)),
        ((500, 375), {"stride": (16, 16), "fixed": 224}, (224, 224)),
    ],
)
def test_input_sizes_are_multiples_of_the_stride(
    size: tuple[int, int], options: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert InputSize(**{"target": None, "short_side": True, **options})(size) == expected


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"methods": ["lots"]}, "'lots'.*lost"),
        ({"methods": []}, "''.*lost"),
        ({"methods": ["dinoseg"]}, "'colours'.*keep_cls=True"),
        ({"size": 4}, r"size\b.*\b8\b.*\b4096\b.*\b4\b"),
        ({"source": "pool"}, "'block', 'map'"),
    ],
)
def test_what_cannot_be_done_shows_before_the_first_image(
    tmp_path: Path, options: dict[str, object], values: str
) -> None:
    dataset = photographs(tmp_path, [((64, 64), ())])
    (tmp_path / "0.png").unlink()
    with pytest.raises(ValueError, match=values):
        discover(Colours(), dataset, **{"methods": ["lost"], **options})  # type: ignore[arg-type]
