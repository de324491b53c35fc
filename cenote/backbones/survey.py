"""Which architectures of timm work as backbones: list them, run them, and print the results.

checked.json has the results of the last check of all of them (docs/check_backbones.py).
"""

from __future__ import annotations

import json
import multiprocessing
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from typing import Any

import timm
import torch
from timm.models import _registry
from torch import Tensor

from ..pooling.landscape import markdown_table
from .backbone import Backbone, Features
from .cls import class_tokens
from .create import create_backbone

CHECKED = Path(__file__).with_name("checked.json")
MAX_PARAMETERS = 600e6  # of an architecture that is run with values
ONE_SIZE, WHEN_MADE = "one size only", "another size only when it is made (img_size)"
NEEDS_VALUES = "too large to run for a check"
Size = tuple[int, int]


@cache
def families() -> dict[str, list[str]]:
    """Return every architecture of timm by the module that defines it."""
    by_family: dict[str, list[str]] = {}
    for name in timm.list_models():
        by_family.setdefault(_registry._model_to_module[name], []).append(name)
    return dict(sorted(by_family.items()))


@cache
def checked() -> dict[str, Any]:
    """Return the results of the last check: {"timm": version, "families": [a row for each]}."""
    if not CHECKED.exists():
        return {"timm": "", "families": []}
    return dict(json.loads(CHECKED.read_text(encoding="utf-8")))


def select(pattern: str = "", every: bool = False) -> list[str]:
    """Return architectures by name or family ("vit_*"), all, or the smallest of every family."""
    if not pattern and not every:
        smallest = {row["smallest"] for row in checked()["families"]}
        # timm may be newer or older than the last check: then the first of the family.
        return [
            next((name for name in names if name in smallest), names[0])
            for names in families().values()
        ]
    names = [
        name
        for family, names in families().items()
        for name in names
        if not pattern or fnmatch(name, pattern) or fnmatch(family, pattern)
    ]
    if not names:
        raise ValueError(
            f"no architecture and no family of timm matches '{pattern}' (for example 'vit_*')"
        )
    return names


@dataclass
class Check:
    """Result of the check of one architecture."""

    name: str
    family: str  # timm's module
    ok: bool = False
    parameters: int = 0
    dim: int = 0
    grid: Size = (0, 0)  # at the architecture's own input size
    cls: bool = False
    cls_removable: bool = False
    any_size: bool = False  # another size, and not a square one, at run time
    why: str = ""  # what does not work


def survey(names: Sequence[str], values: bool = True, jobs: int = 1) -> Iterator[Check]:
    """Check architectures in this order, `jobs` at a time."""
    if jobs <= 1 or len(names) == 1:
        yield from (check_backbone(name, values) for name in names)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _one_thread) as pool:
        yield from pool.map(partial(check_backbone, values=values), names)


def _one_thread() -> None:
    import warnings

    warnings.filterwarnings("ignore")  # timm's, about names that are going to change
    torch.set_num_threads(1)


def check_backbone(name: str, values: bool = True) -> Check:
    """Create an architecture with random weights and run it.

    With `values` it is run on the CPU, and the patch tokens must be where the picture changes.
    Without, or if it is large, only shapes are computed, on the meta device.
    """
    if values:
        with shapes_only():
            values = _parameters(create_backbone(name)) <= MAX_PARAMETERS
    check = _check(name, values)
    if check.why == NEEDS_VALUES and check.parameters <= MAX_PARAMETERS:
        return _check(name, values=True)
    return check


def _parameters(backbone: Backbone) -> int:
    return sum(p.numel() for p in backbone.parameters())


def _check(name: str, values: bool) -> Check:
    family = next((family for family, names in families().items() if name in names), "")
    check = Check(name, family)
    try:
        with torch.no_grad() if values else shapes_only():
            backbone = create_backbone(name).eval()
            check.parameters = _parameters(backbone)
            config: Any = backbone.model.pretrained_cfg
            size = (config["input_size"][1], config["input_size"][2])
            features = _run(backbone, size, values)
            check.dim, check.grid = backbone.dim, features.grid
            check.cls = features.cls is not None
            notes = [_remove_cls(backbone, size, values, check), _other_size(backbone, size, check)]
        check.ok, check.why = True, "; ".join(filter(None, notes))
    except Exception as error:  # any error is the result of the check
        if not values and "meta tensors" in str(error):
            return Check(name, family, parameters=check.parameters, why=NEEDS_VALUES)
        check.why = (str(error).splitlines() or [""])[0][:160]
        if not isinstance(error, ValueError):
            check.why = f"{type(error).__name__}: {check.why}"
    return check


def _run(backbone: Backbone, size: Size, values: bool) -> Features:
    """Return the features of one image, after a check of their shapes and, if any, values."""
    images = torch.randn(1, 3, *size)
    features: Features = backbone(images)
    if problem := _problem(backbone, images, features, values):
        raise ValueError(problem)
    return features


def _problem(backbone: Backbone, images: Tensor, features: Features, values: bool) -> str:
    tokens, (h, w), cls, _ = features
    height, width = images.shape[-2:]
    if tokens.shape != (1, h * w, backbone.dim):
        return f"tokens {tuple(tokens.shape)} do not fit the grid {h}x{w}"
    if max(h, w) > 1 and abs((height / h) / (width / w) - 1) > 0.35:
        return f"the grid {h}x{w} does not have the shape of {height}x{width} pixels"
    if cls is not None and cls.shape != (1, backbone.dim):
        return f"the CLS token is {tuple(cls.shape)}"
    if values and not tokens.isfinite().all():
        return "its features are not finite with random weights"
    if values and min(h, w) > 2 and not _follows_the_picture(backbone, images, features):
        return "its tokens are not where the picture changes: their order is not that of the grid"
    return ""


