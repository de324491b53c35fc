"""The corruptions against slow programs written from their descriptions, and against the package imagecorruptions."""

import colorsys
import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from cenote.data.corruptions import CORRUPTIONS, corrupt
from cenote.data.corruptions.blur import (
    as_written,
    blur_along_line,
    disk,
    motion_blur,
    source_pixels,
    zoom,
)
from cenote.data.corruptions.digital import sample_at, smooth
from cenote.data.corruptions.weather import TEXTURES, ice_texture, plasma
from cenote.metrics.robustness import ALEXNET_ERRORS
from tests.data.peer_corruptions import load_peer

STILL = {
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
}  # nothing is drawn


def picture(height: int = 72, width: int = 96) -> np.ndarray:
    """Smooth colours, a hard edge, a flat patch, fine stripes."""
    y, x = np.mgrid[:height, :width]
    pixels = np.stack(
        [128 + 100 * np.sin(x / 9), 255 * y / height, 90 + 60 * np.cos((x + y) / 5)], 2
    )
    pixels[: height // 3, : width // 3] = (200, 30, 60)
    pixels[-height // 4 :, -width // 4 :] = 255 * (x[-height // 4 :, -width // 4 :, None] % 2)
    return pixels.astype(np.uint8)


def test_the_fifteen_are_those_of_the_metric() -> None:
    assert list(CORRUPTIONS) == list(ALEXNET_ERRORS)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_laws(name: str) -> None:
    """Same type and size, nothing else changed, the seed alone decides, and more severity is more change."""
    image, numpy_state, torch_state = (
        picture(),
        np.random.get_state()[1].copy(),
        torch.get_rng_state(),
    )  # type: ignore[index]
    before = image.copy()
    result = corrupt(image, name, 3, seed=5)
    assert (
        result.shape == image.shape
        and result.dtype == np.uint8
        and not np.array_equal(result, image)
    )
    assert np.array_equal(image, before)
    assert np.array_equal(result, corrupt(image, name, 3, seed=5))
    assert np.array_equal(result, corrupt(image, name, 3, seed=6)) == (name in STILL)
    assert np.array_equal(result, np.asarray(corrupt(Image.fromarray(image), name, 3, seed=5)))
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), torch_state)
    changes = [
        np.mean(
            [
                np.abs(corrupt(image, name, level, seed).astype(float) - image).mean()
                for seed in range(3)
            ]
        )
        for level in (1, 5)
    ]
    assert (
        changes[0] < changes[1] or name == "elastic_transform"
    )  # whose first two bend far, the others finely


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (7, 2), (33, 50), (300, 20)])
def test_any_size(name: str, size: tuple[int, int]) -> None:
    for level in (1, 5):
        assert corrupt(picture(*size), name, level).shape == (*size, 3)


@pytest.mark.parametrize(
    "name",
    sorted(
        STILL - {"brightness", "jpeg_compression"}
        | {"glass_blur", "motion_blur", "elastic_transform"}
    ),
)
def test_a_flat_image_stays_flat(name: str) -> None:
    """No value may be lost by rounding, nor at the border."""
    for value in (0, 1, 77, 254, 255):
        image = np.full((40, 56, 3), value, np.uint8)
        for level in (1, 2, 3, 4, 5):
            if (
                name != "defocus_blur" or level < 4
            ):  # the larger disks are brighter than one, as published
                assert np.array_equal(corrupt(image, name, level), image), (value, level)


def test_noise_has_the_published_moments() -> None:
    flat = np.full((200, 200, 3), 100, np.uint8)
    for level, s in enumerate((0.08, 0.12), 1):
        noise = (
            corrupt(flat, "gaussian_noise", level).astype(float) - 99.5
        )  # truncation takes half a level
        assert abs(noise.mean()) < 0.5 and abs(noise.std() / (255 * s) - 1) < 0.02
    for level, c in enumerate((60, 25, 12), 1):
        light = corrupt(flat, "shot_noise", level).astype(float)
        assert (
            abs(light.mean() - 99.5) < 1
            and abs(light.std() / (255 * math.sqrt(100 / 255 / c)) - 1) < 0.02
        )
    for level, share in enumerate((0.03, 0.06, 0.09, 0.17, 0.27), 1):
        values = corrupt(flat, "impulse_noise", level)
        assert set(np.unique(values)) == {0, 100, 255}
        assert (
            abs((values == 0).mean() - share / 2) < 0.005
            and abs((values == 255).mean() - share / 2) < 0.005
        )


