"""The laws that every pool obeys, asked of every pool in the same words."""

import copy
import re
import zlib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cenote.pooling import NoAttention, OnMap, Pool, create_pool, list_pools
from cenote.pooling.kernels import threads

Case = tuple[str, dict]

DIM, GRID = 24, (3, 4)
VARIANTS = [
    ("simpool", {"gamma": 2.0}),
    ("simpool", {"gamma": 1.25}),
    ("simpool", {"gamma": 3.0}),
    ("simpool", {"gamma": 0.5}),
    ("simpool", {"gamma": 2.0, "floor": "channel"}),
    ("simpool", {"gamma": 2.0, "heads": 4}),
    ("simpool", {"gamma": 1.25, "layers": 3}),
    ("simpool", {"iterations": 3}),
    ("simpool", {"gamma": 2.0, "init": "learned"}),
    ("simpool", {"init": "norm"}),
    ("simpool", {"similarity": "distance"}),
    ("simpool", {"similarity": "cosine"}),
    ("simpool", {"k": 2, "gamma": 2.0}),
    ("simpool", {"k": 2, "attention": "queries"}),
    ("simpool", {"gamma": 2.0, "linear": "qkv", "norm": "qkv", "beta": True}),
    ("simpool", {"linear": "", "norm": "", "gamma": 2.0}),
    ("simpool", {"tied": True}),
    ("simpool", {"gamma": 2.0, "learn_gamma": True, "max_gamma": 5.0}),
    ("clip", {"pos_grid": GRID}),
    ("gsp", {"plus": "max"}),
    ("gsp", {"plus": "gem"}),
    ("gsp", {"mu": 1.0}),
    ("gsp", {"eps": 200.0}),
]
CASES: list[Case] = [(name, {}) for name in list_pools()] + VARIANTS
# Tracing takes a second per pool. The default run traces each pool once, and SimPool also with its
# power.
TRACED_BY_DEFAULT = [*CASES[: -len(VARIANTS)], ("simpool", {"gamma": 2.0})]
# Parameters that have no effect, so that they get no gradient.
WITHOUT_GRADIENT = {("gsp", "mu"): {"prototypes"}}  # mu = 1 is GAP


def for_each(
    cases: list[Case],
    by_default: list[Case] | None = None,
    unless: Callable[[Pool], object] = lambda pool: "",
) -> pytest.MarkDecorator:
    """Run a law for each case. A case for which `unless` returns a reason is skipped with it; all
    but the cases in `by_default` are marked slow, None marks none.
    """
    parameters = []
    for name, options in cases:
        marks = [] if by_default is None or (name, options) in by_default else [pytest.mark.slow]
        if reason := unless(create_pool(name, DIM, **options)):
            marks.append(pytest.mark.skip(reason=f"{name}: {reason}"))
        label = "-".join([name, *(f"{key}={value}" for key, value in options.items())])
        parameters.append(pytest.param(name, options, id=label, marks=marks))
    return pytest.mark.parametrize(("name", "options"), parameters)


def not_trainable(pool: Pool) -> str:
    if not list(pool.parameters()):
        return "has no parameters"
    return "mu=1 is GAP: no parameter has an effect" if pool.name == "gsp" and pool.mu == 1 else ""


every_pool = for_each(CASES)
every_pool_with_a_map = for_each(CASES, unless=lambda pool: pool.no_attention)
every_pool_without_a_map = for_each(
    CASES, unless=lambda pool: "" if pool.no_attention else "has an attention map"
)
every_pool_for_one_token = for_each(
    CASES, unless=lambda pool: "needs more tokens" if pool.min_tokens > 1 else ""
)
every_pool_for_more_tokens = for_each(
    CASES, unless=lambda pool: "takes one token" if pool.min_tokens == 1 else ""
)
every_trainable_pool = for_each(CASES, unless=not_trainable)
every_pool_with_a_row = for_each(
    CASES,
    unless=lambda pool: (
        "its published fixed point does not converge at eps=200: test_gsp compares with a root finder"
        if pool.name == "gsp" and pool.eps == 200
        else ""
    ),
)


