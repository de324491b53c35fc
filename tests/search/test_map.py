"""The map of an index: which points are inside a polygon, and searches inside one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cenote.data import read_folders
from cenote.search.index import update_index
from cenote.search.local_store import LocalStore
from cenote.search.map import draw_map, points_inside
from cenote.search.query import Searcher, SearchRequest, ask
from cenote.search.store import Filter, IndexDescription
from tests.toy_models import COLOURS, ColourModel, picture


def orientation(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> int:
    """1 if a, b, c turn left, -1 if they turn right, 0 on a line."""
    return int(np.sign((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])))


def inside_or_on_edge(point: tuple[int, int], polygon: list[tuple[int, int]]) -> bool:
    """Count the edges that a long line crosses, in integers; its slope misses every corner."""
    end, crossed = (point[0] + 1000 * 1009, point[1] + 1000), 0
    for a, b in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        is_between = all(min(p, q) <= x <= max(p, q) for p, q, x in zip(a, b, point, strict=True))
        if orientation(a, b, point) == 0 and is_between:
            return True
        crossed += (
            orientation(point, end, a) != orientation(point, end, b)
            and orientation(a, b, point) != orientation(a, b, end)
        )  # fmt: skip
    return crossed % 2 == 1


def test_points_inside_a_polygon() -> None:
    """Polygons with crossing and repeated edges, and points on edges and corners among others."""
    rng = np.random.default_rng(0)
    points = [(x, y) for x in range(-1, 18) for y in range(-1, 18)]
    for corners in (3, 4, 5, 8, 20) * 4:
        polygon = [(2 * int(x), 2 * int(y)) for x, y in rng.integers(0, 9, (corners, 2))]
        expected = [inside_or_on_edge(point, polygon) for point in points]
        inside = points_inside(np.array(points) / 16, np.array(polygon) / 16)
        assert inside.tolist() == expected
    star = np.array([(0.5, 0), (0.8, 1), (0, 0.4), (1, 0.4), (0.2, 1)])
    middle_and_tip = np.array([(0.5, 0.55), (0.5, 0.1)])
    assert points_inside(middle_and_tip, star).tolist() == [False, True]


def test_the_map_s_border_is_inside_its_square() -> None:
    square = np.array([(0, 0), (1, 0), (1, 1), (0, 1)], np.float64)
    assert points_inside(np.array([(0, 0), (1, 1), (1, 0.3), (0.2, 1)]), square).all()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    index = LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy 1", 6))
    add_images(index, tmp_path / "photos", 4)
    return index


def add_images(index: LocalStore, folder: Path, count: int) -> None:
    for colour in COLOURS:
        for i in range(count):
            path = folder / "square" / f"{colour}{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture(colour, "square", i).save(path)
    update_index(index, read_folders(folder), ColourModel(), source=str(folder))


def test_a_search_inside_a_region(store: LocalStore) -> None:
    index_map = draw_map(store)
    region = ((0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0))
    x = index_map.points[:, 0]
    inside = tuple(
        image.row for image, value in zip(index_map.sample, x, strict=True) if value <= 0.5
    )
    request = SearchRequest(texts=("red",), top=50, near_duplicates="show", region=region)
    searcher = Searcher(store, load=ColourModel)
    among = ask(replace(request, region=(), filter=Filter(rows=inside)), store, ColourModel())
    assert 0 < among.searched == len(inside) < len(store)
    assert ask(request, store, ColourModel()) == searcher.ask(request) == among
    outside = next(row for row in store.rows.tolist() if row not in inside)
    for rows, searched in (((inside[0], outside), 1), ((outside,), 0)):
        assert searcher.ask(replace(request, filter=Filter(rows=rows))).searched == searched
    (corner,) = (tuple(point) for point in index_map.points[:1].tolist())
    assert searcher.ask(replace(request, region=(corner,) * 3)).searched >= 1
    with pytest.raises(ValueError, match="choose a larger one"):
        searcher.ask(replace(request, region=((0.0, 0.0),) * 3))


def test_the_map_is_drawn_again_after_a_change(store: LocalStore, tmp_path: Path) -> None:
    searcher = Searcher(store, load=ColourModel)
    first = searcher.map
    assert searcher.map is first
    add_images(store, tmp_path / "photos", 5)
    store.refresh()
    assert len(searcher.map.sample) == len(store) > len(first.sample)


def test_wrong_regions(store: LocalStore, tmp_path: Path) -> None:
    for region, message in (
        (((0.0, 0.0), (1.0, 1.0)), "got 2"),
        (((0.0, 0.0), (1.0, 1.0), (1.5, 0.0)), r"got 1\.5,0\.0"),
        (((0.0, 0.0), (1.0, 1.0), (float("nan"), 0.0)), "got nan"),
    ):
        with pytest.raises(ValueError, match=message):
            SearchRequest(texts=("red",), region=region)
    empty = LocalStore.open(tmp_path / "empty", IndexDescription("toy", "toy 1", 6))
    with pytest.raises(ValueError, match="has no map"):
        draw_map(empty)
