"""The sieve finds what a sorted list of exact products has, however little its whole numbers can tell apart."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from cenote.metrics import nearest as ways
from cenote.metrics import retrieval_scores
from cenote.metrics.nearest import _cosine, _euclidean, nearest

pytest.importorskip("numba")

from cenote.metrics import sieve
from cenote.metrics.scan import COLUMNS, ROWS
from cenote.metrics.sieve import CLOSED, OPEN, _margin, rounded, sieved
from cenote.metrics.vectors import unit

SMALL = 1 << 20


def found(
    x: Tensor, gallery: Tensor | None, counts: Tensor, distance: str = "cosine", budget: int = SMALL
) -> list[list[int]]:
    parts = _cosine() if distance == "cosine" else _euclidean(x, gallery)
    lists: list[list[int]] = [[] for _ in x]
    for rows, order in sieved(x, gallery, counts, *parts, budget):
        for i, places in zip(rows.tolist(), order.tolist(), strict=True):
            assert not lists[i], "a query is answered once"
            assert set(places[int(counts[i]) :]) <= {-1}
            lists[i] = places[: int(counts[i])]
    return lists


def slow(x: Tensor, gallery: Tensor | None, counts: Tensor, distance: str = "cosine") -> list[list[int]]:
    """All products of the prepared vectors in double precision, rounded as the sieve keeps them, and sorted."""
    asking, asked = _cosine() if distance == "cosine" else _euclidean(x, gallery)
    others = asked(x if gallery is None else gallery).double()
    lists = []
    for i, row in enumerate(asking(x).double()):
        values = (others * row).sum(1).float().tolist()
        places = [j for j in range(len(values)) if gallery is not None or j != i]
        lists.append(sorted(places, key=lambda j: (-values[j], j))[: int(counts[i])])
    return lists


def vectors(n: int, dim: int, seed: int = 0) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize(("n", "dim"), [(2, 5), (7, 1), (97, 2), (300, 33), (900, 64), (1100, 3)])
def test_as_a_sorted_list(n: int, dim: int, distance: str, separate: bool) -> None:
    x, gallery = vectors(n, dim), vectors(n // 2 + 3, dim, seed=1) if separate else None
    most = len(x) - 1 if gallery is None else len(gallery)
    counts = torch.arange(n) * 7 % (min(most, 20) + 1)  # some ask for nothing
    assert found(x, gallery, counts, distance) == slow(x, gallery, counts, distance)


@pytest.mark.parametrize("spread", [1e-2, 1e-4, 1e-6, 0.0])
@pytest.mark.parametrize("separate", [False, True])
def test_what_rounding_cannot_tell_apart_is_measured(spread: float, separate: bool) -> None:
    """Nearly equal vectors: whole numbers leave every pair open, or all but open."""
    x = vectors(1, 24, seed=3) + spread * vectors(400, 24)
    gallery = x[:150].flip(0).clone() if separate else None
    counts = torch.full((400,), 9)
    assert found(x, gallery, counts) == slow(x, gallery, counts)


@pytest.mark.parametrize("separate", [False, True])
def test_of_equals_the_first_is_nearer(separate: bool) -> None:
    x = vectors(6, 10)[torch.randint(0, 6, (500,), generator=torch.Generator().manual_seed(0))]
    gallery = x.flip(0).clone() if separate else None
    counts = torch.full((500,), 12)
    assert found(x, gallery, counts) == slow(x, gallery, counts)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_another_default_device_changes_nothing(distance: str) -> None:
    x, counts = vectors(300, 12), torch.full((300,), 5)
    wanted = slow(x, None, counts, distance)
    with torch.device("meta"):
        lists = [row for _, order in nearest(x, None, counts, distance, SMALL) for row in order.tolist()]
        assert found(x, None, counts, distance) == wanted == lists


def test_a_row_that_is_in_the_sample_does_not_stop_at_itself() -> None:
    """Three blocks of 500, of which every sixth row is in the sample: not at the same place in each."""
    x = vectors(1500, 16)
    similarity = (unit(x).double() @ unit(x).double().T).fill_diagonal_(-torch.inf)
    assert found(x, None, torch.ones(1500).long()) == similarity.argmax(1)[:, None].tolist()


def test_queries_that_ask_for_nothing_in_whole_blocks() -> None:
    x, counts = vectors(1500, 16), torch.zeros(1500, dtype=torch.long)
    counts[1400:] = 5
    assert found(x, None, counts) == slow(x, None, counts)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    x, counts = vectors(3000, 8), torch.full((3000,), 6)
    whole = found(x, None, counts, budget=1 << 28)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert found(x, None, counts) == whole


@pytest.mark.parametrize("dim", [1, 2, 31, 512])
@pytest.mark.parametrize("size", [1e-12, 1.0, 3e5])
def test_no_product_is_further_from_its_whole_one_than_the_margin(dim: int, size: float) -> None:
    x, y = size * vectors(48, dim), vectors(32, dim, seed=1)
    a, b = rounded(x, ROWS), rounded(y, COLUMNS)
    margin, scale = _margin(a, b), Fraction(a.scale) * Fraction(b.scale)
    for q, i in zip(unpacked(a.panels, ROWS, dim).tolist(), x.tolist(), strict=True):
        for p, j in zip(unpacked(b.panels, COLUMNS, dim).tolist(), y.tolist(), strict=True):
            exact = sum(Fraction(s) * Fraction(t) for s, t in zip(i, j, strict=True))
            whole = sum(s * t for s, t in zip(q, p, strict=True))
            assert abs(exact * scale - whole) <= margin and OPEN < whole < CLOSED
        if dim > 31:
            break  # fractions are slow


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
    assert found(x, None, counts) == slow(x, None, counts)


def test_more_pairs_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all pairs of nearly equal vectors are written down, some at a time."""
    monkeypatch.setattr(sieve, "ROOM", sieve.PANELS * ROWS * COLUMNS)
    x, counts = vectors(1, 24, seed=3) + 1e-6 * vectors(900, 24), torch.full((900,), 9)
    assert found(x, None, counts, budget=1 << 28) == slow(x, None, counts)