def test_defocus_is_the_mean_over_a_disk() -> None:
    image = picture()
    for level, radius in enumerate((3, 4, 6, 8, 10), 1):
        kernel = disk(radius, 0.1 if level == 1 else 0.5)
        assert abs(kernel.sum() - 1) < (1e-6 if radius < 8 else 0.015)
        if level == 1:  # a Gaussian of 0.1 pixels changes nothing
            y, x = np.mgrid[-8:9, -8:9]
            inside = x**2 + y**2 <= 9
            assert np.allclose(kernel, inside / inside.sum(), atol=1e-6)
        slow = np.stack(
            [
                ndimage.correlate(image[..., c].astype(float), kernel, mode="mirror")
                for c in range(3)
            ],
            2,
        )
        assert (
            np.abs(
                corrupt(image, "defocus_blur", level).astype(float) - np.clip(slow, 0, 255)
            ).max()
            < 1.01
        )


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_follows_the_published_loop(reach: int) -> None:
    """Every pixel takes its neighbour's value, from the last pixel to the first: values already taken go on."""
    height, width = 23, 31
    steps = np.random.default_rng(reach).integers(-reach, reach, (2, height, width))
    image = np.arange(height * width).reshape(height, width)
    slow = image.copy()
    for h in range(height - reach, reach, -1):
        for w in range(width - reach, reach, -1):
            slow[h, w] = slow[h + steps[0, h, w], w + steps[1, h, w]]
    assert np.array_equal(image.reshape(-1)[source_pixels(steps, reach)], slow)


@pytest.mark.parametrize("angle", [-135.0, -45.0, 0.0, 17.0, 45.0])
def test_motion_goes_one_way(angle: float) -> None:
    """Pixel p is the Gaussian mean of p, p + 1 step, ... along the angle, in whole pixels."""
    x = np.random.default_rng(0).random((9, 11)).astype(np.float32)
    radius, sigma = 3, 2.0
    weights = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(2 * radius + 1)]
    slow = np.zeros((9, 11))
    for h in range(9):
        for w in range(11):
            for i, weight in enumerate(weights):
                down = math.ceil(i * math.sin(math.radians(angle)) - 0.5)
                across = math.ceil(i * math.cos(math.radians(angle)) - 0.5)
                slow[h, w] += (
                    weight / sum(weights) * x[min(max(h + down, 0), 8), min(max(w + across, 0), 10)]
                )
    assert np.allclose(blur_along_line(x, radius, sigma, angle), slow, atol=1e-6)


