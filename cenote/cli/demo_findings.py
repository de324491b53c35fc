"""What the stages of `cenote demo` found, in numbers and in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ._arguments import pluralize
from .demo_stages import FINDER, QUERY, STYLE, Plan, read_json


def findings(plan: Plan) -> dict[str, Any]:
    """From the results of the stages; percent where nothing else is said."""
    played = read_json(plan.folder / "tournament" / "results.json")
    judged = read_json(plan.folder / "evaluation" / "results.json")
    located, found = judged["localize"], read_json(plan.folder / "found" / "results.json")
    maps = located["chosen"] or located["oracle"]
    methods = found["methods"] or {FINDER: {"corloc": None}, "centre": {"corloc": None}}
    answers = read_json(plan.folder / "search" / "results.json")
    texts = read_json(plan.folder / "clip" / "results.json")
    return {
        "images": plan.images,
        "recommended": played["recommended"],
        "recommendation": played["recommendation"],
        "pools": [
            {"name": row["name"], "accuracy": row["mean"], "deviation": row["deviation"], "boxes": _mean(row["boxes"])}
            for row in played["standings"]
        ],
        "accuracy": judged["classify"]["accuracy"],
        "boxes": maps["max_box_acc_v2"]["score"],
        "centred_box": maps["centred_box"]["score"],
        "background": {key: judged["background"][key] for key in ("gap", "gap_interval", "accuracy")},
        "recall_at_1": judged["retrieve"]["recall@1"],
        "found_without_labels": methods[FINDER]["corloc"],
        "found_in_the_middle": methods["centre"]["corloc"],
        "texts": texts.get("test", texts["val"]),
        "composed": {
            "query": QUERY,
            "text": STYLE,
            "results": [{"path": Path(one["path"]).name, "class": one["class"], "domain": one["domain"],
                         "right": is_right(one), "learned": one["split"] == "train"} for one in answers],
        },
    }  # fmt: skip


def is_right(result: dict[str, Any]) -> bool:
    return (result.get("class"), result.get("domain")) == (QUERY, STYLE)


def sentences(found: dict[str, Any]) -> dict[str, str]:
    """What each stage found."""
    answers = found["composed"]["results"]
    right = [one for one in answers if one["right"]]
    learned = (
        f"; the small CLIP had learned {sum(one['learned'] for one in right)} of these {len(right)}, as it had most "
        "images of the index"
    )
    gap, interval = found["background"]["gap"], found["background"]["gap_interval"]
    bounds = f" (95%: {interval[0]:.1f} to {interval[1]:.1f})" if interval else ""
    return {
        "world": f"{found['images']} drawings with their classes, boxes, masks, domains and captions.",
        "tournament": found["recommendation"],
        "fit": f"{found['recommended']}, trained alone, tells {_percent(found['accuracy'])} of the test images right.",
        "evaluate": (
            f"Boxes from its maps: MaxBoxAccV2 {_number(found['boxes'])}, where a fixed box in the middle has "
            f"{_number(found['centred_box'])}. Foreign backgrounds cost {_number(gap)} points{bounds}. The nearest "
            f"other image is of the same class for {_percent(found['recall_at_1'])}."
        ),
        "localize": "A box and a mask for each of some test images, from a model that saw no box.",
        "discover": (
            f"Without any label, an object is found in {_percent(found['found_without_labels'])} of the test images "
            f"(CorLoc); a box in the middle finds one in {_percent(found['found_in_the_middle'])}."
        ),
        "clip": (
            f"By their names alone it tells {_percent(found['texts'].get('zero_shot_class'))} of the classes and "
            f"{_percent(found['texts'].get('zero_shot_domain'))} of the domains."
        ),
        "index": f"{found['images']} images that answer to images, to texts and to both.",
        "search": (
            f"{len(right)} of the first {pluralize(len(answers), 'image')} are {QUERY}s in {STYLE}es"
            f"{learned if right else ''}."
        ),
    }


def table(found: dict[str, Any], most: int = 5) -> str:
    """The best pools, best first."""
    rows = [["pool", "accuracy", "boxes"]]
    for row in found["pools"][:most]:
        score = (
            "failed"
            if row["accuracy"] is None
            else f"{row['accuracy']:.1f} ± {row['deviation']:.1f}"
        )
        taken = row["name"] + (" (taken)" if row["name"] == found["recommended"] else "")
        rows.append([taken, score, _number(row["boxes"])])
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}" for a, b, c in rows
    ]
    more = len(found["pools"]) - most
    return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}%"
