"""Approximate search with faiss: inverted lists, 4-bit product codes, exact re-ranking.

The recall against exact search is measured on images and words of the index when it is built, also
within a random tenth of its images, as a filter would leave; if it is below the target, search
stays exact. Rows that were added later are searched exactly.
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from ..data.files import write_atomically, write_text
from ..extras import MissingExtra, require

MIN_IMAGES = 100_000  # in mode auto; exact search of fewer takes hundredths of a second
TARGET_RECALL, TOP = 0.95, 10  # recall@10
PROBES = tuple(2**i for i in range(2, 12))  # numbers of lists to visit that are tried
RECALL_QUERIES = 200
CANDIDATES = 400  # whose vectors are compared exactly
FILTERED_SHARE = 0.1  # of the rows, for the recall of a filtered search
MAX_NEW_ROWS = 0.2  # share of rows added since the build that is still searched exactly
FILE, DESCRIPTION = "approximate.faiss", "approximate.json"


class IndexFacts(BaseModel):
    """How the index was made and what it reaches: approximate.json."""

    model_config = ConfigDict(populate_by_name=True)
    rows: int
    generation: int
    lists: int
    codes: int
    probes: int
    filtered_probes: int = 0  # with a filter; 0: filtered searches are exact
    recall: dict[str, float] = Field(validation_alias="recall@10", serialization_alias="recall@10")
    target: float
    good: bool


class RowStore(Protocol):
    """What is needed of a `LocalStore`."""

    folder: Path
    matrix: Tensor  # (rows, dim), removed rows included
    rows: Tensor  # those of the view, ascending
    filtered: bool  # whether the view leaves out rows that are not removed
    budget: int
    db: Any

    @property
    def bitmap(self) -> Any: ...  # the rows of the view as bits

    @property
    def dim(self) -> int: ...

    def __len__(self) -> int: ...

    def vectors(self, rows: Tensor) -> Tensor: ...

    def exact(self, queries: Tensor, k: int, first: int = 0) -> tuple[Tensor, Tensor]: ...

    def select_rows(self, rows: Tensor) -> RowStore: ...


class ApproximateIndex:
    """A faiss index of the first `rows` rows of the matrix."""

    def __init__(self, index: Any, probes: int, filtered_probes: int = 0) -> None:
        self.index, self.rows = index, int(index.ntotal)
        self.probes, self.filtered_probes = probes, filtered_probes

    def accepts(self, store: RowStore) -> bool:
        """Return whether to search this view approximately: exact search of few rows is fast."""
        return not store.filtered or (self.filtered_probes > 0 and len(store) > MIN_IMAGES)

    def nearest(self, store: RowStore, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return exact dot products and rows (Q, k) of candidates that faiss finds, best first."""
        faiss = require("faiss", extra="faiss")
        k, queries = min(k, len(store)), queries.float().contiguous()
        count = min(
            max(CANDIDATES, 4 * k), self.rows
        )  # codes are coarse: candidates for re-ranking
        parameters = faiss.SearchParametersIVF(nprobe=self.probes)
        if store.filtered:
            selector = faiss.IDSelectorBitmap(store.bitmap)
            parameters = faiss.SearchParametersIVF(nprobe=self.filtered_probes, sel=selector)
        found = self.index.search(queries.numpy(), count, params=parameters)[1]  # -1 for none
        candidates = torch.from_numpy(found)
        new_scores, new_rows = store.exact(queries, k, self.rows)
        scores, rows = queries.new_empty(len(queries), k), new_rows.new_empty(len(queries), k)
        for i, query in enumerate(queries):
            places = torch.searchsorted(store.rows, candidates[i]).clamp(max=len(store) - 1)
            old = candidates[i][store.rows[places] == candidates[i]].sort().values
            merged = torch.cat([old, new_rows[i]])
            values = torch.cat([store.vectors(old) @ query, new_scores[i]])
            if len(merged) < k:  # most candidates have been removed
                scores[i : i + 1], rows[i : i + 1] = store.exact(query[None], k)
                continue
            order = values.sort(descending=True, stable=True).indices[:k]
            scores[i], rows[i] = values[order], merged[order]
        return scores, rows


def read_approximate(store: RowStore) -> ApproximateIndex | None:
    """Return the index built for these rows, if it reaches the target and faiss is installed."""
    facts = _read_facts(store)
    if facts is None or not facts.good:
        return None
    try:
        faiss = require("faiss", extra="faiss")
        index = faiss.read_index(str(store.folder / FILE))
    except (MissingExtra, RuntimeError):
        return None
    # A build that was killed between its two files leaves files that do not match.
    if index.ntotal != facts.rows or index.ntotal > len(store.matrix):
        return None
    return ApproximateIndex(index, facts.probes, facts.filtered_probes)


