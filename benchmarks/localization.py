"""Time and memory of the localization metrics: `python benchmarks/localization.py [--rounds 5] [--maps 16]`.

MaxBoxAccV2 against the loop over thresholds with OpenCV, PxAP against numpy's histograms, both as the published
programs do it, on random maps enlarged to 224 x 224. All run in turn; the best of the rounds counts. One minute.
`--stream 50000` also evaluates that many images one by one and prints the memory that took.
Needs numba and opencv-python-headless.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np

from cenote.evaluate.speed import best_times
from cenote.metrics import BoxAccuracy, PixelPrecision, box_iou, max_box_acc, prepare_maps

SIDE, IMAGE = 224, (500, 400)
TRUTH = [[100.0, 80.0, 390.0, 300.0]]
BARS = {(14, 0.01): 4, (56, 0.01): 15, (14, 0.001): 40, (56, 0.001): 40}


def random_maps(count: int, cells: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Noise with a blob in the middle, cells x cells, enlarged."""
    grid = np.linspace(-1, 1, cells)
    blob = np.exp(-2 * (grid[:, None] ** 2 + grid**2))
    noise = np.random.default_rng(seed).random((count, cells, cells))
    return prepare_maps((blob + noise).astype(np.float32), SIDE)


def opencv_loop(maps: np.ndarray[Any, Any], interval: float) -> list[float]:
    """The published protocol, threshold by threshold."""
    thresholds = np.arange(0, 1, interval)
    scale = np.array([SIDE / IMAGE[0], SIDE / IMAGE[1]] * 2)
    truth = np.trunc(np.array(TRUTH) * scale)
    right = np.zeros((3, len(thresholds)))
    for one in maps:
        levels, corners, counts = (one * 255).astype(np.uint8), [], []
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
    print("| map | thresholds | OpenCV loop ms | Cenote ms | ratio | bar |\n|---|---|---|---|---|---|")
    for (cells, interval), bar in BARS.items():
        maps = random_maps(count if interval > 0.005 else max(count // 4, 2), cells)
        repeated = [TRUTH] * len(maps), [IMAGE] * len(maps)
        calls = {
            "loop": lambda maps=maps, interval=interval: opencv_loop(maps, interval),
            "ours": lambda maps=maps, interval=interval, rest=repeated: max_box_acc(maps, *rest, interval),
        }
        assert list(calls["ours"]().per_iou) == calls["loop"]()
        times = {name: 1000 * best / len(maps) for name, best in best_times(calls, rounds).items()}
        ratio = times["loop"] / times["ours"]
        print(f"| {cells} x {cells} | {round(1 / interval)} | {times['loop']:.2f} | {times['ours']:.2f} | ", end="")
        print(f"{ratio:.1f} | {bar} |", flush=True)


def pixels(rounds: int, count: int) -> None:
    print("\n| PxAP bin width | numpy histograms ms | Cenote ms | ratio | bar |\n|---|---|---|---|---|")
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
            return np.array([sum(np.histogram(s[m == v], edges)[0] for s, m in pairs) for v in (0, 1)])

        assert np.array_equal(ours(), histograms())
        best = best_times({"numpy": histograms, "ours": ours}, rounds)
        times = {name: 1000 * seconds / count for name, seconds in best.items()}
        ratio = times["numpy"] / times["ours"]
        print(f"| {width} | {times['numpy']:.3f} | {times['ours']:.3f} | {ratio:.1f} | 4 |", flush=True)


def stream(images: int) -> None:
    """Peak memory of the process before and after."""
    few = random_maps(16, 14)

    def score_maps() -> Iterator[Any]:
        return (few[i % 16].copy() for i in range(images))

    accuracy = BoxAccuracy(interval=0.001, resamples=200)
    accuracy.add(few, [TRUTH] * 16, [IMAGE] * 16)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    accuracy.add(score_maps(), (TRUTH for _ in range(images)), (IMAGE for _ in range(images)))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"\n{images} images one by one: {after // 1024} MB at most, {(after - before) // 1024} MB more than after 16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--maps", type=int, default=16)
    parser.add_argument("--stream", type=int, default=0, metavar="IMAGES")
    asked = parser.parse_args()
    boxes(asked.rounds, asked.maps)
    pixels(asked.rounds, asked.maps)
    if asked.stream:
        stream(asked.stream)


if __name__ == "__main__":
    main()
