"""A model and pictures that need no weights: colours and stripes, and the words for them."""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from cenote.search.words import WordMemory
from cenote.unit import unit

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "yellow": (230, 220, 30)}
SHAPES = ("square", "stripes")
WORDS = [*COLOURS, *SHAPES, "nothing"]


class Toy:
    """An image is its mean colour, without grey, and whether it has stripes; a text the sum of the words it knows."""

    name, identity, dim = "toy", "toy 1", 6

    def transform(self) -> object:
        def pixels(image: Image.Image) -> Tensor:
            small = np.asarray(image.convert("RGB").resize((32, 32)), np.float32) / 255
            return torch.from_numpy(small).permute(2, 0, 1)

        return pixels

    def embed_images(self, pixels: Tensor) -> Tensor:
        colour = pixels.mean((2, 3))  # (B, 3)
        colour = 4 * (colour - colour.mean(1, keepdim=True))
        rough = pixels.diff(dim=3).abs().mean((1, 2, 3))[:, None] * 4
        rest = torch.full_like(rough, 0.1)
        return unit(torch.cat([colour, rough, 0.3 - rough, rest], 1))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        known = {name: [*((c - sum(rgb) / 3) / 255 for c in rgb), 0.0, 0.0] for name, rgb in COLOURS.items()}
        known |= {"stripes": [0.0, 0, 0, 1, 0], "square": [0.0, 0, 0, 0, 1]}
        rows = [[known.get(word, [0.0] * 5) for word in text.split()] for text in texts]
        return unit(torch.tensor([[*map(sum, zip(*row, strict=True)), 0.1] for row in rows]))


def picture(colour: str, shape: str, seed: int) -> Image.Image:
    draw = np.random.default_rng(seed)
    clouds = Image.fromarray(draw.integers(40, 160, (6, 8), np.uint8)).resize((64, 48), 2)
    pixels = np.repeat(np.asarray(clouds, float)[..., None], 3, 2)
    x, y = draw.integers(2, 20, 2)
    if shape == "square":
        pixels[y : y + 22, x : x + 26] = COLOURS[colour]
    else:
        pixels[:, x % 8 :: 8] = COLOURS[colour]
        pixels[:, x % 8 + 1 :: 8] = COLOURS[colour]
    return Image.fromarray(np.clip(pixels + draw.normal(0, 4, pixels.shape), 0, 255).astype(np.uint8))


class Counting(Toy):
    """Knows how many images it was shown."""

    def __init__(self) -> None:
        self.embedded = 0

    def embed_images(self, pixels: Tensor) -> Tensor:
        self.embedded += len(pixels)
        return super().embed_images(pixels)


def words() -> WordMemory:
    return WordMemory(WORDS, Toy().embed_texts(WORDS))
