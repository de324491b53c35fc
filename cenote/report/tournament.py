"""A tournament's report as tables, a plot and pictures in one folder. The report is the content of results.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..data import Dataset, write_atomically
from .tournament_pictures import Seen, picture_page
from .tournament_plot import draw_plot

Report = Mapping[str, Any]
MAPS = {"pool": "own", "cam": "CAM", "cls": "CLS", None: ""}


def write_tournament(
    report: Report, folder: Path, photos: Dataset, maps: Mapping[str, Seen]
) -> list[str]:
    """table.txt, table.md, plot.png, plot.svg and pictures.jpg; the names of those that were written."""
    text = {"table.txt": table(report), "table.md": table(report, "markdown")}
    for name, content in text.items():
        with write_atomically(folder / name) as temporary:
            temporary.write_text(content + "\n", encoding="utf-8")
    written = list(text)
    if any(row["accuracy"] for row in report["standings"]):
        figure = draw_plot(report)
        for name in ("plot.png", "plot.svg"):
            with write_atomically(folder / name) as temporary:
                figure.savefig(temporary, dpi=150)
            written.append(name)
    page = picture_page(report, photos, maps)
    if page is not None:
        with write_atomically(folder / "pictures.jpg") as temporary:
            page.save(temporary, quality=90, subsampling=0)
        written.append("pictures.jpg")
    return written


def table(report: Report, style: str = "text") -> str:
    """The standings, the best first, what the marks mean, and the recommendation."""
    rows = [["", "", *_heads(report)]]
    for place, row in enumerate(report["standings"], 1):
        marks = ("=" if row["tie"] else "") + ("*" if row["group_winner"] else "")
        rows.append([str(place) if row["mean"] is not None else "-", marks, *_cells(row, report)])
    failed = [
        f"{row['name']} stopped: {row['failed']}" for row in report["standings"] if row["failed"]
    ]
    winners = ", ".join(f"{group}: {name}" for group, name in report["groups"].items())
    parts = [
        "\n".join(failed),
        f"Winners of the groups: {winners}.",
        "\n".join(notes(report)),
        report["recommendation"],
    ]
    body = [part for part in parts if part]
    title = f"{report['data']} · {report['backbone']}, frozen · {report['seeds']} seed{'s' * (report['seeds'] != 1)}"
    if style == "markdown":
        cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        lines = [f"| {' | '.join(row)} |" for row in cells]
        lines.insert(1, "|" + "---|" * len(rows[0]))
        *middle, last = body
        return "\n\n".join(
            [
                f"# {title}",
                f"**{last}**",
                "\n".join(lines),
                *(m.replace("\n", "  \n") for m in middle),
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    left = (1, 2, 3)  # words on the left, numbers on the right
    lines = [
        "  ".join(
            c.ljust(w) if i in left else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n\n".join([title, "\n".join(line.rstrip() for line in lines), *body])


def notes(report: Report) -> list[str]:
    """What a reader must know to believe the numbers."""
    images, judged = report["images"], report["judged"]
    best = (
        max((row["mean"] for row in report["standings"] if row["mean"] is not None), default=0.0)
        / 100
    )
    chance = 196 * math.sqrt(max(best * (1 - best), 0) / images)  # 95% of a binomial, in percent
    said = [
        f"Accuracy: percent of {images} {judged} images after training on {report['train_images']}, mean ± deviation "
        f"over the seeds. =: cannot be told from the first (differences up to {report['noise']:.1f}). *: first of its "
        "group.",
        f"Other images of the same kind could move each accuracy by about {chance:.1f}, all pools much alike.",
    ]
    if judged == "val":
        said.append(
            "There is no test split: these are the validation images that also chose epoch and rate, so all are "
            "a little too good."
        )
    timed = next((row for row in report["standings"] if "ms" in row), None)
    time = f" The backbone takes {timed['backbone_ms']:.1f} ms an image." if timed else ""
    said.append(
        "params: of the pool; trained: with its head; MFLOPs: the pool's multiply-adds; ms: pool and head, for an "
        f"image, measured in turn.{time}"
    )
    if report["box_images"]:
        said.append(
            f"boxes: MaxBoxAccV2 on {report['box_images']} whole images, of the pool's own map, else of the class "
            "activation map (CAM) of the true class, or of the attention of CLS, at the threshold best for these "
            f"images. A fixed box in the middle, which sees nothing: {report['centred_box']:.1f}."
        )
    if report["kind"] == "ablation":
        said.append(
            "paper: S Table 10, ResNet-18 trained from scratch on a fifth of ImageNet. Here the backbone is frozen: "
            "the rows are the same, the question is another one. Every row can be built."
        )
    if report["kind"] == "gamma":
        said.append(
            "paper: S C.4, ResNet-18 from scratch. Its third row, a learned gamma with a tenth of the rate (56.5), is "
            "left out: a contender has one rate."
        )
    return said


def _heads(report: Report) -> list[str]:
    heads = ["contender", "group", "accuracy", "params", "trained", "MFLOPs"]
    heads += ["ms"] if any("ms" in row for row in report["standings"]) else []
    heads += ["boxes", "map"] if report["box_images"] else []
    return [
        *heads,
        "rate",
        *(["paper"] if any(row["paper"] for row in report["standings"]) else []),
    ]


def _cells(row: Mapping[str, Any], report: Report) -> list[str]:
    heads = _heads(report)
    cells = {
        "contender": row["name"], "group": row["group"], "params": count(row["parameters"]),
        "trained": count(row["trained"]), "MFLOPs": f"{row['flops'] / 1e6:.2f}", "map": MAPS[row["map"]],
        "accuracy": "failed" if row["mean"] is None else f"{row['mean']:.1f} ± {row['deviation']:.1f}",
        "ms": f"{row['ms']:.3f}" if "ms" in row else "", "rate": "" if row["lr"] is None else f"{row['lr']:g}",
        "boxes": f"{sum(row['boxes']) / len(row['boxes']):.1f}" if row["boxes"] else "-",
        "paper": "" if row["paper"] is None else f"{row['paper']:.1f}",
    }  # fmt: skip
    return [cells[head] for head in heads]


def count(number: int) -> str:
    """1234567 -> 1.2M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return str(number)
