"""With hard labels the losses are those of pytorch-metric-learning, values and gradients; where its
form or its mean is another, the exact relation is tested. Its losses also come by name, with their
options and a memory.
"""

import pytest
import torch
from torch import Tensor, nn

pml = pytest.importorskip(
    "pytorch_metric_learning.losses", reason="pytorch-metric-learning is not installed"
)
distances = pytest.importorskip("pytorch_metric_learning.distances")
reducers = pytest.importorskip("pytorch_metric_learning.reducers")

from cenote.losses import create_metric_loss  # noqa: E402
from cenote.losses.forms import EXP, FORMS  # noqa: E402
from cenote.losses.generic import generic_terms, per_anchor  # noqa: E402
from cenote.losses.pml import create_miner  # noqa: E402

CLASSES, DIM = 6, 8
LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4])  # class 3 has one image, class 5 none
COSINE = {"distance": distances.CosineSimilarity()}


def embeddings() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(len(LABELS), DIM, dtype=torch.float64, requires_grad=True)


def slopes(value: Tensor, z: Tensor, loss: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(value, [z, *loss.parameters()]))


def equal(ours: Tensor, theirs: Tensor, z: Tensor, own: nn.Module, other: nn.Module) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    for found, expected in zip(slopes(ours, z, own), slopes(theirs, z, other), strict=True):
        torch.testing.assert_close(found, expected.view_as(found), rtol=1e-7, atol=1e-12)


def pair(name: str, theirs: nn.Module, **options: float) -> tuple[nn.Module, nn.Module, Tensor]:
    """Both in double precision, with the same proxies."""
    ours = create_metric_loss(name, CLASSES, DIM, **options).double()
    theirs = theirs.double()
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        own.data = other.data.clone() if own.shape == other.shape else other.data.T.clone()
    return ours, theirs, embeddings()


def test_multi_similarity() -> None:
    ours, theirs, z = pair(
        "multi-similarity", pml.MultiSimilarityLoss(alpha=18, beta=75, base=0.77)
    )
    equal(ours(z, LABELS), theirs(z, LABELS), z, ours, theirs)


def test_lifted_structure() -> None:
    ours, theirs, z = pair(
        "lifted-structure", pml.GeneralizedLiftedStructureLoss(neg_margin=0.7, **COSINE), m=0.7
    )
    equal(ours(z, LABELS), theirs(z, LABELS), z, ours, theirs)


def test_nca() -> None:
    ours, theirs, z = pair("nca", pml.NCALoss(softmax_scale=4, **COSINE), temperature=0.25)
    equal(ours(z, LABELS), theirs(z, LABELS), z, ours, theirs)


@pytest.mark.parametrize(("name", "temperature"), [("proxy-nca", 1.0), ("proxy-nca++", 0.11)])
def test_proxy_nca(name: str, temperature: float) -> None:
    peer = pml.ProxyNCALoss(CLASSES, DIM, softmax_scale=1 / temperature, **COSINE)
    ours, theirs, z = pair(name, peer, softmax=True, temperature=temperature)
    equal(ours(z, LABELS), theirs(z, LABELS), z, ours, theirs)


def test_proxy_nca_with_their_squared_distances_is_ours_at_half_the_temperature() -> None:
    ours, theirs, z = pair(
        "proxy-nca", pml.ProxyNCALoss(CLASSES, DIM), softmax=True, temperature=0.5
    )
    equal(ours(z, LABELS), theirs(z, LABELS), z, ours, theirs)  # -|x-p|^2 = 2 s - 2


def test_soft_triple() -> None:
    ours, _, z = pair("soft-triple", nn.Linear(DIM, CLASSES * 3, bias=False), proxies=3)
    theirs = pml.SoftTripleLoss(
        CLASSES, DIM, centers_per_class=3, la=20, gamma=0.1, margin=0.01
    ).double()
    (proxies,) = ours.parameters()
    theirs.fc.data = proxies.data.T.clone()
    found, expected = ours(z, LABELS), theirs(z, LABELS)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    for (a, b), turn in zip(
        zip(slopes(found, z, ours), slopes(expected, z, theirs), strict=True),
        (False, True),
        strict=True,
    ):
        torch.testing.assert_close(a, b.T if turn else b, rtol=1e-7, atol=1e-12)


