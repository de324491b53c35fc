"""CLIP4Cir's network: its formula written out, what it learns, and its command."""

from pathlib import Path

import pytest
import torch

from cenote.cli import main
from cenote.search.combiner import Combiner, Triplets, train_combiner
from cenote.unit import unit
from tests.data.benchmarks import annotated_trees

from .test_protocols import Seeing


def test_the_network_is_its_formula() -> None:
    torch.manual_seed(0)
    network = Combiner(4).double().eval()
    x, t = torch.randn(2, 3, 4, dtype=torch.float64)

    def layer(place: torch.nn.Module, v: torch.Tensor) -> torch.Tensor:
        return place.weight @ v + place.bias  # type: ignore[operator, no-any-return]

    rows = []
    for image, text in zip(x, t, strict=True):
        both = torch.cat(
            [layer(network.text[0], text).relu(), layer(network.image[0], image).relu()]
        )
        joined = layer(network.joined[3], layer(network.joined[0], both).relu())
        a = 1 / (1 + torch.exp(-layer(network.share[3], layer(network.share[0], both).relu())))
        row = joined + a * text + (1 - a) * image
        rows.append(row / row.norm())
    torch.testing.assert_close(network(x, t), torch.stack(rows))


def test_it_learns_what_a_text_does_to_an_image() -> None:
    """Texts move images along directions that are not theirs, so that no sum finds the target."""
    torch.manual_seed(0)
    moves, turned = 2 * torch.eye(8)[:4], 2 * torch.eye(8)[4:]

    def triplets(count: int) -> Triplets:
        kind = torch.arange(count) % 4
        images = unit(torch.randn(count, 8))
        return Triplets(images, unit(moves)[kind], unit(images + turned[kind]))

    network, test = train_combiner(triplets(400), epochs=150, lr=1e-3, batch=100), triplets(100)

    def found(vectors: torch.Tensor) -> float:
        nearest = (vectors @ test.targets.T).argmax(1)
        return float((nearest == torch.arange(100)).float().mean())

    assert found(network(test.images, test.texts)) > 0.6
    assert found(unit(test.images + test.texts)) < 0.3
    again = train_combiner(triplets(8), epochs=2), train_combiner(triplets(8), epochs=2)
    assert again[0](test.images, test.texts).shape == (100, 8)


def test_the_command_trains_on_the_triplets_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cenote.models.image_text.create_image_text", lambda name: Seeing())
    annotated_trees.fashioniq(tmp_path / "iq")
    method = ["--methods", "image,combiner:epochs=2"]
    assert main(["evaluate-search", f"fashioniq:{tmp_path / 'iq'}", *method]) == 0
    assert "combiner:epochs=2" in capsys.readouterr().out
    annotated_trees.circo(tmp_path / "circo")
    assert main(["evaluate-search", f"circo:{tmp_path / 'circo'}", *method]) == 2
    assert "has none in a split 'train'" in capsys.readouterr().err
    network = ["--methods", "combiner:network=x"]
    assert main(["evaluate-search", f"circo:{tmp_path / 'circo'}", *network]) == 2
    assert "is trained by cenote evaluate-search" in capsys.readouterr().err
