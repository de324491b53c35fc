"""What Metrix draws: λ per mixed example from Beta(α, α), places and pairs uniformly, all from the
generator given; and what it says or does where nothing can be mixed, under autocast, and with
losses that take no soft labels.
"""

import re

import pytest
import torch
from torch import Tensor

from cenote.losses import Metrix, Mixable, create_metric_loss
from cenote.losses import metrix as module
from cenote.losses.mixing import at_most, beta_draws, largest, rows_of

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def batch(labels: Tensor = LABELS) -> Mixable:
    torch.manual_seed(0)
    z = torch.randn(len(labels), 4, requires_grad=True)
    maps, images = torch.randn(len(labels), 3, 4), torch.randn(len(labels), 3, 2, 2)
    return Mixable(labels, z, maps, images, lambda m: m.amax(1), lambda i: i.flatten(1)[:, :4])


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.0])
def test_lambda_is_beta(alpha: float) -> None:
    from scipy import stats

    lam = beta_draws(alpha, (100, 200), torch.Generator().manual_seed(0), torch.zeros(()))
    assert lam.dtype == torch.float32 and lam.isfinite().all()
    assert stats.kstest(lam.flatten().double().numpy(), stats.beta(alpha, alpha).cdf).pvalue > 1e-4
    assert len(lam.unique()) > 19_000  # one of its own for each mixed example