@pytest.fixture(autouse=True)
def compiled_loops(monkeypatch):
    """Eager runs take the compiled path, although these inputs are small."""
    monkeypatch.setattr(threads, "WORTH_IT", 0)


def make(name: str, options: dict, dtype: torch.dtype = torch.float32) -> Pool:
    torch.manual_seed(zlib.crc32(name.encode()))
    pool = create_pool(name, DIM, **options).to(dtype).eval()
    for p in pool.parameters():  # away from zeros and ones, where mistakes hide
        p.data.add_(torch.randn_like(p) * 0.1)
    return pool


def features(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def run(pool: Pool, x: Tensor, grid: tuple[int, int] = GRID) -> tuple[Tensor, list[Tensor]]:
    """Output, and the gradients of a fixed random projection of it in x and all parameters."""
    x = x.detach().requires_grad_()
    u = pool(x, grid)
    loss = (u * features(*u.shape, dtype=u.dtype, seed=9)).sum()
    inputs = [x, *pool.parameters()]
    grads = torch.autograd.grad(loss, inputs, allow_unused=True)
    return u.detach(), [
        torch.zeros_like(i) if g is None else g for g, i in zip(grads, inputs, strict=True)
    ]


@every_pool_for_one_token
def test_shapes_with_one_token(name, options):
    check_shapes(make(name, options), 1, (1, 1))


@every_pool
@pytest.mark.parametrize(("batch", "grid"), [(1, (3, 4)), (3, (5, 2)), (2, (8, 8))])
def test_shapes(name, options, batch, grid):
    check_shapes(make(name, options), batch, grid)


def check_shapes(pool: Pool, batch: int, grid: tuple[int, int]) -> None:
    x = features(batch, grid[0] * grid[1], DIM)
    u = pool(x, grid)
    assert u.shape == ((batch, pool.out_dim) if pool.k == 1 else (batch, pool.k, pool.out_dim))
    assert u.isfinite().all()
    torch.testing.assert_close(pool.on_map(x.mT.unflatten(2, grid)), u, rtol=1e-4, atol=1e-5)


@every_pool_for_more_tokens
def test_too_few_tokens_are_refused(name, options):
    pool = make(name, options)
    few = pool.min_tokens - 1
    with pytest.raises(ValueError, match=rf"'{name}'.*\b{pool.min_tokens}\b.*\b{few}\b"):
        pool(features(2, few, DIM), (1, few))


@every_pool
def test_a_map_and_its_tokens_agree(name, options):
    """A CNN's (B, C, H, W) arrives as a strided view; values and gradients are those of plain
    tokens.
    """
    pool, maps = make(name, options, torch.float64), features(3, DIM, *GRID, dtype=torch.float64)
    u, (dx, *grads) = run(pool, maps.flatten(2).mT.contiguous())
    u_map, (dx_map, *grads_map) = run(pool, maps.flatten(2).mT)
    for ours, theirs in zip((u_map, dx_map, *grads_map), (u, dx, *grads), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@every_pool_without_a_map
def test_a_pool_without_a_map_says_so(name, options):
    with pytest.raises(NoAttention, match=f"'{re.escape(name)}'"):
        make(name, options).attend(features(3, 12, DIM), GRID)


@every_pool_with_a_map
def test_maps(name, options):
    pool, x = make(name, options), features(3, 12, DIM)
    u, a = pool.attend(x, GRID)
    torch.testing.assert_close(u, pool(x, GRID), rtol=1e-4, atol=1e-5)  # may take another kernel
    assert a.shape[0] == 3 and a.shape[2:] == GRID
    assert (a >= 0).all() and (a > 0).any()
    if pool.sums_to_one:
        torch.testing.assert_close(a.sum((2, 3)), torch.ones(a.shape[:2]))
    _, on_map = pool.attend_on_map(x.mT.unflatten(2, GRID))
    torch.testing.assert_close(on_map, a, rtol=1e-4, atol=1e-5)
    if not pool.needs_grid:
        torch.testing.assert_close(pool.attend(x)[1], a.flatten(2), rtol=1e-4, atol=1e-5)


@every_pool
def test_no_map_is_invented(name, options):
    pool = make(name, options)
    _, a = pool.vectors_and_maps(features(2, 12, DIM), GRID)
    assert (a is None) == bool(pool.no_attention)


@every_pool
def test_an_image_does_not_depend_on_its_batch(name, options):
    pool, x = make(name, options), features(4, 12, DIM)
    x[0] *= 30
    together = pool(x, GRID)
    for i in range(4):
        torch.testing.assert_close(pool(x[i : i + 1], GRID)[0], together[i], rtol=1e-4, atol=1e-5)


@every_pool
def test_order_of_tokens(name, options):
    pool, x = make(name, options, torch.float64), features(2, 12, DIM, dtype=torch.float64)
    shuffled = x[:, torch.randperm(12, generator=torch.Generator().manual_seed(1))]
    same = torch.allclose(pool(x, GRID), pool(shuffled, GRID), rtol=1e-8, atol=1e-10)
    assert same or not pool.permutation_invariant
    if pool.needs_grid:
        assert not same, "a pool that looks at neighbours must feel their order"


@every_pool
def test_every_parameter_gets_a_gradient(name, options):
    pool, x = make(name, options).train(), features(3, 12, DIM).requires_grad_()
    u = pool(x, GRID)
    (u * features(*u.shape, seed=9)).sum().backward()
    assert x.grad is not None and x.grad.isfinite().all() and x.grad.abs().sum() > 0
    excepted = {
        p for (n, o), names in WITHOUT_GRADIENT.items() if n == name and o in options for p in names
    }
    missing = {n for n, p in pool.named_parameters() if p.grad is None}
    assert missing <= excepted
    assert all(p.grad.isfinite().all() for p in pool.parameters() if p.grad is not None)


@every_trainable_pool
def test_frozen_features(name, options):
    """A probe trains the pool alone: the same gradients, none in x."""
    pool, x = make(name, options, torch.float64), features(3, 12, DIM, dtype=torch.float64)
    _, (_, *expected) = run(pool, x)
    u = pool(x, GRID)
    (u * features(*u.shape, dtype=u.dtype, seed=9)).sum().backward()
    for p, grad in zip(pool.parameters(), expected, strict=True):
        torch.testing.assert_close(torch.zeros_like(p) if p.grad is None else p.grad, grad)


@every_pool
def test_gradcheck(name, options):
    pool = make(name, options, torch.float64)
    n = max(4, pool.min_tokens)
    x = features(2, n, DIM, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: pool(t, (2, n // 2)), (x,), fast_mode=True)


@every_pool_with_a_row
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2])
def test_layer_equals_its_row(name, options, scale):
    """What users get is the method as declared in the framework: values and gradients."""
    pool, x = make(name, options, torch.float64), features(2, 12, DIM, dtype=torch.float64) * scale

    class Row(type(pool)):
        pool = Pool.pool  # runs algorithm()

    row = copy.deepcopy(pool)
    row.__class__ = Row
    (u, grads), (u_row, grads_row) = run(pool, x), run(row, x)
    torch.testing.assert_close(u, u_row, rtol=1e-9, atol=1e-11)
    for ours, theirs in zip(grads, grads_row, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


@every_pool
@pytest.mark.parametrize("kind", ["zero", "constant", "negative", "huge", "tiny", "one hot token"])
def test_odd_inputs(name, options, kind):
    x = features(2, 12, DIM)
    x = {
        "zero": torch.zeros_like(x),
        "constant": torch.full_like(x, 0.7),
        "negative": -x.abs() - 1,
        "huge": x * 1e4,
        "tiny": x * 1e-6,
        "one hot token": torch.zeros_like(x).index_fill(1, torch.tensor([5]), 3.0),
    }[kind]
    u, grads = run(make(name, options), x)
    assert u.isfinite().all()
    assert all(g.isfinite().all() for g in grads)


@every_pool
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(name, options, dtype):
    pool, x = make(name, options), features(2, 12, DIM) * 5
    x = x.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        u = pool(x, GRID)
    torch.testing.assert_close(u, pool(x.detach().float(), GRID), rtol=1e-4, atol=1e-5)
    u.square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in (x, *pool.parameters()))


@every_pool
def test_a_network_in_bfloat16(name, options):
    """Weights and features without autocast: what follows the pool gets bfloat16 as well."""
    u = make(name, options, torch.bfloat16)(features(2, 12, DIM).bfloat16(), GRID)
    assert u.dtype == torch.bfloat16 and u.isfinite().all()


@every_pool
def test_an_empty_batch(name, options):
    pool, x = make(name, options).train(), features(0, 12, DIM).requires_grad_()
    u = pool(x, GRID)
    assert u.shape == pool(features(2, 12, DIM), GRID)[:0].shape
    u.sum().backward()
    assert all(b.isfinite().all() for b in pool.buffers())


@for_each(TRACED_BY_DEFAULT)
def test_traces_without_breaks(name, options):
    """The traced path and the eager one (compiled loops on CPU) are the same function, gradients
    included.
    """
    check_compiled(make(name, options, torch.float64), backend="eager")


@for_each(CASES, by_default=[("simpool", {"gamma": 2.0})])
def test_compiles_without_breaks(name, options):
    """As above, with the backward pass traced as well, which takes twice as long."""
    check_compiled(make(name, options, torch.float64), backend="aot_eager")


def check_compiled(pool: Pool, backend: str) -> None:
    torch._dynamo.reset()
    x = features(2, 12, DIM, dtype=torch.float64)
    u, grads = run(pool, x)
    compiled = copy.deepcopy(pool)
    compiled.forward = torch.compile(compiled.forward, fullgraph=True, backend=backend)
    u_compiled, grads_compiled = run(compiled, x)
    torch.testing.assert_close(u_compiled, u, rtol=1e-9, atol=1e-11)
    for ours, theirs in zip(grads_compiled, grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


@for_each(CASES, by_default=TRACED_BY_DEFAULT)
def test_exports_with_dynamic_batch_and_grid(name, options):
    layer = OnMap(make(name, options))
    dims = {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    program = torch.export.export(layer, (features(2, DIM, 5, 6),), dynamic_shapes=(dims,)).module()
    for shape in ((3, DIM, 4, 7), (1, DIM, 9, 4)):
        x = features(*shape)
        torch.testing.assert_close(program(x), layer(x), rtol=1e-4, atol=1e-5)


@every_pool
def test_saving_and_copying(name, options):
    pool, x = make(name, options), features(2, 12, DIM)
    other = create_pool(name, DIM, **options).eval()
    other.load_state_dict(pool.state_dict())
    before = copy.deepcopy(pool.state_dict())
    assert all(torch.equal(value, before[key]) for key, value in other.state_dict().items())
    torch.testing.assert_close(other(x, GRID), pool(x, GRID), rtol=1e-4, atol=1e-5)
    for parameter in copy.deepcopy(pool).parameters():
        parameter.data.add_(1)
    assert all(torch.equal(value, before[key]) for key, value in pool.state_dict().items())


@for_each([(name, {}) for name in list_pools()])
def test_local_embeds_every_position_before_it_is_pooled(name: str, options: dict) -> None:
    pool = create_pool(name, 7, local=DIM, **options).eval()
    inner = create_pool(name, DIM, **options).eval()
    state = {key: v for key, v in pool.state_dict().items() if not key.startswith("local.")}
    inner.load_state_dict(state)
    x = torch.randn(2, 12, 7)
    embedded = x @ pool.local.weight.T + pool.local.bias  # type: ignore[operator,union-attr]
    u = pool(x, GRID)
    torch.testing.assert_close(u, inner(embedded, GRID), rtol=1e-4, atol=1e-5)
    u.square().sum().backward()
    assert all(p.grad is not None for p in pool.local.parameters())
    assert pool.options["local"] == DIM
