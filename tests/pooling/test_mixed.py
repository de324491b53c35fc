"""Pools that need not see mixed maps say of them what they say of maps that are built, gradients
included.
"""

import pytest
import torch
from torch import Tensor

from cenote.pooling import MixablePool, create_pool, list_pools
from cenote.pooling.kernels import mixed_max, threads
from tests.threads import thread_count

MIXING = ["gap", "max", "gap+max"]


@pytest.fixture(params=["compiled", "built"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "built":
        monkeypatch.setattr(threads, "available", lambda: False)
        monkeypatch.setattr(mixed_max, "CHUNK", 7)
    return str(request.param)


def drawn(
    dtype: torch.dtype = torch.float64, pairs: int = 40
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, 9, generator=draw, dtype=torch.float64).to(dtype)
    b, c = torch.randint(6, (2, pairs), generator=draw)
    return x, b, c, torch.rand(pairs, generator=draw)


def test_pools_that_mix_without_building_maps() -> None:
    assert [
        name for name in list_pools() if isinstance(create_pool(name, 32), MixablePool)
    ] == MIXING


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_as_if_they_were_built(name: str, threads: int, way: str, layout: str) -> None:
    pool, (x, b, c, lam) = create_pool(name, 9), drawn()
    g = torch.randn(len(b), 9, dtype=torch.float64)
    if layout == "columns":
        x, g = x.mT.contiguous().mT, g.T.contiguous().T
    one, other = (x.clone().requires_grad_() for _ in range(2))
    assert one.is_contiguous() == (layout == "rows")
    with thread_count(threads):
        found = pool.mixed(one, b, c, lam)
        found.backward(g)
    wanted = pool(torch.lerp(other[c], other[b], lam.double()[:, None, None]))
    wanted.backward(g)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_mixed_as_floats(name: str, dtype: torch.dtype, way: str) -> None:
    x, b, c, lam = drawn(dtype)
    x.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = create_pool(name, 9).mixed(x, b, c, lam)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, create_pool(name, 9).mixed(x.float(), b, c, lam))
    assert create_pool(name, 9).mixed(x, b, c, lam).dtype == create_pool(name, 9)(x).dtype == dtype
    found.sum().backward()
    assert x.grad is not None and x.grad.dtype == dtype and bool(x.grad.isfinite().all())


@pytest.mark.parametrize("name", MIXING)
def test_no_pairs_and_no_order(name: str, way: str) -> None:
    pool, (x, b, c, lam) = create_pool(name, 9), drawn()
    assert pool.mixed(x, b[:0], c[:0], lam[:0]).shape == (0, 9)
    found = pool.mixed(x, b.flip(0), c.flip(0), lam.flip(0))
    torch.testing.assert_close(found.flip(0), pool.mixed(x, b, c, lam))


@pytest.mark.parametrize("name", MIXING)
def test_what_is_no_number_is_not_hidden(name: str, way: str) -> None:
    x, b, c, lam = drawn()
    x[2, 3, 4] = torch.nan
    found = create_pool(name, 9).mixed(x, b, c, lam)
    assert torch.equal(
        found.isnan(),
        create_pool(name, 9)(torch.lerp(x[c], x[b], lam.double()[:, None, None])).isnan(),
    )
    assert found.isnan().any()


@pytest.mark.parametrize("name", MIXING)
def test_pairs_that_are_not_there(name: str, way: str) -> None:
    pool, (x, b, c, lam) = create_pool(name, 9), drawn()
    for wrong in (6, -7):
        with pytest.raises(IndexError):
            pool.mixed(x, torch.full_like(b, wrong), c, lam)
    with pytest.raises(ValueError, match=r"\(40,\), \(3,\), \(40,\)"):
        pool.mixed(x, b, c[:3], lam)
    with pytest.raises(ValueError, match="dim=9"):
        pool.mixed(x[..., :4], b, c, lam)


def test_of_equals_the_first_has_the_gradient(way: str) -> None:
    x = torch.zeros(2, 4, 3, requires_grad=True)
    one = torch.tensor([1])
    create_pool("max", 3).mixed(x, torch.tensor([0]), one, torch.tensor([0.25])).sum().backward()
    assert (
        x.grad is not None
        and x.grad[:, 0].tolist() == [[0.25] * 3, [0.75] * 3]
        and not x.grad[:, 1:].any()
    )
