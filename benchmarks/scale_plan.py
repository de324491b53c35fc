"""Measure the constants of the plan for 100 million images in docs/scale.md.

    python benchmarks/scale_plan.py shared/data/pets

Sizes of a JPEG at 224 pixels and of its vector in a shard, and the CPU time of decoding and of
CLIP's ViT-B/32 (random weights), one thread.
"""

import argparse
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import timm
import torch
from PIL import Image

from cenote.data.digests import digest_of
from cenote.search.index import EntryBatch
from cenote.search.store import ImageEntry
from cenote.search.vector_shards import write_shard

IMAGES, SIDE, DIM, SHARD, BATCH = 200, 224, 512, 10_000, 16


def shrink(path: Path) -> bytes:
    image, file = Image.open(path).convert("RGB"), io.BytesIO()
    scale = SIDE / min(image.size)
    size = round(image.width * scale), round(image.height * scale)
    image.resize(size, Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def cpu_seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def shard_sizes() -> tuple[float, int]:
    """Return the bytes of an image in a shard of vectors, and those of the shard's sums."""
    vectors = torch.nn.functional.normalize(torch.randn(SHARD, DIM), dim=1)
    source = "wds:s3://bucket/train-000123.tar"
    entries = []
    for i in range(SHARD):
        digest = digest_of(str(i).encode()).hex()
        look = int(digest[:15], 16)
        entries.append(
            ImageEntry(
                f"{source}/{i:09d}.jpg", digest, look=look, source=source, label=f"c{i % 1000}"
            )
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        write_shard(path, "state", [EntryBatch(entries, vectors, None, None)])
        return path.stat().st_size / SHARD, path.with_suffix(".npz").stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    torch.set_num_threads(1)
    files = [shrink(path) for path in sorted(parser.parse_args().folder.rglob("*.jpg"))[:IMAGES]]
    decode = cpu_seconds(lambda: [Image.open(io.BytesIO(file)).load() for file in files])
    model = timm.create_model("vit_base_patch32_clip_224", num_classes=DIM).eval()
    with torch.inference_mode():
        batch = torch.randn(BATCH, 3, SIDE, SIDE)
        model(batch)
        network = cpu_seconds(lambda: [model(batch) for _ in range(3)])
    vector, sums = shard_sizes()
    print(f"JPEG: {sum(map(len, files)) / len(files):.0f} bytes")
    print(f"decoding: {1e3 * decode / len(files):.2f} ms of CPU")
    print(f"ViT-B/32: {1e3 * network / (3 * BATCH):.0f} ms of CPU")
    print(f"vector in a shard: {vector:.0f} bytes; sums of a shard: {sums} bytes")


if __name__ == "__main__":
    main()
