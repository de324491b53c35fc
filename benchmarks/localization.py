"""Time and memory of localization metrics and TokenCut.

    python benchmarks/localization.py [--rounds 5] [--maps 16] [--only cuts] [--stream 50000]

MaxBoxAccV2 compared with a loop over thresholds with OpenCV, PxAP with numpy histograms, both as in
the published programs, on random maps enlarged to 224 x 224; TokenCut by Lanczos iteration compared
with the dense generalised eigenproblem of the published program, at 900 patches. In turn, best of
the rounds; takes a minute. `--stream` also evaluates that many images one by one and prints the
memory. Needs opencv-python-headless.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import scipy.linalg
from scipy import ndimage

from cenote.metrics import BoxAccuracy, PixelPrecision, box_iou, max_box_acc, prepare_maps
from cenote.predict.discovery.token_cut import EPS, graph, token_cut
from cenote.predict.timing import best_times

SIDE, IMAGE = 224, (500, 400)
TRUTH = [[100.0, 80.0, 390.0, 300.0]]
BARS = {(14, 0.01): 4, (56, 0.01): 15, (14, 0.001): 40, (56, 0.001): 40}


def random_maps(count: int, cells: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return noise with a central blob, cells x cells, enlarged to SIDE."""
    grid = np.linspace(-1, 1, cells)
    blob = np.exp(-2 * (grid[:, None] ** 2 + grid**2))
    noise = np.random.default_rng(seed).random((count, cells, cells))
    return prepare_maps((blob + noise).astype(np.float32), SIDE)


def opencv_loop(maps: np.ndarray[Any, Any], interval: float) -> list[float]:
    """Compute MaxBoxAccV2 as the published protocol does, threshold by threshold."""
    thresholds = np.arange(0, 1, interval)
    scale = np.array([SIDE / IMAGE[0], SIDE / IMAGE[1]] * 2)
    truth = np.trunc(np.array(TRUTH) * scale)
    right = np.zeros((3, len(thresholds)))
    for score_map in maps:
        levels, corners, counts = (score_map * 255).astype(np.uint8), [], []
        for t in thresholds:
            _, binary = cv2.threshold(levels, int(t * levels.max()), 255, cv2.THRESH_BINARY)
            contours = cv2.findContours(binary, cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)[0]
            boxes = [cv2.boundingRect(contour) for contour in contours] or [(0, 0, 0, 0)]
            corners += [(x, y, min(x + w, SIDE - 1), min(y + h, SIDE - 1)) for x, y, w, h in boxes]
            counts.append(len(boxes))
        overlaps = box_iou(corners, truth, plus_one=True).max(1)  # of all thresholds at once
        best = np.maximum.reduceat(overlaps, np.cumsum([0, *counts[:-1]]))
        right += best >= np.array([[0.3], [0.5], [0.7]])
    return (right.max(1) / len(maps)).tolist()


