"""The sieve finds the rows that a sorted list of exact products has, however little its whole numbers can tell apart.

Entries are multiples of 2^-20: products of such vectors are exact in float64, in whatever order they are summed.
"""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from cenote.compiled import compiled
from cenote.metrics import nearest as ways
from cenote.metrics import retrieval_scores
from cenote.metrics.nearest import nearest

pytest.importorskip("numba", reason="numba is not installed: install it to test its code")

from numba.core import caching

from cenote.metrics import sieve
from cenote.metrics.scan import COLUMNS, ROWS
from cenote.metrics.sieve import CLOSED, OPEN, block_rows, error_bound, rounded, sieved
from tests.threads import thread_count

SMALL = 1 << 20


def same(rows: Tensor) -> Tensor:
    return rows


def double(rows: Tensor) -> Tensor:
    return 2 * rows


def sieved_lists(
    x: Tensor, gallery: Tensor | None, counts: Tensor, budget: int = SMALL, symmetric: bool = True
) -> list[list[int]]:
    """With `symmetric=False` queries and gallery are prepared differently, as the Euclidean distance prepares them."""
    lists: list[list[int]] = [[] for _ in x]
    for rows, order in sieved(x, gallery, counts, same, same if symmetric else double, budget):
        for i, places in zip(rows.tolist(), order.tolist(), strict=True):
            assert not lists[i], "a query is answered once"
            assert set(places[int(counts[i]) :]) <= {-1}
            lists[i] = places[: int(counts[i])]
    return lists


def slow(x: Tensor, gallery: Tensor | None, counts: Tensor) -> list[list[int]]:
    """All exact products, rounded to float32 as the sieve keeps them, and sorted; ties keep the lower index."""
    products = (x.double() @ (x if gallery is None else gallery).double().T).float()
    if gallery is None:
        products.fill_diagonal_(-torch.inf)
    orders = products.sort(dim=1, descending=True, stable=True).indices.tolist()
    return [order[:count] for order, count in zip(orders, counts.tolist(), strict=True)]


def on_grid(x: Tensor) -> Tensor:
    return (x * 2**20).round() / 2**20


def vectors(n: int, dim: int, seed: int = 0) -> Tensor:
    return on_grid(torch.randn(n, dim, generator=torch.Generator().manual_seed(seed)))