def test_proxy_anchor_is_theirs_over_its_scale() -> None:
    """D's row has the factors 1/β and 1/γ of multi-similarity, theirs has none."""
    ours, theirs, z = pair("proxy-anchor", pml.ProxyAnchorLoss(CLASSES, DIM, margin=0.1, alpha=32))
    for labels in (LABELS, torch.full_like(LABELS, 2)):
        equal(ours(z, labels), theirs(z, labels) / 32, z, ours, theirs)


def test_contrastive_is_theirs_summed_over_pairs_by_the_number_of_anchors() -> None:
    """D sums over an anchor's pairs, and pulls by -s where theirs is [1 - s]+: 1 more for each
    positive pair.
    """
    peer = pml.ContrastiveLoss(
        pos_margin=1, neg_margin=0.5, reducer=reducers.SumReducer(), **COSINE
    )
    ours, theirs, z = pair("contrastive", peer)
    positives = (LABELS[:, None] == LABELS).sum() - len(LABELS)
    equal(ours(z, LABELS), (theirs(z, LABELS) - positives) / len(LABELS), z, ours, theirs)


def test_epshn_is_their_miner_and_their_softmax() -> None:
    """Easy positives and semi-hard negatives, a softmax of two at temperature 0.1, over anchors
    that have both.
    """
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    z = embeddings()
    miner = miners.BatchEasyHardMiner(pos_strategy="easy", neg_strategy="semihard", **COSINE)
    a, p, _, n = miner(z, LABELS)
    x = nn.functional.normalize(z, dim=1)
    logits = torch.stack([(x[a] * x[p]).sum(1), (x[a] * x[n]).sum(1)], 1) / 0.1
    theirs = nn.functional.cross_entropy(logits, torch.zeros(len(a)).long(), reduction="sum")
    ours = create_metric_loss("epshn", CLASSES, DIM)
    with_positive = int(((LABELS[:, None] == LABELS).sum(1) > 1).sum())
    equal(ours(z, LABELS), theirs / with_positive, z, ours, nn.Identity())


def test_without_softmax_a_loss_is_what_the_table_prints() -> None:
    """softmax = log(1 + exp(without)), per anchor: log((P + N) / P) and log(N / P)."""
    torch.manual_seed(0)
    s, y = 2 * torch.rand(5, 7, dtype=torch.float64) - 1, torch.rand(5, 7, dtype=torch.float64)
    form, settings = FORMS["nca"], FORMS["nca"].settings
    from dataclasses import replace

    printed = replace(form, together=False, rho_neg=EXP)
    whole, bare = (
        per_anchor(generic_terms(s, y, f, settings), f, settings) for f in (form, printed)
    )
    torch.testing.assert_close(whole, nn.functional.softplus(bare))
    loss = create_metric_loss("nca", 3, 4, softmax=False)
    assert not loss.form.together and loss.form.rho_neg == EXP


