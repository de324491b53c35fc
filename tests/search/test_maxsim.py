"""Re-ranking by local vectors: MaxSim by its definition, where results match, and how an index keeps the vectors."""

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from cenote.backbones import Preprocessing
from cenote.data import read_folders
from cenote.search.index import open_images, source_of, update_index
from cenote.search.load import IndexSetup
from cenote.search.local_store import LocalStore
from cenote.search.maxsim import cell_boxes, describe_local, local_vectors, maxsim
from cenote.search.query import SearchRequest, ask
from cenote.search.store import IndexDescription
from tests.toy_models import ColourModel, picture

from .rankings import assert_ranked
from .test_local_store import MADE, entry, ids, unit_rows

CELLS = {"k": 16, "dim": 3}


class CellModel(ColourModel):
    """ColourModel whose map of features is the centred colours of 8 x 8 blocks."""

    def __init__(self) -> None:
        self.image_network = nn.Identity()
        self.local_network = nn.AvgPool2d(4)
        self.embedded = 0

    def embed_output(self, output: Tensor) -> Tensor:
        return self.embed_images(output)

    def embed_local_output(self, output: Tensor) -> tuple[Tensor, Tensor]:
        self.embedded += len(output)
        return self.embed_images(output), output - output.mean((1, 2, 3), keepdim=True)

    def visible_box(self, width: int, height: int) -> tuple[float, float, float, float]:
        return 0, 0, width, height


def slow_maxsim(query: Tensor, candidate: Tensor) -> float:
    """The mean over the query's vectors of the largest cosine to a vector of the candidate."""
    total = 0.0
    for q in query.double():
        largest = -2.0
        for c in candidate.double():
            largest = max(largest, float((q * c).sum() / (q.norm() * c.norm())))
        total += largest
    return total / len(query)


def test_scores_are_those_of_a_double_loop(tmp_path: Path) -> None:
    """300 candidates: more than are computed at a time."""
    local = unit_rows(300 * 4, seed=1, dim=5).view(300, 4, 5)
    index = LocalStore.open(tmp_path, replace(MADE, local={"k": 4, "dim": 5}))
    with index.writer() as writer:
        writer.put([entry(i) for i in range(300)], unit_rows(300), ids(300), local)
    stored, query = index.local(torch.arange(300)), unit_rows(6, seed=2, dim=5)
    assert stored is not None and (stored - local).abs().max() < 1e-3  # float16
    rows = torch.arange(299, -1, -1)
    scores = maxsim(query, rows, index)
    expected = [slow_maxsim(query, stored[row]) for row in rows.tolist()]
    # Vectors of float16 have a length of 1 to three digits.
    torch.testing.assert_close(scores.double(), torch.tensor(expected).double(), atol=1e-3, rtol=0)
    exact = torch.stack(
        [torch.einsum("qd,kd->qk", query, stored[row]).amax(1).mean() for row in rows]
    )
    assert_ranked(
        rows[scores.argsort(descending=True)], dict(zip(rows.tolist(), exact.tolist(), strict=True))
    )


@pytest.mark.parametrize(("shape", "k"), [((8, 8), 16), ((7, 7), 16), ((7, 5), 4), ((7, 7), 49)])
def test_local_vectors_are_means_of_cells(shape: tuple[int, int], k: int) -> None:
    """A position that two cells share counts in both."""
    maps = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0))
    side, means = math.isqrt(k), []
    for row in range(side):
        for column in range(side):
            top, left = row * shape[0] // side, column * shape[1] // side
            bottom, right = -(-(row + 1) * shape[0] // side), -(-(column + 1) * shape[1] // side)
            means.append(maps[:, :, top:bottom, left:right].mean((2, 3)))
    expected = torch.nn.functional.normalize(torch.stack(means, 1), dim=2)
    torch.testing.assert_close(local_vectors(maps, k), expected)


@pytest.mark.parametrize("size", [(400, 200), (150, 301), (224, 224)])
def test_cells_are_where_the_network_looks(size: tuple[int, int]) -> None:
    """An image of its own coordinates, through the transform."""
    width, height = size
    preprocessing = Preprocessing(64, 0.8, "bilinear", (0, 0, 0), (1, 1, 1))
    x, y = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    image = Image.fromarray(np.uint8(np.stack([255 * x, 255 * y, 0 * x], 2).round()))
    seen = preprocessing.transform()(image)
    x0, y0, x1, y1 = preprocessing.visible_box(width, height)
    assert float(seen[0].mean()) * width == pytest.approx((x0 + x1) / 2, abs=2)
    step = (x1 - x0) / 64  # pixels of the image for one of the input
    for values, side, low, high in ((seen[0, 32], width, x0, x1), (seen[1, :, 32], height, y0, y1)):
        assert float(values[0]) * side == pytest.approx(low + step / 2, abs=0.01 * side)
        assert float(values[-1]) * side == pytest.approx(high - step / 2, abs=0.01 * side)


def photographs(folder: Path) -> None:
    for i in range(6):
        path = folder / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        colour = ("red", "green", "blue")[i % 3]
        picture(colour, "square", i).resize((320, 240)).save(path)


def update(folder: Path, index: Path, model: CellModel) -> LocalStore:
    data = (str(folder),)
    description = IndexDescription("toy", "toy 1", 6, local=CELLS)
    store = LocalStore.open(index, description)
    update_index(store, open_images(data, (index,)), model, source=source_of(data), batch=4)  # type: ignore[arg-type]
    return store


def check(store: LocalStore) -> None:
    """Every image has the local vectors of its file."""
    model = CellModel()
    for path, (row, _) in store.images().items():
        pixels = model.transform()(Image.open(path))[None]
        maps = model.embed_local_output(model.local_network(pixels))[1]
        local = store.local(torch.tensor([row]))
        torch.testing.assert_close(local, local_vectors(maps, 16), atol=1e-3, rtol=0)


def test_an_index_keeps_local_vectors_up_to_date(tmp_path: Path) -> None:
    folder, model = tmp_path / "photos", CellModel()
    photographs(folder)
    store = update(folder, tmp_path / "ix", model)
    assert model.embedded == 6 and len(store) == 6
    check(store)
    shutil.copy(folder / "1.png", folder / "copy.png")
    os.rename(folder / "2.png", folder / "moved.png")
    picture("yellow", "stripes", 9).save(folder / "3.png")
    (folder / "0.png").unlink()
    store = update(folder, tmp_path / "ix", model)
    assert model.embedded == 7 and len(store) == 6
    check(store)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LocalStore]:
    folder = tmp_path_factory.mktemp("maxsim")
    photographs(folder / "photos")
    return folder, update(folder / "photos", folder / "ix", CellModel())