def test_motion_is_written_as_by_imagemagick() -> None:
    """16 bits are rounded, 8 bits are truncated."""
    image = (np.arange(24).reshape(4, 6) ** 2 * 37 % 251).astype(np.float32)
    # convert -motion-blur 3x2+30 of ImageMagick 6.9.11 Q16
    theirs = [
        [63, 134, 143, 128, 155, 182],
        [94, 87, 174, 195, 186, 193],
        [137, 160, 146, 160, 197, 186],
        [130, 107, 140, 118, 193, 246],
    ]
    blurred = blur_along_line(image, 3, 2, 30)
    assert as_written(blurred).tolist() == theirs
    slow = [[round(257 * value) // 257 for value in row] for row in blurred.tolist()]
    assert slow == theirs and np.rint(blurred).tolist() != theirs
    flat = np.full((9, 9), 77, np.float32)
    assert np.array_equal(as_written(blur_along_line(flat, 10, 3, 20)), flat)
    noisy = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    exact = blur_along_line(
        noisy.astype(np.float32), 10, 3, np.random.default_rng(5).uniform(-45, 45)
    )
    difference = motion_blur(noisy, 1, np.random.default_rng(5)) - exact
    assert abs(difference.mean() + 0.5) < 0.05


def test_zoom_is_scipys() -> None:
    planes = picture(50, 63).transpose(2, 0, 1).astype(np.float32)
    for factor in (1.0, 1.07, 1.31, 2.5):
        rows, columns = math.ceil(50 / factor), math.ceil(63 / factor)
        top, left = (50 - rows) // 2, (63 - columns) // 2
        large = ndimage.zoom(
            planes[:, top : top + rows, left : left + columns], (1, factor, factor), order=1
        )
        top, left = (large.shape[1] - 50) // 2, (large.shape[2] - 63) // 2
        assert np.allclose(
            zoom(planes, factor), large[:, top : top + 50, left : left + 63], atol=2e-3
        )


def test_plasma_is_diamond_square() -> None:
    """Against loops over single points, with the same noise."""

    class Recorded:
        def __init__(self) -> None:
            self.inner, self.drawn = np.random.default_rng(0), []  # type: ignore[var-annotated]

        def uniform(self, low: float, high: float, size: tuple[int, int]) -> np.ndarray:
            self.drawn.append(self.inner.uniform(low, high, size))
            return self.drawn[-1]  # type: ignore[no-any-return]

    draw, side, decay = Recorded(), 16, 1.7
    found = plasma(side, decay, draw)  # type: ignore[arg-type]
    slow, step, reach, drawn = np.zeros((side, side)), side, 100.0, iter(draw.drawn)
    while step >= 2:
        half = step // 2
        for offset in ((half, half), (0, half), (half, 0)):
            corner = offset == (half, half)
            around = [(-half, -half), (-half, half), (half, -half), (half, half)]
            around = around if corner else [(-half, 0), (half, 0), (0, -half), (0, half)]
            noise = next(drawn)
            for i in range(0, side, step):
                for j in range(0, side, step):
                    y, x = i + offset[0], j + offset[1]
                    near = [slow[(y + dy) % side, (x + dx) % side] for dy, dx in around]
                    slow[y, x] = sum(near) / 4 + reach * noise[i // step, j // step]
        step, reach = half, reach / decay
    slow -= slow.min()
    assert np.allclose(found, slow / slow.max())
    assert found.min() == 0 and found.max() == 1


def test_brightness_is_hsv() -> None:
    image = picture(12, 16)
    image[0, :3] = [(0, 0, 0), (255, 255, 255), (3, 2, 1)]
    for level, c in enumerate((0.1, 0.2, 0.3, 0.4, 0.5), 1):
        result = corrupt(image, "brightness", level)
        for pixel, changed in zip(image.reshape(-1, 3), result.reshape(-1, 3), strict=True):
            h, s, v = colorsys.rgb_to_hsv(*(pixel / 255))
            wanted = 255 * np.array(colorsys.hsv_to_rgb(h, s, min(v + c, 1)))
            assert np.abs(changed - np.floor(wanted + 1e-6)).max() <= 1


def test_the_pieces_of_elastic_are_scipys() -> None:
    draw = np.random.default_rng(0)
    for sigma in (0.1, 2.44, 19.5, 170.8):
        x = draw.uniform(-1, 1, (40, 57))
        assert np.allclose(
            smooth(x, sigma), ndimage.gaussian_filter(x, sigma, mode="reflect", truncate=3)
        )
    image = picture(30, 41).astype(np.float32)
    across, down = draw.uniform(-60, 90, (30, 41)), draw.uniform(-60, 90, (30, 41))
    for about_pixel, mode in ((True, "mirror"), (False, "reflect")):
        planes = [
            ndimage.map_coordinates(image[..., c], [down, across], order=1, mode=mode)
            for c in range(3)
        ]
        assert (
            np.abs(sample_at(image, across, down, about_pixel) - np.stack(planes, 2)).max() < 0.05
        )


def test_pixels_become_the_mean_of_their_block() -> None:
    image = picture(40, 60)
    blocks = image.reshape(20, 2, 30, 2, 3).astype(float).mean((1, 3))
    assert np.abs(corrupt(image, "pixelate", 2) - blocks.repeat(2, 0).repeat(2, 1)).max() <= 1


def test_frost_has_the_colours_of_the_photographs() -> None:
    for number, (mean, deviation, _) in enumerate(TEXTURES):
        ice = ice_texture(number).astype(float)
        assert (
            np.abs(ice.mean((0, 1)) - mean).max() < 2
            and np.abs(ice.std((0, 1)) - deviation).max() < 2
        )
    whole = corrupt(np.zeros((700, 1200, 3), np.uint8), "frost", 5)  # larger than a texture
    assert (
        whole.min(2).mean() > 20
        and (np.abs(np.diff(whole.astype(int), axis=0)).mean((1, 2)) < 60).all()
    )


def test_against_the_package() -> None:
    """Equal but for rounding where nothing is drawn; the same mean change and deviation where something is.

    The package moves elastic images by rules of its own, and its frost is photographs: both are left out. It lets
    flat areas of motion blur fall one level below their value.
    """
    peer = load_peer()
    if peer is None:
        pytest.skip("needs: pip install imagecorruptions opencv-python-headless scikit-image")
    image = picture(64, 64)
    for name in CORRUPTIONS:
        for level in (1, 2, 3, 4, 5):
            if name in STILL:
                theirs, ours = peer(image, level, name), corrupt(image, name, level)
                assert np.abs(ours.astype(int) - theirs).max() <= 1, (name, level)
            elif (
                name not in ("elastic_transform", "frost")
                and level % 2
                and (name != "glass_blur" or level == 1)
            ):
                np.random.seed(level)
                times = 3 if name == "glass_blur" else 40
                theirs = np.stack([peer(image, level, name) for _ in range(times)]).astype(float)
                ours = np.stack(
                    [corrupt(image, name, level, seed) for seed in range(times)]
                ).astype(float)
                spread = max(theirs.mean((1, 2, 3)).std(), ours.mean((1, 2, 3)).std())
                margin = 1 + 4 * spread / math.sqrt(times)
                assert abs(ours.mean() - theirs.mean()) < margin, (name, level)
                assert (
                    abs(ours.std((1, 2, 3)).mean() - theirs.std((1, 2, 3)).mean()) < margin + 2
                ), (name, level)


def test_refusals() -> None:
    image = picture()
    with pytest.raises(ValueError, match=r"'fogg'.*'fog'"):
        corrupt(image, "fogg")
    for severity in (0, 6, 2.5):
        with pytest.raises(ValueError, match=rf"severity.*\b{severity}\b"):
            corrupt(image, "fog", severity)  # type: ignore[arg-type]
    for bad in (image.astype(float), image[..., 0], "a.png"):
        with pytest.raises(ValueError, match=r"\(H, W, 3\)"):
            corrupt(bad, "fog")  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"\(0, 5, 3\)"):
        corrupt(np.zeros((0, 5, 3), np.uint8), "fog")
    assert corrupt(Image.fromarray(image).convert("L"), "fog").mode == "RGB"
