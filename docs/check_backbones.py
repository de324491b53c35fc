"""Checks every architecture of timm and writes docs/backbones.md and cenote/backbones/checked.json.

python docs/check_backbones.py            some minutes on two cores
python docs/check_backbones.py --write    the page again, from checked.json
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cenote.backbones.survey import (
    CHECKED,
    ONE_SIZE,
    WHEN_MADE,
    Check,
    checked,
    families_table,
    select,
    survey,
)

PAGE = Path(__file__).with_name("backbones.md")
INTRODUCTION = """\
# The backbones

Every timm architecture is available under its name and returns `Features(tokens, grid, cls)`. Each architecture
was created with random weights and checked at its default size: the patch tokens fill the grid; without CLS the grid
is the same, no class token remains among the parameters, and the registers are kept. The check is repeated on an image
that is lower and wider. All architectures are checked by their shapes; the smallest one of each family also computes
features (`cenote models --check`), and the token that changes most must be at the position where the image changed.

`cenote models` prints this table; `cenote models --check 'vit_*'` checks some now; `python docs/check_backbones.py`
checks all and writes this page.

- *CLS*: the number of architectures with a CLS token, and the number from which it can be removed when a pool
  replaces it. CaiT, XCiT and VOLO add CLS at the end, in separate blocks, which are removed with it.
- *Any size*: accepts any image size at run time, also non-square images. The others accept another size at creation
  (`img_size=...`), or a single size, as the notes say. Height and width must be multiples of the patch size.

`pool="own"` is the pooling that the architecture was trained with ([models](models.md#the-encoders-own-pooling)). Its
vectors are those of timm's `forward_head(x, pre_logits=True)` in the smallest architecture of every family, with random
weights: `pytest -m survey tests/models/test_own.py`.
"""


def check() -> None:
    import timm
    from tqdm import tqdm

    names, smallest, jobs = select(every=True), select(), os.cpu_count() or 1
    checks = list(
        tqdm(survey(names, values=False, jobs=jobs), total=len(names), desc="shapes of all")
    )
    earnest = list(
        tqdm(
            survey(smallest, values=True, jobs=jobs),
            total=len(smallest),
            desc="smallest of each family",
        )
    )
    checks = confirmed(checks, earnest)
    CHECKED.write_text(
        json.dumps({"timm": timm.__version__, "families": summary(checks)}, indent=1) + "\n",
        "utf-8",
    )
    checked.cache_clear()


def confirmed(checks: Sequence[Check], with_values: Sequence[Check]) -> list[Check]:
    """Return checks of shapes, corrected by those of each family's smallest with values.

    Shapes do not show an index out of range: where the smallest takes fewer sizes, all do.
    """
    by_family = {check.family: check for check in with_values}
    corrected = []
    for check in checks:
        smallest = by_family.get(check.family, check)
        size = ONE_SIZE if ONE_SIZE in smallest.why else WHEN_MADE
        if check.ok and not smallest.any_size and (check.any_size or size == ONE_SIZE):
            notes = [note for note in _notes(check) if note not in (ONE_SIZE, WHEN_MADE)]
            check = replace(check, any_size=False, why="; ".join([*notes, size]))
        corrected.append(check)
    return corrected


def _notes(check: Check) -> list[str]:
    return [note for note in check.why.split("; ") if note]


def summary(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """Return a row for every family for checked.json; its smallest architecture comes first."""
    groups: dict[str, list[Check]] = {}
    for check in sorted(checks, key=lambda c: (c.family, not c.ok, c.parameters, c.name)):
        groups.setdefault(check.family, []).append(check)
    return [
        {
            "family": family,
            "smallest": members[0].name,
            "parameters": members[0].parameters,
            "architectures": len(members),
            "work": sum(c.ok for c in members),
            "cls": sum(c.cls for c in members),
            "cls_removable": sum(c.cls_removable for c in members),
            "any_size": sum(c.any_size for c in members),
            "notes": dict(Counter(note for c in members if c.ok for note in _notes(c))),
            "broken": {c.name: c.why for c in members if not c.ok},
        }
        for family, members in groups.items()
    ]


def page() -> str:
    broken = {name: why for row in checked()["families"] for name, why in row["broken"].items()}
    listed = "\n".join(f"- `{name}`: {why}" for name, why in broken.items()) or "None."
    return f"{INTRODUCTION}\n{families_table('markdown')}\n\n## What does not work\n\n{listed}\n"


if __name__ == "__main__":
    if "--write" not in sys.argv[1:]:
        check()
    PAGE.write_text(page(), encoding="utf-8")
