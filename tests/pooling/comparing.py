"""What the tests of the methods compare with, and how."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from cenote.pooling import Pool, create_pool


def features(scale: float, shape: tuple[int, ...] = (2, 12, 5)) -> Tensor:
    return scale * torch.randn(
        shape, dtype=torch.double, generator=torch.Generator().manual_seed(0)
    )


def lively(pool: nn.Module) -> nn.Module:
    """In evaluation, with statistics that do something, no layer at zero and no dead unit to hide
    behind.
    """
    torch.manual_seed(0)
    for p in pool.parameters():
        if p.ndim:  # not gamma
            nn.init.normal_(p, std=0.5)
    for name, buffer in pool.named_buffers():
        if "running" in name:
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    return pool.double().eval()


def shaken(name: str, dim: int = 12, **options: object) -> Pool:
    """A pool in float64 of which no parameter is a zero or a one."""
    torch.manual_seed(0)
    pool = create_pool(name, dim, **options).double().eval()
    with torch.no_grad():
        for t in (*pool.parameters(), *(b for b in pool.buffers() if b.is_floating_point())):
            t.add_(0.3 * torch.randn_like(t).abs())
    return pool


def agree(
    f: Callable[[Tensor], Tensor],
    g: Callable[[Tensor], Tensor],
    x: Tensor,
    parameters: Sequence[Tensor] = (),
) -> None:
    """f and g have the same value and the same gradients."""
    found = []
    for fn in (f, g):
        t = x.clone().requires_grad_()
        u = fn(t)
        weights = torch.linspace(-1, 1, u.numel(), dtype=u.dtype).view_as(u)
        found.append([u.detach(), *torch.autograd.grad((u * weights).sum(), [t, *parameters])])
    for a, b in zip(*found, strict=True):
        noise = 1e-13 * (1 + float(x.abs().max())) + 1e-10 * float(b.abs().max())
        torch.testing.assert_close(a, b, rtol=1e-8, atol=noise)


def check_equal(
    ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor], wrt: list[Tensor]
) -> None:
    """Vectors, maps, and the gradients of both."""
    g = [torch.randn_like(t) for t in theirs]
    grads = [torch.autograd.grad(out, wrt, g) for out in (ours, theirs)]
    for mine, other in zip((*ours, *grads[0]), (*theirs, *grads[1]), strict=True):
        torch.testing.assert_close(
            mine, other, rtol=1e-8, atol=1e-10 * (1 + float(other.detach().abs().max()))
        )
