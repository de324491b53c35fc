"""Methods of weakly supervised localization: their equations, saving, and cases that show what they do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cenote.backbones import Features
from cenote.metrics import box_iou, prepare_maps
from cenote.models import load, save_model
from cenote.models.cam import cam, linear_cam, minmax
from cenote.models.frozen import PooledHead
from cenote.models.head import Head
from cenote.models.wsol.ki import attention
from cenote.models.wsol.registry import METHODS, create_method
from cenote.models.wsol.spg import SEEDS, branch, guided_loss
from cenote.pooling import create_pool
from tests.toy_models import assert_same_model, narrow_resnet

GRID, D, CLASSES = (4, 5), 6, 3


def classifier(wsol: str | None = None, pool: str = "gap", dim: int = D, **options: Any) -> Any:
    torch.manual_seed(0)
    head = PooledHead(create_pool(pool, dim))
    head.head = Head(dim, CLASSES)
    if wsol:
        head.wsol = create_method(wsol, head, options)
    return head


def features(batch: int = 3, seed: int = 0) -> Features:
    tokens = torch.rand(batch, 20, D, generator=torch.Generator().manual_seed(seed))
    return Features(tokens, GRID)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


LABELS = torch.tensor([2, 0, 1])


@pytest.mark.parametrize("size", [(16, 16), (18, 22)])
def test_has_hides_whole_cells_of_each_image(size: tuple[int, int]) -> None:
    method, images = classifier("has", grid=4, probability=0.5).wsol, torch.rand(64, 3, *size) + 1
    hidden = method.images(images, rng()) == 0
    assert torch.equal(method.images(images, rng())[~hidden], images[~hidden])
    rows, columns = (torch.arange(n) * 4 // n for n in size)
    for image in hidden:
        for r in range(4):
            for c in range(4):
                cell = image[:, rows == r][:, :, columns == c]
                assert cell.all() or not cell.any()
    shares = hidden.float().mean((1, 2, 3))
    assert abs(shares.mean() - 0.5) < 0.1 and shares.std() > 0.05  # 1,024 cells, drawn per image
    assert not classifier("has", probability=0).wsol.images(images, rng()).eq(0).any()


def test_adl_erases_or_weighs_by_the_mean_of_the_channels() -> None:
    x = features()
    for drop_rate, erase in ((1.0, True), (0.0, False)):
        head = classifier("adl", drop_rate=drop_rate, threshold=0.9)
        changed = x.tokens.clone()
        for b in range(3):
            means = [float(changed[b, n].mean()) for n in range(20)]
            for n in range(20):
                kept = float(means[n] < 0.9 * max(means))
                changed[b, n] *= kept if erase else 1 / (1 + np.exp(-means[n]))
        expected = F.cross_entropy(head.classify(x._replace(tokens=changed)), LABELS)
        loss = head.wsol.loss(head, x, LABELS, F.cross_entropy, rng())
        torch.testing.assert_close(loss, expected)
    method = classifier("adl").wsol
    with torch.no_grad():
        losses = [method.loss(head, x, LABELS, F.cross_entropy, rng(i)) for i in range(200)]
    draws = [float(loss) for loss in losses]
    assert len(set(draws)) == 2 and 120 < draws.count(max(set(draws), key=draws.count)) < 180


@pytest.mark.parametrize("width", [0, 4])
def test_acol_erases_what_the_first_classifier_uses(width: int) -> None:
    head, x = classifier("acol", threshold=0.6, width=width), features()
    first, second = head.wsol.convolutions, head.wsol.second_convolutions
    y, rest = first(x).tokens, x.tokens.clone()
    w, bias = head.head.linear.weight, head.head.linear.bias
    for b in range(3):
        values = y[b] @ w[LABELS[b]]
        scaled = (values - values.min()) / (values.max() - values.min())
        for n in range(20):
            if scaled[n] > 0.6:
                rest[b, n] = 0
    assert 3 <= (rest == 0).all(2).sum() < 40
    other = head.wsol.second.head.linear
    z = second(x._replace(tokens=rest)).tokens
    expected = F.cross_entropy(y.mean(1) @ w.T + bias, LABELS)
    expected = expected + F.cross_entropy(z.mean(1) @ other.weight.T + other.bias, LABELS)
    loss = head.wsol.loss(head, x, LABELS, F.cross_entropy, rng())
    torch.testing.assert_close(loss, expected)
    parameters = list(head.parameters())
    for a, e in zip(
        torch.autograd.grad(loss, parameters),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, e)
    maps = [y @ w[1], second(x).tokens @ other.weight[1]]  # of class 1, (B, N)
    joined = torch.maximum(*(minmax(m.view(3, 1, *GRID)) for m in maps))
    torch.testing.assert_close(cam(head, x, 1), joined)


def test_spg_learns_from_what_is_sure() -> None:
    head, x = classifier("spg", width=4), features()
    y = head.wsol.neck(x)
    w, bias = head.head.linear.weight, head.head.linear.bias
    b, c = (
        part(z.tokens.transpose(1, 2).unflatten(2, GRID))[:, 0].flatten(1)
        for part, z in ((head.wsol.b, x), (head.wsol.c, y))
    )
    scaled = minmax((y.tokens @ w[LABELS][..., None])[..., 0].view(3, *GRID)).flatten(1)
    expected = F.cross_entropy(y.tokens.mean(1) @ w.T + bias, LABELS)
    for p, guide, low, high in ((b, scaled, 0.05, 0.5), (c, b.sigmoid().detach(), 0.1, 0.7)):
        losses = []
        for probability, g in zip(p.sigmoid().flatten(), guide.flatten(), strict=True):
            if g > high:
                losses.append(-probability.log())
            elif g < low:
                losses.append(-(1 - probability).log())
        if losses:
            expected = expected + torch.stack(losses).mean()
    loss = head.wsol.loss(head, x, LABELS, F.cross_entropy, rng())
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert head.wsol.b[0].weight.grad.any() and head.wsol.convolutions.layers[0].weight.grad.any()


def test_spg_guidance_covers_what_the_map_leaves_open() -> None:
    """Both parts of an object have channel 3, which the background has not; the map is sure of one part only."""
    strong, weak = (slice(1, 3), slice(1, 3)), (slice(6, 8), slice(5, 7))
    labels, maps = (
        torch.arange(30) % CLASSES,
        0.2 * torch.rand(30, CLASSES + 1, 10, 10, generator=rng()),
    )
    attention = torch.zeros(30, 1, 10, 10)
    for part, value in ((strong, 1.0), (weak, 0.3)):
        maps[(slice(None), CLASSES, *part)] += 1
        attention[(slice(None), 0, *part)] = value
    maps[(torch.arange(30), labels, *(s.start for s in strong))] += 1  # the class
    torch.manual_seed(0)
    b = branch(CLASSES + 1)
    optimizer = torch.optim.Adam(b.parameters(), lr=3e-3)
    for _ in range(120):
        loss = guided_loss(b(maps), attention, SEEDS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    guide = b(maps).detach().sigmoid().mean((0, 1))
    assert guide[strong].mean() > 0.9 and guide[weak].mean() > 0.8 and guide[4].mean() < 0.2


def ki(**options: float) -> Any:
    """A classifier with random blocks: they begin as the identity."""
    head = classifier("ki", **options)
    for parameter in head.wsol.parameters():
        nn.init.normal_(parameter, std=0.3)
    return head


@pytest.mark.parametrize("drop_rate", [0.0, 1.0])
def test_ki_compares_object_and_background_of_each_image(drop_rate: float) -> None:
    head, x = ki(drop_rate=drop_rate, threshold=0.9, foreground=0.5, background=0.2), features()
    method, w, bias = head.wsol, head.head.linear.weight, head.head.linear.bias

    def non_local(block: Any, y: Tensor) -> Tensor:
        weights = torch.einsum("bic,bjc->bij", block.theta(y), block.phi(y)).exp()
        weights = weights / weights.sum(2, keepdim=True)
        return y + block.out(torch.einsum("bij,bjc->bic", weights, block.g(y)))

    earlier = non_local(method.earlier, x.tokens)
    y = non_local(method.later, earlier)
    logits, triplets, squares = [], [], []
    for b in range(3):
        means, means_before = y[b].mean(1), earlier[b].mean(1)
        a = (means - means.min()) / (means.max() - means.min())
        a_before = means_before - means_before.min()
        a_before = a_before / a_before.max()
        pooled, regions = torch.zeros(D), ([], [], [])
        for n in range(20):
            if not drop_rate:
                pooled = pooled + y[b, n] / (1 + (-means[n]).exp()) / 20
            elif 0.2 <= a[n] < 0.9:
                pooled = pooled + y[b, n] / 20
            inside = (0.5 < a[n] < 0.9, a[n] > 0.5, a[n] < 0.2)
            for region, belongs in zip(regions, inside, strict=True):
                region.extend([y[b, n]] if belongs else [])
            squares.append((a_before[n] - a[n].detach()) ** 2)
        assert all(regions)
        vectors = [method.embedding(torch.stack(region).mean(0)) for region in regions]
        anchor, positive, negative = (v / v.norm() for v in vectors)
        triplets.append((anchor - positive).norm() - (anchor - negative).norm() + 0.5)
        logits.append(w @ pooled + bias)
    expected = F.cross_entropy(torch.stack(logits), LABELS)
    expected = expected + torch.stack(triplets).relu().mean() + torch.stack(squares).mean()
    loss = method.loss(head, x, LABELS, F.cross_entropy, rng())
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
    parameters = list(head.parameters())
    for gradient, reference in zip(
        torch.autograd.grad(loss, parameters),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        torch.testing.assert_close(gradient, reference, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        cam(head, x, LABELS)[:, 0].flatten(1), (y @ w[LABELS][..., None])[..., 0]
    )


def test_ki_begins_as_the_classifier_that_it_trains() -> None:
    x = features()
    assert torch.equal(classifier("ki").classify(x), classifier().classify(x))


def test_ki_skips_images_without_less_active_foreground() -> None:
    tokens = features(2).tokens
    tokens[1] = 0.01 * tokens[1]
    tokens[1, 7] = 1
    method = ki().wsol
    of_both, of_first = (method.contrast(x, attention(x)) for x in (tokens, tokens[:1]))
    assert of_first > 0
    torch.testing.assert_close(of_both, of_first)
    for x in (tokens[1:], torch.ones(2, 20, D)):
        loss = method.contrast(x, attention(x))
        loss.backward()
        assert loss == 0 and not method.embedding.weight.grad.any()


def test_bae_clamps_negative_weights() -> None:
    head, x = classifier("bae", pool="tap"), features()
    w = head.head.linear.weight.clamp_min(0)
    expected = (x.tokens @ w[LABELS][..., None])[..., 0].view(3, 1, *GRID)
    torch.testing.assert_close(cam(head, x, LABELS), expected)


@pytest.mark.parametrize("percentile", [20, 50, 95])
def test_maps_are_scaled_by_percentiles(percentile: int) -> None:
    maps = np.random.default_rng(0).normal(size=(4, 21, 21)) + 0.3
    low, high = np.percentile(maps, [percentile, 100], (1, 2), method="nearest", keepdims=True)
    ivr = classifier("ivr", percentile=percentile).wsol.scores(torch.from_numpy(maps), 21)
    np.testing.assert_allclose(ivr, ((maps - low) / (high - low)).clip(0), atol=1e-6)
    positive = maps.clip(0)
    standard = np.percentile(positive, percentile, (1, 2), method="nearest", keepdims=True)
    bae = classifier("bae", percentile=percentile).wsol.scores(torch.from_numpy(maps), 21)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.where(positive > 0, positive / standard, 0).clip(0, 1)
    np.testing.assert_allclose(bae, expected, atol=1e-6)


def test_ivr_with_the_lowest_percentile_is_min_max() -> None:
    maps = torch.randn(2, 3, 5, 5)
    assert torch.equal(
        classifier("ivr", percentile=0).wsol.scores(maps, 32), prepare_maps(maps, 32)
    )


def test_percentiles_of_maps_without_contrast() -> None:
    flat = torch.stack([torch.zeros(8, 8), torch.full((8, 8), 2.0), -torch.rand(8, 8)])
    assert not classifier("bae").wsol.scores(flat, 8).any()
    assert not classifier("ivr").wsol.scores(flat[:2], 8).any()
    one = torch.zeros(1, 8, 8)
    one[0, 3, 4] = 5  # the 90th percentile is 0: what is above it is the object
    assert torch.equal(classifier("bae").wsol.scores(one, 8), one / 5)


@pytest.mark.parametrize("name", METHODS)
def test_saved_models_have_the_map_of_the_method(name: str, tmp_path: Path) -> None:
    model = narrow_resnet(METHODS[name].pool, size=64, wsol=name)
    for parameter in model.wsol.parameters():  # type: ignore[union-attr]
        nn.init.normal_(parameter)
    images = torch.rand(2, 3, 64, 64)
    save_model(model, tmp_path)
    loaded = load(tmp_path)
    assert_same_model(model, loaded)
    with torch.no_grad():
        torch.testing.assert_close(
            loaded.attend(images, classes=1), model.attend(images, "cam", classes=1)
        )


def test_the_chosen_percentile_is_saved(tmp_path: Path) -> None:
    model = narrow_resnet("gap", wsol="ivr")
    model.wsol.percentile.fill_(70)  # type: ignore[union-attr]
    save_model(model, tmp_path)
    assert float(load(tmp_path).wsol.percentile) == 70  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("acoll", {}, "did you mean 'acol'"),
        ("adl", {"treshold": 0.5}, "did you mean 'threshold'"),
        ("adl", {"threshold": 2}, "at most 1, got 2"),
        ("has", {"grid": 0}, "got 0"),
        ("bae", {"percentile": 0}, "above 0"),
        ("ki", {"threshold": 0.4}, "at most 0.4, got 0.5"),
        ("ki", {"margin": 0}, "above 0, got 0"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(name, **options)


def test_a_pool_without_class_activation_maps_is_refused() -> None:
    with pytest.raises(ValueError, match="acol needs class activation maps"):
        narrow_resnet("simpool", wsol="acol", pool_options={"k": 2}, combine="concat")


# Objects of two parts: one is much stronger, so that a classifier needs no other.

STRONG, WEAK = [6, 7], [12, 13]  # positions


def two_parts(images: int = 90) -> tuple[Tensor, Tensor]:
    """Tokens (B, 20, 6) of three classes: channel c at two positions, channel 3 + c weakly at two others."""
    g = rng(1)
    labels = torch.arange(images) % CLASSES
    tokens = 0.3 * torch.rand(images, 20, 2 * CLASSES, generator=g)
    rows = torch.arange(images)
    for positions, first, value in ((STRONG, 0, 6.0), (WEAK, CLASSES, 1.5)):
        for n in positions:
            tokens[rows, n, first + labels] += value
    return tokens, labels


def trained(name: str | None, **options: Any) -> tuple[Any, Features, Tensor]:
    tokens, labels = two_parts()
    head, x = classifier(name, **options), Features(tokens, GRID)
    optimizer = torch.optim.SGD(head.parameters(), lr=30.0)
    for step in range(200):
        if name is None:
            loss = F.cross_entropy(head.classify(x), labels)
        elif METHODS[name].changes_images:  # a cell of an image is a position
            cells = x.tokens.transpose(1, 2).unflatten(2, GRID)
            seen = head.wsol.images(cells, rng(step)).flatten(2).transpose(1, 2)
            loss = head.wsol.loss(head, x._replace(tokens=seen), labels, F.cross_entropy, rng(step))
        else:
            loss = head.wsol.loss(head, x, labels, F.cross_entropy, rng(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (head.classify(x).argmax(1) == labels).all()
    return head, x, labels


def weak_part(head: Any, x: Features, labels: Tensor) -> float:
    """The mean score from 0 to 1 of the weak part in the map of the true class."""
    with torch.no_grad():
        return float(minmax(cam(head, x, labels)).flatten(2)[:, 0, WEAK].mean())


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [
        ("has", {"grid": 5}, 0.2),
        ("adl", {}, 0.3),
        ("acol", {}, 0.8),
    ],
)
def test_erasing_finds_the_second_part(name: str, options: dict[str, Any], least: float) -> None:
    plain, erasing = weak_part(*trained(None)), weak_part(*trained(name, **options))
    assert plain < 0.13 and erasing > least


def parts_in_context() -> tuple[Tensor, Tensor]:
    """Return tokens (B, 20, 9) of objects whose second part is stronger, and of what is beside them."""
    tokens, labels = two_parts()
    tokens, rows = F.pad(tokens, (0, CLASSES)), torch.arange(len(labels))
    for positions, first, value in ((WEAK, CLASSES, 1.0), ([3, 4], 2 * CLASSES, 0.6)):
        for n in positions:
            tokens[rows, n, first + labels] += value
    return tokens, labels


def test_ki_finds_the_second_part() -> None:
    tokens, labels = parts_in_context()
    x, scores = Features(tokens, GRID), []
    for name in (None, "ki"):
        head = classifier(name, dim=3 * CLASSES)
        optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
        for step in range(150):
            if name is None:
                loss = F.cross_entropy(head.classify(x), labels)
            else:
                loss = head.wsol.loss(head, x, labels, F.cross_entropy, rng(step))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert (head.classify(x).argmax(1) == labels).all()
        scores.append(weak_part(head, x, labels))
    plain, of_ki = scores
    assert plain < 0.5 and of_ki > 0.7


def test_ki_tells_objects_from_backgrounds_in_other_images() -> None:
    tokens, _ = parts_in_context()
    method = classifier("ki", dim=3 * CLASSES, foreground=0.3).wsol
    seen, unseen = tokens[:60], tokens[60:]
    optimizer = torch.optim.Adam(method.parameters(), lr=0.01)
    before = float(method.contrast(unseen, attention(unseen)).detach())
    for _ in range(50):
        loss = method.contrast(seen, attention(seen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = float(method.contrast(unseen, attention(unseen)).detach())
    assert before > 0.1 and after < 0.02


def right_boxes(scores: Tensor) -> float:
    """The share of images whose box has an IoU of 0.7 with OBJECT, at the best threshold for all of them."""
    shares = []
    for threshold in np.arange(0, 1, 0.01):
        right = 0
        for rows, columns in (np.nonzero(score.numpy() > threshold) for score in scores):
            if len(rows):
                box = [(columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)]
                right += float(box_iou(np.array(box), np.array([OBJECT]))[0, 0]) >= 0.7
        shares.append(right / len(scores))
    return max(shares)


OBJECT = (8, 8, 24, 24)


def test_a_percentile_makes_thresholds_fit_all_images() -> None:
    """Backgrounds of other levels above the lowest value: no threshold of min-max suits all images."""
    maps = torch.zeros(4, 32, 32)
    for i, level in enumerate((0.0, 0.3, 0.6, 0.9)):
        maps[i] = level
        maps[i, 8:24, 8:24] = 1 + 0.02 * torch.rand(16, 16, generator=rng())
        maps[i, 8:24, 8:16] = level + 0.5 * (1 - level)  # a part of the object that is less certain
        maps[i, 0, 0] = 0
    ivr = classifier("ivr", percentile=50).wsol
    assert right_boxes(prepare_maps(maps, 32)) <= 0.75 and right_boxes(ivr.scores(maps, 32)) == 1


def test_a_percentile_as_the_standard_ignores_a_peak() -> None:
    """An object with a peak that is four times as high as its body, and another without."""
    maps = torch.zeros(2, 32, 32)
    maps[:, 8:24, 8:24] = 1 + 0.02 * torch.rand(16, 16, generator=rng())
    maps[:, 4:28, 4:28] += 0.4
    maps[0, 14:17, 14:17] = 5.6
    bae = classifier("bae", percentile=80).wsol
    assert right_boxes(prepare_maps(maps, 32)) == 0.5 and right_boxes(bae.scores(maps, 32)) == 1


def test_negative_weights_hide_a_part_that_clamping_shows() -> None:
    """A part with a channel of this class and one of another, which speaks against the class."""
    tokens = torch.zeros(1, 20, D)
    tokens[0, STRONG, 0], tokens[0, WEAK, 0], tokens[0, WEAK, 1] = 1.0, 1.0, 1.0
    head = classifier("bae")
    with torch.no_grad():
        head.head.linear.weight.zero_()
        head.head.linear.weight[0, :2] = torch.tensor([1.0, -1.0])
    x = Features(tokens, GRID)
    clamped = cam(head, x, 0).flatten()
    head.wsol = None
    plain = linear_cam(head, x, 0).flatten()
    assert (plain[WEAK] == 0).all() and (clamped[WEAK] == clamped[STRONG]).all()
