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
            desc="smallest of each family",
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
