"""A tournament on paper: the table says what the report says, names of the plot never touch, a column for each."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cenote.data import Record, pack
from cenote.pooling import list_pools
from cenote.report.plots import draw_scatter, place_label
from cenote.report.tournament import (
    TILE,
    CandidateResult,
    TournamentReport,
    accuracy_plot,
    draw_pictures,
    tournament_columns,
    tournament_table,
    write_tournament,
)


class Grey:
    def image(self, row: int) -> Image.Image:
        return Image.new("RGB", (64, 48), (90 + row, 120, 130))

    def mask(self, row: int) -> None:
        return None


@pytest.fixture
def photos() -> Any:
    dataset = pack([Record(f"{i}.png", "ab"[i % 2]) for i in range(3)], Path("grey"), "grey")
    dataset.pixels = Grey()
    return dataset


def report(count: int = 33, kind: str = "pools", **changes: Any) -> TournamentReport:
    """Many candidates close together, as real ones are."""
    means = np.sort(np.random.default_rng(0).normal(70, 1.2, count))[::-1]
    results = [
        CandidateResult(
            name=name,
            pool=name,
            group=f"g{i % 5}",
            lr=1e-3,
            accuracy=[mean - 1, mean + 1],
            val=[1.0, 1.0],
            boxes=[40.0, 42.0],
            map="pool",
            map_size=448,
            behind=float(means[0]) - mean,
            margin=1.5,
            tie=i < 3,
            group_winner=i < 5,
            parameters=10 ** (i % 4),
            trained=5000 + 10 ** (i % 7),
            flops=3_000_000,
            ms=0.5,
            backbone_ms=9.0,
        )
        for i, (name, mean) in enumerate(zip(list_pools()[:count], means.tolist(), strict=True))
    ]
    values: dict[str, Any] = {
        "data": "birds",
        "backbone": "lite0",
        "kind": kind,
        "classes": 5,
        "judged": "test",
        "images": 100,
        "train_images": 800,
        "box_images": 100,
        "map_images": 50,
        "centred_box": 41.25,
        "dim": 8,
        "grid": [7, 7],
        "seeds": 2,
        "rates": [1e-3],
        "recommendation": "Take it.",
        "recommended": None,
        "groups": {f"g{i}": result.name for i, result in enumerate(results[:5])},
        "standings": results,
        "seconds": {},
        "settings": {},
    }
    return TournamentReport(**{**values, **changes})


def failed(result: CandidateResult) -> CandidateResult:
    cost = {"parameters": result.parameters, "trained": result.trained, "flops": result.flops}
    reason = "the loss is nan"
    return CandidateResult(result.name, result.pool, group=result.group, failed=reason, **cost)


def test_the_table(tmp_path: Path) -> None:
    found = report(6)
    found.standings[-1] = failed(found.standings[-1])
    text, marked = tournament_table(found), tournament_table(found, "markdown")
    for result in found.standings[:-1]:
        line = next(line for line in text.splitlines() if f" {result.name} " in line)
        for cell in (f"{result.mean:.1f} ± 1.4", "41.0", "3.00", "0.500"):
            assert cell in line
        assert ("=" in line) == result.tie and ("*" in line) == result.group_winner
    (line,) = (line for line in text.splitlines() if "the loss is nan" in line)
    assert list_pools()[5] in line
    assert text.endswith("Take it.") and "**Take it.**" in marked
    rows = [line for line in marked.splitlines() if line.startswith("|")]
    assert len(rows) == 8 and len({line.replace("\\|", "").count("|") for line in rows}) == 1
    assert tournament_table(replace(found, judged="val")) != text, "it names the split"


def test_a_column_without_values_is_left_out() -> None:
    found = report(3)
    names = [column.name for column in tournament_columns(found)]
    assert "ms" in names and "paper" not in names
    for result in found.standings:
        result.ms, result.paper = None, 57.1
    names = [column.name for column in tournament_columns(found)]
    assert "ms" not in names and "paper" in names


def annotations(figure: Any) -> list[Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Annotation

    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    return [
        (
            child.get_text(),
            child.get_tightbbox(renderer) if not child.arrowprops else _text_box(child, renderer),
        )
        for child in figure.axes[0].get_children()
        if isinstance(child, Annotation)
    ]


def _text_box(annotation: Any, renderer: Any) -> Any:
    from matplotlib.text import Text

    annotation.update_positions(renderer)
    return Text.get_window_extent(annotation, renderer)


@pytest.mark.parametrize("count", [2, 12, 33])
def test_no_two_names_of_the_plot_overlap(count: int) -> None:
    figure = draw_scatter(accuracy_plot(report(count)))
    boxes = annotations(figure)
    assert [name for name, _ in boxes] and len(boxes) == count
    for i, (one, a) in enumerate(boxes):
        for other, b in boxes[i + 1 :]:
            assert not a.overlaps(b), (one, other)
    frame = figure.axes[0].get_window_extent()
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 + 1 for _, box in boxes)
    assert figure.axes[0].get_xscale() == "log"


def test_the_gamma_plot_is_over_gamma() -> None:
    found = report(4, kind="gamma")
    for row, gamma in zip(found.standings, (2.0, 1.25, 1.0), strict=False):
        row.options = {"gamma": gamma}
    axes = draw_scatter(accuracy_plot(found)).axes[0]
    assert "γ" in axes.get_xlabel() and axes.get_xscale() == "linear"
    assert axes.get_xlim()[0] < 1 < 2 < axes.get_xlim()[1]


def test_a_label_goes_where_there_is_room() -> None:
    inside = (0.0, 0.0, 200.0, 100.0)
    right = place_label((50, 50), (30, 10), [], [], inside)
    assert right == (57, 45, 87, 55)
    other = place_label((50, 50), (30, 10), [right], [], inside)
    assert other[2] <= right[0]  # the left is next
    edge = place_label((195, 50), (30, 10), [], [], inside)
    assert edge[2] <= 195


def test_the_pictures_have_a_strip_for_each(photos: Any) -> None:
    found = report(14)
    maps = {
        row.name: ("pool", np.random.default_rng(0).random((3, 7, 7)))
        for row in found.standings[1:]
    }
    maps[found.standings[2].name] = ("cam", np.full((3, 7, 7), -1.0))
    page = draw_pictures(found, photos, maps)
    assert page is not None
    assert page.width > 6 * TILE and page.height > 8 * TILE  # photographs and 14, in two columns
    assert draw_pictures(found, photos, {}) is None


def test_all_is_written(tmp_path: Path, photos: Any) -> None:
    found = report(3)
    maps = {row.name: ("pool", np.ones((3, 7, 7))) for row in found.standings}
    written = write_tournament(found, tmp_path, photos, maps)
    assert sorted(written) == sorted(path.name for path in tmp_path.iterdir())
    assert sorted(written) == ["pictures.jpg", "plot.png", "plot.svg", "table.md", "table.txt"]
    nobody = replace(found, standings=[failed(row) for row in found.standings], groups={})
    assert write_tournament(nobody, tmp_path / "none", photos, {}) == ["table.txt", "table.md"]


def test_the_axis_of_accuracies_ends_at_100() -> None:
    found = report(3)
    found.standings[0].accuracy = [99.0, 100.0]
    figure = draw_scatter(accuracy_plot(found))
    assert figure.axes[0].get_ylim()[1] <= 100
