"""Metrix equals a double loop over anchors and explicitly mixed examples, values and gradients, for
every place, kind of pair and role of proxies; what algebra gives (Gram matrix, linear pools) equals
what is built.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cenote.losses import MetricLoss, Metrix, Mixable, create_metric_loss, generic_loss
from cenote.losses import metrix as module

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3])
CLASSES, DIM, TOKENS, CHANNELS = 5, 6, 4, 7
PAIRS = ["pos-neg", "anc-neg", "pos-pos"]
EXAMPLES = ["contrastive", "multi-similarity", "nca", "lifted-structure", "epshn"]
PROXIES = ["proxy-nca++", "soft-triple"]


def known_lambda(alpha: float, shape: tuple[int, ...], generator: object, like: Tensor) -> Tensor:
    """In the place of the draws, so that the oracle knows them: another one for every mixed
    example.
    """
    return torch.rand(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(
        like
    )


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "beta_draws", known_lambda)


class Toy(nn.Module):
    """images (B, TOKENS, 3) -> maps (B, TOKENS, CHANNELS) -> z; pooled by the mean, or by the
    maximum.
    """

    def __init__(self, linear: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.linear, self.backbone, self.head = (
            linear,
            nn.Linear(3, CHANNELS),
            nn.Linear(CHANNELS, DIM),
        )
        self.double()
        self.seen = 0

    def maps(self, images: Tensor) -> Tensor:
        return self.backbone(images).tanh()

    def embed(self, maps: Tensor) -> Tensor:
        self.seen += len(maps)
        return self.head(maps.mean(1) if self.linear else maps.amax(1))

    def batch(self, linear: bool | None = None) -> Mixable:
        images = torch.randn(
            len(LABELS), TOKENS, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
        )
        maps = self.maps(images)
        linear = self.linear if linear is None else linear
        return Mixable(
            LABELS,
            self.embed(maps),
            maps,
            images,
            self.embed,
            lambda x: self.embed(self.maps(x)),
            linear,
        )


def mix(where: str, batch: Mixable, b: int, c: int, lam: Tensor) -> Tensor:
    """[Dissertation Eq. 2.4]"""
    if where == "embed":
        x = F.normalize(batch.z, dim=1)
        return lam * x[b] + (1 - lam) * x[c]
    source = batch.images if where == "input" else batch.maps
    run = batch.network if where == "input" else batch.embed
    assert source is not None and run is not None
    return run((lam * source[b] + (1 - lam) * source[c])[None])[0]


def pairs_of(
    loss: MetricLoss, a: int, own: int, pairs: str, negatives: list[int]
) -> list[tuple[int, int]]:
    """M(a) for an anchor of class `own`; a is its place in the batch, or -1 for a proxy."""
    positives = [i for i, label in enumerate(LABELS.tolist()) if label == own and i != a]
    if pairs == "pos-neg":
        return [(b, c) for b in positives for c in negatives]
    if pairs == "anc-neg":
        return [(a, c) for c in negatives]
    return [(b, c) for b in positives for c in positives if b < c]


def slow(
    loss: MetricLoss, batch: Mixable, where: str, pairs: str, hardest: int | None = None
) -> Tensor:
    """One anchor, one mixed example at a time; the mean over anchors as the generic loss takes
    it.
    """
    proxy = loss.form.anchor == "proxy"
    x = F.normalize(batch.z, dim=1)
    anchors = F.normalize(loss.proxies, dim=1) if proxy else x
    rows, labels = [], []
    for place, anchor in enumerate(anchors):
        own = place if proxy else int(LABELS[place])
        negatives = [i for i, label in enumerate(LABELS.tolist()) if label != own]
        if hardest:
            negatives = sorted(negatives, key=lambda c: -float(anchor.detach() @ x[c].detach()))[
                :hardest
            ]
        if proxy and pairs == "anc-neg" and where == "embed":
            lam = known_lambda(2, (CLASSES, len(x)), None, x)
            mixed = [
                (lam[place, c] * anchor + (1 - lam[place, c]) * x[c], lam[place, c])
                for c in negatives
            ]
        else:
            lam = known_lambda(2, (len(x), len(x)), None, x)
            kind = "pos-neg" if proxy and pairs == "anc-neg" else pairs
            found = pairs_of(loss, -1 if proxy else place, own, kind, negatives)
            mixed = [(mix(where, batch, b, c, lam[b, c]), lam[b, c]) for b, c in found]
        if proxy and not mixed:
            continue  # its class is not in the batch
        rows.append([F.cosine_similarity(anchor, v, dim=0) for v, _ in mixed])
        labels.append([torch.ones(()).double() if pairs == "pos-pos" else y for _, y in mixed])
        if (
            pairs == "pos-pos" and loss.form.needs_positive
        ):  # a share among positives alone is always 1
            rows[-1] += [anchor @ x[c] for c in negatives]
            labels[-1] += [torch.zeros(()).double()] * len(negatives)
    width = max(map(len, rows))
    blank = torch.zeros((), dtype=torch.float64)
    s, y = (
        torch.stack([torch.stack(r + [blank] * (width - len(r))) for r in t])
        for t in (rows, labels)
    )
    mask = torch.tensor([[i < len(row) for i in range(width)] for row in rows])
    return generic_loss(s, y, loss.form, loss.settings, mask)  # itself tested against a double loop


def compare(found: Tensor, expected: Tensor, parameters: list[Tensor], tight: float = 1e-9) -> None:
    torch.testing.assert_close(found, expected, rtol=tight, atol=tight)
    slopes = (
        torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        for value in (found, expected)
    )
    for fast, obvious in zip(*slopes, strict=True):
        torch.testing.assert_close(fast, obvious, rtol=10 * tight, atol=10 * tight)


def create(name: str) -> MetricLoss:
    torch.manual_seed(2)
    return create_metric_loss(
        name, CLASSES, DIM, **({"proxies": 2} if name == "soft-triple" else {})
    ).double()


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("name", [*EXAMPLES, "proxy-anchor"])
@pytest.mark.parametrize("where", ["embed", "feature", "input"])
def test_equals_the_double_loop(known: None, where: str, name: str, pairs: str) -> None:
    toy, loss = Toy(linear=False), create(name)
    batch = toy.batch()
    hardest = 2 if pairs != "pos-pos" else None
    metrix = Metrix((where,), (pairs,), weight=0.7, hardest=2, negatives=len(LABELS), chunk=5)
    found = metrix(loss, batch)
    expected = loss(batch.z, LABELS) + 0.7 * slow(loss, batch, where, pairs, hardest)
    compare(found, expected, [*toy.parameters(), *loss.parameters()])


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize("where", ["embed", "feature", "input"])
def test_mixed_anchors_among_proxies(known: None, where: str, name: str, pairs: str) -> None:
    """A mixture is the anchor; the label of b's proxy is λ, that of c's 1 - λ, of the others 0."""
    toy, loss = Toy(linear=False), create(name)
    batch = toy.batch()
    found = Metrix((where,), (pairs,), negatives=len(LABELS), hardest=len(LABELS)).mixed(
        loss, batch
    )
    lam = known_lambda(2, (len(LABELS), len(LABELS)), None, batch.z)
    rows, labels = [], []
    for b, first in enumerate(LABELS.tolist()):
        for c, second in enumerate(LABELS.tolist()):
            if (first == second and c > b) if pairs == "pos-pos" else first != second:
                rows.append(mix(where, batch, b, c, lam[b, c]))
                label = torch.zeros(CLASSES, dtype=torch.float64)
                label[first] += lam[b, c]
                label[second] += 1 - lam[b, c]
                labels.append(label)
    expected = loss.judge(
        loss.to_classes(F.normalize(torch.stack(rows), dim=1)), torch.stack(labels).clamp(max=1)
    )
    compare(found, expected, [*toy.parameters(), *loss.parameters()])


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("name", ["multi-similarity", "proxy-anchor", "proxy-nca++", "soft-triple"])
def test_a_linear_pool_needs_no_mixed_maps(known: None, name: str, pairs: str) -> None:
    """GAP and Linear with its bias: un-normalised embeddings mixed give what mixed maps give,
    exactly.
    """
    toy, loss = Toy(linear=True), create(name)
    metrix = Metrix(("feature",), (pairs,), negatives=len(LABELS))
    toy.seen = 0
    algebra = metrix(loss, toy.batch(linear=True))
    assert toy.seen == len(LABELS)  # the clean pass alone
    compare(algebra, metrix(loss, toy.batch(linear=False)), [*toy.parameters(), *loss.parameters()])


def test_the_gram_matrix_gives_explicit_mixing_in_float32() -> None:
    """At B = 40, D = 64: similarities and gradients to 1e-5, sums of 64 terms in float32."""
    from cenote.losses.mixing import mixed_similarity

    torch.manual_seed(0)
    x = F.normalize(torch.randn(40, 64), dim=1).requires_grad_()
    which, lam = torch.randint(40, (40, 3)), torch.rand(40, 40)
    fast = mixed_similarity(x, x, x, which, lam)
    weight = lam[which][..., None]  # (A, K, B, 1)
    obvious = (
        F.normalize(weight * x[which][:, :, None] + (1 - weight) * x, dim=-1) * x[:, None, None]
    ).sum(-1)
    torch.testing.assert_close(fast, obvious, rtol=0, atol=1e-5)
    upstream = torch.randn_like(fast) / fast.numel() ** 0.5
    slopes = [torch.autograd.grad(value, x, upstream)[0] for value in (fast, obvious)]
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-5)


def test_mixed_similarities_can_be_differentiated_twice() -> None:
    from cenote.losses.mixing import mixed_similarity

    torch.manual_seed(0)
    x = F.normalize(torch.randn(4, 3, dtype=torch.float64), dim=1).requires_grad_()
    which, lam = torch.randint(4, (4, 2)), torch.rand(4, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: mixed_similarity(x, x, x, which, lam), x)
    assert torch.autograd.gradgradcheck(lambda x: mixed_similarity(x, x, x, which, lam), x)
    slope = torch.func.grad(lambda x: mixed_similarity(x, x, x, which, lam).sum())(x.detach())
    torch.testing.assert_close(
        slope, torch.autograd.grad(mixed_similarity(x, x, x, which, lam).sum(), x)[0]
    )


@pytest.mark.parametrize("pairs", ["pos-neg", "anc-neg"])
@pytest.mark.parametrize("name", ["multi-similarity", "proxy-nca++"])
def test_input_mixes_the_hardest_negatives_however_many_partners_are_asked_for(
    name: str, pairs: str
) -> None:
    toy, loss = Toy(linear=False), create(name)
    values, mixtures = [], []
    for negatives in (None, 1):
        toy.seen = 0
        metrix = Metrix(("input",), (pairs,), negatives=negatives, hardest=2)
        values.append(metrix(loss, toy.batch(), torch.Generator().manual_seed(0)).item())
        mixtures.append(toy.seen)
    assert mixtures[0] == mixtures[1] and values[0] == pytest.approx(values[1], rel=1e-9)


@pytest.mark.parametrize("where", ["embed", "feature", "input"])
@pytest.mark.parametrize("name", ["nca", "epshn"])
def test_mixed_positives_teach_losses_of_shares(name: str, where: str) -> None:
    toy, loss = Toy(linear=False), create(name)
    value = Metrix((where,), ("pos-pos",)).mixed(loss, toy.batch())
    value.backward()
    assert value > 0 and toy.head.weight.grad is not None and toy.head.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e8, 1e30])
@pytest.mark.parametrize("name", ["multi-similarity", "proxy-nca++"])
def test_under_a_linear_pool_lengths_do_not_matter(name: str, scale: float) -> None:
    torch.manual_seed(0)
    loss, z = create(name).float(), torch.randn(len(LABELS), DIM)
    small, usual = (
        Metrix()(loss, Mixable(LABELS, z * by, linear=True), torch.Generator().manual_seed(0))
        for by in (scale, 1)
    )
    torch.testing.assert_close(small, usual)


def test_no_chunk_holds_a_single_mixture() -> None:
    """A batch norm cannot do with one: 4 mixtures in chunks of at most 3 are 2 and 2."""
    from cenote.losses.mixing import mixed_vectors

    norm, source = nn.BatchNorm1d(3), torch.randn(3, 3)
    for count in range(2, 10):
        for chunk in (1, 2, 3, 4):
            b, sizes = torch.zeros(count).long(), list[int]()
            mixed_vectors(
                source,
                b,
                b + 1,
                torch.rand(count),
                lambda x, s=sizes: s.append(len(x)) or norm(x),
                chunk,
                False,
            )
            assert sum(sizes) == count and 1 not in sizes and max(sizes) <= max(chunk, 3)


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_chunks_change_nothing(chunk: int) -> None:
    toy, loss = Toy(linear=False), create("multi-similarity")
    values = []
    for size in (chunk, 7):
        metrix = Metrix(("feature",), ("pos-neg",), negatives=3, chunk=size)
        values.append(metrix(loss, toy.batch(), torch.Generator().manual_seed(0)))
    compare(values[0], values[1], list(toy.parameters()), 1e-10)


@pytest.mark.parametrize("name", ["multi-similarity", "proxy-nca++"])
@pytest.mark.parametrize("most", [5, 10**6])
def test_maps_that_are_not_built_change_nothing(
    known: None, name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many, some at a time."""
    toy, loss = Toy(linear=False), create(name)
    seen = []

    def mixed(maps: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        seen.append(len(b))
        return toy.head(torch.lerp(maps[c], maps[b], lam[:, None, None]).amax(1))

    built = Metrix(("feature",), ("pos-neg",), negatives=8)(loss, toy.batch())
    monkeypatch.setattr(module, "MOST", most)
    unseen = Metrix(("feature",), ("pos-neg",), negatives=8)(
        loss, toy.batch()._replace(mixed=mixed)
    )
    compare(unseen, built, [*toy.parameters(), *loss.parameters()])
    assert max(seen) <= most and (len(seen) > 2) == (most == 5)


def test_mixed_maps_are_few_and_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many partners an example, whatever the number of anchors that meet the mixture."""
    monkeypatch.setattr(module, "OF_MAPS", 4)
    toy, loss = Toy(linear=False), create("multi-similarity")
    batch = toy.batch()
    for pairs, most in (
        ("pos-neg", 4 * 7),
        ("anc-neg", 4 * 8),
    ):  # the only one of its class is nobody's positive
        toy.seen = 0
        with torch.no_grad():
            Metrix(pairs=(pairs,))(loss, batch)
        assert toy.seen == most
    toy.seen = 0
    Metrix(pairs=("anc-neg",), negatives=2, chunk=4)(loss, batch).backward()
    assert toy.seen == 2 * 2 * 8  # and once more for the gradient: nothing was kept


@pytest.mark.parametrize("hardest_input", [1, len(LABELS)])
@pytest.mark.parametrize("where", ["feature", "input"])
def test_images_have_their_own_number_of_hard_negatives(
    known: None, where: str, hardest_input: int
) -> None:
    """k of {input, feature} is {1, all} or {all, all} in [Dissertation Table 2.6]."""
    toy, loss = Toy(linear=False), create("contrastive")
    batch = toy.batch()
    metrix = Metrix((where,), ("pos-neg",), hardest_input=hardest_input, negatives=len(LABELS))
    hardest = hardest_input if where == "input" else None
    expected = loss(batch.z, LABELS) + 0.4 * slow(loss, batch, where, "pos-neg", hardest)
    compare(metrix(loss, batch), expected, [*toy.parameters(), *loss.parameters()])