def build_approximate(store: RowStore, texts: Tensor | None = None) -> IndexFacts:
    """Train, fill and measure an index; return its facts.

    The recall is measured with images of the store and with `texts` (N, D), if given.
    """
    faiss = require("faiss", extra="faiss")
    rng, n = torch.Generator().manual_seed(0), len(store.matrix)
    lists = 2 ** max(0, round(math.log2(2 * math.sqrt(n))))
    codes = next(m for m in range(max(store.dim // 2, 1), 0, -1) if store.dim % m == 0)
    index = faiss.index_factory(store.dim, f"IVF{lists},PQ{codes}x4fs", faiss.METRIC_INNER_PRODUCT)
    sample = torch.randperm(n, generator=rng)[: max(64 * lists, 1024)].sort().values
    index.train(store.vectors(sample).numpy())
    for block in store.matrix.split(max(1, store.budget // (8 * store.dim))):
        index.add(block.float().numpy())
    images = store.rows[torch.randperm(len(store), generator=rng)[:RECALL_QUERIES]]
    queries = {"images": store.vectors(images)}
    if texts is not None:
        places = torch.randperm(len(texts), generator=rng)[:RECALL_QUERIES]
        queries["words"] = texts[places].float()
    view = store.select_rows(store.rows[torch.rand(len(store), generator=rng) < FILTERED_SHARE])
    probes, recall = _choose_probes(index, store, queries)
    filtered_probes, filtered_recall = _choose_probes(index, view, queries)
    recall |= {f"{name}, filtered": value for name, value in filtered_recall.items()}
    facts = IndexFacts(
        rows=n,
        generation=store.db.generation,
        lists=lists,
        codes=codes,
        probes=probes or PROBES[-1],
        filtered_probes=filtered_probes,
        recall=recall,
        target=TARGET_RECALL,
        good=probes > 0,
    )
    with write_atomically(store.folder / FILE) as temporary:
        faiss.write_index(index, str(temporary))
    write_text(store.folder / DESCRIPTION, facts.model_dump_json(by_alias=True, indent=2) + "\n")
    return facts


def _choose_probes(
    index: Any, store: RowStore, queries: dict[str, Tensor]
) -> tuple[int, dict[str, float]]:
    """Return the least number of lists to visit that reaches the target, 0 if none does.

    The first number that passes is chosen because it passed, so its measured recall is too high on
    average: it has to be above the target by two standard errors. If none is, the mean decides.
    Returns also the recall for each kind of query.
    """
    truth = {name: store.exact(vectors, TOP + 1)[1] for name, vectors in queries.items()}
    passed = list[tuple[int, dict[str, float]]]()
    for probes in [p for p in PROBES if p <= index.nlist] or [1]:
        approximate = ApproximateIndex(index, probes, filtered_probes=probes)
        recall, lower_bounds = dict[str, float](), list[float]()
        for name, vectors in queries.items():
            nearest = approximate.nearest(store, vectors, TOP + 1)[1]
            shares = _recall(nearest, truth[name], skip=int(name == "images"))
            recall[name] = float(shares.mean())
            error = float(shares.std(correction=0)) / math.sqrt(len(shares))
            lower_bounds.append(recall[name] - 2 * error)
        if min(lower_bounds) >= TARGET_RECALL:
            return probes, recall
        if min(recall.values()) >= TARGET_RECALL:
            passed.append((probes, recall))
    return passed[0] if passed else (0, recall)


def _recall(rows: Tensor, truth: Tensor, skip: int) -> Tensor:
    """Return the share (Q,) of the true top 10; `skip` 1 leaves out an image's nearest, itself."""
    top = slice(skip, TOP + skip)
    hits = (rows[:, top, None] == truth[:, None, top]).any(1)
    return hits.double().mean(1)


def update_approximate(store: RowStore, mode: str, texts: Tensor | None) -> str | None:
    """Build an index if `mode` wants one and none is recent; return a message, if any."""
    if mode == "no":
        for name in (DESCRIPTION, FILE):
            (store.folder / name).unlink(missing_ok=True)
        return None
    if not len(store) or (mode == "auto" and len(store) < MIN_IMAGES):
        return None
    stored = _read_facts(store)
    if stored and len(store.matrix) - stored.rows <= MAX_NEW_ROWS * stored.rows:
        return None
    try:
        facts = build_approximate(store, texts)
    except MissingExtra:
        if mode != "auto":
            raise
        return (
            f"search of {len(store)} images stays exact: "
            "pip install 'cenote[faiss]' makes it approximate, and faster"
        )
    recalls = [f"{value:.3f} on {name}" for name, value in facts.recall.items()]
    message = f"approximate index: recall@10 {' and '.join(recalls)}"
    if not facts.good:
        message += "; too low, search stays exact"
    return message


def _read_facts(store: RowStore) -> IndexFacts | None:
    """Return the facts of the index of this generation; None if missing or damaged."""
    with suppress(OSError, ValueError):
        text = (store.folder / DESCRIPTION).read_text(encoding="utf-8")
        facts = IndexFacts.model_validate_json(text, strict=True)
        if facts.generation == store.db.generation:
            return facts
    return None
