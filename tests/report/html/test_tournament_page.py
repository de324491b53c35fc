"""The page of a tournament says what its report says: standings, the plot, maps, boxes; also of a few and of none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote.data import BadImage
from cenote.report.blocks import Bars, Maps, Page, Scatter, Table
from cenote.report.html import read_page, render, write_page
from cenote.report.tournament import MAX_MAPS, TournamentReport, tournament_page
from tests.report.html.pages import HOSTILE, Parsed
from tests.report.test_tournament import Grey, failed, photos, report

__all__ = ["photos"]  # a fixture


def maps_of(found: TournamentReport) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {row.name: ("pool", draw.random((3, 7, 7))) for row in found.standings}


def blocks(page: Page) -> dict[type, Any]:
    return {type(block): block for block in page.blocks}


def test_it_says_what_the_report_says(photos: Any) -> None:
    found = report(9)
    found.recommended = found.standings[1].name
    page = tournament_page(found, photos, maps_of(found), "cenote tournament birds", 60.0)
    kinds = blocks(page)
    assert [type(block) for block in page.blocks] == [Maps, Table, Scatter, Maps, Bars]
    assert page.command == "cenote tournament birds"
    table, heads = kinds[Table], [head.name for head in kinds[Table].columns]
    assert table.highlighted == (1,) and len(table.rows) == 9
    for place, (row, cells) in enumerate(zip(found.standings, table.rows, strict=True), 1):
        told = dict(zip(heads, cells, strict=True))
        assert (told["#"], told["candidate"], told["group"]) == (str(place), row.name, row.group)
        assert (
            told["accuracy"] == f"{row.mean:.1f} ± 1.4"
            and told["boxes"] == "41.0"
            and told["ms"] == "0.500"
        )
    points = {point.name: point for point in kinds[Scatter].points}
    assert all(
        points[r.name].x == r.trained and points[r.name].y == r.mean for r in found.standings
    )
    assert {name for name, point in points.items() if point.best} == set(found.groups.values())
    assert kinds[Bars].baseline.value == 41.25 and "Take it." in page.lead


def test_it_opens_with_maps_of_the_recommended_one(photos: Any) -> None:
    found = report(4)
    found.recommended = found.standings[2].name
    maps = maps_of(found)
    leading = tournament_page(found, photos, maps).blocks[0]
    assert isinstance(leading, Maps) and found.recommended in leading.title
    assert all(
        [tile.name for tile in photo.maps] == [found.recommended] for photo in leading.photos
    )
    del maps[found.recommended]
    assert isinstance(tournament_page(found, photos, maps).blocks[0], Table)


def test_maps_stand_in_the_order_of_the_standings(photos: Any) -> None:
    found = report(4)
    maps = maps_of(found)
    del maps[found.standings[2].name]
    shown = blocks(tournament_page(found, photos, maps))[Maps]
    assert len(shown.photos) == 3 and [photo.caption for photo in shown.photos] == ["a", "b", "a"]
    for i, photo in enumerate(shown.photos):
        assert [one.name for one in photo.maps] == [row.name for row in found.standings]
        assert photo.maps[2].values == () and photo.maps[2].note
        values, given = np.array(photo.maps[0].values), maps[photo.maps[0].name][1][i]
        assert values.argmin() == given.argmin() and values.max() == 1 and values.min() == 0


def test_many_contenders(photos: Any) -> None:
    found = report(33)
    page = tournament_page(found, photos, maps_of(found))
    names = [one.name for one in blocks(page)[Maps].photos[0].maps]
    assert len(names) == MAX_MAPS and {
        row.name for row in found.standings if row.group_winner
    } <= set(names)
    assert any("21" in note for note in blocks(page)[Maps].notes)
    assert len(render(page)) < 1_000_000


def test_failed_ones_and_none_at_all(photos: Any) -> None:
    found = report(3)
    found.standings[2] = failed(found.standings[2])
    page = tournament_page(found, photos, maps_of(found))
    assert len(blocks(page)[Scatter].points) == 2 and len(blocks(page)[Bars].bars) == 2
    assert any("the loss is nan" in note for note in blocks(page)[Table].notes)
    nobody = replace(found, standings=[failed(row) for row in found.standings], groups={})
    assert list(blocks(tournament_page(nobody, photos, {}))) == [Table]


def test_without_boxes_and_over_gamma(photos: Any) -> None:
    found = report(4, kind="gamma", box_images=0, centred_box=None)
    for row, gamma in zip(found.standings, (2.0, 1.25, 1.0), strict=False):
        row.options = {"gamma": gamma}
    for row in found.standings:
        row.boxes = []
    kinds = blocks(tournament_page(found, photos, maps_of(found)))
    assert Bars not in kinds and "boxes" not in [head.name for head in kinds[Table].columns]
    assert not kinds[Scatter].log_x and [point.x for point in kinds[Scatter].points] == [
        2.0,
        1.25,
        1.0,
        None,
    ]


def test_a_photograph_that_is_gone(photos: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Grey.image

    def image(self: Grey, row: int) -> Any:
        if row == 1:
            raise BadImage("1.png", "gone")
        return plain(self, row)

    monkeypatch.setattr(Grey, "image", image)
    found = report(3)
    assert len(blocks(tournament_page(found, photos, maps_of(found)))[Maps].photos) == 2


def test_hostile_names(photos: Any, tmp_path: Path) -> None:
    found = report(3, data=HOSTILE, recommendation=HOSTILE)
    found.standings[0].name = HOSTILE
    page = replace(tournament_page(found, photos, maps_of(found)), made_with={})
    write_page(tmp_path, page)
    assert read_page(tmp_path) == page
    parsed = Parsed((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert (
        len(parsed.all("script")) == 1
        and not parsed.unbalanced
        and HOSTILE in parsed.text("script", "style")
    )
