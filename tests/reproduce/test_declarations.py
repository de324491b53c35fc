"""The declared tables are complete and consistent, and their command lines are accepted."""

import shlex

import pytest

from cenote.backbones import create_backbone
from cenote.options import suggest
from cenote.reproduce import PAPERS, find_item, load_paper, make_cells
from cenote.reproduce.papers import PLACEHOLDER, Item, by_placeholder, list_items
from cenote.train.configure import configure, parse_pairs
from cenote.train.recipes import load_recipe
from cenote.train.tournament.candidates import ablation_candidates
from tests.docs.running import parse_ours

MADE = [pytest.param(item, id=item.names[0]) for item in list_items() if item.commands]


def test_every_name_is_declared_once() -> None:
    names = [name for item in list_items() for name in item.names]
    assert len(set(names)) == len(names)
    assert [load_paper(name).name for name in PAPERS] == list(PAPERS)


@pytest.mark.parametrize("item", [i for i in list_items() if i.same_as], ids=lambda i: i.name)
def test_an_equal_item_exists(item: Item) -> None:
    assert find_item(item.names[0]).names[0] == item.same_as or item.same_as in (
        find_item(item.same_as).names
    )


@pytest.mark.parametrize("item", MADE)
def test_a_table_is_consistent(item: Item) -> None:
    assert set(item.scales) == {"tiny", "small", "paper"}
    assert set(item.values) <= set(item.rows)
    assert all(len(values) == len(item.columns) for values in item.values.values())
    assert not set(item.quoted) & set(item.rows)
    assert all(len(values) == len(item.columns) for values in item.quoted.values())
    known = {"title", "seed", "data", *item.inputs, *item.commands}
    for scale in item.scales.values():  # a row without those of a scale is not made at it
        known |= set(by_placeholder(scale, "scale"))
    texts = [*item.commands.values(), item.score]
    arguments = [item.arguments(*cell, scale) for cell in item.cells for scale in item.scales]
    for column in item.columns.values():
        assert column.data in item.inputs
        assert (column.score or item.score).split("/")[0] in item.commands
        texts += [column.score]
    for values in arguments:
        assert set(PLACEHOLDER.findall(" ".join(texts))) <= known | set(values)
        assert set(PLACEHOLDER.findall(" ".join(values.values()))) <= known
    for claim in item.claims:
        assert item.matching(claim.higher) and item.matching(claim.lower), claim.says
    names = {f"{row} | {column}" for row in item.rows for column in item.columns}
    assert set(item.absent) <= names and len(item.cells) == len(names) - len(item.absent)


@pytest.mark.parametrize("item", MADE)
@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
def test_the_commands_of_a_table_are_accepted(item: Item, scale: str, tmp_path) -> None:
    """Of the first row and of the first column."""
    inputs = {key: "world/tiny" for key in item.inputs}
    cells = make_cells(item, scale, inputs, 1, tmp_path)
    first = cells[0]
    lines = {
        job.folder: list(job.words)
        for cell in cells
        if first.row == cell.row or first.column == cell.column
        for job in cell.jobs.values()
    }
    for folder, words in lines.items():
        parse_ours([*words, "-o", str(folder)])


def test_the_rows_of_simpools_ablation_are_those_of_a_tournament() -> None:
    item = find_item("simpool/table-10")
    rows = {
        candidate.name: candidate for candidate in ablation_candidates(create_backbone("lite0"))
    }
    assert list(rows) == list(item.rows)
    for name, arguments in item.rows.items():
        words = shlex.split(arguments)
        options = parse_pairs(word for word in words if "=" in word)
        candidate = rows[name]
        assert words[1] == candidate.pool and item.value(name, "accuracy") == candidate.paper
        assert ("concat" in words) == (candidate.combine == "concat")
        if candidate.pool == "simpool":
            options.setdefault("gamma", 2.0)  # as models do for convolutional networks
        assert options == candidate.options


def test_a_typo_is_answered_with_a_name() -> None:
    with pytest.raises(ValueError, match="did you mean 'simpool/table-10'"):
        find_item("simpol/table-10")
    assert suggest("simpol/table-10", ["simpool/table-10"])


def test_a_pyramid_does_not_keep_the_dilation_of_a_recipe() -> None:
    recipe = load_recipe("localization/cub-gap")
    assert configure("fit", recipe).model.no_dilation
    assert not configure("fit", recipe, stride=1, fpn="P2").model.no_dilation
