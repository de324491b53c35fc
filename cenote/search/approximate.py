"""Approximate search with faiss beside an embedded index: inverted lists, 4-bit product codes, exact refinement.

How much it finds of what exact search finds is measured on the index's own images and words when it is built; if that
is less than the target, search stays exact. Rows that came later are searched exactly beside it.
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data.files import write_atomically
from ..extras import MissingExtra, require

if TYPE_CHECKING:
    from .local_store import LocalStore

ENOUGH = 100_000  # images; below, exact search takes a few hundredths of a second
TARGET, TOP = 0.95, 10  # recall@10 that is good enough
PROBES = (4, 8, 16, 32, 64, 128, 256)  # lists that are opened; the first that reaches the target
ASKED = 200  # queries that measure the recall
STALE = 0.2  # of the rows: so many that came or went ask for a new one
NUMBERS = ("rows", "generation", "probes")  # without them it is as good as none
FILE, ABOUT = "approximate.faiss", "approximate.json"


class Approximate:
    """Of the first `rows` rows of the matrix."""

    def __init__(self, index: Any, rows: int, probes: int) -> None:
        self.index, self.rows = index, rows
        self.index.nprobe = probes

    def nearest(self, store: LocalStore, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        k, queries = min(k, len(store)), queries.float().contiguous()
        wanted = min(
            max(100, 4 * k), self.rows
        )  # codes are coarse: more than asked for are compared exactly
        found = torch.from_numpy(
            self.index.search(queries.numpy(), wanted)[1]
        )  # (Q, wanted), -1 where there is none
        newer = store.exact(queries, k, self.rows) if self.rows < len(store.matrix) else None
        scores, rows = (
            queries.new_empty(len(queries), k),
            torch.empty(len(queries), k, dtype=torch.long),
        )
        for i, query in enumerate(queries):
            at = found[i][found[i] >= 0]
            at = at[store.counting[at]].sort().values
            values = store.vectors(at) @ query
            if newer is not None:
                at, values = torch.cat([at, newer[1][i]]), torch.cat([values, newer[0][i]])
            if len(at) < k:  # most of what was found is no more there
                scores[i : i + 1], rows[i : i + 1] = store.exact(query[None], k)
                continue
            order = values.sort(descending=True, stable=True).indices[:k]
            scores[i], rows[i] = values[order], at[order]
        return scores, rows


def read(store: LocalStore) -> Approximate | None:
    """What was built for these rows, if it is good enough and faiss is there."""
    about = _about(store.folder)
    if (
        not about.get("good")
        or about["generation"] != store.table.generation
        or about["rows"] > len(store.matrix)
    ):
        return None
    try:
        faiss = require("faiss", extra="faiss")
        index = faiss.read_index(str(store.folder / FILE))
    except (MissingExtra, RuntimeError):
        return None
    # A build that was killed between its two files leaves two that do not belong together.
    return (
        Approximate(index, about["rows"], about["probes"])
        if index.ntotal == about["rows"]
        else None
    )


def build(
    store: LocalStore, texts: Tensor | None = None, target: float = TARGET, seed: int = 0
) -> dict[str, Any]:
    """Train, fill and measure; returns what the file beside it says. `texts` (N, D) ask as well, if given."""
    faiss = require("faiss", extra="faiss")
    draw, n = torch.Generator().manual_seed(seed), len(store.matrix)
    lists = 2 ** max(0, round(math.log2(2 * math.sqrt(n))))
    codes = next(m for m in range(max(store.dim // 8, 1), 0, -1) if store.dim % m == 0)
    index = faiss.index_factory(store.dim, f"IVF{lists},PQ{codes}x4fs", faiss.METRIC_INNER_PRODUCT)
    sample = torch.randperm(n, generator=draw)[: max(64 * lists, 1024)].sort().values
    index.train(store.vectors(sample).numpy())
    step = max(1, store.budget // (8 * store.dim))
    for start in range(0, n, step):
        index.add(store.matrix[start : start + step].float().numpy())
    exact = copy.copy(store)
    exact.approximate = None
    rows = torch.arange(n) if store.rows is None else store.rows
    asked = {"images": store.vectors(rows[torch.randperm(len(rows), generator=draw)[:ASKED]])}
    if texts is not None:
        asked["words"] = texts[torch.randperm(len(texts), generator=draw)[:ASKED]].float()
    truth = {name: exact.exact(queries, TOP + 1)[1] for name, queries in asked.items()}
    recall, probes = dict[str, float](), 0
    for probes in [p for p in PROBES if p <= lists] or [1]:
        made = Approximate(index, n, probes)
        recall = {name: _recall(made.nearest(exact, queries, TOP + 1)[1], truth[name], name == "images")
                  for name, queries in asked.items()}  # fmt: skip
        if min(recall.values()) >= target:
            break
    about = {
        "rows": n,
        "generation": store.table.generation,
        "lists": lists,
        "codes": codes,
        "probes": probes,
    }
    about |= {"recall@10": recall, "target": target, "good": min(recall.values()) >= target}
    with write_atomically(store.folder / FILE) as temporary:
        faiss.write_index(index, str(temporary))
    with write_atomically(store.folder / ABOUT) as temporary:
        temporary.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return about


def _recall(found: Tensor, truth: Tensor, itself: bool) -> float:
    """Of the true top 10 the share that was found; an image's nearest is itself, which proves nothing."""
    first = int(itself)
    hits = (found[:, first : TOP + first, None] == truth[:, None, first : TOP + first]).any(1)
    return float(hits.double().mean())


def bring_up_to_date(
    store: LocalStore, wanted: str = "auto", texts: Tensor | None = None
) -> str | None:
    """Build one where it is wanted and none is fresh; what became of it, in a sentence."""
    if wanted == "no":
        for name in (ABOUT, FILE):
            (store.folder / name).unlink(missing_ok=True)
        return None
    about, now = _about(store.folder), len(store.matrix)
    if len(store) < (ENOUGH if wanted == "auto" else 1):
        return None
    if (
        about.get("generation") == store.table.generation
        and now - about["rows"] <= STALE * about["rows"]
    ):
        return None
    try:
        about = build(store, texts)
    except MissingExtra:
        if wanted != "auto":
            raise
        return (
            f"search of {len(store)} images stays exact: "
            "pip install 'cenote[faiss]' makes it approximate, and faster"
        )
    told = " and ".join(f"{value:.3f} on {name}" for name, value in about["recall@10"].items())
    return f"approximate index: recall@10 {told}" + (
        "" if about["good"] else "; not enough, search stays exact"
    )


def _about(folder: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(found, dict) and all(isinstance(found.get(name), int) for name in NUMBERS)
    return dict(found) if whole else {}