@pytest.mark.parametrize("threads", [1, 2, 16, 128])
def test_blocks_are_large_enough_to_share_out(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert sieve._side(60_000, 512, ways.BUDGET) > 10_000


@pytest.mark.parametrize(
    "reason", ["import numba; numba.config.DISABLE_JIT = True", "import sys; sys.modules['numba'] = None"]
)
def test_without_a_compiler_floats_do(reason: str) -> None:
    """In a process of its own: what is imported there stays there."""
    code = f"""{reason}
import torch
from cenote.metrics import nearest, retrieval_scores
nearest.MANY = 0
print(retrieval_scores(torch.eye(8).repeat(2, 1), torch.arange(16) % 8)["p@1"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "1.0\n", done.stderr


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same() -> None:
    """numba finds no folder to write to: of its own, of the user, or of the module."""
    code = """
from numba.core import caching
def refused(self): raise OSError("read-only")
for name in dir(caching):
    if "Locator" in name:
        getattr(caching, name).ensure_cache_path = refused
import torch
from cenote.metrics import nearest
nearest.MANY = 0
x = torch.randn(40, 8)
(rows, order), = nearest.nearest(x, None, torch.ones(40).long())
u = torch.nn.functional.normalize(x, dim=1)
print(bool((order[:, 0] == (u @ u.T).fill_diagonal_(-2).argmax(1)).all()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_large_sets_go_through_it_and_collapsed_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "MANY", 0)
    if not ways._many(torch.zeros(2, 2), None):
        pytest.skip("this machine multiplies floats")
    used = []
    own = sieve.sieved
    monkeypatch.setattr(sieve, "sieved", lambda *given: used.append(len(given[0])) or own(*given))
    x, labels = vectors(2000, 32), torch.arange(2000) // 4
    scores = retrieval_scores(x, labels)
    assert used == [2000]
    for collapsed in (torch.ones(2000, 32), 100 + 1e-4 * x):
        retrieval_scores(collapsed, labels)
    list(nearest(x, None, torch.full((2000,), 65)))  # long lists are sorted, not inserted into
    assert used == [2000]
    monkeypatch.setattr(ways, "MANY", 1 << 60)
    assert retrieval_scores(x, labels) == scores and used == [2000]
