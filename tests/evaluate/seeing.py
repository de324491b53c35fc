"""Models of which it is known what they see, for the tests of robustness."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from cenote.backbones import Preprocessing
from cenote.data import Dataset, Record, pack

COLOURS = ((250, 10, 10), (10, 250, 10), (10, 10, 250))
CLASSES = ["a", "b", "c"]


class Seeing(nn.Module):
    """Tells a class by the colour at one place of a 32 x 32 image: the object is in the middle, (2, 2) is beside it."""

    def __init__(self, place: tuple[int, int], names: list[str] | None = CLASSES) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(COLOURS, dtype=torch.float32) / 255)
        self.place, self.class_names = place, names
        self.backbone = SimpleNamespace(preprocessing=Preprocessing(32, 1.0, mean=(0, 0, 0), std=(1, 1, 1)))
        self.head = SimpleNamespace(classes=3)

    def forward(self, images: Tensor) -> Tensor:
        y, x = self.place
        return images[:, :, y, x] @ self.weight.T  # (B, 3)


def make(folder: Path, images: int = 12, labels: str = "abc") -> Dataset:
    """Image i is of class i % 3 in the colour of the class, the object as well as what is around it."""
    records = []
    for i in range(images):
        mask = np.full((32, 32), 2, np.uint8)
        mask[10:22, 10:22] = 1
        Image.new("RGB", (32, 32), COLOURS[i % 3]).save(folder / f"{i}.png")
        Image.fromarray(mask).save(folder / f"{i}-mask.png")
        records.append(Record(f"{i}.png", labels[i % 3], masks=(f"{i}-mask.png",)))
    return pack(records, folder, "made")
