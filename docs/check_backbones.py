"""Checks every architecture of timm and writes docs/backbones.md and cenote/backbones/checked.json.

python docs/check_backbones.py            some minutes on two cores
python docs/check_backbones.py --write    the page again, from checked.json
"""

import json
import os
import sys
from pathlib import Path

from cenote.backbones.survey import CHECKED, checked, families_table

PAGE = Path(__file__).with_name("backbones.md")
INTRODUCTION = """\
# The backbones

Any architecture of timm, by its name, as `Features(tokens, grid, cls)`. Each was created with random weights and run:
at its own size the patch tokens fill the grid; without CLS the grid is the same, no class token is left among the
parameters, and the registers are still there; then once more on a lower, wider picture. Shapes alone are computed
for all; the smallest of every family is run in earnest as well (`cenote models --check`): the token that changes most
lies where the picture changed.

`cenote models` prints this table; `cenote models --check 'vit_*'` checks some now; `python docs/check_backbones.py`
checks all and writes this page.

- *CLS*: how many have one, and from how many of them it can be removed when a pool replaces it. CaiT, XCiT and VOLO
  add CLS at the end, in blocks of their own: these go with it.
- *Any size*: at run time, not square either. The others take another size when they are made (`img_size=...`), or
  one only, as the notes say. Patches need sides that are multiples of the patch.
"""


def check() -> None:
    import timm
    from tqdm import tqdm

    from cenote.backbones.survey import confirmed, select, summary, survey

    names, smallest, jobs = select(every=True), select(), os.cpu_count() or 1
    checks = list(
        tqdm(survey(names, values=False, jobs=jobs), total=len(names), desc="shapes of all")
    )
    earnest = list(
        tqdm(
            survey(smallest, values=True, jobs=jobs),
            total=len(smallest),
            desc="smallest in earnest",
        )
    )
    checks = confirmed(checks, earnest)
    CHECKED.write_text(
        json.dumps({"timm": timm.__version__, "families": summary(checks)}, indent=1) + "\n",
        "utf-8",
    )
    checked.cache_clear()


def page() -> str:
    broken = {name: why for row in checked()["families"] for name, why in row["broken"].items()}
    listed = "\n".join(f"- `{name}`: {why}" for name, why in broken.items()) or "None."
    return f"{INTRODUCTION}\n{families_table('markdown')}\n\n## What does not work\n\n{listed}\n"


if __name__ == "__main__":
    if "--write" not in sys.argv[1:]:
        check()
    PAGE.write_text(page(), encoding="utf-8")
