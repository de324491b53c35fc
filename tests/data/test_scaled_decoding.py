"""JPEGs decoded at a fraction of their size: the same picture, and the size of the file."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from cenote.backbones import Preprocessing
from cenote.data import BadImage, Record, pack, read_image
from cenote.data.images import full_size
from cenote.data.loading import InferenceTransform, load

SIZE = (1200, 901)  # odd: the last row of a fraction is not whole
SIDE = 200  # of which 901 pixels have more than four times


def photograph() -> Image.Image:
    """A smooth picture without any symmetry."""
    x, y = np.meshgrid(np.linspace(0, 1, SIZE[0]), np.linspace(0, 1, SIZE[1]))
    pixels = np.stack([x, y, 0.5 + 0.5 * np.sin(9 * x + 5 * y * y)], -1)
    return Image.fromarray((255 * pixels).astype(np.uint8))


def difference(image: Image.Image, other: Image.Image) -> float:
    """Return the mean absolute difference of two pictures of one scene, of 255."""
    a, b = (np.asarray(picture.resize((64, 64)), np.float32) for picture in (image, other))
    return float(np.abs(a - b).mean())


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    photograph().save(tmp_path / "a.jpg", exif=exif)
    whole, scaled = read_image(tmp_path / "a.jpg"), read_image(tmp_path / "a.jpg", min_side=SIDE)
    assert full_size(scaled) == whole.size == full_size(whole)
    assert SIDE <= min(scaled.size) < min(whole.size) / 3
    assert (scaled.width < scaled.height) == (whole.width < whole.height)
    assert difference(whole, scaled) < 1.5
    # The file has no symmetry: another orientation would differ.
    assert difference(ImageOps.flip(whole), scaled) > 10


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {"progressive": True}),
        ("RGB", {"subsampling": 0}),
        ("L", {}),
        ("CMYK", {}),
        ("CMYK", {"progressive": True}),
    ],
)
def test_kinds_of_jpeg(tmp_path: Path, mode: str, options: dict[str, bool]) -> None:
    photograph().convert(mode).save(tmp_path / "a.jpg", **options)
    whole, scaled = read_image(tmp_path / "a.jpg"), read_image(tmp_path / "a.jpg", min_side=SIDE)
    assert scaled.mode == "RGB" and full_size(scaled) == whole.size == SIZE
    assert scaled.width < whole.width / 3
    assert difference(whole, scaled) < 1.5


@pytest.mark.parametrize("suffix", ["png", "webp", "bmp"])
def test_other_formats_keep_their_size(tmp_path: Path, suffix: str) -> None:
    photograph().save(tmp_path / f"a.{suffix}")
    assert read_image(tmp_path / f"a.{suffix}", min_side=SIDE).size == SIZE


def test_small_images_keep_their_size(tmp_path: Path) -> None:
    photograph().save(tmp_path / "a.jpg")
    image = read_image(tmp_path / "a.jpg", min_side=SIZE[1] // 2 + 1)
    assert image.size == full_size(image) == SIZE
    assert np.array_equal(np.asarray(image), np.asarray(read_image(tmp_path / "a.jpg")))


def test_a_truncated_file_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    photograph().save(path)
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(BadImage, match="truncated"):
        read_image(path, min_side=SIDE)


def test_transform_of_a_fraction(tmp_path: Path) -> None:
    """Preprocessing alone decides; its tensors are nearly those of the whole picture."""
    photograph().save(tmp_path / "a.jpg")
    dataset = pack([Record("a.jpg"), Record("no.jpg")], tmp_path, "one")
    tensors = []
    for scaled in (False, True):
        transform = Preprocessing(size=96, scaled_decoding=scaled).transform()
        assert isinstance(transform, InferenceTransform)
        assert transform.min_side == (218 if scaled else None)  # 2 * floor(96 / 0.875)
        (batch,) = load(dataset, transform)
        assert [bad.position for bad in batch.bad] == [1]
        tensors.append(batch.images[0])
    assert (tensors[0] - tensors[1]).abs().mean() < 0.03
    assert not (tensors[0] == tensors[1]).all()  # it was decoded at a fraction


@pytest.mark.parametrize("workers", [0, 2])
def test_threads_and_workers_load_in_order(tmp_path: Path, workers: int) -> None:
    for i in range(11):
        Image.new("RGB", (8, 8), (20 * i, 0, 0)).save(tmp_path / f"{i}.png")
    (tmp_path / "5.png").write_bytes(b"not an image")
    dataset = pack([Record(f"{i}.png") for i in range(11)], tmp_path, "colours")
    transform = Preprocessing(size=4, crop=1, mean=(0, 0, 0), std=(1, 1, 1)).transform()
    loader = load(dataset, transform, batch=3, workers=workers)
    for _ in range(2):
        batches = list(loader)
        assert [batch.indices.tolist() for batch in batches] == [
            [0, 1, 2],
            [3, 4],
            [6, 7, 8],
            [9, 10],
        ]
        for batch in batches:
            assert np.allclose(batch.images[:, 0, 0, 0] * 255, 20 * batch.indices, atol=0.01)
    next(iter(loader))  # a consumer may stop early