def _follows_the_picture(backbone: Backbone, images: Tensor, before: Features) -> bool:
    """Change one corner of the picture: the token that changes most is in that quarter."""
    h, w = images.shape[-2:]
    changed = images.clone()
    changed[..., : h // 4, -(w // 4) :] += 2.0  # above, on the right
    after: Features = backbone(changed)
    difference = (after.tokens - before.tokens).norm(dim=-1).view(before.grid)
    if difference.max() < 2 * difference.mean():
        return True  # every token sees everything (LeViT): no verdict
    y, x = divmod(int(difference.argmax()), before.grid[1])
    return y < (before.grid[0] + 1) // 2 and x >= before.grid[1] // 2


def _remove_cls(backbone: Backbone, size: Size, values: bool, check: Check) -> str:
    """Remove CLS: the registers and the grid must stay. Return why CLS must stay, if so."""
    if not backbone.has_cls:
        return ""
    removed = sum(token.shape[1] for token in class_tokens(backbone.model).values())
    registers = backbone.prefix - removed
    try:
        backbone.remove_cls()
    except ValueError as refusal:
        return "CLS stays: " + re.sub(r".*cannot be removed, (.*): keep_cls.*", r"\1", str(refusal))
    features = _run(backbone, size, values)
    parameters = [name for name, p in backbone.named_parameters() if p.numel()]
    left = [name for name in parameters if re.search(r"(cls|dist)_token", name)]
    if features.cls is not None or left:
        raise ValueError(f"CLS is still there after its removal: {', '.join(left)}")
    if features.grid != check.grid or backbone.prefix != registers:
        raise ValueError("removing CLS changed the patch tokens or the registers")
    check.cls_removable = True
    return ""


def _other_size(backbone: Backbone, size: Size, check: Check) -> str:
    """Run a lower, wider picture. Return the limit, if it works only in a model made for it."""
    h, w = (max(round(s / g), 1) for s, g in zip(size, check.grid, strict=True))
    new_size = (max(size[0] // h - 2, 1) * h, (size[1] // w + 1) * w)
    try:
        _run(backbone, new_size, values=False)
    except Exception as error:
        if "meta tensors" in str(error):
            raise
        try:
            _run(create_backbone(check.name, img_size=new_size).eval(), new_size, values=False)
        except Exception:
            return ONE_SIZE
        return WHEN_MADE
    check.any_size = True
    return ""


@contextmanager
def shapes_only() -> Iterator[None]:
    """Compute shapes without values: a model of any size is made and run in a few seconds."""
    with torch.device("meta"), torch.no_grad():
        yield


def checks_table(checks: Sequence[Check], style: str = "text") -> str:
    """Return a table with a row for every architecture."""
    if style == "json":
        return json.dumps([asdict(c) for c in checks], indent=2)
    heads = [
        "Architecture",
        "Family",
        "Works",
        "Parameters",
        "Channels",
        "Map",
        "CLS",
        "Any size",
        "Note",
    ]
    yes, removable = {True: "yes", False: ""}, {True: "removable", False: "stays"}
    rows = [
        (
            *(c.name, c.family, yes[c.ok] or "no", f"{c.parameters / 1e6:.1f}M", str(c.dim or "")),
            "x".join(map(str, c.grid)) * c.ok,
            removable[c.cls_removable] * c.cls,
            yes[c.any_size],
            c.why,
        )
        for c in checks
    ]
    works = f"{sum(c.ok for c in checks)} of {len(checks)} architectures work."
    return f"{_table(heads, rows, style)}\n\n{works}"


def families_table(style: str = "text") -> str:
    """Return a table with a row for every family, from the last check of all."""
    results = checked()
    if style == "json":
        return json.dumps(results, indent=2)
    heads = ("Family", "Smallest", "Parameters", "Work", "CLS", "Any size", "Notes")
    rows = [_family_row(row) for row in results["families"]]
    count = Counter[str]()
    for row in results["families"]:
        count.update({key: row[key] for key in row if isinstance(row[key], int)})
    working = sum(row["work"] > 0 for row in results["families"])
    totals = (
        f"{count['work']} of {count['architectures']} architectures of timm {results['timm']} work, "
        f"in {working} of {len(rows)} families. {count['cls']} have a CLS token, "
        f"{count['cls_removable']} of them without it too. {count['any_size']} take any size at run "
        "time."
    )
    return f"{_table(heads, rows, style)}\n\n{totals}"


def _family_row(row: dict[str, Any]) -> tuple[str, ...]:
    n, broken = row["architectures"], row["broken"]
    cls = f"{row['cls_removable']} of {row['cls']} removable" if row["cls"] else ""
    notes = [text if count == n else f"{text} ({count})" for text, count in row["notes"].items()]
    if broken:
        notes.append(f"{len(broken)} not: {next(iter(broken.values()))}")
    size = {0: "no", n: "yes"}.get(row["any_size"], f"{row['any_size']} of {n}")
    parameters, work = f"{row['parameters'] / 1e6:.1f}M", f"{row['work']} of {n}"
    return row["family"], row["smallest"], parameters, work, cls, size, "; ".join(notes)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], style: str) -> str:
    if style == "markdown":
        return markdown_table(heads, rows)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [heads, ["-" * width for width in widths], *rows]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
