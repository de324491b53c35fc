"""Pictures of retrieval: right ones are framed green, wrong ones red; the table tells every score."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import Dataset, Record, pack
from cenote.evaluate.retrieve import LandmarkReport, RetrievalReport
from cenote.report.retrieval import FRAME, RIGHT, SIDE, WRONG, Neighbour, QueryCase, retrieval_page

SCORES = {"recall@1": 50.0, "recall@2": 75.0, "p@1": 50.0, "r_precision": 40.25, "map@r": 30.5}


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    for name, size in (("a", (200, 100)), ("b", (100, 200)), ("c", (90, 90))):
        Image.new("RGB", size, (90, 90, 200)).save(tmp_path / f"{name}.png")
    return pack(
        [Record(f"{name}.png", name) for name in ("a", "b", "c", "gone")], tmp_path, "blues"
    )


def case(group: str, position: int, *near: tuple[int, bool]) -> QueryCase:
    neighbours = [Neighbour(i, f"{i}.png", "b", right) for i, right in near]
    return QueryCase(group, position, "x/a.png", "a", 0.5, 3, neighbours)


def area(page: Image.Image, colour: tuple[int, int, int]) -> int:
    return int((np.asarray(page) == colour).all(2).sum())


def rim(width: int, height: int) -> int:
    """Pixels of a frame around the fitted picture."""
    return (width + 2 * FRAME) * (height + 2 * FRAME) - width * height


def test_frames(data: Dataset) -> None:
    inside = SIDE - 2 * FRAME
    page = retrieval_page([case("best", 0, (1, True), (2, False))], data, data, "blues")
    assert page is not None
    assert area(page, RIGHT) == rim(inside // 2, inside) and area(page, WRONG) == rim(
        inside, inside
    )
    both = retrieval_page(
        [case("best", 0, (1, True)), case("worst", 2, (0, False))], data, data, "blues"
    )
    assert (
        both is not None
        and both.height > 1.9 * SIDE
        and area(both, WRONG) == rim(inside, inside // 2)
    )


def test_an_image_that_is_gone(data: Dataset) -> None:
    page = retrieval_page([case("best", 0, (3, True), (1, True))], data, data, "blues")
    assert page is not None and area(page, RIGHT) == rim((SIDE - 2 * FRAME) // 2, SIDE - 2 * FRAME)
    assert retrieval_page([case("best", 3, (1, True))], data, data, "blues") is None
    assert retrieval_page([], data, data, "blues") is None


def test_the_table() -> None:
    report = RetrievalReport(
        scores=SCORES,
        queries=8,
        without_match=2,
        without_match_are="exclude",
        images=10,
        gallery=None,
        classes=3,
        no_class=1,
        alignment=0.28,
        uniformity=-2.71,
        unreadable=["x.png: damaged"],
        cases=[],
    )
    lines = report.table("test").splitlines()
    assert lines[0].split() == ["R@1", "R@2", "P@1", "RP", "MAP@R"]
    assert lines[1].split() == ["50.00", "75.00", "50.00", "40.25", "30.50"]
    assert re.findall(r"-?\d[\d.]*|test", lines[2]) == ["8", "test", "3"]
    assert re.findall(r"-?\d[\d.]*", lines[3]) == ["2"]
    assert re.findall(r"-?\d[\d.]*", lines[4]) == ["0.280", "-2.710"]
    assert "1 image " in lines[5] and "x.png: damaged" in lines[6] and len(lines) == 7
    shop = replace(
        report, gallery=12, without_match_are="miss", alignment=None, no_class=0, unreadable=[]
    )
    lines = shop.table("query").splitlines()
    assert re.findall(r"-?\d[\d.]*|query", lines[2])[-1] == "12"
    assert len(lines) == 4 and "2 queries" in lines[3]


def test_the_table_of_landmarks() -> None:
    score = {"map": 61.25, "queries": 70, "mp@1": 80.0, "mp@5": 70.0, "mp@10": 60.0}
    report = LandmarkReport({"easy": score, "medium": score, "hard": score}, 4993, [])
    lines = report.table("test").splitlines()
    assert lines[0].split() == ["mAP", "mP@1", "mP@5", "mP@10", "queries"]
    assert lines[3].split() == ["hard", "61.25", "80.00", "70.00", "60.00", "70"]
    assert len(lines) == 5 and "4993" in lines[4]
