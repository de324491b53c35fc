"""What Metrix draws: λ per mixed example from Beta(α, α), places and pairs uniformly, all from the generator given;
and what it says or does where nothing can be mixed, under autocast, and with losses that take no soft labels."""

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
    assert stats.kstest(lam.flatten().double().numpy(), stats.beta(alpha, alpha).cdf).pvalue > 0.01
    assert len(lam.unique()) > 19_000  # one of its own for each mixed example


def test_places_and_pairs_are_drawn_uniformly_and_again_from_the_same_state(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def note(self: Metrix, loss: object, batch: Mixable, where: str, pairs: str, generator: object) -> Tensor:
        seen.append((where, pairs))
        return batch.z.sum()

    monkeypatch.setattr(Metrix, "_against_examples", note)
    metrix = Metrix(("input", "feature", "embed"), ("pos-neg", "anc-neg"))
    loss, generator, data = create_metric_loss("nca", 3, 4), torch.Generator().manual_seed(0), batch()
    for _ in range(600):
        metrix.mixed(loss, data, generator)
    assert all(70 < seen.count((w, p)) < 130 for w in metrix.where for p in metrix.pairs)
    state = generator.get_state()
    first = [metrix.mixed(loss, data, generator) and seen[-1] for _ in range(20)]
    generator.set_state(state)
    assert first == [metrix.mixed(loss, data, generator) and seen[-1] for _ in range(20)]


@pytest.mark.parametrize("where", module.WHERE)
@pytest.mark.parametrize("name", ["multi-similarity", "proxy-anchor", "proxy-nca"])
def test_a_generator_s_state_decides_everything(where: str, name: str) -> None:
    loss, generator = create_metric_loss(name, 3, 4), torch.Generator().manual_seed(3)
    metrix, data = Metrix((where,)), batch()
    state = generator.get_state()
    first = [metrix(loss, data, generator).item() for _ in range(4)]
    torch.manual_seed(9)  # torch's own generator plays no part
    generator.set_state(state)
    assert first == [metrix(loss, data, generator).item() for _ in range(4)] and len(set(first)) == 4
    torch.manual_seed(4)
    default = metrix(loss, data).item()
    torch.manual_seed(4)
    assert default == metrix(loss, data).item()


@pytest.mark.parametrize("where", module.WHERE)
@pytest.mark.parametrize("pairs", module.PAIRS)
@pytest.mark.parametrize(
    "name", ["contrastive", "multi-similarity", "nca", "proxy-anchor", "proxy-nca++", "lifted-structure"]
)
@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [0, 0, 1], [1]])
def test_batches_that_cannot_be_mixed_train_on(where: str, pairs: str, name: str, labels: list[int]) -> None:
    data, loss = batch(torch.tensor(labels)), create_metric_loss(name, 3, 4)
    value = Metrix((where,), (pairs,))(loss, data)
    value.backward()
    assert value.isfinite() and data.z.grad is not None and data.z.grad.isfinite().all()


@pytest.mark.parametrize("where", ["feature", "embed"])
def test_all_partners_take_part_where_they_cost_little(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 other classes: 16 if a pool must see the mixture, all if not, fewer if proxies or images are many."""
    labels = torch.arange(31)
    data, asked = batch(labels), list[int]()

    def note(allowed: Tensor, most: int | None, generator: object) -> Tensor:
        asked.append(int(allowed.sum(1).max()) if most is None else most)
        return allowed

    monkeypatch.setattr(module, "at_most", note)
    pairs, proxies = create_metric_loss("multi-similarity", 31, 4), create_metric_loss("proxy-nca", 31, 4)
    unseen = data._replace(mixed=lambda maps, b, c, lam: torch.lerp(maps[c], maps[b], lam[:, None, None]).amax(1))
    many = create_metric_loss("proxy-nca", 100_000, 4)
    for loss, given in ((pairs, data), (pairs, unseen), (proxies, data), (proxies, unseen), (many, unseen)):
        Metrix((where,), ("anc-neg",)).mixed(loss, given)
    feature = [16, 20_000 // 31, 16, 20_000 // 31, 20_000_000 // (31 * 100_000)]
    assert asked == (feature if where == "feature" else [30, 30, 20_000_000 // 31**2, 20_000_000 // 31**2, 6])


def test_silence_is_said() -> None:
    pair, proxy = create_metric_loss("multi-similarity", 6, 4), create_metric_loss("proxy-anchor", 6, 4)
    one, each = torch.zeros(6).long(), torch.arange(6)
    assert "no negatives to mix" in str(Metrix().silent(pair, one))
    assert "no positives to mix" in str(Metrix(pairs=("pos-neg",)).silent(pair, each))
    assert Metrix().silent(pair, each) is None and Metrix(pairs=("pos-neg",)).silent(proxy, each) is None
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
    assert value.dtype == torch.float32 and value.isfinite() and all(seen) and bool(seen) == (where != "embed")


def test_what_it_needs() -> None:
    assert Metrix().needs_maps and not Metrix().needs_images
    assert Metrix(("input", "embed")).needs_images and not Metrix(("embed",)).needs_maps
    loss, bare = create_metric_loss("nca", 3, 4), Mixable(LABELS, torch.randn(6, 4))
    with pytest.raises(ValueError, match="needs the maps"):
        Metrix()(loss, bare)
    with pytest.raises(ValueError, match="needs the images"):
        Metrix(("input",))(loss, bare)
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
def test_wrong_settings_are_sentences(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Metrix(**wrong)  # type: ignore[arg-type]


def test_labels_that_no_loss_takes_are_refused() -> None:
    with pytest.raises(ValueError, match="a label is outside"):
        Metrix(("embed",)).mixed(create_metric_loss("proxy-nca", 2, 4), batch())


def test_losses_without_soft_labels_are_refused() -> None:
    pytest.importorskip("pytorch_metric_learning", reason="pytorch-metric-learning is not installed")
    with pytest.raises(ValueError, match="'pml/TripletMarginLoss' has none"):
        Metrix()(create_metric_loss("pml/TripletMarginLoss", 3, 4), batch())


def test_partners() -> None:
    allowed = torch.tensor([[True, True, True, False], [False] * 4, [False, True, False, False]])
    few = at_most(allowed, 2, torch.Generator().manual_seed(0))
    assert few.sum(1).tolist() == [2, 0, 1] and (few <= allowed).all() and at_most(allowed, None, None) is allowed
    values = torch.tensor([[1.0, 3.0, 2.0, 9.0]] * 3)
    assert largest(values, allowed, 2).tolist() == [
        [False, True, True, False],
        [False] * 4,
        [False, True, False, False],
    ]
    which, there = rows_of(allowed)
    assert which[there].tolist() == [0, 1, 2, 1] and there.sum(1).tolist() == [3, 0, 1]
