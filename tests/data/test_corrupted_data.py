"""A corrupted data set has the same noise however it is read, and the transform draws from the loader's generator."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.data import BadImage, Dataset, Record, open_dataset, pack
from cenote.data.corruptions import Corrupt, corrupt, with_corruption
from cenote.data.loading import load
from cenote.data.transforms import make_targets


def picture(height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return np.stack(
        [128 + 100 * np.sin(x / 9), 255 * y / height, 90 + 60 * np.cos((x + y) / 5)], 2
    ).astype(np.uint8)


def make(folder: Path, images: int = 6) -> Dataset:
    records = []
    for i in range(images):
        Image.fromarray(np.roll(picture(40, 60), i, 1)).save(folder / f"{i}.png")
        records.append(Record(f"{i}.png", "ab"[i % 2]))
    return pack([*records, Record("missing.png", "a")], folder, "made")


def test_a_corrupted_data_set(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    noisy = with_corruption(dataset, "gaussian_noise", 2, seed=3)
    assert len(noisy) == 7 and noisy.name == "made (gaussian_noise 2)" and noisy[1] == dataset[1]
    first = [np.asarray(noisy.image(i)) for i in range(6)]
    assert not np.array_equal(first[0], np.asarray(dataset.image(0)))
    part = with_corruption(
        dataset.select([4, 1]), "gaussian_noise", 2, seed=3
    )  # an image's noise goes with it
    assert np.array_equal(np.asarray(part.image(0)), first[4])
    assert np.array_equal(np.asarray(noisy.select([5]).image(0)), first[5])
    noise = [one.astype(int) - np.asarray(dataset.image(i)) for i, one in enumerate(first)]
    assert not np.array_equal(noise[0], noise[1])
    with pytest.raises(BadImage, match=r"missing\.png"):
        noisy.image(6)
    with pytest.raises(ValueError, match="'rain'"):
        with_corruption(dataset, "rain")


def test_images_can_be_brought_to_the_models_size_first() -> None:
    world = open_dataset("world/tiny")
    large = with_corruption(world, "contrast", 5, short=100)
    size = world.image(0).size
    assert min(large.image(0).size) == 100 and min(size) != 100
    mask = large.mask(0)
    assert (
        mask is not None
        and mask.shape == large.image(0).size[::-1]
        and set(np.unique(mask)) <= {0, 1, 255}
    )
    assert world[0].boxes and not large[0].boxes  # they would be in pixels of another size
    assert with_corruption(world, "contrast", 5)[0].boxes == world[0].boxes


@pytest.mark.parametrize("size", [(3, 4000), (4000, 3)])
def test_a_thin_image_does_not_become_endless(tmp_path: Path, size: tuple[int, int]) -> None:
    """Its middle is what the model sees, and that is as it was."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[..., 0] = (
        np.linspace(0, 255, 4000)[:, None] if size[0] == 3 else np.linspace(0, 255, 4000)
    )
    Image.fromarray(pixels).save(tmp_path / "thin.png")
    Image.fromarray(np.ones(size[::-1], np.uint8)).save(tmp_path / "mask.png")
    dataset = pack([Record("thin.png", "a", masks=("mask.png",))], tmp_path, "thin")
    found = with_corruption(dataset, "brightness", 1, short=64)
    image, mask = found.image(0), found.mask(0)
    assert sorted(image.size) == [64, 256] and mask is not None and mask.shape == image.size[::-1]
    expected = np.asarray(with_corruption(dataset, "brightness", 1).image(0))[
        size[1] // 2, size[0] // 2
    ]
    assert (
        np.abs(
            np.asarray(image)[image.size[1] // 2, image.size[0] // 2].astype(int) - expected
        ).max()
        <= 1
    )


def test_images_are_resized_as_the_model_resizes_them(tmp_path: Path) -> None:
    dataset, small = make(tmp_path), {}
    for name in ("bicubic", "bilinear", "nearest", "nearest-exact", "random"):
        small[name] = np.asarray(
            with_corruption(dataset, "brightness", 1, short=21, interpolation=name).image(0)
        )
        plain = getattr(
            Image.Resampling, "BICUBIC" if name == "random" else name.partition("-")[0].upper()
        )
        resized = dataset.image(0).resize((31, 21), plain)
        assert np.array_equal(small[name], np.asarray(corrupt(resized, "brightness", 1)))
    assert not np.array_equal(small["bicubic"], small["bilinear"])
    assert np.array_equal(
        np.asarray(with_corruption(dataset, "brightness", 1, short=21).image(0)), small["bicubic"]
    )


def test_the_transform_draws_from_the_loaders_generator(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    step = pickle.loads(pickle.dumps(Corrupt("shot_noise", 4)))
    seen = [[b.images for b in load(dataset, _ToTensor(step), 4, workers)] for workers in (0, 2)]
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
    torch.manual_seed(0)
    first, second = step(dataset.image(0)), step(dataset.image(0))
    torch.manual_seed(0)
    assert np.array_equal(first, step(dataset.image(0))) and not np.array_equal(first, second)
    torch.manual_seed(0)
    tensor = torch.from_numpy(np.array(dataset.image(0))).permute(2, 0, 1)
    assert np.array_equal(step(tensor).permute(1, 2, 0).numpy(), first)
    image, truth = step(dataset.image(0), make_targets([], np.ones((40, 60), np.uint8), (60, 40)))
    assert (truth["mask"] == 1).all() and image.size == (60, 40)
    with pytest.raises(ValueError, match=r"torch\.float32"):
        step(tensor.float())


class _ToTensor:
    def __init__(self, step: Corrupt) -> None:
        self.step = step

    def __call__(self, image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.array(self.step(image)))
