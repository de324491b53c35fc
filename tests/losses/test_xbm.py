"""The memory holds the last vectors, as a list that forgets would; its state resumes; it takes no
gradients.
"""

import pytest
import torch
from torch import Tensor

from cenote.losses.xbm import CrossBatchMemory

SIZE, DIM = 7, 3


def rows(memory: CrossBatchMemory) -> set[tuple[float, ...]]:
    vectors, labels = memory.get()
    return {
        (*vector, label) for vector, label in zip(vectors.tolist(), labels.tolist(), strict=True)
    }


def batch(k: int, n: int) -> tuple[Tensor, Tensor]:
    return torch.arange(n * DIM).float().view(n, DIM) + 1000 * k, torch.arange(n) + 10 * k


@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [1] * 20, [7, 7], [20, 2], [5, 0, 5], [2, 9, 4]])
def test_it_holds_the_last_ones(sizes: list[int]) -> None:
    memory, oracle = CrossBatchMemory(SIZE, DIM), list[tuple[float, ...]]()
    assert [tuple(x.shape) for x in memory.get()] == [(0, DIM), (0,)]
    for k, n in enumerate(sizes):
        z, labels = batch(k, n)
        memory.add(z, labels)
        oracle = [*oracle, *((*v, y) for v, y in zip(z.tolist(), labels.tolist(), strict=True))][
            -SIZE:
        ]
        assert rows(memory) == set(oracle) and int(memory.filled) == len(oracle)


@pytest.mark.parametrize("before", [0, 1, 2, 3, 5])
def test_a_run_resumes_to_the_same_bits(before: int) -> None:
    one, other = CrossBatchMemory(SIZE, DIM), CrossBatchMemory(SIZE, DIM)
    for k in range(before):
        one.add(*batch(k, 4))
    other.load_state_dict(one.state_dict())
    for k in range(before, before + 3):
        one.add(*batch(k, 4))
        other.add(*batch(k, 4))
        for a, b in zip(one.get(), other.get(), strict=True):
            assert torch.equal(a, b)
    assert {"vectors", "labels", "pointer", "filled"} == set(one.state_dict())


def test_gradients_do_not_pass() -> None:
    memory, z = CrossBatchMemory(SIZE, DIM), torch.randn(4, DIM, requires_grad=True)
    memory.add(z * 2, torch.arange(4))
    vectors, _ = memory.get()
    assert not vectors.requires_grad and not list(memory.parameters())
    anchor = torch.randn(2, DIM, requires_grad=True)
    (anchor @ vectors.T).sum().backward()
    assert z.grad is None and anchor.grad is not None


def test_adding_before_backward_is_noticed() -> None:
    """The views that autograd keeps have changed: better a complaint than a wrong gradient."""
    memory, anchor = CrossBatchMemory(SIZE, DIM), torch.randn(2, DIM, requires_grad=True)
    memory.add(*batch(0, 5))
    loss = (anchor @ memory.get()[0].T).square().sum()
    memory.add(*batch(1, 5))
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


def test_half_floats_are_kept_as_floats() -> None:
    memory = CrossBatchMemory(SIZE, DIM)
    memory.add(torch.ones(2, DIM, dtype=torch.float16), torch.tensor([1, 2], dtype=torch.int32))
    vectors, labels = memory.get()
    assert (
        vectors.dtype == torch.float32 and labels.tolist() == [1, 2] and labels.dtype == torch.int64
    )


def test_bad_input_is_refused() -> None:
    memory = CrossBatchMemory(SIZE, DIM)
    with pytest.raises(RuntimeError, match=r"\[2, 4\].*\[2, 3\]"):
        memory.add(torch.ones(2, 4), torch.ones(2))
    with pytest.raises(RuntimeError, match=r"\[3\].*\[2\]"):
        memory.add(torch.ones(2, DIM), torch.ones(3))
    with pytest.raises(ValueError, match=r"\b0\b"):
        CrossBatchMemory(0, DIM)
