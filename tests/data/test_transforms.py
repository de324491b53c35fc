"""Boxes and masks stay on their object, sizes and colours are the published ones, and Cutout is what the spec says."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors

from cenote.backbones import Preprocessing
from cenote.data import Box
from cenote.data.transforms import (
    MEAN,
    STD,
    Cutout,
    make_targets,
    train_transform,
    wsol_eval_transform,
    wsol_train_transform,
)

BOX = Box(60, 30, 100, 90)
SIZE = (160, 120)


def scene() -> tuple[Image.Image, np.ndarray]:
    """A white block on black, and its mask."""
    mask = np.zeros(SIZE[::-1], np.uint8)
    mask[30:90, 60:100] = 1
    return Image.fromarray(np.repeat(mask[..., None] * 255, 3, -1)), mask


def bright(image: torch.Tensor) -> torch.Tensor:
    """(H, W): where the block is, after normalisation."""
    grey = image * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    return grey.mean(0) > 0.5


def extent(mask: torch.Tensor) -> list[int]:
    rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
    return [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("make", [train_transform, wsol_train_transform, wsol_eval_transform])
def test_truth_moves_with_the_pixels(make, seed: int) -> None:
    """The block, its mask and its box agree after any crop, resize and flip: each is the other's oracle."""
    image, mask = scene()
    torch.manual_seed(seed)
    out, truth = make()(image, make_targets([BOX], mask, SIZE))
    assert out.shape == (3, 224, 224) and out.dtype == torch.float32
    assert (
        type(out) is torch.Tensor
        and type(truth["mask"]) is torch.Tensor
        and truth["mask"].dtype == torch.uint8
    )
    seen, moved = bright(out), truth["mask"] > 0
    assert (seen ^ moved).float().mean() < 0.02  # they differ along the edge only
    if moved.any():
        assert np.abs(np.array(extent(moved)) - truth["boxes"][0].numpy()).max() <= 1.6


def test_half_of_the_pictures_are_mirrored_and_flip_says_how_many() -> None:
    left = np.zeros((64, 64, 3), np.uint8)
    left[:, :32] = 255
    image = Image.fromarray(left)
    for flip, low, high in [(0.5, 65, 135), (0.0, 0, 0), (1.0, 200, 200)]:
        transform = train_transform(32, scale=(1, 1), ratio=(1, 1), flip=flip)
        torch.manual_seed(0)
        assert (
            low
            <= sum(
                float(out[0, 16, 4]) < float(out[0, 16, 28])
                for out in map(transform, [image] * 200)
            )
            <= high
        )


def test_the_share_of_the_picture_is_the_scale_s() -> None:
    ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8)[None, :, None], (256, 1, 3)))
    transform = train_transform(64, (0,) * 3, (1,) * 3, scale=(0.25, 0.25), ratio=(1, 1), flip=0)
    torch.manual_seed(0)
    for out in map(transform, [ramp] * 20):
        assert float(out.max() - out.min()) * 255 == pytest.approx(128, abs=3)  # half of each side


def test_evaluation_of_wsol_is_the_whole_picture_as_preprocessing_gives_it() -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (90, 140, 3), dtype=np.uint8))
    whole = Preprocessing(interpolation="bilinear").whole((224, 224))(image)
    torch.testing.assert_close(wsol_eval_transform()(image), whole)


def test_wsol_trains_on_crops_of_a_squeezed_picture() -> None:
    """224 of 256: the corner of the crop is one of 33 x 33, and the scale is the squeezed picture's."""
    x = np.tile(np.arange(256, dtype=np.uint8)[None, :, None], (256, 1, 3))
    transform = wsol_train_transform(mean=(0,) * 3, std=(1,) * 3, flip=0)
    torch.manual_seed(0)
    lefts = [round(float(transform(Image.fromarray(x))[0, 0, 0]) * 255) for _ in range(200)]
    assert min(lefts) == 0 and max(lefts) == 32 and len(set(lefts)) > 25


@functools.cache
def holes(max_size: float, count: int, size: tuple[int, int] = (40, 60)) -> torch.Tensor:
    """(count, H, W): what Cutout made black."""
    torch.manual_seed(0)
    return torch.stack([Cutout(max_size)(torch.ones(3, *size))[0] == 0 for _ in range(count)])


def test_cutout_is_a_square_clipped_at_the_border_and_drawn_per_image() -> None:
    black = holes(0.5, 400)
    sides = []
    for mask in black[black.any((1, 2))]:
        left, top, right, bottom = extent(mask)
        assert mask[top:bottom, left:right].all() and mask.sum() == (right - left) * (bottom - top)
        if min(left, top, 60 - right, 40 - bottom) > 0:  # not clipped
            assert abs((right - left) - (bottom - top)) <= 1
            sides.append(right - left)
    assert (
        max(sides) <= 21 and len(set(sides)) > 15
    )  # half of the shorter side, and one of rounding


def test_cutout_covers_as_much_as_a_uniform_side_and_centre_do() -> None:
    """Oracle: the same draw by hand. A pixel far from the border is black with probability E[side^2] / area."""
    rate = float(holes(0.5, 10_000)[:, 15:25, 25:35].float().mean())
    assert rate == pytest.approx(20**2 / 3 / (40 * 60), rel=0.1)
    centres = np.random.default_rng(0).uniform(0, (60, 40), (200_000, 2))
    half = np.random.default_rng(1).uniform(0, 20, 200_000) / 2
    corner = ((np.abs(centres - 0.5) <= half[:, None]).all(1)).mean()  # pixel (0, 0)
    assert float(holes(0.5, 10_000)[:, 0, 0].float().mean()) == pytest.approx(corner, rel=0.3)


def test_cutout_is_black_before_normalisation_and_leaves_the_truth() -> None:
    _, mask = scene()
    white = Image.new("RGB", SIZE, "white")
    transform = wsol_train_transform(cutout=1.0)
    torch.manual_seed(3)
    out, truth = transform(white, make_targets([BOX], mask, SIZE))
    black, full = (
        (0 - torch.tensor(MEAN)) / torch.tensor(STD),
        (1 - torch.tensor(MEAN)) / torch.tensor(STD),
    )
    is_black = (out - black[:, None, None]).abs().amax(0) < 1e-4
    is_white = (out - full[:, None, None]).abs().amax(0) < 1e-4
    assert (is_black ^ is_white).all() and is_black.any() and is_white.any()
    torch.manual_seed(3)
    same = wsol_train_transform(cutout=0.0)(white, make_targets([BOX], mask, SIZE))[1]
    assert torch.equal(same["boxes"], truth["boxes"]) and torch.equal(same["mask"], truth["mask"])


def test_cutout_leaves_its_input_alone() -> None:
    pixels = tv_tensors.Image(torch.full((3, 16, 16), 9, dtype=torch.uint8))
    torch.manual_seed(1)
    out = Cutout(1.0)(pixels)
    assert isinstance(out, tv_tensors.Image) and (pixels == 9).all() and (out == 0).any()
    with pytest.raises(ValueError, match=r"\b1\.5\b"):
        Cutout(1.5)


def test_an_unknown_interpolation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'cubic'.*bicubic"):
        train_transform(interpolation="cubic")


def test_import_of_the_room_does_not_wait_for_torch() -> None:
    import subprocess
    import sys

    code = "import cenote.data, sys; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
    )