def boxes(rounds: int, count: int) -> None:
    print(
        "| map | thresholds | OpenCV loop ms | Cenote ms | ratio | bar |\n|---|---|---|---|---|---|"
    )
    for (cells, interval), bar in BARS.items():
        maps = random_maps(count if interval > 0.005 else max(count // 4, 2), cells)
        repeated = [TRUTH] * len(maps), [IMAGE] * len(maps)
        calls = {
            "loop": lambda maps=maps, interval=interval: opencv_loop(maps, interval),
            "ours": lambda maps=maps, interval=interval, rest=repeated: max_box_acc(
                maps, *rest, interval
            ),
        }
        assert list(calls["ours"]().per_iou) == calls["loop"]()
        times = {name: 1000 * best / len(maps) for name, best in best_times(calls, rounds).items()}
        ratio = times["loop"] / times["ours"]
        print(
            f"| {cells} x {cells} | {round(1 / interval)} | {times['loop']:.2f} | {times['ours']:.2f} | ",
            end="",
        )
        print(f"{ratio:.1f} | {bar} |", flush=True)


def pixels(rounds: int, count: int) -> None:
    print(
        "\n| PxAP bin width | numpy histograms ms | Cenote ms | ratio | bar |\n|---|---|---|---|---|"
    )
    maps = random_maps(count, 14)
    masks = (random_maps(count, 7, seed=1) > 0.6).astype(np.uint8)
    masks[random_maps(count, 7, seed=2) > 0.9] = 255
    for width in (0.01, 0.001):
        edges = np.append(np.arange(0, 1, width), [1.0, 2.0, 3.0])

        def ours(width: float = width) -> Any:
            precision = PixelPrecision(width)
            for scores, mask in zip(maps, masks, strict=True):
                precision.add(scores, mask)
            return precision.pixels

        def histograms(edges: Any = edges) -> Any:
            pairs = list(zip(maps, masks, strict=True))
            return np.array(
                [sum(np.histogram(s[m == v], edges)[0] for s, m in pairs) for v in (0, 1)]
            )

        assert np.array_equal(ours(), histograms())
        best = best_times({"numpy": histograms, "ours": ours}, rounds)
        times = {name: 1000 * seconds / count for name, seconds in best.items()}
        ratio = times["numpy"] / times["ours"]
        print(
            f"| {width} | {times['numpy']:.3f} | {times['ours']:.3f} | {ratio:.1f} | 4 |",
            flush=True,
        )


def patch_features(
    noise: float, shared: float = 0.0, grid: tuple[int, int] = (30, 30), dim: int = 384
) -> np.ndarray[Any, Any]:
    """Return noisy features (N, 384) of a background and two objects that share a direction."""
    rng = np.random.default_rng(0)
    kinds = np.zeros(grid, int)
    kinds[8:20, 5:17], kinds[18:26, 19:27] = 1, 2
    directions = rng.standard_normal((3, dim)) + shared * rng.standard_normal(dim)
    return (directions[kinds.ravel()] + noise * rng.standard_normal((kinds.size, dim))).astype(
        np.float32
    )


def dense_cut(features: np.ndarray[Any, Any], grid: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Compute the mask of TokenCut as published, with LAPACK's generalised eigenvalue solver."""
    e = np.where(graph(features, 0.2), 1.0, EPS)
    d = np.diag(e.sum(1))
    y = scipy.linalg.eigh(d - e, d, subset_by_index=[1, 2])[1][:, 0]
    y = y * np.sign(y[np.abs(y).argmax()])
    labels, _ = ndimage.label((y > y.mean()).reshape(grid))
    mask: np.ndarray[Any, Any] = labels == labels.flat[y.argmax()]
    return mask


def cuts(rounds: int, count: int) -> None:
    """Compare TokenCut solvers, one image at a time; `count` is unused."""
    print(
        "\n| TokenCut, 900 patches | near pairs | dense ms | Lanczos ms | ratio | bar |\n|---|---|---|---|---|---|"
    )
    grid = (30, 30)
    cases = [
        ("two objects", 0.8, 0.0, "8"),
        ("in noise", 1.5, 0.0, "8"),
        ("nearly all alike", 1.0, 0.85, "8"),
    ]
    for name, noise, shared, bar in [*cases, ("hardly any alike", 3.0, 0.0, "-")]:
        features = patch_features(noise, shared)
        assert np.array_equal(dense_cut(features, grid), token_cut(features, grid).mask)
        best = best_times(
            {
                "dense": lambda features=features: dense_cut(features, grid),
                "ours": lambda features=features: token_cut(features, grid),
            },
            rounds,
        )
        times = {key: 1000 * seconds for key, seconds in best.items()}
        share = graph(features, 0.2).mean()
        ratio = times["dense"] / times["ours"]
        print(
            f"| {name} | {share:.0%} | {times['dense']:.1f} | {times['ours']:.1f} | {ratio:.1f} | {bar} |",
            flush=True,
        )


def stream(images: int) -> None:
    """Print the peak memory before and after evaluating `images` maps."""
    few = random_maps(16, 14)

    def score_maps() -> Iterator[Any]:
        return (few[i % 16].copy() for i in range(images))

    accuracy = BoxAccuracy(interval=0.001, resamples=200)
    accuracy.add(few, [TRUTH] * 16, [IMAGE] * 16)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    accuracy.add(score_maps(), (TRUTH for _ in range(images)), (IMAGE for _ in range(images)))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"\n{images} images one by one: {after // 1024} MB at most, {(after - before) // 1024} MB more than after 16"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--maps", type=int, default=16)
    parser.add_argument("--stream", type=int, default=0, metavar="IMAGES")
    sections = {"boxes": boxes, "pixels": pixels, "cuts": cuts}
    parser.add_argument("--only", choices=sections, help="run only this section")
    args = parser.parse_args()
    for name, section in sections.items():
        if args.only in (None, name):
            section(args.rounds, args.maps)
    if args.stream:
        stream(args.stream)


if __name__ == "__main__":
    main()
