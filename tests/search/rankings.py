"""Compare rankings whose scores were computed by different kernels: rows whose scores are closer than the rounding
errors may change places."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from torch import Tensor


def assert_ranked(
    rows: Sequence[int] | Tensor, scores: Mapping[int, float] | Tensor, atol: float = 1e-5
) -> None:
    """The rows are different, come from the highest score to the lowest, and the other rows have no higher ones."""
    ranking = [int(row) for row in rows]
    reference = dict(enumerate(scores.tolist())) if isinstance(scores, Tensor) else dict(scores)
    values = [reference.pop(row) for row in ranking]  # a row twice is a KeyError
    assert all(later <= earlier + atol for earlier, later in pairwise(values)), values
    assert not values or not reference or max(reference.values()) <= values[-1] + atol
