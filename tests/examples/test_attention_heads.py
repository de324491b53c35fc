"""Pictures per head: as many maps as heads, each where it belongs, and the entropy is that of what the softmax got."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.data import Dataset, Record, pack
from cenote.models import create_model
from cenote.report.sheet import GAP, MARGIN
from examples.sar.heads import draw_heads, maps_by_head


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    noise = np.random.default_rng(0).integers(0, 256, (2, 48, 96, 3), np.uint8)
    for name, pixels in zip(("a.png", "b.png"), noise, strict=True):
        Image.fromarray(pixels).save(tmp_path / name)
    return pack([Record("a.png"), Record("b.png"), Record("gone.png")], tmp_path, "noise")


def entropy_of(scores: np.ndarray) -> float:
    """[SAR Eq. 5-9], flooding one component after the other."""
    rest = {(y, x): s for (y, x), s in np.ndenumerate(scores - scores.mean()) if s > 0}
    whole, found = sum(rest.values()), 0.0
    while rest:
        edge, mass = [next(iter(rest))], 0.0
        while edge:
            y, x = edge.pop()
            if (y, x) in rest:
                mass += rest.pop((y, x))
                edge += [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
        found -= mass / whole * np.log(mass / whole)
    return found


@pytest.mark.parametrize(("pool", "heads"), [("cls", 3), ("simpool", 1)])
def test_each_head_has_its_map_and_its_entropy(pool: str, heads: int, data: Dataset) -> None:
    torch.manual_seed(0)
    model = create_model("vit_micro", pool, 0)
    maps, entropies = maps_by_head(model, data.image(0))
    assert maps.shape == (heads, 8, 8) and entropies.shape == (heads,)
    assert (maps >= 0).all() and (maps.sum((1, 2)) <= 1 + 1e-5).all()
    for a, found in zip(
        maps, entropies, strict=True
    ):  # log a differs from the scores by a constant
        assert found == pytest.approx(entropy_of(np.log(a.astype(np.float64))), abs=1e-3)
    assert maps_by_head(model, data.image(0), size=96)[0].shape == (heads, 12, 12)


def test_a_row_for_each_image_and_a_strip_for_each_model(data: Dataset) -> None:
    torch.manual_seed(0)
    models = {
        "one": create_model("vit_micro", "cls", 0),
        "other": create_model("vit_micro", "cls", 0),
    }
    page = draw_heads(models, data, [0, 1, 2], side=64)  # the third is gone
    strip = 4 * 64 + 3 * GAP
    assert page.size == (MARGIN + 2 * (strip + MARGIN), MARGIN + 2 * (32 + 26 + MARGIN))
    pixels = np.asarray(page).astype(int)
    photo = np.asarray(data.image(0).resize((64, 32), Image.Resampling.LANCZOS)).astype(int)
    for left in (MARGIN, MARGIN + strip + MARGIN):
        assert np.array_equal(pixels[MARGIN : MARGIN + 32, left : left + 64], photo)
    heads = [pixels[MARGIN : MARGIN + 32, MARGIN + i * (64 + GAP) :][:, :64] for i in (1, 2, 3)]
    assert all(not np.array_equal(heads[i], heads[j]) for i in range(3) for j in range(i))
    assert draw_heads(models, data, [0, 1], columns=4, side=64).height < page.height


def test_what_cannot_be_shown_is_told(data: Dataset) -> None:
    with pytest.raises(ValueError, match="'gap'"):
        draw_heads({"gap": create_model("vit_micro", "gap", 3)}, data, [0])
    with pytest.raises(ValueError, match=r"\bnoise\b"):
        draw_heads({"cls": create_model("vit_micro", "cls", 0)}, data, [2])
