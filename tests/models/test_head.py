import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from cenote.models import Head
from cenote.models.head import DinoHead

B, K, D, C = 5, 3, 8, 4


def vectors(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_one_vector_is_a_linear_layer() -> None:
    head, u = Head(D, C).double(), vectors(B, D)
    torch.testing.assert_close(head(u), u @ head.linear.weight.T + head.linear.bias)
    torch.testing.assert_close(head(u[:, None]), head(u))


def test_max_takes_the_largest_logit_of_each_class() -> None:
    head, u = Head(D, C, k=K).double(), vectors(B, K, D)
    wanted, weight, bias = (
        torch.empty(B, C, dtype=torch.float64),
        head.linear.weight.detach(),
        head.linear.bias.detach(),
    )
    for b in range(B):
        for c in range(C):
            logits = [float(weight[c] @ u[b, i] + bias[c]) for i in range(K)]
            wanted[b, c] = max(logits)
    torch.testing.assert_close(head(u), wanted)


def test_concat_projects_to_dim_first() -> None:
    head, u = Head(D, C, k=K, combine="concat").double(), vectors(B, K, D)
    assert head.project is not None and head.project.weight.shape == (D, K * D)
    projected = (
        torch.cat([u[:, i] for i in range(K)], dim=1) @ head.project.weight.T + head.project.bias
    )
    torch.testing.assert_close(head(u), projected @ head.linear.weight.T + head.linear.bias)


def test_concat_tells_the_vectors_apart_and_max_does_not() -> None:
    u = vectors(B, K, D)
    for combine, same in (("max", True), ("concat", False)):
        head = Head(D, C, k=K, combine=combine).double()
        assert torch.allclose(head(u), head(u.flip(1))) is same


@pytest.mark.parametrize("combine", ["max", "concat"])
def test_gradients(combine: str) -> None:
    head = Head(D, C, k=K, combine=combine, norm="batch").double()
    assert gradcheck(head, vectors(B, K, D).requires_grad_())
    head(vectors(B, K, D)).square().sum().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_max_sends_the_gradient_to_the_winning_vector_only() -> None:
    head, u = Head(D, C, k=K, bias=False).double(), vectors(1, K, D).requires_grad_()
    head(u)[0, 2].backward()
    winner = int((u[0] @ head.linear.weight[2]).argmax())
    wanted = torch.zeros_like(u)
    wanted[0, winner] = head.linear.weight[2]
    torch.testing.assert_close(u.grad, wanted.detach())


def test_batch_norm_by_hand() -> None:
    head, u = Head(D, C, norm="batch").double(), vectors(B, D)
    normal = (u - u.mean(0)) / (u.var(0, unbiased=False) + 1e-6).sqrt()
    torch.testing.assert_close(head(u), normal @ head.linear.weight.T + head.linear.bias)
    assert isinstance(head.norm, nn.BatchNorm1d) and not list(head.norm.parameters())


@pytest.mark.parametrize("k", [1, K])
def test_a_batch_of_one_in_training_uses_what_earlier_batches_had(k: int) -> None:
    head = Head(D, C, k=k, norm="batch").double()
    head(vectors(B, k, D) * 3 + 1)  # moves the running statistics
    one = vectors(1, k, D)
    training = head.train()(one)
    torch.testing.assert_close(training, head.eval()(one))
    assert training.isfinite().all()


def test_an_empty_batch_leaves_no_trace() -> None:
    head = Head(D, C, norm="batch").double().train()
    assert head(vectors(0, D)).shape == (0, C)
    assert (
        head.norm is not None
        and head.norm.running_mean is not None
        and head.norm.running_mean.isfinite().all()
    )


def test_an_image_s_logits_do_not_depend_on_its_batch_in_evaluation() -> None:
    head, u = Head(D, C, k=K, norm="batch").double().eval(), vectors(B, K, D)
    torch.testing.assert_close(head(u)[2:3], head(u[2:3]))


def test_compiles_whole() -> None:
    head, u = Head(D, C, k=K, combine="concat", norm="batch").eval(), vectors(B, K, D).float()
    torch.testing.assert_close(torch.compile(head, fullgraph=True, backend="aot_eager")(u), head(u))


@pytest.mark.parametrize(
    ("k", "shape"),
    [
        (1, (B, D + 1)),
        (1, (B, 2, D)),
        (1, (D,)),
        (K, (B, D)),
        (K, (B, K + 1, D)),
        (K, (B, K, D, 1)),
        (2, (B, 2 * D)),
    ],
)
def test_wrong_shapes_are_refused(k: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"dim={D}, k={k}\b"):
        Head(D, C, k=k)(torch.zeros(shape))


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"classes": C, "combine": "mean"}, "max, concat.*'mean'"),
        ({"classes": C, "norm": "layer"}, "batch.*'layer'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], values: str) -> None:
    with pytest.raises(ValueError, match=values):
        Head(D, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [(64, 512, 64), (192, 512, 256)])
def test_dinos_head_tells_images_apart_before_training(sizes: tuple[int, int, int]) -> None:
    """Biases start at zero, as published; random ones make all vectors of a narrow head alike."""
    torch.manual_seed(0)
    dim, hidden, bottleneck = sizes
    head = DinoHead(dim, 1000, hidden, bottleneck)
    linears = [layer for layer in head.mlp if isinstance(layer, nn.Linear)]
    assert len(linears) == 3 and not any(layer.bias.any() for layer in linears)
    assert all(abs(layer.weight.std().item() / 0.02 - 1) < 0.05 for layer in linears)
    x = torch.nn.functional.layer_norm(torch.randn(100, dim), (dim,))
    z = torch.nn.functional.normalize(head.mlp(x), dim=-1)
    assert (z @ z.T).mean() < 0.2
