"""Laws that hold for any input: filters, boxes, stores and pools."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cenote.data.csv_files import quote_formula, unquote_formula
from cenote.data.digests import digest_of
from cenote.data.table import encode_name, readable_name
from cenote.metrics.boxes import box_iou, largest_box
from cenote.pooling import create_pool
from cenote.predict.feature_cache import FeatureCache, Layout
from cenote.search.local_store import LocalStore
from cenote.search.store import Filter, ImageEntry, IndexDescription

FEW = settings(
    max_examples=25, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
WIDTH = 6
LABELS, DOMAINS = ("a", "b", "c"), ("photo", "sketch", None)
sides = st.integers(0, 40)
boxes = st.tuples(sides, sides, st.integers(1, 30), st.integers(1, 30)).map(
    lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3])
)


@FEW
@given(st.lists(boxes, min_size=1, max_size=5), st.lists(boxes, min_size=1, max_size=5))
def test_iou_counts_pixels(first: list[Any], second: list[Any]) -> None:
    iou = box_iou(np.array(first, float), np.array(second, float))

    def pixels(box: tuple[int, int, int, int]) -> set[tuple[int, int]]:
        return {(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])}

    for i, a in enumerate(first):
        for j, b in enumerate(second):
            union = pixels(a) | pixels(b)
            assert iou[i, j] == pytest.approx(len(pixels(a) & pixels(b)) / len(union))


@FEW
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_the_largest_box_encloses_one_component(height: int, width: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((height, width)) > 0.6
    box = largest_box(mask)
    if not mask.any():
        assert box is None
        return
    assert box is not None
    x1, y1, x2, y2 = (int(value) for value in box)
    inside = mask[y1:y2, x1:x2]
    assert inside[0].any() and inside[-1].any() and inside[:, 0].any() and inside[:, -1].any()


@FEW
@given(
    st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(DOMAINS)), min_size=1, max_size=12),
    st.sets(st.sampled_from(LABELS)),
    st.sets(st.sampled_from(DOMAINS[:2])),
    st.sets(st.integers(0, 11)),
)
def test_filters_select_what_they_say(
    images: list[tuple[str, str | None]], classes: set[str], domains: set[str], removed: set[int]
) -> None:
    """A store with any images, some of them removed, under any filter."""
    vectors = torch.nn.functional.normalize(torch.arange(12.0 * WIDTH).view(12, WIDTH).sin())
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore.open(folder, IndexDescription("toy", "toy", WIDTH))
        entries = [
            ImageEntry(f"/{i}", f"{i:032x}", time=1, size=i, label=label, domain=domain)
            for i, (label, domain) in enumerate(images)
        ]
        with store.writer() as writer:
            writer.put(entries, vectors[: len(images)])
            writer.remove([f"/{i}" for i in removed])
        store = LocalStore.open(folder)
        view = store.select(Filter(classes=tuple(sorted(classes)), domains=tuple(sorted(domains))))
        expected = {
            i
            for i, (label, domain) in enumerate(images)
            if i not in removed
            and (not classes or label in classes)
            and (not domains or domain in domains)
        }
        assert {entry.size for entry in view.entries(view.rows)} == expected
        scores, rows = view.nearest(torch.ones(1, WIDTH), 20)
        assert {entry.size for entry in store.entries(rows[0])} == expected
        assert (scores.diff() <= 0).all()


@FEW
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=5))
def test_the_cache_returns_what_was_appended_first(batches: list[list[int]]) -> None:
    layout = Layout((1, 2), 3, cls=False)
    first: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, batch in enumerate(batches):
            store = FeatureCache(Path(folder)).open({}, layout)
            values = np.stack([np.full((2, 3), 100 * number + i, np.float32) for i in batch])
            store.append([digest_of(bytes([i])) for i in batch], values)
            for i in batch:
                first.setdefault(i, 100 * number + i)
        store = FeatureCache(Path(folder)).open({}, layout)
        places = store.find([digest_of(bytes([i])) for i in range(10)])
        assert {i: store.values()[p, 0, 0] for i, p in enumerate(places) if p >= 0} == first


@FEW
@given(
    st.sampled_from(["gap", "max", "gem", "lse", "simpool"]),
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(0, 2**31),
)
def test_a_pool_ignores_the_order_and_the_batch(
    name: str, images: int, tokens: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(images, tokens, 8, generator=generator, dtype=torch.float64) + 0.1
    pool = create_pool(name, 8).double().eval()
    with torch.no_grad():
        vectors = pool(x)
        order = torch.randperm(tokens, generator=generator)
        torch.testing.assert_close(pool(x[:, order]), vectors)
        torch.testing.assert_close(pool(x[:1]), vectors[:1])


@FEW
@given(st.text(), st.binary(max_size=20))
def test_names_survive(text: str, name: bytes) -> None:
    if not text.startswith("'"):
        assert unquote_formula(str(quote_formula(text))) == text
    file = name.decode("utf-8", "surrogateescape")
    assert encode_name(file) == name
    readable = readable_name(file)
    assert readable.encode().decode() == readable == readable_name(readable)
