"""Precision of a text search in folders of photographs: by looks, by reciprocal ranks, by both.

    python benchmarks/text_fusion.py shared/data/cub shared/data/rsscn7 [--seeds 3]

Each DATA has an annotations.csv with the columns file and class_name. All images are indexed once
with text-space, without names; then the same vectors get the paths of six photo trees:

class folders    each image in a folder of its class, IMG_0001.jpg and so on
no names         all in one folder
half in folders  every second image in the folder of its class, the others in one folder
named files      two of three file names contain the class and two other words
misleading       one of three in a folder "trip where we saw CLASS and more" of a wrong class
wrong folders    one of four in the folder of another class

The queries are the names of the classes. Printed is the mean precision at ten: visual only, by
reciprocal rank fusion (k = 60, equal texts share the better rank), and of `cenote search`. CERTAINTY
and p_visual of cenote/search/fusion.py were chosen on pets and pacs: measure on other data.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from cenote.data import read_image
from cenote.models.image_text import ImageText, create_image_text
from cenote.search import SearchRequest
from cenote.search.fusion import find_evidence
from cenote.search.local_store import LocalStore
from cenote.search.query import Searcher
from cenote.search.store import ImageEntry, IndexDescription
from cenote.search.text_index import ORDINAL, split_words

BATCH, TOP, RRF_K = 32, 10, 60
OTHER_WORDS = ("lake", "holiday", "with anna", "big", "garden", "sunday walk", "zoo", "evening")
Place = Callable[[int, str, str], str]  # number, class and another class -> path

TREES: dict[str, Callable[[random.Random], Place]] = {
    "class folders": lambda rng: lambda i, name, other: f"{name}/IMG_{i}.jpg",
    "no names": lambda rng: lambda i, name, other: f"2019-05/IMG_{i}.jpg",
    "half in folders": lambda rng: (
        lambda i, name, other: f"{name if i % 2 else 'unsorted'}/IMG_{i}.jpg"
    ),
    "named files": lambda rng: (
        lambda i, name, other: (
            "unsorted/"
            + ("_".join([name, *rng.sample(OTHER_WORDS, 2)]) if i % 3 else "IMG")
            + f"_{i}.jpg"
        )
    ),
    "misleading": lambda rng: (
        lambda i, name, other: (
            f"unsorted/IMG_{i}.jpg" if i % 3 else f"trip where we saw {other} and more/IMG_{i}.jpg"
        )
    ),
    "wrong folders": lambda rng: lambda i, name, other: f"{name if i % 4 else other}/IMG_{i}.jpg",
}


def read_classes(data: Path) -> list[tuple[Path, str]]:
    with open(data / "annotations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [(data / row["file"], words_of(row["class_name"])) for row in rows]


def words_of(name: str) -> str:
    return " ".join(split_words(ORDINAL.sub("", name))).lower()


@torch.inference_mode()
def embed(paths: list[Path], model: ImageText) -> Tensor:
    transform = model.transform()
    vectors = []
    for start in range(0, len(paths), BATCH):
        pixels = [transform(read_image(str(path))) for path in paths[start : start + BATCH]]
        vectors.append(model.embed_images(torch.stack(pixels)).float().cpu())
    return torch.cat(vectors)


def build(
    folder: Path, tree: str, classes: list[str], vectors: Tensor, model: ImageText, seed: int
) -> LocalStore:
    rng = random.Random(seed)
    names = sorted(set(classes))
    wrong = {name: rng.choice([other for other in names if other != name]) for name in names}
    place = TREES[tree](rng)
    entries = [
        ImageEntry(f"/photos/{place(i, name, wrong[name])}", f"{i:032x}", source="/photos")
        for i, name in enumerate(classes)
    ]
    store = LocalStore.open(folder, IndexDescription.create("text-space", model))
    with store.writer() as writer:
        writer.put(entries, vectors)
    return store


def reciprocal_ranks(store: LocalStore, text: str, visual: Tensor) -> list[int]:
    order = visual.sort(descending=True, stable=True).indices
    scores = torch.empty(len(visual))
    scores[order] = 1 / (RRF_K + 1 + torch.arange(len(visual)).float())
    evidence = find_evidence(store, [(text, 1.0)])
    if evidence is not None:
        better = (evidence.wanted[None] > evidence.wanted[:, None]).sum(1)
        scores[evidence.rows] += 1 / (RRF_K + 1 + better.float())
    return scores.sort(descending=True, stable=True).indices[:TOP].tolist()


def best_rows(searcher: Searcher, text: str, visual_only: bool) -> list[int]:
    request = SearchRequest(texts=(text,), top=TOP, near_duplicates="show", visual_only=visual_only)
    return [result.row for result in searcher.ask(request).results]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    model = create_image_text("text-space")
    images = [image for data in args.data for image in read_classes(data)]
    classes = [name for _, name in images]
    vectors = embed([path for path, _ in images], model)
    queries = sorted(set(classes))
    print(f"{len(images)} images, {len(queries)} classes, {args.seeds} seeds: mean precision at 10")
    for tree in TREES:
        values: dict[str, list[float]] = {"visual": [], "reciprocal ranks": [], "cenote": []}
        for seed in range(args.seeds):
            with TemporaryDirectory() as folder:
                store = build(Path(folder) / "ix", tree, classes, vectors, model, seed)
                searcher = Searcher(store)
                searcher.model = model
                for text in queries:
                    visual = store.vectors(store.rows) @ model.embed_texts([text])[0].float().cpu()
                    rankings = {
                        "visual": best_rows(searcher, text, visual_only=True),
                        "reciprocal ranks": reciprocal_ranks(store, text, visual),
                        "cenote": best_rows(searcher, text, visual_only=False),
                    }
                    for name, rows in rankings.items():
                        right = [classes[row] == text for row in rows]  # none: nothing was found
                        values[name].append(sum(right) / max(len(right), 1))
        means = ", ".join(f"{name} {fmean(numbers):.3f}" for name, numbers in values.items())
        print(f"{tree:16s} {means}, fewest {min(values['cenote']):.1f}", flush=True)


if __name__ == "__main__":
    main()
