"""Re-ranking by local vectors: whole images, and parts of images, as queries.

    python benchmarks/maxsim.py shared/data/cub shared/data/pets [--local 16] [--candidates 100]

Each folder is indexed with text-space and K local vectors (`cenote index --local K`) and searched by
image: the first 100 results, and the same with `--rerank maxsim`. For each seed 100 images are drawn,
each of which is two queries. The whole image: those of its class are relevant, the query itself is
not ranked; P@10, and the average precision of these results. A part, a random crop of half the width
and half the height: only the image that it is from is right; recall at 1 and 10. Percent, mean and
deviation over the seeds. Takes three minutes for 1,940 images on two cores.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from io import BytesIO
from itertools import product
from pathlib import Path

import numpy as np

from cenote import Index
from cenote.data import read_image
from cenote.search.query import ImageInput, Searcher, SearchRequest

SAMPLE = 100


def rankings(searcher: Searcher, image: ImageInput, count: int) -> tuple[list[int], list[int]]:
    """Return the first rows by the one vector of each image, and the same rows by local vectors."""
    request = SearchRequest((image,), top=count, near_duplicates="show", rerank="maxsim")
    results = searcher.ask(request).results
    first = sorted(results, key=lambda result: -result.visual)
    return [result.row for result in first], [result.row for result in results]


def quarter(path: str, rng: random.Random) -> bytes:
    image, file = read_image(path), BytesIO()
    width, height = (side // 2 for side in image.size)
    x, y = rng.randint(0, image.width - width), rng.randint(0, image.height - height)
    image.crop((x, y, x + width, y + height)).save(file, "PNG")
    return file.getvalue()


def measure(searcher: Searcher, count: int, seed: int) -> np.ndarray:
    """Return P@10, AP@100, R@1 and R@10 without and with re-ranking, (2, 4)."""
    images = sorted(searcher.store.images().values(), key=lambda image: image.entry.path)
    labels = {image.row: image.entry.label for image in images}
    sizes, rng, scores = Counter(labels.values()), random.Random(seed), list[list[list[float]]]()
    for row, entry in rng.sample(images, min(SAMPLE, len(images))):
        wholes = rankings(searcher, row, count)
        parts = rankings(searcher, quarter(entry.path, rng), count)
        values = list[list[float]]()
        for whole, part in zip(wholes, parts, strict=True):
            others = [other for other in whole if other != row]
            relevant = np.array([labels[other] == entry.label for other in others], float)
            precision = relevant.cumsum() / np.arange(1, len(relevant) + 1)
            average = (precision * relevant).sum() / (sizes[entry.label] - 1)
            values.append([relevant[:10].mean(), average, row == part[0], row in part[:10]])
        scores.append(values)
    return np.mean(scores, 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+")
    parser.add_argument("--local", type=int, nargs="+", default=[16])
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    print("| | whole: P@10 | AP@100 | part: R@1 | R@10 |\n|---|---|---|---|---|")
    for data, k in product(args.data, args.local):
        with tempfile.TemporaryDirectory() as folder:
            index = Index(Path(folder) / "ix", local=k)
            index.add(data)
            searcher = Searcher.open(str(Path(folder) / "ix"))
            scores = np.stack(
                [measure(searcher, args.candidates, seed) for seed in range(args.seeds)]
            )
        for name, values in zip(
            ("first", f"{k} local vectors"), scores.swapaxes(0, 1), strict=True
        ):
            cells = [f"{100 * column.mean():.1f} ± {100 * column.std():.1f}" for column in values.T]
            print("|", " | ".join([f"{Path(data).name}, {name}", *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
