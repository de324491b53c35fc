"""The generic loss equals a double loop over anchors and examples with soft labels, values and
gradients, in all ten rows; it is finite and has gradients at y = 0 and 1, without positives, with
one class and in half floats.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cenote.losses import create_metric_loss, generic_loss, list_metric_losses, loss_table
from cenote.losses.forms import FORMS
from cenote.losses.metric import easy_and_semi_hard

exp, log = torch.exp, torch.log
Row = tuple[Callable[..., Tensor], ...]


def same(x: Tensor) -> Tensor:
    return x


# τ, σ+, σ-, ρ+, ρ- as Dissertation Table 2.1 prints them, with β, γ, m as D sets them, and no
# logarithm put off.
MS: Row = (
    same,
    lambda x: log(1 + x) / 18,
    lambda x: log(1 + x) / 75,
    lambda s: exp(-18 * (s - 0.77)),
    lambda s: exp(75 * (s - 0.77)),
)
BD: Row = (
    same,
    lambda x: log(1 + x),
    lambda x: log(1 + x),
    lambda s: exp(-2 * (s - 0.5)),
    lambda s: exp(50 * (s - 0.5)),
)
PA: Row = (
    same,
    lambda x: log(1 + x) / 32,
    lambda x: log(1 + x) / 32,
    lambda s: exp(-32 * (s - 0.1)),
    lambda s: exp(32 * (s + 0.1)),
)
TABLE: dict[str, Row] = {
    "contrastive": (same, same, same, lambda s: -s, lambda s: (s - 0.5).relu()),
    "lifted-structure": (torch.relu, log, log, lambda s: exp(-s), lambda s: exp(s - 1)),
    "binomial-deviance": BD,
    "multi-similarity": MS,
    "proxy-anchor": PA,
    "nca": (same, lambda x: -log(x), log, exp, exp),
    "proxy-nca": (same, lambda x: -log(x), log, exp, exp),
    "proxy-nca++": (same, lambda x: -log(x), log, lambda s: exp(s / 0.11), lambda s: exp(s / 0.11)),
    "soft-triple": (
        same,
        lambda x: -log(x),
        log,
        lambda s: exp(20 * (s - 0.01)),
        lambda s: exp(20 * s),
    ),
    "epshn": (same, lambda x: -log(x), log, lambda s: exp(s / 0.1), lambda s: exp(s / 0.1)),
}
SOFTMAX = (
    "nca",
    "proxy-nca++",
    "soft-triple",
    "epshn",
)  # the positives' sum is in the denominator as well


def slow(name: str, s: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    tau, sigma_pos, sigma_neg, rho_pos, rho_neg = TABLE[name]
    losses = []
    for a in range(len(s)):
        pos = neg = torch.zeros((), dtype=s.dtype)
        for x in range(s.shape[1]):
            if mask[a, x]:
                pos = pos + y[a, x] * rho_pos(s[a, x])
                neg = neg + (1 - y[a, x]) * rho_neg(s[a, x])
        losses.append(tau(sigma_pos(pos) + sigma_neg(pos + neg if name in SOFTMAX else neg)))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("name", list_metric_losses())
@pytest.mark.parametrize("hard", [False, True])
def test_equals_the_double_loop(name: str, hard: bool) -> None:
    torch.manual_seed(0)
    s = (2 * torch.rand(6, 9, dtype=torch.float64) - 1).requires_grad_()
    y = torch.rand(6, 9, dtype=torch.float64)
    mask = torch.rand(6, 9) < 0.8
    if hard:
        y = y.round()
    y[:, 0], y[:, 1], mask[:, :3] = (
        1,
        0,
        True,
    )  # labels of exactly 0 and 1 among the soft; nobody without either
    expected, found = slow(name, s, y, mask), generic_loss(s, y, name, mask=mask)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    (slope,), (wanted,) = torch.autograd.grad(found, s), torch.autograd.grad(expected, s)
    torch.testing.assert_close(slope, wanted, rtol=1e-8, atol=1e-12)
    assert slope[~mask].eq(0).all()


@pytest.mark.parametrize("name", list_metric_losses())
def test_gradcheck(name: str) -> None:
    torch.manual_seed(1)
    z = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 2])
    loss = create_metric_loss(name, 3, 4).double()
    if name != "epshn":  # which pairs it takes jumps
        assert torch.autograd.gradcheck(lambda z: loss(z, labels), z)
    loss(z, labels).backward()
    assert z.grad is not None and all(
        p.grad is not None and p.grad.abs().sum() > 0 for p in loss.parameters()
    )
    assert loss.proxied == bool(list(loss.parameters()))


@pytest.mark.parametrize("name", list_metric_losses())
@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3], [0], [1, 1, 2, 3]])
def test_a_batch_that_lacks_something_is_finite(name: str, labels: list[int]) -> None:
    torch.manual_seed(0)
    z = torch.randn(len(labels), 5, requires_grad=True)
    loss = create_metric_loss(name, 4, 5)
    value = loss(z, torch.tensor(labels))
    value.backward()
    assert value.isfinite() and z.grad is not None and z.grad.isfinite().all()


def test_a_batch_without_pairs_is_reported() -> None:
    pairs, proxies = (
        create_metric_loss("multi-similarity", 4, 5),
        create_metric_loss("proxy-anchor", 4, 5),
    )
    one, each, good = torch.zeros(4).long(), torch.arange(4), torch.tensor([0, 0, 1, 1])
    assert isinstance(pairs.silent(one), str) and isinstance(pairs.silent(each), str)
    assert pairs.silent(one) != pairs.silent(each)
    assert (
        pairs.silent(good) is None and proxies.silent(one) is None and proxies.silent(each) is None
    )


@pytest.mark.parametrize("name", ["nca", "epshn"])
def test_what_has_no_positive_pair_says_zero(name: str) -> None:
    z = torch.randn(4, 5, requires_grad=True)
    value = create_metric_loss(name, 4, 5)(z, torch.arange(4))
    value.backward()
    assert value.detach() == 0 and z.grad is not None and z.grad.eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", list_metric_losses())
def test_half_floats(name: str, dtype: torch.dtype) -> None:
    """At β = 18, γ = 75 too, and near to what float32 says: the sums are never made in half
    floats.
    """
    torch.manual_seed(0)
    z = torch.nn.functional.normalize(torch.randn(20, 16), dim=1)
    labels = torch.arange(20) % 5
    loss = create_metric_loss(name, 5, 16)
    half = z.to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(half, labels)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, loss(half.float(), labels))
    found.backward()
    assert half.grad is not None and half.grad.isfinite().all()
    extreme = torch.tensor([[1.0, 1.0, -1.0, -1.0]], dtype=dtype).requires_grad_()
    value = generic_loss(extreme, torch.tensor([[0.0, 1.0, 1.0, 0.0]]), FORMS[name])
    value.backward()
    assert value.isfinite() and extreme.grad is not None and extreme.grad.isfinite().all()


def test_no_float_overflows_where_the_formula_would() -> None:
    """e^(75 (1 - m)) of many negatives at m = -1 is far above float32: log(1 + Σ) / γ is not."""
    s, y = torch.ones(1, 1000, requires_grad=True), torch.zeros(1, 1000)
    found = generic_loss(s, y, "multi-similarity", {"m": -1.0})
    assert found.item() == pytest.approx(2 + math.log(1000) / 75)
    found.backward()
    torch.testing.assert_close(s.grad, torch.full((1, 1000), 1e-3))


def test_memory_is_more_examples_without_gradients() -> None:
    torch.manual_seed(0)
    z, memory = torch.randn(5, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    labels, of = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 2, 2, 0, 1])
    loss = create_metric_loss("multi-similarity", 3, 4)
    found = loss(z, labels, (memory, of))
    x = torch.nn.functional.normalize(torch.cat([z, memory.detach()]), dim=1)
    mask = torch.ones(5, 11, dtype=torch.bool)
    mask[range(5), range(5)] = False
    expected = slow(
        "multi-similarity", x[:5] @ x.T, (labels[:, None] == torch.cat([labels, of])).float(), mask
    )
    torch.testing.assert_close(found, expected)
    found.backward()
    assert memory.grad is None
    anchor = create_metric_loss("proxy-anchor", 3, 4)
    assert not torch.isclose(anchor(z, labels), anchor(z, labels, (memory, of)))
    with pytest.raises(ValueError, match="'proxy-nca'"):
        create_metric_loss("proxy-nca", 3, 4)(z, labels, (memory, of))


def test_epshn_takes_the_easy_positive_and_the_semi_hard_negative() -> None:
    s = torch.tensor([[1.0, 0.3, 0.6, 0.9, 0.5, 0.1]])
    positives = torch.tensor([[True, True, True, False, False, False]])
    mask = torch.tensor([[False, True, True, True, True, True]])
    chosen = easy_and_semi_hard(s, positives, mask)
    assert chosen.tolist() == [[False, False, True, False, True, False]]
    none_beyond = easy_and_semi_hard(s + torch.tensor([0, 0, 0, 0, 1, 1]), positives, mask)
    assert none_beyond.tolist() == [[False, False, True, False, False, False]]


def test_proxy_anchor_averages_positives_over_the_classes_that_are_there() -> None:
    """D 2.10 is a mean over anchors; the positive term of a proxy whose class is absent would
    dilute it to nothing.
    """
    s = torch.tensor([[0.5, 0.1], [0.2, 0.4], [0.3, 0.3], [-0.2, 0.9]], dtype=torch.float64)
    y = torch.tensor([[1.0, 0], [0, 1], [0, 0], [0, 0]], dtype=torch.float64)
    pos = [math.log(1 + math.exp(-32 * (s[i, i].item() - 0.1))) / 32 for i in range(2)]
    neg = [
        math.log(1 + sum(math.exp(32 * (s[i, j].item() + 0.1)) for j in range(2) if not y[i, j]))
        / 32
        for i in range(4)
    ]
    assert generic_loss(s, y, "proxy-anchor").item() == pytest.approx(sum(pos) / 2 + sum(neg) / 4)


def test_proxy_anchor_averages_negatives_over_all_proxies() -> None:
    """Also over that of the only class of a batch, which has no negative."""
    s = torch.tensor([[0.5, 0.1], [0.2, 0.4], [0.3, -0.3]], dtype=torch.float64)
    y = torch.tensor([[1.0, 1], [0, 0], [0, 0]], dtype=torch.float64)
    pos = math.log(1 + sum(math.exp(-32 * (v - 0.1)) for v in s[0].tolist())) / 32
    neg = [math.log(1 + sum(math.exp(32 * (v + 0.1)) for v in row)) / 32 for row in s[1:].tolist()]
    assert generic_loss(s, y, "proxy-anchor").item() == pytest.approx(pos + sum(neg) / 3)


def test_wrong_names_options_and_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'multi-similarty'.*'multi-similarity'"):
        create_metric_loss("multi-similarty", 3, 4)
    with pytest.raises(ValueError, match=r"'multi-similarity'.*'betta'.*'beta'"):
        create_metric_loss("multi-similarity", 3, 4, betta=1)
    with pytest.raises(ValueError, match=r"temperature\b.*'nca'.*\b0\b"):
        create_metric_loss("nca", 3, 4, temperature=0)
    with pytest.raises(ValueError, match=r"classes\b.*'proxy-nca'.*\b0\b"):
        create_metric_loss("proxy-nca", 0, 4)
    loss = create_metric_loss("proxy-nca", 3, 4)
    with pytest.raises(ValueError, match=r"'proxy-nca'.*\b0 to 2\b"):
        loss(torch.randn(2, 4), torch.tensor([0, 3]))
    with pytest.raises(RuntimeError, match=r"\(2x5 and 4x3\)"):
        loss(torch.randn(2, 5), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"\(2, 4\).*\(1,\)"):
        loss(torch.randn(2, 4), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(2, 2\)"):
        generic_loss(torch.zeros(2, 3), torch.zeros(2, 2), "nca")
    with pytest.raises(ValueError, match="'html'"):
        loss_table("html")
    with pytest.raises(ValueError, match="'html'"):
        generic_loss(torch.zeros(2, 3), torch.zeros(2, 3), "html")


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("multi-similarity", {"beta": "abc"}, r"beta\b.*'multi-similarity'.*'abc'"),
        ("multi-similarity", {"m": float("nan")}, r"\bm\b.*'multi-similarity'.*\bnan\b"),
        ("proxy-anchor", {"m": "abc"}, r"\bm\b.*'proxy-anchor'.*'abc'"),
        ("soft-triple", {"proxies": 2.5}, r"proxies\b.*'soft-triple'.*2\.5"),
        ("nca", {"softmax": "no"}, r"softmax\b.*'nca'.*'no'"),
        (3, {}, "'3'"),
    ],
)
def test_wrong_values_are_refused(name: str, options: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        create_metric_loss(name, 3, 4, **options)


def test_wrong_similarities_labels_and_settings_are_refused() -> None:
    s = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"\(3,\)"):
        generic_loss(s[0], s[0], "nca")
    with pytest.raises(ValueError, match=r"'bta'.*'beta'"):
        generic_loss(s, s, "multi-similarity", {"bta": 3})


@pytest.mark.parametrize("name", list_metric_losses())
def test_labels_are_whole_numbers_of_any_width_and_a_batch_may_be_empty(name: str) -> None:
    loss, z, labels = create_metric_loss(name, 3, 4), torch.randn(4, 4), torch.tensor([0, 0, 1, 2])
    with pytest.raises(ValueError, match=r"torch\.float32"):
        loss(z, labels.float())
    torch.testing.assert_close(loss(z, labels.int()), loss(z, labels))
    assert loss(z[:0], labels[:0]).isfinite()


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e8, 1e30])
@pytest.mark.parametrize("name", ["multi-similarity", "proxy-anchor"])
def test_lengths_do_not_matter(name: str, scale: float) -> None:
    torch.manual_seed(0)
    loss, z, labels = create_metric_loss(name, 3, 4), torch.randn(4, 4), torch.tensor([0, 0, 1, 2])
    torch.testing.assert_close(loss(z * scale, labels), loss(z, labels))
    nothing = torch.zeros(4, 4, requires_grad=True)
    loss(nothing, labels).backward()
    assert nothing.grad is not None and nothing.grad.isfinite().all()


def test_proxy_anchor_has_one_margin_unless_told() -> None:
    assert create_metric_loss("proxy-anchor", 3, 4, m=0.2).settings["m_neg"] == -0.2
    assert create_metric_loss("proxy-anchor", 3, 4, m=0.2, m_neg=0.2).settings["m_neg"] == 0.2
