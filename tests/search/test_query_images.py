"""The image of a question is a file, the contents of a file, or a row of the index: the answer is the same."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.data import read_folders, read_image
from cenote.data.sources import open_photographs
from cenote.search.index import update_index
from cenote.search.local_store import LocalStore
from cenote.search.query import ImageInput, SearchAnswer, SearchRequest, ask
from cenote.search.store import IndexDescription, Store
from tests.toy_models import COLOURS, SHAPES, ColourModel, picture


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("photos")
    for k, colour in enumerate(COLOURS):
        for shape in SHAPES:
            (root / shape).mkdir(exist_ok=True)
            for i in range(3):
                picture(colour, shape, 100 * k + i).save(root / shape / f"{colour}{i}.png")
    index = LocalStore.open(
        tmp_path_factory.mktemp("asked") / "ix", IndexDescription("toy", "toy 1", 6)
    )
    update_index(index, read_folders(root), ColourModel())  # type: ignore[arg-type]
    return index


def answer(store: Store, image: ImageInput, **options: object) -> SearchAnswer:
    return ask(SearchRequest((image,), top=6, **options), store, ColourModel())  # type: ignore[arg-type]


@pytest.mark.parametrize("duplicates", ["hide", "show"])
def test_a_file_its_contents_and_its_row(store: Store, duplicates: str) -> None:
    (entry,) = store.entries(torch.tensor([5]))
    path = Path(entry.path)
    asked: list[ImageInput] = [path, path.read_bytes(), 5]
    found = [answer(store, image, near_duplicates=duplicates) for image in asked]
    for each in found:
        assert [(r.row, r.score) for r in each.results] == [
            (r.row, r.score) for r in found[0].results
        ]
        assert (5 in [result.row for result in each.results]) is (duplicates == "show")
        assert [store.entries(torch.tensor([r.row]))[0] for r in each.results] == [
            r.entry for r in each.results
        ]
    assert (
        found[0].why["images"] == found[2].why["images"] == [entry.path]
        and len(found[1].why["images"]) == 1
    )


def test_contents_that_the_index_does_not_know(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "mine.png"
    picture("green", "square", 999).save(outside)
    by_file, by_contents = answer(store, outside), answer(store, outside.read_bytes())
    assert [r.row for r in by_file.results] == [r.row for r in by_contents.results]
    with pytest.raises(ValueError):
        answer(store, b"no image")
    with pytest.raises(ValueError):
        answer(store, 999)


def large_jpeg(path: Path) -> None:
    """Save fine stripes, which a fraction of the size does not show, as a JPEG taken sideways."""
    pixels = np.zeros((640, 1000, 3), np.uint8)
    pixels[..., 0], pixels[:, ::2, 1] = 200, 255
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(path, quality=95, subsampling=0, exif=exif)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_query_is_decoded_as_the_images_of_the_index(tmp_path: Path, scaled: bool) -> None:
    (tmp_path / "data").mkdir()
    large_jpeg(tmp_path / "data" / "a.jpg")
    description = IndexDescription("toy", "toy 1", 6, scaled_decoding=scaled)
    index = LocalStore.open(tmp_path / "ix", description)
    model = ColourModel()
    update_index(index, open_photographs([str(tmp_path / "data")]), model)  # type: ignore[arg-type]
    (entry,) = index.entries(torch.tensor([0]))
    assert (entry.width, entry.height) == (640, 1000)
    transform = model.transform(scaled)
    image = read_image(entry.path, min_side=transform.min_side)
    assert (image.width == 640) is not scaled
    vector = model.embed_images(transform(image)[None])
    assert torch.allclose(index.vectors(torch.tensor([0])), vector, atol=1e-4)
    copy = Path(entry.path).read_bytes() + b"\0"  # the same picture in a file with another digest
    (result,) = answer(index, copy, near_duplicates="show").results
    assert result.score == pytest.approx(1, abs=1e-4)


def test_an_index_of_an_earlier_version_decodes_whole_images() -> None:
    text = '{"model": "toy", "identity": "toy 1", "dim": 6, "dtype": "float32", "words": {}, "format": 1}'
    assert not IndexDescription.from_json(text).scaled_decoding
    assert IndexDescription.create("toy", ColourModel()).scaled_decoding  # type: ignore[arg-type]