def answer(store: LocalStore, *images: Any, **options: Any) -> Any:
    return ask(SearchRequest(images, **options), store, CellModel())  # type: ignore[arg-type]


def test_results_are_ranked_again(indexed: tuple[Path, LocalStore], tmp_path: Path) -> None:
    folder, store = indexed
    crop = tmp_path / "crop.png"
    Image.open(folder / "photos" / "4.png").crop((20, 20, 180, 140)).save(crop)
    model, plain = CellModel(), answer(store, crop, top=6)
    pixels = model.transform()(Image.open(crop))[None]
    query = local_vectors(model.embed_local_output(model.local_network(pixels))[1], 16)[0]
    found = answer(store, crop, top=6, rerank="maxsim")
    rows = [result.row for result in found.results]
    stored = store.local(torch.arange(6))
    assert stored is not None and len(rows) == 6 and found.exact
    expected = {row: slow_maxsim(query, stored[row]) for row in range(6)}
    assert_ranked(torch.tensor(rows), expected)
    for result in found.results:
        assert result.score == pytest.approx(expected[result.row], abs=1e-3)
        assert result.visual in [other.score for other in plain.results]
    few = answer(store, crop, top=2, candidates=3, rerank="maxsim")
    first = [result.row for result in plain.results[:3]]
    assert not few.exact and few.why["maxsim"] == {"candidates": 3, "cells": 16}
    assert {result.row for result in few.results} <= set(first)


def test_where_results_match(indexed: tuple[Path, LocalStore]) -> None:
    """An image matches itself: each cell is most similar to a cell of the same features."""
    folder, store = indexed
    images = [folder / "photos" / "4.png", folder / "photos" / "5.png"]
    row = store.images()[str(images[0])].row
    found = answer(store, *images, top=6, rerank="maxsim", near_duplicates="show")
    (result,) = [result for result in found.results if result.row == row]
    boxes = cell_boxes(16, (320, 240), CellModel())
    assert boxes[0] == (0, 0, 80, 60) and boxes[6] == (160, 60, 240, 120)
    assert len(result.cells) == 32 and {match.image for match in result.cells} == {0, 1}
    similarities = [match.similarity for match in result.cells]
    assert similarities == sorted(similarities, reverse=True)
    local = store.local(torch.tensor([row]))
    assert local is not None
    for match in result.cells:
        assert match.box == boxes[match.cell] and match.query_box == boxes[match.query_cell]
        if match.image == 0:
            assert match.similarity == pytest.approx(1, abs=2e-3)
            query, cell = local[0, match.query_cell], local[0, match.cell]
            assert float(query @ cell) == pytest.approx(match.similarity, abs=1e-3)


def test_what_cannot_be_ranked_again(indexed: tuple[Path, LocalStore], tmp_path: Path) -> None:
    folder, _ = indexed
    image = folder / "photos" / "4.png"
    plain = LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy 1", 6))
    update_index(plain, read_folders(folder), CellModel())
    with pytest.raises(ValueError, match=r"stores no local vectors: .*--local 16"):
        answer(plain, image, rerank="maxsim")
    for wrong in ({"texts": ("red",)}, {"like": (image,)}, {"unlike": (image,)}):
        with pytest.raises(ValueError, match="without texts and examples"):
            SearchRequest((image,), rerank="maxsim", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rerank must be one of none, maxsim, got 'colbert'"):
        SearchRequest((image,), rerank="colbert")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="candidates"):
        SearchRequest((image,), rerank="maxsim", candidates=0)


def test_local_vectors_that_cannot_be_stored(tmp_path: Path) -> None:
    device = torch.device("cpu")
    assert describe_local(CellModel(), 64, device) == {"k": 64, "dim": 3}
    with pytest.raises(ValueError, match="8 x 8 positions: give at most 64"):
        describe_local(CellModel(), 81, device)
    with pytest.raises(ValueError, match="'toy' has no map of features"):
        describe_local(ColourModel(), 16, device)
    with pytest.raises(ValueError, match=r"--local 10: .* square"):
        IndexSetup(str(tmp_path / "ix"), local=10)
    with pytest.raises(ValueError, match="--local: Milvus stores one vector per image"):
        IndexSetup(str(tmp_path / "ix.db"), local=16)
    LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy 1", 6))
    with pytest.raises(ValueError, match="was made with no local vectors: leave --local out"):
        IndexSetup(str(tmp_path / "ix"), local=16)
