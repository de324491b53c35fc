"""Retrieval scores are those of a loop over sorted lists and of pytorch-metric-learning, however
memory is cut.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cenote.metrics import query_scores, retrieval_scores
from cenote.metrics.nearest import nearest
from tests.threads import thread_count

SMALL = 1 << 20  # bytes: several tiles and strips even of a few hundred rows


def clustered(
    n: int, classes: int, dim: int = 16, seed: int = 0, spread: float = 0.9
) -> tuple[Tensor, Tensor]:
    centres = torch.randn(
        classes, dim, generator=torch.Generator().manual_seed(99)
    )  # the same whatever the seed
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (n,), generator=generator)
    return centres[labels] + spread * torch.randn(n, dim, generator=generator), labels


def similarities(x: Tensor, y: Tensor, distance: str) -> Tensor:
    x, y = x.double(), y.double()
    if distance == "euclidean":
        return torch.stack([-(row - y).square().sum(1) for row in x])
    return torch.stack([(y @ row) / (row.norm() * y.norm(dim=1)).clamp(min=1e-300) for row in x])


def slow(x: Tensor, labels: Tensor, ks: tuple[int, ...], gallery: tuple[Tensor, Tensor] | None, distance: str,
         miss: bool, advantage: float = 0.0) -> dict[str, float]:  # fmt: skip
    """From the definitions, one query at a time. `advantage` is added to the similarity of vectors
    of its class.
    """
    others, known = (x, labels) if gallery is None else gallery
    right = labels[:, None] == known
    sims = similarities(x, others, distance) + advantage * right
    if gallery is None:
        sims.fill_diagonal_(-torch.inf)
        right = right & ~torch.eye(len(x), dtype=torch.bool)
    rows = []
    for hits in right.gather(1, sims.sort(dim=1, descending=True, stable=True).indices).tolist():
        r = sum(hits)
        if not r:
            if miss:
                rows.append([0.0] * (len(ks) + 3))
            continue
        recall = [float(any(hits[:k])) for k in ks]
        precisions = [sum(hits[:i]) / i for i in range(1, r + 1) if hits[i - 1]]
        rows.append([*recall, float(hits[0]), sum(hits[:r]) / r, sum(precisions) / r])
    names = [*(f"recall@{k}" for k in ks), "p@1", "r_precision", "map@r"]
    return dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True)) | {"queries": len(rows)}


def check(scores: dict[str, float], x: Tensor, labels: Tensor, ks: tuple[int, ...],
          gallery: tuple[Tensor, Tensor] | None, distance: str = "cosine", miss: bool = False) -> None:  # fmt: skip
    """Similarities are float32, so that vectors whose similarities differ by rounding alone may
    stand in either order.

    Every score grows as vectors of the query's class move up: it is between those of the two
    extreme orders.
    """
    rounding = 1e-6 if distance == "cosine" else 1e-6 * float(x.square().sum(1).max())
    low, high = (slow(x, labels, ks, gallery, distance, miss, sign * rounding) for sign in (-1, 1))
    assert list(scores) == list(low)
    for name, score in scores.items():
        assert low[name] - 1e-12 <= score <= high[name] + 1e-12, name
        assert high[name] - low[name] < 0.01, (
            "the bounds are too wide to test anything: choose other vectors"
        )


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("miss", [False, True])
def test_as_a_loop_over_sorted_lists(distance: str, separate: bool, miss: bool) -> None:
    x, labels = clustered(150, 50)
    gallery = clustered(90, 40, seed=1) if separate else None
    given: dict[str, Any] = {"gallery": gallery[0], "gallery_labels": gallery[1]} if gallery else {}
    ks = (1, 3, 8)
    found = retrieval_scores(
        x, labels, ks, distance=distance, without_match="miss" if miss else "exclude", **given
    )
    lone = found.pop("without_match")
    assert lone > 0 and found["queries"] == (150 if miss else 150 - lone)
    check(found, x, labels, ks, gallery, distance, miss)
    assert list(found) == [
        "recall@1",
        "recall@3",
        "recall@8",
        "p@1",
        "r_precision",
        "map@r",
        "queries",
    ]


@pytest.mark.parametrize("ks", [(1, 2, 4), (1, 8)])
@pytest.mark.parametrize("separate", [False, True])
def test_memory_in_pieces_changes_nothing(ks: tuple[int, ...], separate: bool) -> None:
    x, labels = clustered(900, 400)
    given: dict[str, Any] = {}
    if separate:
        gallery, of_them = clustered(1100, 400, seed=2)
        given = {"gallery": gallery, "gallery_labels": of_them}
    scores = retrieval_scores(x, labels, ks, budget=SMALL, **given)
    scores.pop("without_match")
    check(scores, x, labels, ks, (gallery, of_them) if separate else None)


@pytest.mark.parametrize("count", [2, 7])
def test_threads_change_nothing(count: int) -> None:
    x, labels = clustered(600, 200)
    with thread_count(count):
        scores = retrieval_scores(x, labels, budget=SMALL)
    scores.pop("without_match")
    check(scores, x, labels, (1, 2, 4, 8), None)


@pytest.mark.parametrize("separate", [False, True])
def test_one_large_class_among_small_ones(separate: bool) -> None:
    x, labels = clustered(700, 150)
    labels[torch.randperm(700, generator=torch.Generator().manual_seed(0))[:300]] = 7
    gallery = clustered(400, 150, seed=3) if separate else None
    given: dict[str, Any] = {"gallery": gallery[0], "gallery_labels": gallery[1]} if gallery else {}
    found = retrieval_scores(x, labels, (1, 5), budget=SMALL, **given)
    found.pop("without_match")
    check(found, x, labels, (1, 5), gallery)


@pytest.mark.parametrize("ks", [(1, 100), (70, 2), (40, 250)])
@pytest.mark.parametrize("separate", [False, True])
def test_recall_far_down_the_list(ks: tuple[int, ...], separate: bool) -> None:
    """Most find something early and are not asked again; the result is as if all had been."""
    x, labels = clustered(260, 60, dim=3, spread=2.5)
    gallery = clustered(280, 60, dim=3, seed=1) if separate else None
    given: dict[str, Any] = {"gallery": gallery[0], "gallery_labels": gallery[1]} if gallery else {}
    found = retrieval_scores(x, labels, ks, budget=SMALL, **given)
    found.pop("without_match")
    check(found, x, labels, ks, gallery)
    assert 0 < found[f"recall@{min(ks)}"] < found[f"recall@{max(ks)}"]


@pytest.mark.parametrize("separate", [False, True])
def test_recall_far_down_the_list_beside_a_class_of_middle_size(separate: bool) -> None:
    """Its members ask for more than the others: what stands behind the others' lists is nobody, not
    the last row.
    """
    x, labels = clustered(700, 180, dim=3, spread=2.5)
    labels[torch.randperm(700, generator=torch.Generator().manual_seed(0))[:50]] = 7
    gallery = clustered(700, 180, dim=3, spread=2.5, seed=1) if separate else None
    if gallery:
        gallery[1][::14] = 7
    given: dict[str, Any] = {"gallery": gallery[0], "gallery_labels": gallery[1]} if gallery else {}
    found = retrieval_scores(x, labels, (1, 100), **given)
    found.pop("without_match")
    check(found, x, labels, (1, 100), gallery)
    assert found["recall@1"] < found["recall@100"] < 1


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_what_surrounds_the_call_changes_nothing(distance: str) -> None:
    """Autocast, and another default type than that of the vectors."""
    x, labels = clustered(600, 150, spread=0.3)
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast = retrieval_scores(x, labels, distance=distance)
    try:
        torch.set_default_dtype(torch.float64)
        under_double = retrieval_scores(x, labels, distance=distance)
    finally:
        torch.set_default_dtype(torch.float32)
    for scores in (under_autocast, under_double):
        scores.pop("without_match")
        check(scores, x, labels, (1, 2, 4, 8), None, distance)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_the_default_device_changes_nothing(distance: str) -> None:
    (x, _), counts = clustered(300, 20), torch.full((300,), 5)
    expected = [order.tolist() for _, order in nearest(x, None, counts, distance, SMALL)]
    with torch.device("meta"):
        orders = [order.tolist() for _, order in nearest(x, None, counts, distance, SMALL)]
    assert orders == expected


@pytest.mark.parametrize("n", [5, 64, 500])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("k", [1, 4, 40])
def test_ties_keep_the_lower_index(n: int, separate: bool, k: int) -> None:
    """Only four different vectors: products are exactly 0, 1 or -1, and ties stand at every
    boundary.
    """
    kinds = torch.randint(0, 4, (n,), generator=torch.Generator().manual_seed(n))
    vectors = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1]])[kinds]
    k = min(k, n - 1)
    own = None if not separate else vectors.flip(0)
    counts = torch.full((n,), k)
    order = torch.full((n, k), -1)
    for rows, found in nearest(vectors, own, counts, budget=SMALL):
        order[rows] = found
    sims = (vectors @ (vectors if own is None else own).T).tolist()
    for i in range(n):
        places = [j for j in range(n) if separate or j != i]
        assert order[i].tolist() == sorted(places, key=lambda j: (-sims[i][j], j))[:k]


def test_a_collapsed_model_is_judged_by_the_order_of_its_images() -> None:
    labels = torch.arange(640) // 2
    scores = query_scores(
        torch.ones(640, 4), labels, keep=2, budget=SMALL
    )  # of length 2: products are exactly 1
    assert scores.nearest[2:].tolist() == [[0, 1]] * 638 and scores.nearest[:2].tolist() == [
        [1, 2],
        [0, 2],
    ]
    assert retrieval_scores(torch.zeros(640, 8), labels)["p@1"] == 2 / 640


def test_tiny_huge_and_shifted_vectors_are_as_good_as_others() -> None:
    x, labels = clustered(120, 30)
    changed = [retrieval_scores(x * scale, labels) for scale in (1e-30, 1e30)]
    changed += [
        retrieval_scores(y, labels, distance="euclidean") for y in (x * 1e25, x.double() + 1000)
    ]
    for scores, distance in zip(
        changed, ("cosine", "cosine", "euclidean", "euclidean"), strict=True
    ):
        scores.pop("without_match")
        check(scores, x, labels, (1, 2, 4, 8), None, distance)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, "bfloat16"])
def test_torch_numpy_and_lists_of_any_precision(kind: Any) -> None:
    x, labels = clustered(60, 12)
    x = (x * 4).round()  # the same in every precision
    converted = x.bfloat16() if kind == "bfloat16" else x.numpy().astype(kind)
    for scores in (
        retrieval_scores(converted, labels.numpy()),
        retrieval_scores(x, labels.tolist()),
    ):
        scores.pop("without_match")
        check(scores, x, labels, (1, 2, 4, 8), None)


def test_recall_beyond_what_there_is() -> None:
    found = retrieval_scores(torch.eye(3), [0, 0, 1], ks=(1, 50))
    assert found["recall@50"] == 1 and found["queries"] == 2 and found["without_match"] == 1
    assert query_scores(torch.eye(3), [0, 0, 1], keep=5).nearest.tolist() == [
        [1, 2, -1, -1, -1],
        [0, 2] + [-1] * 3,
        [-1] * 5,
    ]


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_equal_to_pytorch_metric_learning(separate: bool, distance: str) -> None:
    calculators = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.utils.inference import CustomKNN

    x, labels = clustered(300, 90)  # some classes have one member
    gallery, of_them = clustered(260, 90, seed=1) if separate else (None, None)
    names = {
        "precision_at_1": "p@1",
        "r_precision": "r_precision",
        "mean_average_precision_at_r": "map@r",
    }
    search = CustomKNN(LpDistance(normalize_embeddings=distance == "cosine"))
    calculator = calculators.AccuracyCalculator(
        include=tuple(names), k="max_bin_count", knn_func=search
    )
    theirs = calculator.get_accuracy(x, labels, *((gallery, of_them) if separate else ()))
    ours = retrieval_scores(x, labels, gallery=gallery, gallery_labels=of_them, distance=distance)
    assert ours["without_match"] > 0 and 0.2 < ours["map@r"] < 0.9
    # Two neighbours whose similarities are equal up to rounding may change places: 1 of 300
    # queries.
    assert {name: ours[own] for name, own in names.items()} == pytest.approx(theirs, abs=1 / 300)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"embeddings": torch.ones(4)}, r"embeddings\b.*\(4,\)"),
        (
            {"embeddings": torch.tensor([[1.0], [2], [float("nan")], [1]])},
            r"embeddings\b.*NaN.*\brow 2\b",
        ),
        ({"labels": [0, 1]}, r"labels\b.*\b4\b.*\(2,\)"),
        ({"labels": [0.5, 1, 1, 1]}, r"labels\b.*torch\.float32"),
        ({"labels": [0, 1, 2, 3]}, r"\b4 queries\b"),
        ({"gallery": torch.ones(3, 2), "gallery_labels": [7, 8, 9]}, r"\b4 queries\b"),
        ({"distance": "manhattan"}, "cosine, euclidean.*'manhattan'"),
        ({"without_match": "drop"}, "'drop'"),
    ],
)
def test_wrong_input_is_refused(wrong: dict[str, Any], named: str) -> None:
    usual = {"embeddings": torch.rand(4, 2), "labels": [0, 0, 1, 1]}
    with pytest.raises(ValueError, match=named):
        retrieval_scores(**(usual | wrong))


def test_ks_may_be_an_array() -> None:
    x, y = torch.rand(6, 2), [0, 0, 1, 1, 2, 2]
    assert retrieval_scores(x, y, np.array([1, 2])) == retrieval_scores(x, y, (1, 2))


def test_all_misses_where_they_count() -> None:
    assert retrieval_scores(torch.eye(3), [0, 1, 2], without_match="miss")["map@r"] == 0