def test_places_and_pairs_are_drawn_uniformly_and_again_from_the_same_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With λ = 0.3 everywhere the value depends on nothing but the place and the pairs that were
    drawn.
    """
    monkeypatch.setattr(
        module, "beta_draws", lambda alpha, shape, generator, like: like.new_full(shape, 0.3)
    )
    loss, generator, data = (
        create_metric_loss("multi-similarity", 3, 4),
        torch.Generator().manual_seed(0),
        batch(),
    )
    metrix = Metrix(("input", "feature", "embed"), ("pos-neg", "anc-neg"))
    combinations = [Metrix((where,), (pairs,)) for where in metrix.where for pairs in metrix.pairs]
    values = torch.stack([combination.mixed(loss, data).detach() for combination in combinations])
    assert values.sort().values.diff().min() > 1e-3  # all different

    @torch.no_grad()
    def draw() -> int:
        return int((values - metrix.mixed(loss, data, generator)).abs().argmin())

    counts = torch.bincount(torch.tensor([draw() for _ in range(300)]), minlength=6)
    assert all(25 < count < 75 for count in counts.tolist())
    state = generator.get_state()
    first = [draw() for _ in range(20)]
    generator.set_state(state)
    assert first == [draw() for _ in range(20)]


@pytest.mark.parametrize("where", module.WHERE)
@pytest.mark.parametrize("name", ["multi-similarity", "proxy-anchor", "proxy-nca"])
def test_a_generator_s_state_decides_everything(where: str, name: str) -> None:
    loss, generator = create_metric_loss(name, 3, 4), torch.Generator().manual_seed(3)
    metrix, data = Metrix((where,)), batch()
    state = generator.get_state()
    first = [metrix(loss, data, generator).item() for _ in range(4)]
    torch.manual_seed(9)  # torch's own generator plays no part
    generator.set_state(state)
    assert (
        first == [metrix(loss, data, generator).item() for _ in range(4)] and len(set(first)) == 4
    )
    torch.manual_seed(4)
    default = metrix(loss, data).item()
    torch.manual_seed(4)
    assert default == metrix(loss, data).item()


@pytest.mark.parametrize("where", module.WHERE)
@pytest.mark.parametrize("pairs", module.PAIRS)
@pytest.mark.parametrize(
    "name",
    ["contrastive", "multi-similarity", "nca", "proxy-anchor", "proxy-nca++", "lifted-structure"],
)
@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [0, 0, 1], [1]])
def test_batches_that_cannot_be_mixed_train_on(
    where: str, pairs: str, name: str, labels: list[int]
) -> None:
    data, loss = batch(torch.tensor(labels)), create_metric_loss(name, 3, 4)
    value = Metrix((where,), (pairs,))(loss, data)
    value.backward()
    assert value.isfinite() and data.z.grad is not None and data.z.grad.isfinite().all()


@pytest.mark.parametrize("where", ["feature", "embed"])
def test_all_partners_take_part_where_they_cost_little(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 30 other classes: 16 if a pool must see the mixture, all if not, fewer if there are many
    proxies.
    """
    limits: list[int] = []

    def noted(allowed: Tensor, most: int | None, generator: torch.Generator | None) -> Tensor:
        limits.append(int(allowed.sum(1).max()) if most is None else most)
        return at_most(allowed, most, generator)

    monkeypatch.setattr(module, "at_most", noted)
    monkeypatch.setattr(module, "TO_PROXIES", 20_000)
    data = batch(torch.arange(31))
    pairs, proxies = (
        create_metric_loss("multi-similarity", 31, 4),
        create_metric_loss("proxy-nca", 31, 4),
    )
    many = create_metric_loss("proxy-nca", 100, 4)
    not_built = data._replace(
        mixed=lambda maps, b, c, lam: torch.lerp(maps[c], maps[b], lam[:, None, None]).amax(1)
    )
    for loss, mixable in (
        (pairs, data),
        (pairs, not_built),
        (proxies, data),
        (proxies, not_built),
        (many, not_built),
    ):
        Metrix((where,), ("anc-neg",)).mixed(loss, mixable)
    to_proxies, to_many = 20_000 // (31 * 31), 20_000 // (31 * 100)
    if where == "feature":
        assert limits == [16, module.MOST // 31, 16, to_proxies, to_many]
    else:
        assert limits == [30, 30, to_proxies, to_proxies, to_many]


def test_a_batch_that_cannot_be_mixed_is_reported() -> None:
    pair, proxy = (
        create_metric_loss("multi-similarity", 6, 4),
        create_metric_loss("proxy-anchor", 6, 4),
    )
    one, each = torch.zeros(6).long(), torch.arange(6)
    without_negatives, without_positives = (
        Metrix().silent(pair, one),
        Metrix(pairs=("pos-neg",)).silent(pair, each),
    )
    assert isinstance(without_negatives, str) and isinstance(without_positives, str)
    assert without_negatives != without_positives
    assert (
        Metrix().silent(pair, each) is None
        and Metrix(pairs=("pos-neg",)).silent(proxy, each) is None
    )
    assert Metrix().silent(pair, LABELS) is None


@pytest.mark.parametrize("where", module.WHERE)
def test_the_model_stays_under_autocast_and_the_loss_does_not(where: str) -> None:
    data, seen = batch(), []

    def watched(x: Tensor, *rest: Tensor) -> Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return x.flatten(1)[:, :4] @ torch.eye(4)

    data = data._replace(embed=watched, network=watched, z=data.z.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        value = Metrix((where,), alpha=0.2)(create_metric_loss("multi-similarity", 3, 4), data)
    value.backward()
    assert (
        value.dtype == torch.float32
        and value.isfinite()
        and all(seen)
        and bool(seen) == (where != "embed")
    )


def test_what_it_needs() -> None:
    assert Metrix().needs_maps and not Metrix().needs_images
    assert Metrix(("input", "embed")).needs_images and not Metrix(("embed",)).needs_maps
    loss, bare = create_metric_loss("nca", 3, 4), Mixable(LABELS, torch.randn(6, 4))
    assert Metrix()(loss, bare._replace(linear=True)).isfinite()


@pytest.mark.parametrize(
    "wrong",
    [
        {"where": ("pixel",)},
        {"pairs": ()},
        {"alpha": 0.0},
        {"hardest": 0},
        {"chunk": 0},
        {"negatives": 0},
        {"weight": -1.0},
        {"weight": "abc"},
        {"alpha": float("nan")},
        {"hardest": 2.5},
        {"chunk": 1.5},
        {"where": "feature"},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    option, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=rf"{option}\b.*Metrix.*{re.escape(repr(value))}"):
        Metrix(**wrong)  # type: ignore[arg-type]


def test_labels_that_no_loss_takes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'proxy-nca'.*\b0 to 1\b"):
        Metrix(("embed",)).mixed(create_metric_loss("proxy-nca", 2, 4), batch())


def test_losses_without_soft_labels_are_refused() -> None:
    pytest.importorskip(
        "pytorch_metric_learning", reason="pytorch-metric-learning is not installed"
    )
    with pytest.raises(ValueError, match="'pml/TripletMarginLoss'"):
        Metrix()(create_metric_loss("pml/TripletMarginLoss", 3, 4), batch())


def test_partners() -> None:
    allowed = torch.tensor([[True, True, True, False], [False] * 4, [False, True, False, False]])
    few = at_most(allowed, 2, torch.Generator().manual_seed(0))
    assert (
        few.sum(1).tolist() == [2, 0, 1]
        and (few <= allowed).all()
        and at_most(allowed, None, None) is allowed
    )
    values = torch.tensor([[1.0, 3.0, 2.0, 9.0]] * 3)
    assert largest(values, allowed, 2).tolist() == [
        [False, True, True, False],
        [False] * 4,
        [False, True, False, False],
    ]
    which, there = rows_of(allowed)
    assert which[there].tolist() == [0, 1, 2, 1] and there.sum(1).tolist() == [3, 0, 1]
