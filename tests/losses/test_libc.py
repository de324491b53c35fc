"""LIBC: the messages of a batch written out one by one, and what they are good for."""

import pytest
import torch
from torch import Tensor, nn

from cenote.losses import create_metric_loss
from cenote.losses.libc import LIBC

LABELS = torch.tensor([0, 0, 1, 1, 2])


def normalized(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    return (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt() * norm.weight + norm.bias


def cross_entropy(logits: Tensor, label: int, smoothing: float) -> Tensor:
    """The target is 1 - smoothing, and smoothing is divided among all classes."""
    log_p = logits - logits.exp().sum().log()
    return -(1 - smoothing) * log_p[label] - smoothing * log_p.mean()


def slow(loss: LIBC, z: Tensor, heads: int) -> Tensor:
    d = z.shape[1] // heads
    h = [loss.reduce.weight @ (row / row.norm()) + loss.reduce.bias for row in z]
    for layer in loss.messages:
        attention = layer.self_attn
        w_q, w_k, w_v = attention.in_proj_weight.chunk(3)
        b_q, b_k, b_v = attention.in_proj_bias.chunk(3)
        passed = []
        for receiver in h:
            received = []
            for head in range(heads):
                part = slice(head * d, (head + 1) * d)
                q = (w_q @ receiver + b_q)[part]
                scores = [q @ (w_k @ sender + b_k)[part] / d**0.5 for sender in h]
                total = sum(score.exp() for score in scores)
                received.append(
                    sum(
                        score.exp() / total * (w_v @ sender + b_v)[part]
                        for score, sender in zip(scores, h, strict=True)
                    )
                )
            message = attention.out_proj.weight @ torch.cat(received) + attention.out_proj.bias
            x = normalized(receiver + message, layer.norm1)
            hidden = (layer.linear1.weight @ x + layer.linear1.bias).clamp(min=0)
            answer = layer.linear2.weight @ hidden + layer.linear2.bias
            passed.append(normalized(x + answer, layer.norm2))
        h = passed
    refined = torch.stack(h)
    refined = (refined - refined.mean(0)) / (refined.var(0, correction=0) + 1e-5).sqrt()
    refined = refined * loss.norm.weight
    total = z.new_zeros(())
    for i, label in enumerate(LABELS.tolist()):
        own = (loss.classifier.weight @ z[i] + loss.classifier.bias) / loss.temperature
        of_batch = loss.refined_classifier.weight @ refined[i] / loss.temperature
        for logits in (own, of_batch):
            total = total + cross_entropy(logits, label, loss.smoothing) / len(z)
    return total


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2])
def test_values_and_gradients_are_those_of_loops(steps: int, scale: float) -> None:
    torch.manual_seed(0)
    options = {"steps": steps, "heads": 2, "temperature": 0.5 * scale, "dropout": 0.0}
    loss = create_metric_loss("libc", 3, 6, **options).double()
    assert isinstance(loss, LIBC) and loss.proxied
    for p in loss.messages.parameters():  # biases begin at zero
        torch.nn.init.normal_(p.data, std=0.5) if p.ndim > 1 else None
    for layer in loss.messages:
        for bias in (layer.self_attn.in_proj_bias, layer.self_attn.out_proj.bias):
            torch.nn.init.normal_(bias.data)
    z = (scale * torch.randn(5, 6, dtype=torch.float64)).requires_grad_()
    ours, theirs = loss(z, LABELS), slow(loss, z, 2)
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    variables = [z, *(p for p in loss.parameters() if p.requires_grad)]
    pairs = zip(*(torch.autograd.grad(x, variables) for x in (ours, theirs)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def test_the_batch_settles_what_an_image_leaves_open() -> None:
    """Batches are shot in one of two lights, which shifts all of their images; an image alone does
    not tell whether it is dark or badly lit."""
    torch.manual_seed(0)
    loss = create_metric_loss("libc", 2, 4, dropout=0.0, smoothing=0.0)

    def batch() -> tuple[Tensor, Tensor]:
        labels = torch.arange(12) % 2
        light = 2.0 * float(torch.randint(2, ())) - 1
        brightness = 0.5 * (2 * labels - 1) + light * 0.5  # -1, 0 of one, 0, 1 of the other
        return torch.stack([brightness, *torch.ones(3, 12)], 1), labels

    optimizer = torch.optim.Adam(loss.parameters(), 3e-3)
    for _ in range(300):
        z, labels = batch()
        optimizer.zero_grad()
        loss(z, labels).backward()
        optimizer.step()
    right: dict[str, list[float]] = {"alone": [], "together": []}
    with torch.no_grad():
        for _ in range(20):
            z, labels = batch()
            refined = loss.norm(loss.refine(z / z.norm(dim=1, keepdim=True)))
            for name, logits in (
                ("alone", loss.classifier(z)),
                ("together", loss.refined_classifier(refined)),
            ):
                right[name].append(float((logits.argmax(1) == labels).float().mean()))
    alone, together = (sum(values) / 20 for values in right.values())
    assert alone < 0.9 < 0.99 < together


def test_a_single_image_has_no_loss_and_mistakes_are_refused() -> None:
    z = torch.randn(1, 4, requires_grad=True)
    value = create_metric_loss("libc", 2, 4)(z, torch.tensor([1]))
    assert value == 0 and value.requires_grad
    for options, message in (
        ({"heads": 3}, "heads of 'libc' must divide the 4 dimensions, got 3"),
        ({"head": 2}, "'head'.*'heads'"),
        ({"steps": 0}, "steps of 'libc'"),
        ({"temperature": 0}, "temperature of 'libc'"),
    ):
        with pytest.raises(ValueError, match=message):
            create_metric_loss("libc", 2, 4, **options)
    with pytest.raises(ValueError, match="takes no memory"):
        create_metric_loss("libc", 2, 4)(torch.randn(4, 4), torch.arange(4), (z, torch.ones(1)))
    with pytest.raises(ValueError, match="did you mean 'libc'"):
        create_metric_loss("lib", 2, 4)
