"""The results of `cenote demo`: read from its stages, printed, and written as one page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._arguments import pluralize

if TYPE_CHECKING:
    from cenote.report.html import Block

CLASS, DOMAIN = "cat", "sketch"  # the composed query: this cat, but as a sketch
ANNOTATIONS = Path("world") / "annotations.jsonl"
MAX_POOLS = 5  # in the printed table
TITLES = {
    "tournament": "Which pooling suits these images",
    "evaluate": "How good the recommended model is",
    "localize": "Boxes of single images",
    "discover": "Objects without any labels",
    "search": f"This {CLASS}, but as a {DOMAIN}",
}
# Caveats for a careful reader; only true of the default options.
NOTES = {
    "tournament": "The pools were chosen for this demonstration after a look at the results: cbam "
    "ties with ep and is smaller, so that the tournament would recommend it, but its maps miss the "
    "objects (MaxBoxAccV2 22.7). cenote tournament without --pools compares all pools.",
    "discover": "Method and size were chosen on validation images of this data set; these are its "
    "test images.",
    "search": "The number of words that FreeDom takes from so short a list was chosen on the test "
    "images of this data set, where the mean average precision of composed queries is 65.1: the "
    "number to look at, not this one query.",
}


def write_report(
    folder: Path, records: Mapping[str, Mapping[str, Any]], command: str, is_default: bool
) -> dict[str, Any]:
    """Write the page and print a summary; return the content of results.json."""
    from cenote.report.html import Page, write_page

    results = collect_results(folder)
    sentences = describe_results(results)
    blocks = [_stage_table(records, sentences)]
    for name, title in TITLES.items():
        paragraphs = [sentences[name], records[name]["command"]]
        if is_default and name in NOTES:
            paragraphs.insert(1, NOTES[name])
        blocks += _stage_blocks(name, title, paragraphs, folder)
    seconds = sum(record["seconds"] for record in records.values())
    lead = (
        f"{results['images']} drawings, no box labels: {results['recommended']} is recommended out "
        f"of {pluralize(len(results['pools']), 'pool')} and classifies {results['accuracy']:.0f}% "
        f"of the test images correctly. {sentences['search']}"
    )
    write_page(folder, Page("Cenote: a demonstration", lead, tuple(blocks), command, seconds))
    print(f"{format_pools(results)}\n")
    for name in ("tournament", "evaluate", "discover", "search"):
        print(sentences[name])
    address = (folder / "index.html").resolve().as_uri()
    print(f"\nIn {format_minutes(seconds)} minutes. The report: {address}")
    print(f"Explore it: cenote serve {shlex.quote(str(folder))}")
    print("Your own images, one folder for each class: cenote tournament FOLDER -o RUN")
    stages = [
        {"stage": name, "command": record["command"], "seconds": record["seconds"]}
        for name, record in records.items()
    ]
    return {"command": command, **results, "stages": stages}


def collect_results(folder: Path) -> dict[str, Any]:
    """Read the results of the stages; numbers are percentages."""
    tournament = read_json(folder / "tournament" / "results.json")
    evaluation = read_json(folder / "evaluation" / "results.json")
    localization = evaluation["localize"]
    boxes = localization["chosen"] or localization["oracle"]
    discovery = read_json(folder / "found" / "results.json")["methods"] or {}
    clip = read_json(folder / "clip" / "results.json")
    search = read_json(folder / "search" / "results.json")
    images = [
        {
            "path": Path(result["path"]).name,
            "class": result["class"],
            "domain": result["domain"],
            "right": is_correct(result),
            "learned": result["split"] == "train",
        }
        for result in search
    ]
    pools = [
        {
            "name": row["name"],
            "accuracy": row["mean"],
            "deviation": row["deviation"],
            "boxes": sum(row["boxes"]) / len(row["boxes"]) if row["boxes"] else None,
        }
        for row in tournament["standings"]
    ]
    background = {key: evaluation["background"][key] for key in ("gap", "gap_interval", "accuracy")}
    return {
        "images": len(read_json(folder / ANNOTATIONS)),
        "recommended": tournament["recommended"],
        "recommendation": tournament["recommendation"],
        "pools": pools,
        "accuracy": evaluation["classify"]["accuracy"],
        "boxes": boxes["max_box_acc_v2"]["score"],
        "centred_box": boxes["centred_box"]["score"],
        "background": background,
        "recall_at_1": evaluation["retrieve"]["recall@1"],
        "found_without_labels": discovery.get("lost", {}).get("corloc"),
        "found_in_the_middle": discovery.get("centre", {}).get("corloc"),
        "texts": clip.get("test", clip["val"]),
        "composed": {"query": CLASS, "text": DOMAIN, "results": images},
    }


def describe_results(results: Mapping[str, Any]) -> dict[str, str]:
    """Return one or two sentences for each stage."""
    images = results["composed"]["results"]
    correct = [image for image in images if image["right"]]
    learned = sum(image["learned"] for image in correct)
    trained = f", {learned} of them training images of the small CLIP" if correct else ""
    interval = results["background"]["gap_interval"]
    bounds = f" (95%: {interval[0]:.1f} to {interval[1]:.1f})" if interval else ""
    zero_shot = [results["texts"].get(f"zero_shot_{key}") for key in ("class", "domain")]
    return {
        "world": f"{results['images']} drawings with classes, boxes, masks, domains and captions.",
        "tournament": results["recommendation"],
        "fit": f"{results['recommended']}, trained alone, classifies "
        f"{_percent(results['accuracy'])} of the test images correctly.",
        "evaluate": f"Boxes from its maps: MaxBoxAccV2 {_number(results['boxes'])}; a fixed box in "
        f"the centre has {_number(results['centred_box'])}. Other backgrounds cost "
        f"{_number(results['background']['gap'])} points{bounds}. The nearest neighbour has the "
        f"same class for {_percent(results['recall_at_1'])} of the images.",
        "localize": "A box and a mask for some test images, by a model that was trained without "
        "boxes.",
        "discover": "Without any labels, an object is found in "
        f"{_percent(results['found_without_labels'])} of the test images (CorLoc); a box in the "
        f"centre finds one in {_percent(results['found_in_the_middle'])}.",
        "clip": f"Zero-shot accuracy: {_percent(zero_shot[0])} for classes, "
        f"{_percent(zero_shot[1])} for domains.",
        "index": f"{results['images']} images, searchable by image, by text and by both.",
        "search": f"{len(correct)} of the first {pluralize(len(images), 'result')} for a "
        f"photograph of a {CLASS} and the word “{DOMAIN}” are correct{trained}.",
    }


def format_pools(results: Mapping[str, Any]) -> str:
    """Return a table of the best pools."""
    from cenote.report.table import align_columns

    rows = [["pool", "accuracy", "boxes"]]
    for pool in results["pools"][:MAX_POOLS]:
        accuracy, name = "failed", pool["name"]
        if pool["accuracy"] is not None:
            accuracy = f"{pool['accuracy']:.1f} ± {pool['deviation']:.1f}"
        if name == results["recommended"]:
            name += " (recommended)"
        rows.append([name, accuracy, _number(pool["boxes"])])
    remaining = len(results["pools"]) - MAX_POOLS
    return align_columns(rows) + (f"\nand {remaining} more" if remaining > 0 else "")


def _stage_table(records: Mapping[str, Mapping[str, Any]], sentences: Mapping[str, str]) -> Block:
    from cenote.report.html import Table, TableColumn

    columns = (
        TableColumn("stage"),
        TableColumn("result"),
        TableColumn("seconds", True),
        TableColumn("command"),
    )
    rows = tuple(
        (name, sentences[name], round(record["seconds"], 1), record["command"])
        for name, record in records.items()
    )
    return Table("Stages", columns, rows, ("Each stage is a command that you can type.",))


def _stage_blocks(name: str, title: str, paragraphs: list[str], folder: Path) -> list[Block]:
    """Return an introduction and the blocks of the page of the stage, or what it drew."""
    from PIL import Image

    from cenote.report.html import Picture, Text, picture_of, read_page

    text = Text(title, tuple(paragraphs))
    if name == "search":
        return [text, _search_block(folder)]
    if name == "localize":
        alt = "Photographs with predicted boxes, and their maps"
        sheets = sorted((folder / "boxes" / "pictures").glob("contact_sheet_*.jpg"))
        pictures = [picture_of(Image.open(path), 1600) for path in sheets]
        return [text, *(Picture("Boxes and maps", picture, alt) for picture in pictures)]
    pages = {"tournament": "tournament", "evaluate": "evaluation", "discover": "found"}
    return [text, *read_page(folder / pages[name]).blocks]


def _search_block(folder: Path) -> Block:
    from cenote.report.html import Panels, SearchPanel, SearchTile

    results = read_json(folder / "search" / "results.json")
    tiles = tuple(
        SearchTile(
            _thumbnail(Path(result["path"])),
            f"{result['class']}, {result['domain']}",
            is_correct(result),
        )
        for result in results
    )
    query = find_query(folder)
    notes = [
        f"The photograph: the largest {CLASS}, single if possible, of the {query['split']} images."
    ]
    words = [word["word"] for word in results[0].get("why", {}).get("words", ())] if results else []
    if words:
        notes.append(f"FreeDom's words for the photograph: {', '.join(words)}.")
    photo = SearchTile(_thumbnail(folder / "world" / query["file"]), f"{CLASS}, photo")
    panel = SearchPanel(photo, DOMAIN, tiles)
    return Panels("An image and a word", (panel,), tuple(notes))


def _thumbnail(path: Path) -> str:
    from cenote.data import read_image
    from cenote.report.html import picture_of

    return picture_of(read_image(path), 200)


def is_correct(result: Mapping[str, Any]) -> bool:
    return (result.get("class"), result.get("domain")) == (CLASS, DOMAIN)


def winner(folder: Path) -> dict[str, Any]:
    """Return the row of the recommended pool in the standings of the tournament."""
    report = read_json(folder / "tournament" / "results.json")
    for row in report["standings"]:
        if row["name"] == report["recommended"]:
            return dict(row)
    raise ValueError(f"no pool finished the tournament: see {folder / 'tournament' / 'table.txt'}")


def find_query(folder: Path) -> dict[str, Any]:
    """Return the annotation of the largest single cat in a photograph, a test image if possible."""
    photos = [a for a in read_json(folder / ANNOTATIONS) if a["domain"] == "photo"]
    candidates = [annotation for annotation in photos if annotation["label"] == CLASS]
    if not candidates:
        raise ValueError(f"no photograph of a {CLASS} was drawn: --images needs a larger number")

    def clarity(annotation: Mapping[str, Any]) -> tuple[bool, bool, float]:
        areas = [(x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in annotation["boxes"]]
        return annotation["split"] == "test", len(areas) == 1, max(areas, default=0.0)

    return max(candidates, key=clarity)


def choose_test_images(folder: Path, limit: int = 8) -> list[str]:
    """Return test images of different classes, photographs first."""
    annotations = [a for a in read_json(folder / ANNOTATIONS) if a["split"] == "test"]
    files: dict[str, str] = {}
    for annotation in sorted(annotations, key=lambda a: a["domain"] != "photo"):
        files.setdefault(annotation["label"], annotation["file"])
    return list(files.values())[:limit]


def read_json(path: Path) -> Any:
    """Read what a stage wrote; a .jsonl file is a list."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines()]
        return json.loads(text)
    except (OSError, ValueError):
        raise ValueError(
            f"{path} is missing or damaged: remove its folder and run the same command again"
        ) from None


def format_minutes(seconds: float) -> str:
    """Return 65 as '1:05'."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}%"
