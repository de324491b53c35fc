"""The object map: its statistics against loops over patches, and its boxes on photographs."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.backbones import Features, create_backbone
from cenote.data.sources import open_photographs
from cenote.metrics import box_iou
from cenote.models import save_model
from cenote.models.surgery import without_last_stride
from cenote.predict.boxes import predict_boxes
from cenote.predict.maps import MapPredictor
from cenote.predict.object_map import (
    BORDER,
    CONTRAST,
    FILE,
    MARGIN,
    RIDGE,
    THRESHOLD,
    ObjectDirection,
    ObjectMapper,
    PatchStatistics,
    _single_image_map,
    object_of_class,
    object_seeds,
    read_direction,
    save_direction,
    store_object_map,
)
from cenote.predict.open_model import open_model
from tests.shared_data import shared_data
from tests.synthetic import rectangles
from tests.toy_models import localizer, narrow_resnet

GRID = (10, 12)


def scene(images: int = 6, dim: int = 5, seed: int = 0) -> tuple[Features, torch.Tensor]:
    """Return patches with an object of its own mean in each image, and where it is (B, H, W)."""
    rng = torch.Generator().manual_seed(seed)
    mask = torch.zeros(images, *GRID, dtype=torch.bool)
    for i in range(images):
        mask[i, 3 : 6 + i % 3, 4 : 8 + i % 2] = True
    tokens = torch.randn(images, *GRID, dim, generator=rng) * 0.1
    tokens[mask] += torch.tensor([3.0, -2.0, 0.0, 1.0, 0.0])[:dim]
    return Features(tokens.flatten(1, 2), GRID), mask


def slow_seeds(features: Features) -> np.ndarray:
    rows, columns = features.grid
    seeds = np.zeros((len(features.tokens), rows, columns), bool)

    def inside(row: int, column: int, margin: float) -> bool:
        if row in (0, rows - 1) or column in (0, columns - 1):
            return False
        y, x = (row + 0.5) / rows, (column + 0.5) / columns
        return margin < y < 1 - margin and margin < x < 1 - margin

    cells = [(row, column) for row in range(rows) for column in range(columns)]
    for image, tokens in enumerate(features.tokens.double().numpy()):
        patches = dict(zip(cells, tokens, strict=True))
        reference = np.mean([patches[c] for c in cells if not inside(*c, BORDER)], 0)
        distance = {c: np.linalg.norm(patches[c] - reference) for c in cells}
        low, high = min(distance.values()), max(distance.values())
        for cell in cells:
            contrast = (distance[cell] - low) / (high - low) > CONTRAST
            seeds[image][cell] = contrast and inside(*cell, MARGIN)
    return seeds


def test_seeds_and_direction_are_those_of_a_loop_over_patches() -> None:
    features, _ = scene()
    seeds = slow_seeds(features)
    np.testing.assert_array_equal(object_seeds(features).numpy(), seeds.reshape(len(seeds), -1))
    patches = features.tokens.double().flatten(0, 1).numpy()
    covariance = np.cov(patches.T, bias=True)
    ridge = RIDGE * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    difference = patches[seeds.ravel()].mean(0) - patches[~seeds.ravel()].mean(0)
    expected = np.linalg.inv(covariance + ridge) @ difference
    statistics = PatchStatistics(features.tokens.shape[2])
    statistics.add(features)
    np.testing.assert_allclose(statistics.direction().weight, expected, rtol=1e-4)


def test_batches_do_not_matter() -> None:
    features, _ = scene()
    whole, parts = PatchStatistics(5), PatchStatistics(5)
    whole.add(features)
    for tokens in features.tokens.split(4):
        parts.add(Features(tokens, GRID))
    assert whole.direction().images == parts.direction().images == 6
    torch.testing.assert_close(
        whole.direction().weight, parts.direction().weight, rtol=1e-4, atol=1e-5
    )


def test_images_that_are_not_finite_are_left_out() -> None:
    features, _ = scene()
    broken = features.tokens.clone()
    broken[2, 5, 1] = torch.nan
    clean, other = PatchStatistics(5), PatchStatistics(5)
    clean.add(Features(features.tokens[[0, 1, 3, 4, 5]], GRID))
    other.add(Features(broken, GRID))
    assert other.images == 5
    torch.testing.assert_close(clean.direction().weight, other.direction().weight)


def test_the_map_is_high_on_the_object() -> None:
    features, mask = scene()
    statistics = PatchStatistics(features.tokens.shape[2])
    statistics.add(features)
    maps = statistics.direction().project(features)
    assert maps.amin() >= 0 and maps.amax() <= 1
    overlap = ((maps > THRESHOLD) & mask).sum() / ((maps > THRESHOLD) | mask).sum()
    assert overlap > 0.8


def test_images_without_any_contrast() -> None:
    features = Features(torch.ones(2, 120, 5), GRID)
    statistics = PatchStatistics(features.tokens.shape[2])
    statistics.add(features)
    with pytest.raises(ValueError, match="no object"):
        statistics.direction()


def test_images_without_objects_are_doubtful() -> None:
    direction = ObjectDirection(torch.ones(4), 1.0, images=8)
    blob = torch.zeros(8, 12, 12)
    for i in range(8):
        blob[i, 2 + i % 3 : 8, 3 : 9 - i % 2] = 1.0
    assert direction.judged_by(blob).doubts() == ()
    (alike,) = direction.judged_by(blob[:1].expand(8, 12, 12)).doubts()
    (border,) = direction.judged_by(1 - blob).doubts()
    assert "alike" in alike and "100%" in border


def test_a_single_image_is_judged_by_itself() -> None:
    mapper = ObjectMapper(localizer().backbone, 64)
    images = torch.zeros(2, 3, 64, 64)
    images[1, :, 20:44, 16:48] = 3.0
    maps = mapper.maps(images)
    assert maps.isfinite().all() and maps.amin() >= 0 and maps.amax() <= 1
    inside = maps[1][2:-2, 2:-2].mean()
    assert inside > maps[1][0].mean()


def test_the_class_map_selects_one_of_several_objects() -> None:
    maps = torch.full((3, 8, 8), 0.1)
    maps[:2, 1:3, 1:3], maps[:, 5:7, 4:7] = 0.9, 0.8
    class_maps = torch.full((3, 4, 4), -1.0)
    class_maps[0, 0, 0] = class_maps[1, 3, 3] = class_maps[2, 0, 0] = 2.0
    first, second, single = object_of_class(maps, class_maps)
    assert (first[1:3, 1:3] == maps[0, 1:3, 1:3]).all() and (first[5:7, 4:7] == 0).all()
    assert (second[1:3, 1:3] == 0).all() and (second[5:7, 4:7] == maps[1, 5:7, 4:7]).all()
    assert first[0, 0] == second[0, 0] == maps[0, 0, 0]
    assert (single == maps[2]).all()


def test_the_map_of_a_single_image_is_that_of_its_statistics() -> None:
    """Also where an image has fewer patches than channels, whose equations are solved instead."""
    features, _ = scene(images=1)
    wide = Features(features.tokens @ torch.randn(5, 300), features.grid)
    for image in (features, wide):
        statistics = PatchStatistics(image.tokens.shape[2])
        statistics.add(image)
        expected = statistics.direction().project(image)
        torch.testing.assert_close(_single_image_map(image), expected, rtol=1e-3, atol=1e-3)


def test_images_of_the_fit_run_through_the_network_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, dataset = localizer(), rectangles(10)
    mapper = ObjectMapper(model.backbone)
    mapper.fit(dataset)
    transform = model.backbone.preprocessing.whole((mapper.size, mapper.size))
    images = torch.stack([transform(dataset.image(i)) for i in range(3)])
    expected = mapper.maps(images)
    monkeypatch.setattr(mapper, "_features", None)  # not called again
    maps = mapper.maps(images, [dataset.path(i) for i in range(3)])
    torch.testing.assert_close(maps, expected, rtol=0.02, atol=0.02)  # of features in two bytes


def test_a_blank_image_has_no_object(tmp_path: Path) -> None:
    """Also in a set, and with a network whose patches differ at the edges of the image."""
    for i in range(9):
        image = Image.new("RGB", (90, 60), (20 * i, 90, 40))
        if i:
            image.paste((250, 250, 250 - 20 * i), (20 + i, 15, 60 + i, 40))
        image.save(tmp_path / f"{i}.png")
    for files in ([tmp_path / "0.png"], sorted(tmp_path.glob("*.png"))):
        dataset = open_photographs([str(file) for file in files], [], print)
        predictor = MapPredictor.create(narrow_resnet(size=64), "object", images=dataset)
        counts = [len(p.boxes) for p in predict_boxes(predictor, dataset, THRESHOLD)]
        assert counts == [0, *[1] * (len(files) - 1)]


def test_an_image_that_is_not_finite_is_reported() -> None:
    features, _ = scene(images=1)
    features.tokens[0, 3, 2] = torch.nan
    assert _single_image_map(features).isnan().any()


@pytest.mark.parametrize(
    ("name", "options", "size", "grid", "boundary"),
    [
        ("lite0", {}, 384, (24, 24), 0.2),
        ("vit_tiny_patch16_224", {"depth": 1}, 384, (24, 24), 0.55),
    ],
)
def test_the_defaults(
    name: str, options: dict[str, int], size: int, grid: tuple[int, int], boundary: float
) -> None:
    """A finer input, no last stride, and the boundary for the lengths of the patches."""
    torch.manual_seed(0)
    mapper = ObjectMapper(create_backbone(name, **options).eval())
    features = mapper._features(torch.rand(1, 3, mapper.size, mapper.size))
    assert mapper.size == size and features.grid == grid
    lengths = torch.rand(4, 64) ** 4 if name == "lite0" else torch.ones(4, 64)
    statistics = PatchStatistics(3)
    tokens = torch.nn.functional.normalize(torch.randn(4, 64, 3), dim=2) * lengths[..., None]
    statistics.add(Features(tokens, (8, 8)))
    assert boundary ** statistics.direction().exponent == pytest.approx(0.5)


def test_noise_on_the_border_is_doubtful() -> None:
    direction = ObjectDirection(torch.ones(4), 1.0, images=8)
    maps = torch.rand(8, 12, 12, generator=torch.Generator().manual_seed(0))
    (warning,) = direction.judged_by(maps).doubts()
    assert "border" in warning


def test_a_map_needs_several_positions() -> None:
    with pytest.raises(ValueError, match="3 x 3"):
        ObjectMapper(create_backbone("resnet18", layers=(1, 1, 1, 1)), 16)


def test_the_map_without_the_last_stride_is_twice_as_fine() -> None:
    torch.manual_seed(0)
    backbone = create_backbone("resnet18").eval()
    finer = without_last_stride(backbone).eval()
    images = torch.randn(1, 3, 128, 128)
    with torch.no_grad():
        coarse, fine = backbone(images), finer(images)
    assert fine.grid == (2 * coarse.grid[0], 2 * coarse.grid[1])
    every_second = fine.tokens.unflatten(1, fine.grid)[:, ::2, ::2].flatten(1, 2)
    torch.testing.assert_close(every_second, coarse.tokens, rtol=1e-3, atol=1e-4)
    vit = create_backbone("vit_tiny_patch16_224", img_size=32, depth=1)
    assert without_last_stride(vit) is vit
    for model in (narrow_resnet(), narrow_resnet(channels=(64, 128, 256, 512))):
        assert without_last_stride(model.backbone).stride() == (16, 16)


def test_the_direction_is_kept_with_the_model(tmp_path: Path) -> None:
    model = localizer()
    save_model(model, tmp_path)
    assert read_direction(tmp_path) is None
    store_object_map(model, rectangles(10), tmp_path)
    stored = read_direction(tmp_path)
    assert stored is not None and stored.images == 10
    few, many = ObjectMapper(model.backbone), ObjectMapper(model.backbone)
    few.fit_or_read(rectangles(2), tmp_path)
    assert few.direction is not None and few.direction.images == 10 and "stored" in few.describe()
    many.fit_or_read(rectangles(9), tmp_path)
    assert many.direction is not None and many.direction.images == 9
    assert "stored" not in many.describe()
    again = read_direction(tmp_path)  # predicting does not change it
    assert again is not None and again.images == 10
    (tmp_path / FILE).write_bytes(b"damaged")
    with pytest.raises(ValueError, match=FILE):
        read_direction(tmp_path)


def test_a_map_that_cannot_be_fitted_is_not_stored(tmp_path: Path) -> None:
    model = localizer()
    save_model(model, tmp_path)
    store_object_map(model, rectangles(10), tmp_path)
    assert read_direction(tmp_path) is not None
    coarse = narrow_resnet(size=16)
    save_model(coarse, tmp_path / "coarse")
    store_object_map(coarse, rectangles(10), tmp_path / "coarse")
    assert read_direction(tmp_path / "coarse") is None


def test_a_direction_of_other_weights_is_not_used(tmp_path: Path) -> None:
    save_model(localizer(), tmp_path)
    save_direction(ObjectDirection(torch.ones(4), 0.5, 9), tmp_path)
    save_model(localizer("gem"), tmp_path)
    assert read_direction(tmp_path) is None


def middle_box(width: int, height: int, side: float) -> np.ndarray:
    margin = (1 - side) / 2
    corners = [margin * width, margin * height, (1 - margin) * width, (1 - margin) * height]
    return np.array([corners])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "prefix"), [("cub", ""), ("pets", "body_")])
def test_boxes_of_photographs_beat_a_box_in_the_middle(name: str, prefix: str) -> None:
    folder = shared_data(name)
    with (folder / "annotations.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row[f"{prefix}x1"]]
    rows = rows[:: len(rows) // 40][:40]
    truth = [
        np.array([[float(row[prefix + key]) for key in ("x1", "y1", "x2", "y2")]]) for row in rows
    ]
    files = [str(folder / row["file"]) for row in rows]
    dataset = open_photographs(files, [], print)
    by_path = {Path(file).resolve(): boxes for file, boxes in zip(files, truth, strict=True)}
    model, _ = open_model()
    predictor = MapPredictor.create(model, "object", batch=8, images=dataset)
    sides = np.arange(0.5, 1.01, 0.1)
    right, middle = [], []
    for prediction in predict_boxes(predictor, dataset, THRESHOLD):
        boxes = by_path[dataset.path(prediction.position).resolve()]
        right.append(box_iou(prediction.boxes.astype(float), boxes).max(initial=0) >= 0.5)
        middle.append([box_iou(middle_box(*prediction.size, s), boxes).max() >= 0.5 for s in sides])
    assert np.mean(right) > max(0.65, np.mean(middle, 0).max() + 0.05)
