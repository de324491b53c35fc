"""TokenCut by Lanczos cuts as the dense generalised eigenproblem does, on made and on real features."""

import numpy as np
import pytest
import torch
from scipy.linalg import eigh

from cenote.predict.discovery.token_cut import graph, second_vector, token_cut
from tests.evaluate.scenes import box_of, farthest, flood, is_stable, scene
from tests.shared_data import shared_data


def dense(near: np.ndarray) -> tuple[np.ndarray, float]:
    """The published way: y of (D - E) y = lambda D y, and how far the next lambda is."""
    e = np.where(near, 1.0, 1e-5)
    d = np.diag(e.sum(1))
    values, vectors = eigh(d - e, d, subset_by_index=[1, 2])
    y = vectors[:, 0]
    return y * np.sign(y[farthest(y)]), values[1] - values[0]


def slow(f: np.ndarray, grid: tuple[int, int], tau: float) -> np.ndarray:
    lengths = np.array([np.sqrt((row**2).sum()) for row in f])
    cosines = np.stack([(f * row).sum(1) for row in f]) / np.outer(lengths, lengths)
    y, gap = dense(cosines > tau)
    assert np.abs(cosines - tau).min() > 1e-9 and is_stable(y, gap), (
        "rounding could change the cut: take another scene"
    )
    return flood((y > y.mean()).reshape(grid), farthest(y))


@pytest.mark.parametrize("grid", [(9, 12), (12, 9), (5, 5), (1, 40), (3, 9)])
@pytest.mark.parametrize("noise", [0.3, 0.8, 2.0])
@pytest.mark.parametrize("seed", range(1, 7))
def test_equal_to_the_published_way(grid: tuple[int, int], noise: float, seed: int) -> None:
    f = scene(seed, grid, dim=16, noise=noise)
    mask = slow(f, grid, 0.2)
    found = token_cut(f, grid)
    assert np.array_equal(found.mask, mask) and found.box == box_of(mask)
    assert np.array_equal(token_cut(torch.from_numpy(f), grid).mask, mask)


@pytest.mark.parametrize("seed", range(20))
def test_graphs_in_pieces(seed: int) -> None:
    """Groups without a single edge between them, lone patches among them: eigenvalues that hardly differ."""
    draw = np.random.default_rng(seed)
    groups = np.sort(draw.integers(0, 4, 120))
    near = (groups[:, None] == groups) & (draw.random((120, 120)) < 0.6)
    lone = draw.choice(120, seed % 4, replace=False)
    near[lone] = near[:, lone] = False
    near = near | near.T | np.eye(120, dtype=bool)
    y, gap = dense(near)
    found = second_vector(near)
    assert found is not None
    assert gap > 1e-6
    y = y * np.sign(found @ y)
    np.testing.assert_allclose(
        found / np.linalg.norm(found), y / np.linalg.norm(y), atol=1e-5
    )  # 1e-11 / gap
    e = np.where(near, 1.0, 1e-5)
    d = e.sum(1)
    cut = (found * (d * found - e @ found)).sum() / (d * found**2).sum()
    assert cut == pytest.approx(eigh(np.diag(d) - e, np.diag(d), eigvals_only=True)[1], abs=1e-9)


def test_the_vector_solves_the_problem() -> None:
    near = graph(scene(3, (20, 20), dim=32, noise=1.0), 0.2)
    y = second_vector(near)
    assert y is not None
    e = np.where(near, 1.0, 1e-5)
    d = e.sum(1)
    rate = (y * (d * y - e @ y)).sum() / (d * y**2).sum()
    np.testing.assert_allclose(d * y - e @ y, rate * d * y, atol=1e-8)
    assert abs((d * y).sum()) < 1e-6, "orthogonal to the first vector, which is constant"
    assert y[np.abs(y).argmax()] > 0


def test_again_is_the_same() -> None:
    f = scene(5, (15, 20), dim=32, noise=1.0)
    first, second = (second_vector(graph(f, 0.2)) for _ in range(2))
    assert first is not None and second is not None and np.array_equal(first, second)


def test_it_finds_the_object_whatever_the_scale() -> None:
    truth = np.zeros((10, 14), bool)
    truth[3:7, 4:9] = True
    f = (
        np.where(truth.reshape(-1, 1), [[1.0, 0.2, 0]], [[0.0, 0.2, 1.0]])
        * np.linspace(0.1, 9, 140)[:, None]
    )
    found = token_cut(f, truth.shape)
    assert np.array_equal(found.mask, truth) and found.box == (4, 3, 9, 7)


@pytest.mark.parametrize(
    "features", [np.ones((12, 3)), np.zeros((12, 3)), np.eye(12), np.abs(scene(0, (3, 4))) + 9]
)
def test_where_no_cut_is_better_it_is_the_whole_picture(features: np.ndarray) -> None:
    assert token_cut(features, (3, 4)).box == (0, 0, 4, 3)


def test_one_patch_is_the_whole_picture() -> None:
    assert token_cut([[1.0, 2.0]], (1, 1)).box == (0, 0, 1, 1)


def test_features_that_are_not_finite_name_the_image() -> None:
    f = scene(0)
    f[7, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        token_cut(f, (9, 12))


def test_real_keys() -> None:
    from cenote.backbones import create_backbone
    from cenote.data import open_dataset
    from cenote.models.attention_maps import last_keys

    weights, data = (
        shared_data("weights/vit_tiny_patch16_224.safetensors"),
        open_dataset(shared_data("coco")),
    )
    vit = create_backbone("vit_tiny_patch16_224", weights=weights).eval()
    compared = 0
    for i in range(0, 128, 32):
        with torch.inference_mode():
            keys, grid, _ = last_keys(vit, vit.preprocessing.whole((256, 320))(data.image(i))[None])
        near = graph(keys[0].numpy(), 0.2)
        y, gap = dense(near)
        found = second_vector(near)
        assert found is not None and gap > 1e-6
        y = y * np.sign(found @ y)
        np.testing.assert_allclose(found / np.linalg.norm(found), y / np.linalg.norm(y), atol=1e-5)
        if is_stable(y, gap):
            compared += 1
            y = y * np.sign(y[farthest(y)])
            mask = flood((y > y.mean()).reshape(grid), farthest(y))
            assert np.array_equal(token_cut(keys[0], grid).mask, mask)
    assert compared >= 2
