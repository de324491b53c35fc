"""`cenote index` compared with a plain loop and with the bare model.

    python benchmarks/index.py [--small 400] [--large 40] [--rounds 3] [--json]

index    a new index of the folder with the default model, lite0 in a text space; its words included.
plain    Pillow, torch's DataLoader, torchvision's transform and the same weights in eager PyTorch.
bare     the model alone, on tensors in memory, with whatever engine `cenote index` uses.

On small JPEGs, and on JPEGs of 12 megapixels, which `cenote index` decodes at a quarter of their
size. All run in turn in one process, best round of each. The photographs are crops of those of
scikit-image, written to a temporary folder. Takes about five minutes on two cores.
"""

from __future__ import annotations

import json as to_json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import skimage.data
import torch
import tyro
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from cenote.allocator import keep_memory
from cenote.models.image_text.text_space import TextSpace
from cenote.predict.openvino_engine import embed_images
from cenote.search.index import Indexer, open_images, source_of
from cenote.search.load import IndexSetup

SMALL, LARGE = (340, 256), (4032, 3024)
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")
NOISE = 3.0  # standard deviation of 255: a camera's files are larger than those of a smooth picture


def run(
    small: int = 400, large: int = 40, batch: int = 32, rounds: int = 3, json: bool = False
) -> None:
    """Measure images/s.

    Args:
        small: JPEGs of 340 x 256 pixels.
        large: JPEGs of 4032 x 3024 pixels.
        batch: images in a batch.
        rounds: timed passes of each.
        json: print JSON.
    """
    keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rows = [
            measure(root, "small", small, SMALL, batch, rounds),
            measure(root, "12 megapixels", large, LARGE, batch, rounds),
        ]
    if json:
        print(to_json.dumps(rows, indent=2))
        return
    print("| JPEGs | index | plain loop | bare model | index : plain | index : bare |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        speeds = " | ".join(f"{row[name]:.1f}" for name in ("index", "plain", "bare"))
        ratios = " | ".join(f"{row['index'] / row[name]:.2f}" for name in ("plain", "bare"))
        print(f"| {row['count']} {row['name']} | {speeds} | {ratios} |")


def measure(
    root: Path, name: str, count: int, size: tuple[int, int], batch: int, rounds: int
) -> dict[str, str | float]:
    """Return images/s of each way."""
    photos = root / name
    write_photographs(photos, count, size)
    setup = IndexSetup(str(root / f"empty {name}"))
    setup.open()
    model, _ = setup.load()
    assert isinstance(model, TextSpace)
    pixels = torch.rand(batch, 3, model.preprocessing.size, model.preprocessing.size)

    def index() -> None:
        shutil.rmtree(root / "index", ignore_errors=True)
        fresh = IndexSetup(str(root / "index"))
        fresh.loaded = setup.loaded
        data = (str(photos),)
        report = Indexer(
            fresh.open(), open_images(data), fresh.load, source_of(data), batch=batch
        ).run()
        assert report.embedded == count

    def plain() -> None:
        for images in DataLoader(PlainImages(photos, model), batch):
            with torch.inference_mode():
                model.embed_images(images)

    def bare() -> None:
        for start in range(0, count, batch):
            embed_images(model, pixels[: count - start])

    ways: dict[str, Callable[[], None]] = {"index": index, "plain": plain, "bare": bare}
    best = dict.fromkeys(ways, float("inf"))
    embed_images(model, pixels[:1].expand(64, -1, -1, -1))  # enough to convert the model
    for turn in range(rounds):
        for way in sorted(ways, reverse=bool(turn % 2)):
            start = time.perf_counter()
            ways[way]()
            best[way] = min(best[way], time.perf_counter() - start)
    return {"name": name, "count": count, **{way: count / best[way] for way in ways}}


class PlainImages(Dataset[Tensor]):
    """The files of a folder, as a short script reads them."""

    def __init__(self, folder: Path, model: TextSpace) -> None:
        from torchvision.transforms import v2

        self.paths, preprocessing = sorted(folder.iterdir()), model.preprocessing
        short_side = int(preprocessing.size / preprocessing.crop)
        self.transform = v2.Compose(
            [
                v2.Resize(short_side, v2.InterpolationMode.BICUBIC),
                v2.CenterCrop(preprocessing.size),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(preprocessing.mean, preprocessing.std),
                v2.ToPureTensor(),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Tensor:
        with Image.open(self.paths[i]) as image:
            pixels: Tensor = self.transform(image.convert("RGB"))
        return pixels


def write_photographs(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Write random crops of photographs; each of the large ones is written ten times.

    The bytes after the end of a JPEG are ignored: they make every file another one.
    """
    folder.mkdir()
    rng = np.random.default_rng(0)
    sources = [Image.fromarray(getattr(skimage.data, name)()) for name in PHOTOGRAPHS]
    different = count if size == SMALL else -(-count // 10)
    for i in range(count):
        path = folder / f"{i:05}.jpg"
        if i >= different:
            path.write_bytes((folder / f"{i % different:05}.jpg").read_bytes() + i.to_bytes(4))
            continue
        source = sources[i % len(sources)]
        side = int(rng.uniform(0.5, 1) * min(source.size))
        x, y = (int(rng.uniform(0, length - side)) for length in source.size)
        crop = source.resize(size, Image.Resampling.BICUBIC, (x, y, x + side, y + side))
        noise = rng.normal(0, NOISE, (*size[::-1], 1)).astype(np.float32)
        pixels = np.clip(np.asarray(crop) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path, quality=92)


if __name__ == "__main__":
    tyro.cli(run)
