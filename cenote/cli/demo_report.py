"""One page of what all stages of `cenote demo` found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .demo_findings import is_right, sentences
from .demo_stages import QUERY, STYLE, Plan, Stage, query, read_json

if TYPE_CHECKING:
    from cenote.report.html import Block, Page

TITLES = {
    "tournament": "Which pooling suits these images",
    "evaluate": "How good the winner is",
    "localize": "Boxes of single images",
    "discover": "Objects without any labels",
    "search": f"This {QUERY}, but as a {STYLE}",
}

# What a reader must know who would take these results for more than a demonstration. True of the default plan alone.
NOTES = {
    "tournament": "The pools were chosen for this demonstration, after a look at the outcome: with cbam, which cannot "
    "be told from ep here and is smaller, the tournament recommends cbam, whose maps miss the objects (MaxBoxAccV2 "
    "22.7). cenote tournament without --pools plays all pools.",
    "discover": "Method and size were chosen on validation images of this world; these are its test images.",
    "search": "How many words FreeDom takes of so short a list was chosen on the test images of this world, where the "
    "mean average precision of composed queries is 65.1: the figure to look at, not this one query.",
}


def write_demo(
    plan: Plan,
    stages: Sequence[Stage],
    records: Mapping[str, Mapping[str, Any]],
    found: dict[str, Any],
    command: str,
) -> None:
    """index.html and page.json in the demo's folder."""
    from cenote.report.html import write_page

    write_page(plan.folder, demo_page(plan, stages, records, found, command))


def demo_page(
    plan: Plan,
    stages: Sequence[Stage],
    records: Mapping[str, Mapping[str, Any]],
    found: dict[str, Any],
    command: str,
) -> Page:
    from cenote.report.html import Page, Text

    told = sentences(found)
    blocks: list[Block] = [_steps(stages, records, told)]
    for stage in (one for one in stages if one.name in TITLES):
        notes = [NOTES[stage.name]] if stage.name in NOTES and plan.is_default() else []
        notes += [asked(query(plan))] if stage.name == "search" else []
        blocks.append(
            Text(TITLES[stage.name], (told[stage.name], *notes, records[stage.name]["command"]))
        )
        blocks += _shown(stage, plan)
    right = [one for one in found["composed"]["results"] if one["right"]]
    learned = (
        f", {sum(one['learned'] for one in right)} of them known from training" if right else ""
    )
    lead = (
        f"{plan.images} drawings, no box labels: {found['recommended']} is taken of {len(plan.pools)} pools "
        f"and tells {found['accuracy']:.0f}% of the test images right; of the {len(found['composed']['results'])} "
        f"images found for a photograph of a {QUERY} and the word “{STYLE}”, {len(right)} are right{learned}."
    )
    seconds = sum(record["seconds"] for record in records.values())
    return Page("Cenote: a demonstration", lead, tuple(blocks), command, seconds)


def asked(truth: Mapping[str, Any]) -> str:
    """How the photograph of the composed query was chosen."""
    split = {"train": "training", "val": "validation"}.get(truth["split"], truth["split"])
    shown = f"a single {QUERY}" if len(truth["boxes"]) == 1 else f"one of several {QUERY}s"
    return f"The photograph is the {split} image that shows {shown} largest."


def _steps(
    stages: Sequence[Stage], records: Mapping[str, Mapping[str, Any]], told: Mapping[str, str]
) -> Block:
    from cenote.report.html import Table, TableColumn

    heads = (
        TableColumn("stage"),
        TableColumn("what it found"),
        TableColumn("seconds", True),
        TableColumn("command"),
    )
    rows = tuple(
        (
            one.name,
            told[one.name],
            round(records[one.name]["seconds"], 1),
            records[one.name]["command"],
        )
        for one in stages
    )
    note = "Each of them is a command that you can type."
    return Table("What was done", heads, rows, (note,))


def _shown(stage: Stage, plan: Plan) -> tuple[Block, ...]:
    """The blocks of a stage's own page, or what it drew."""
    from cenote.report.html import read_page

    if stage.name == "localize":
        return _sheets(plan)
    if stage.name == "search":
        return (_composed(plan),)
    return read_page(plan.folder / stage.folder).blocks


def _sheets(plan: Plan) -> tuple[Block, ...]:
    from PIL import Image

    from cenote.report.html import Picture, picture_of

    found = []
    for path in sorted((plan.folder / "boxes" / "pictures").glob("contact_sheet_*.jpg")):
        with Image.open(path) as sheet:
            picture = picture_of(sheet, 1600)
        found.append(
            Picture(
                "Boxes and maps",
                picture,
                "Photographs with the boxes that were found, and their maps",
            )
        )
    return tuple(found)


def _composed(plan: Plan) -> Block:
    from cenote.report.html import Panels, SearchPanel, SearchTile

    answers = read_json(plan.folder / "search" / "results.json")
    cells = tuple(
        SearchTile(_picture(one["path"]), f"{one['class']}, {one['domain']}", is_right(one))
        for one in answers
    )
    asked = SearchTile(_picture(plan.folder / "world" / query(plan)["file"]), f"{QUERY}, photo")
    words = (
        ", ".join(one["word"] for one in answers[0].get("why", {}).get("words", ()))
        if answers
        else ""
    )
    notes = (f"FreeDom's words for the photograph: {words}.",) if words else ()
    return Panels("An image and a word", (SearchPanel(asked, STYLE, cells),), notes)


def _picture(path: str | Path) -> str:
    from cenote.data import BadImage, read_image
    from cenote.report.html import picture_of

    try:
        return picture_of(read_image(path), 200)
    except BadImage:
        return ""