def nearly_equal(n: int, spread: float) -> Tensor:
    return on_grid(vectors(1, 24, seed=3) + spread * vectors(n, 24))


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("n", "dim"), [(2, 5), (7, 1), (97, 2), (300, 33), (500, 64), (700, 3)])
def test_as_a_sorted_list(n: int, dim: int, symmetric: bool, separate: bool) -> None:
    x, gallery = vectors(n, dim), vectors(n // 2 + 3, dim, seed=1) if separate else None
    most = len(x) - 1 if gallery is None else len(gallery)
    counts = torch.arange(n) * 7 % (min(most, 20) + 1)  # some ask for nothing
    assert sieved_lists(x, gallery, counts, symmetric=symmetric) == slow(x, gallery, counts)


@pytest.mark.parametrize("spread", [1e-2, 1e-4, 1e-6, 0.0])
@pytest.mark.parametrize("separate", [False, True])
def test_what_rounding_cannot_tell_apart_is_measured(spread: float, separate: bool) -> None:
    """Nearly equal vectors: whole numbers leave every pair open, or all but open."""
    x = nearly_equal(400, spread)
    gallery = x[:150].flip(0).clone() if separate else None
    counts = torch.full((400,), 9)
    assert sieved_lists(x, gallery, counts) == slow(x, gallery, counts)


@pytest.mark.parametrize("separate", [False, True])
def test_ties_keep_the_lower_index(separate: bool) -> None:
    x = vectors(6, 10)[torch.randint(0, 6, (500,), generator=torch.Generator().manual_seed(0))]
    gallery = x.flip(0).clone() if separate else None
    counts = torch.full((500,), 12)
    assert sieved_lists(x, gallery, counts) == slow(x, gallery, counts)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("many", [0, 1 << 60], ids=["sieve", "floats"])
def test_another_default_device_changes_nothing(
    distance: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "MANY", many)
    x, counts = vectors(300, 12), torch.full((300,), 5)
    expected = [order.tolist() for _, order in nearest(x, None, counts, distance, SMALL)]
    with torch.device("meta"):
        assert [
            order.tolist() for _, order in nearest(x, None, counts, distance, SMALL)
        ] == expected


def test_a_row_that_is_in_the_sample_does_not_stop_at_itself() -> None:
    """Three blocks of 500, of which every sixth row is in the sample: not at the same place in each."""
    x, counts = vectors(1500, 16), torch.ones(1500).long()
    assert sieved_lists(x, None, counts) == slow(x, None, counts)


def test_queries_that_ask_for_nothing_in_whole_blocks() -> None:
    x, counts = vectors(1500, 16), torch.zeros(1500, dtype=torch.long)
    counts[1400:] = 5
    assert sieved_lists(x, None, counts) == slow(x, None, counts)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_and_blocks_change_nothing(threads: int) -> None:
    x, counts = vectors(3000, 8), torch.full((3000,), 6)
    whole = sieved_lists(x, None, counts, budget=1 << 28)
    with thread_count(threads):
        assert sieved_lists(x, None, counts) == whole


@pytest.mark.parametrize("dim", [1, 2, 31, 512])
@pytest.mark.parametrize("size", [1e-12, 1.0, 3e5])
def test_no_product_is_further_from_its_whole_one_than_the_bound(dim: int, size: float) -> None:
    rows = 1 if dim > 31 else 24  # fractions are slow
    x, y = size * vectors(rows, dim), vectors(16, dim, seed=1)
    a, b = rounded(x, ROWS), rounded(y, COLUMNS)
    bound, scale = error_bound(a, b), Fraction(a.scale) * Fraction(b.scale)
    whole_columns = unpacked(b.panels, COLUMNS, dim)[: len(y)].tolist()
    for q, i in zip(unpacked(a.panels, ROWS, dim)[:rows].tolist(), x.tolist(), strict=True):
        for p, j in zip(whole_columns, y.tolist(), strict=True):
            exact = sum(Fraction(s) * Fraction(t) for s, t in zip(i, j, strict=True))
            whole = sum(s * t for s, t in zip(q, p, strict=True))
            assert abs(exact * scale - whole) <= bound and OPEN < whole < CLOSED


def unpacked(panels: np.ndarray, width: int, dim: int) -> np.ndarray:
    """The rows that panels were made of."""
    pairs = panels.view(np.int16).reshape(len(panels), -1, width, 2)
    return pairs.transpose(0, 2, 1, 3).reshape(len(panels) * width, -1)[:, :dim]


def test_the_longest_numbers_fit() -> None:
    """All of a vector's length in one number, and the largest sum that there can be."""
    x = torch.eye(4).repeat(40, 1) * torch.tensor([1.0, -1.0]).repeat(80)[:, None]
    x *= 1 - 2**-24
    part = rounded(x, ROWS)
    assert part.length < 2**15 and np.abs(unpacked(part.panels, ROWS, 4)).max() == 2**15 - 1
    counts = torch.full((160,), 30)
    assert sieved_lists(x, None, counts) == slow(x, None, counts)


def test_more_pairs_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all pairs of nearly equal vectors are written down, some at a time."""
    monkeypatch.setattr(sieve, "ROOM", sieve.PANELS * ROWS * COLUMNS)
    x, counts = nearly_equal(600, 1e-6), torch.full((600,), 9)
    assert sieved_lists(x, None, counts, budget=1 << 28) == slow(x, None, counts)


@pytest.mark.parametrize("threads", [1, 2, 16, 128])
def test_blocks_are_large_enough_to_share_out(threads: int) -> None:
    assert block_rows(60_000, 512, ways.BUDGET, threads) > 10_000


def run(code: str) -> str:
    """The output of code that changes modules, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "reason",
    [
        "import sys; sys.modules['numba'] = None",
        pytest.param("import numba; numba.config.DISABLE_JIT = True", marks=pytest.mark.slow),
    ],
)
def test_without_a_compiler_floats_do(reason: str) -> None:
    code = f"""{reason}
import torch
from cenote.metrics import nearest, retrieval_scores
nearest.MANY = 0
print(retrieval_scores(torch.eye(8).repeat(2, 1), torch.arange(16) % 8)["p@1"])
"""
    assert run(code) == "1.0\n"


def test_without_a_folder_for_compiled_code_a_function_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(self: object) -> None:
        raise OSError("read-only")

    for name in dir(caching):
        if "Locator" in name:
            monkeypatch.setattr(getattr(caching, name), "ensure_cache_path", refused, raising=False)

    @compiled
    def twice(number: int) -> int:
        return 2 * number

    assert twice(3) == 6


@pytest.mark.slow
def test_without_a_folder_for_compiled_code_it_is_compiled_in_each_process() -> None:
    """numba cannot write to any folder: neither its own, nor the user's, nor that of the module."""
    code = """
from numba.core import caching
def refused(self): raise OSError("read-only")
for name in dir(caching):
    if "Locator" in name:
        getattr(caching, name).ensure_cache_path = refused
import torch
from cenote.metrics import nearest
nearest.MANY = 0
x = torch.eye(8).repeat(5, 1) * torch.arange(1, 41)[:, None]
(rows, order), = nearest.nearest(x, None, torch.ones(40).long())
print(order[:10, 0].tolist())
"""
    assert run(code) == f"{[*range(8, 16), 0, 1]}\n"


def test_large_sets_go_through_it_and_collapsed_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("a CPU without AVX compares in floats only: run this test on one with AVX2")
    monkeypatch.setattr(ways, "MANY", 0)
    used: list[int] = []

    def noted(queries: Tensor, *rest: object) -> object:
        used.append(len(queries))
        return sieved(queries, *rest)

    monkeypatch.setattr(sieve, "sieved", noted)
    x, labels = vectors(2000, 32), torch.arange(2000) // 4
    scores = retrieval_scores(x, labels)
    assert used == [2000]
    for collapsed in (torch.ones(2000, 32), 100 + 1e-4 * x):
        retrieval_scores(collapsed, labels)
    list(nearest(x, None, torch.full((2000,), 65)))  # long lists are sorted, not inserted into
    assert used == [2000]
    monkeypatch.setattr(ways, "MANY", 1 << 60)
    # Two neighbours whose similarities are equal up to rounding may change places: 3 of 2000 queries.
    assert retrieval_scores(x, labels) == pytest.approx(scores, abs=3 / 2000) and used == [2000]
