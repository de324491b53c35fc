"""Models that are small, quick and, where a test needs it, of known behaviour."""

import dataclasses
import zlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from cenote.backbones import Features, Preprocessing
from cenote.backbones.preprocessing import Transform
from cenote.models import PooledModel, create_model
from cenote.search.words import WordMemory
from cenote.unit import unit
from tests.synthetic import CLASS_COLOURS

NARROW: dict[str, Any] = {
    "layers": (1, 1, 1, 1),
    "channels": (8, 16, 32, 64),
}  # a ResNet-18 of 100 kB
COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 200, 40),
    "blue": (30, 40, 220),
    "yellow": (230, 220, 30),
}
SHAPES = ("square", "stripes")
WORDS = [*COLOURS, *SHAPES, "nothing"]


def narrow_resnet(
    pool: Any = "simpool", num_classes: int = 3, size: int | None = None, **options: Any
) -> PooledModel:
    """A narrow ResNet-18 with fixed random weights, in eval mode; `size` replaces the input size of 224 pixels."""
    torch.manual_seed(0)
    model = create_model(
        "resnet18", pool, **{"num_classes": num_classes, **NARROW, **options}
    ).eval()
    if size is not None:
        model.backbone.preprocessing = dataclasses.replace(model.backbone.preprocessing, size=size)
    return model


def localizer(pool: str = "gap", num_classes: int = 3) -> PooledModel:
    """Random weights, 64 pixels and stride 4, so that maps are 16 x 16; classes a, b, c."""
    model = narrow_resnet(pool, num_classes, size=64, stride=4)
    model.class_names = ["a", "b", "c"][:num_classes]
    return model


def images(size: int = 64) -> Tensor:
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def assert_same_model(model: PooledModel, other: PooledModel, size: int = 64) -> None:
    """Equal weights, to the bit; equal outputs, to rounding: a loaded tensor may be aligned differently in memory."""
    expected = model.state_dict()
    assert other.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in other.state_dict().items())
    torch.testing.assert_close(other(images(size)), model.eval()(images(size)))
    assert other.config == model.config and not other.training


class PixelClassifier(nn.Module):
    """Classify a 32 x 32 image by the colour of the pixel at `place`: red, green or blue."""

    def __init__(
        self, place: tuple[int, int], names: Sequence[str] | None = ("a", "b", "c")
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(CLASS_COLOURS, dtype=torch.float32) / 255)
        self.class_names = None if names is None else list(names)
        self.backbone = _Pixel(place)
        self.head = SimpleNamespace(classes=3)

    def classify(self, features: Features) -> Tensor:
        return features.tokens[:, 0] @ self.weight.T  # (B, 3)


class _Pixel(nn.Module):
    def __init__(self, place: tuple[int, int]) -> None:
        super().__init__()
        self.place = place
        self.preprocessing = Preprocessing(32, 1.0, mean=(0, 0, 0), std=(1, 1, 1))

    def forward(self, images: Tensor) -> Features:
        y, x = self.place
        return Features(images[:, None, :, y, x], (1, 1))


class WordSumModel:
    """A text encoder: a text is the sum of its words, each a fixed random vector; word order matters a little."""

    def __init__(self, dim: int = 24, identity: str = "toy") -> None:
        self.name, self.identity, self.dim = "toy", identity, dim
        self.asked: list[str] = []

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        self.asked += texts
        return unit(torch.stack([self._sum(text.split()) for text in texts]))

    def _sum(self, words: list[str]) -> Tensor:
        vectors = [
            word_vector(word, self.dim) * (1 + 0.1 * place) for place, word in enumerate(words)
        ]
        return torch.as_tensor(sum(vectors))


def word_vector(word: str, dim: int) -> Tensor:
    return torch.from_numpy(
        np.random.default_rng(zlib.crc32(word.encode())).standard_normal(dim)
    ).float()


def image_vectors(count: int, dim: int = 24, seed: int = 0, shift: float = 0.5) -> Tensor:
    """Unit vectors around a common direction, as image-text models give."""
    rng = torch.Generator().manual_seed(seed)
    return unit(
        torch.randn(count, dim, generator=rng) + shift * torch.randn(dim, generator=rng) * 2
    )


class ColourModel:
    """An image-text model: an image is its mean colour and whether it has stripes, a text the sum of its words."""

    name, identity, dim = "toy", "toy 1", 6

    def transform(self, scaled_decoding: bool = False) -> Transform:
        def pixels(image: Image.Image) -> Tensor:
            small = np.asarray(image.convert("RGB").resize((32, 32)), np.float32) / 255
            return torch.from_numpy(small).permute(2, 0, 1)

        return Transform(pixels, 64 if scaled_decoding else None)

    def embed_images(self, pixels: Tensor) -> Tensor:
        colour = pixels.mean((2, 3))  # (B, 3)
        colour = 4 * (colour - colour.mean(1, keepdim=True))
        rough = pixels.diff(dim=3).abs().mean((1, 2, 3))[:, None] * 4
        rest = torch.full_like(rough, 0.1)
        return unit(torch.cat([colour, rough, 0.3 - rough, rest], 1))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        known = {
            name: [*((c - sum(rgb) / 3) / 255 for c in rgb), 0.0, 0.0]
            for name, rgb in COLOURS.items()
        }
        known |= {"stripes": [0.0, 0, 0, 1, 0], "square": [0.0, 0, 0, 0, 1]}
        rows = [[known.get(word, [0.0] * 5) for word in text.split()] for text in texts]
        return unit(torch.tensor([[*map(sum, zip(*row, strict=True)), 0.1] for row in rows]))


class CountingColourModel(ColourModel):
    """Counts the images that it embeds."""

    def __init__(self) -> None:
        self.embedded = 0

    def embed_images(self, pixels: Tensor) -> Tensor:
        self.embedded += len(pixels)
        return super().embed_images(pixels)


def word_memory() -> WordMemory:
    return WordMemory(WORDS, ColourModel().embed_texts(WORDS))


def picture(colour: str, shape: str, seed: int) -> Image.Image:
    """A square or stripes of a colour on grey clouds: what ColourModel understands."""
    rng = np.random.default_rng(seed)
    clouds = Image.fromarray(rng.integers(40, 160, (6, 8), np.uint8)).resize((64, 48), 2)
    pixels = np.repeat(np.asarray(clouds, float)[..., None], 3, 2)
    x, y = rng.integers(2, 20, 2)
    if shape == "square":
        pixels[y : y + 22, x : x + 26] = COLOURS[colour]
    else:
        pixels[:, x % 8 :: 8] = COLOURS[colour]
        pixels[:, x % 8 + 1 :: 8] = COLOURS[colour]
    return Image.fromarray(
        np.clip(pixels + rng.normal(0, 4, pixels.shape), 0, 255).astype(np.uint8)
    )