@pytest.mark.parametrize(
    "name",
    [
        "TripletMarginLoss",
        "MarginLoss",
        "ContrastiveLoss",
        "ArcFaceLoss",
        "CircleLoss",
        "NTXentLoss",
        "NCALoss",
    ],
)
def test_any_of_their_losses_by_name(name: str) -> None:
    torch.manual_seed(0)
    loss = create_metric_loss(f"pml/{name}", CLASSES, DIM)
    assert loss.proxied == (name == "ArcFaceLoss")
    z = torch.randn(len(LABELS), DIM, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(z.bfloat16(), LABELS)
    value.backward()
    assert value.isfinite() and z.grad is not None and z.grad.isfinite().all()
    alone = loss(z[:1], LABELS[:1])  # nothing to say: still something to differentiate
    alone.backward()
    assert alone.isfinite()


def test_their_options_and_memory() -> None:
    z = embeddings()
    loss = create_metric_loss("pml/ContrastiveLoss", CLASSES, DIM, neg_margin=0.4)
    peer = pml.ContrastiveLoss(neg_margin=0.4)
    memory, of = torch.randn(4, DIM, dtype=torch.float64), torch.tensor([0, 1, 2, 3])
    torch.testing.assert_close(loss(z, LABELS), peer(z, LABELS))
    both = peer(z, LABELS) + peer(z, LABELS, ref_emb=memory, ref_labels=of)
    torch.testing.assert_close(loss(z, LABELS, (memory, of)), both)
    torch.testing.assert_close(loss(z, LABELS, (memory[:0], of[:0])), peer(z, LABELS))


def test_wrong_options_of_their_losses_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'pml/TripletMargin'.*'pml/TripletMarginLoss'"):
        create_metric_loss("pml/TripletMargin", CLASSES, DIM)
    with pytest.raises(ValueError, match="'marging'"):
        create_metric_loss("pml/TripletMarginLoss", CLASSES, DIM, marging=0.1)
    for name, options, named in (
        ("TripletMarginLoss", {"margin": "abc"}, r"margin\b.*'pml/TripletMarginLoss'.*'abc'"),
        ("TripletMarginLoss", {"margin": float("nan")}, r"margin\b.*\bnan\b"),
        ("TripletMarginLoss", {"swap": "no"}, r"swap\b.*'no'"),
        ("TripletMarginLoss", {"distance": "cosine"}, r"distance\b.*'cosine'"),
        ("RankedListLoss", {}, r"'margin' and 'Tn'"),
        ("ArcFaceLoss", {"num_classes": 3}, "'num_classes'"),
    ):
        with pytest.raises(ValueError, match=named):
            create_metric_loss(f"pml/{name}", CLASSES, DIM, **options)
    loss = create_metric_loss("pml/ArcFaceLoss", CLASSES, DIM)
    with pytest.raises(ValueError, match="'pml/ArcFaceLoss'"):
        loss(torch.randn(12, DIM), LABELS, (torch.randn(4, DIM), torch.arange(4)))


@pytest.mark.parametrize(
    ("loss", "miner", "options"),
    [
        ("TripletMarginLoss", "TripletMarginMiner", {"type_of_triplets": "semihard"}),
        ("MultiSimilarityLoss", "MultiSimilarityMiner", {"epsilon": 0.2}),
        ("ContrastiveLoss", "PairMarginMiner", {"pos_margin": 0.9, "neg_margin": 0.4}),
    ],
)
def test_a_miner_selects_what_the_loss_compares(loss: str, miner: str, options: dict) -> None:
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    torch.manual_seed(0)
    z, memory = torch.randn(12, DIM), torch.randn(8, DIM)
    labels, of = torch.arange(12) % CLASSES, torch.arange(8) % CLASSES
    made = create_metric_loss(f"pml/{loss}", CLASSES, DIM, miner=create_miner(miner, **options))
    select, peer = getattr(miners, miner)(**options), getattr(pml, loss)()
    within = peer(z, labels, select(z, labels))
    across = peer(z, labels, select(z, labels, memory, of), memory, of)
    torch.testing.assert_close(made(z, labels), within)
    torch.testing.assert_close(made(z, labels, (memory, of)), within + across)
    assert not torch.isclose(within, peer(z, labels))


def test_epshn_keeps_both_modes_of_a_class_where_triplet_joins_them() -> None:
    """Two classes of two modes each, which are opposite: all four on a circle, in turn."""

    def between_modes(loss: nn.Module) -> float:
        torch.manual_seed(0)
        mode, axes = torch.arange(40) % 4, torch.eye(8)[[0, 1, 0, 1]]
        axes[2:] *= -1
        z = (axes[mode] + 0.1 * torch.randn(40, 8)).requires_grad_()
        optimizer = torch.optim.Adam([z], 0.01)
        for _ in range(300):
            optimizer.zero_grad()
            loss(z, mode % 2).backward()
            optimizer.step()
        x = nn.functional.normalize(z.detach(), dim=1)
        within = min(float((x[mode == m] @ x[mode == m].T).mean()) for m in range(4))
        assert within > 0.9  # the images of a mode are together either way
        return max(float((x[mode == m] @ x[mode == m + 2].T).mean()) for m in (0, 1))

    easy = create_metric_loss("epshn", 2, 8)
    triplet = create_metric_loss("pml/TripletMarginLoss", 2, 8, margin=1.0)
    assert between_modes(easy) < 0.4 and between_modes(triplet) > 0.8
