"""How well text-space finds objects by the names of their classes, and of kinds of them ("vehicle").

    python benchmarks/objects.py DATA              # names of classes: versions 1 and 2
    python benchmarks/objects.py DATA --kinds      # hypernyms, and the choice of MARGINS[1]

DATA is shared/data. The database resembles Caltech-101: one object an image, about 50 classes of 3
to 30 images. It has the boxes of coco of at least 48 pixels as images, photographs of pacs, cats and
dogs of pets, birds of cub, horses of weizmann_horse; three random draws of 30 images a class. The
settings of version 2 were chosen on pacs and every second class of coco (benchmarks/text_space.py):
the other classes test them. Images are classified once, in 4 minutes on one core.

Kinds are the hypernyms in WordNet of at least two classes and at most 70% of the images; those of
the same images count once. "before" has the vectors of earlier commits: only a hypernym most of
whose kinds are classes ("dog") makes all its kinds alike.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from text_space import Database, classify, embed, read
from torch import Tensor

from cenote.data import open_dataset
from cenote.metrics.rankings import average_precision
from cenote.models.image_text import text_space
from cenote.models.image_text.synsets import imagenet_synsets, plain
from cenote.models.image_text.text_space import TextSpace

MIN_PIXELS, BORDER = 48, 0.1  # of a box; added on each side, of its longer side
MAX_IMAGES = 30  # of a class
SEEDS = 3
SPLITS, RESAMPLES = 30, 5000
MARGINS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5)
Values = NDArray[np.float64]  # precision at ten, average precision
# Name and a word of the definition of labels whose likeliest sense is another one, or none.
SENSES = {
    "cup": ("cup", "drinking"),
    "handbag": ("bag", "money"),
    "keyboard": ("computer keyboard", ""),
    "mouse": ("mouse", "hand-operated"),
    "remote": ("remote control", ""),
    "skis": ("ski", ""),
    "suitcase": ("suitcase", ""),
    "tie": ("necktie", ""),
    "tv": ("television receiver", ""),
}
WITHOUT_SYNSET = {
    "book",
    "cake",
    "fork",
    "kite",
    "potted plant",
    "sports ball",
    "surfboard",
    "toilet",
}


class Crops:
    """The large boxes of a data set as images."""

    def __init__(self, folder: Path) -> None:
        self.data = open_dataset(str(folder))
        self.boxes = [
            (i, box)
            for i, record in enumerate(self.data)
            for box in record.boxes
            if min(box.x2 - box.x1, box.y2 - box.y1) >= MIN_PIXELS
        ]
        self.labels = [box.label or "" for _, box in self.boxes]

    def __len__(self) -> int:
        return len(self.boxes)

    def image(self, index: int) -> Image.Image:
        i, box = self.boxes[index]
        border = BORDER * max(box.x2 - box.x1, box.y2 - box.y1)
        image = self.data.image(i)
        return image.crop(
            (
                max(box.x1 - border, 0),
                max(box.y1 - border, 0),
                min(box.x2 + border, image.width),
                min(box.y2 + border, image.height),
            )
        )


def read_objects(
    folder: Path, cache: Path, model: TextSpace, databases: dict[str, Database]
) -> tuple[Tensor, list[str]]:
    """Return the logits and the class of each image."""
    crops, file = Crops(folder / "coco"), cache / "crops.pt"
    if not file.exists():
        torch.save(classify(model, crops), file)  # type: ignore[arg-type]
    logits, labels = [torch.load(file)], list(crops.labels)
    for data_set in ("pacs photo", "pets", "cub", "weizmann_horse"):
        logits.append(databases[data_set].logits)
        for names in databases[data_set].labels:
            name = min(names)
            if data_set == "pets":
                name = "cat" if name[0].isupper() else "dog"
            labels.append({"cub": "bird", "weizmann_horse": "horse"}.get(data_set, name))
    return torch.cat(logits), labels


def draw(logits: Tensor, labels: list[str], seed: int) -> Database:
    order, counts, rows = list(range(len(labels))), Counter[str](), list[int]()
    random.Random(seed).shuffle(order)
    for i in order:
        counts[labels[i]] += 1
        if counts[labels[i]] <= MAX_IMAGES:
            rows.append(i)
    return Database(logits[rows], [{labels[i]} for i in rows])


def synset_of(label: str) -> int:
    synsets = imagenet_synsets()
    name, word = SENSES.get(label, (label, ""))
    senses = [i for i in synsets.named(plain(name)) if word in synsets.definitions[i]]
    return max(senses, key=synsets.coverage)


def with_kinds(database: Database) -> Database:
    """Replace the classes of the images by their hypernyms."""
    synsets, kinds = imagenet_synsets(), dict[str, set[str]]()
    for label in {name for names in database.labels for name in names} - WITHOUT_SYNSET:
        synset = synset_of(label)
        kinds[label] = {synsets.names[i][0] for i in synsets.ancestors[synset] if i != synset}
    result = Database(database.logits, [kinds.get(min(names), set()) for names in database.labels])
    result.truth = {
        kind: rows
        for kind, rows in result.truth.items()
        if rows.mean() <= 0.7 and sum(kind in names for names in kinds.values()) > 1
    }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, default=Path(gettempdir()) / "text-space")
    parser.add_argument("--kinds", action="store_true")
    args = parser.parse_args()
    model = TextSpace()
    databases = read(args.data, args.cache, model)
    logits, labels = read_objects(args.data, args.cache, model, databases)
    draws = [draw(logits, labels, seed) for seed in range(SEEDS)]
    if args.kinds:
        kinds(model, [with_kinds(database) for database in draws])
        return
    chosen = {*databases["coco"].queries(0), *databases["pacs"].truth}
    print("| | all classes | chosen on | tested on |\n|---|---|---|---|")
    for version in (1, 2):
        values = mean_values(TextSpace(version=version), draws)
        tested = values.keys() - chosen
        cells = [
            f"{len(names)}: " + "{:.3f} / {:.3f}".format(*mean_of(values, names))
            for names in (values.keys(), values.keys() - tested, tested)
        ]
        print(f"| version {version} | {' | '.join(cells)} |")
    print(", ".join(f"{name} {tens:.1f}" for name, (tens, _) in sorted(values.items())))


def mean_values(model: TextSpace, draws: list[Database]) -> dict[str, Values]:
    """Return precision at ten, or at their number, and average precision of each query."""
    values = dict[str, list[Values]]()
    for database in draws:
        images, queries = embed(model, database), list(database.truth)
        for query, scores in zip(queries, model.embed_texts(queries) @ images.T, strict=True):
            order = scores.argsort(descending=True, stable=True).numpy()
            row = database.truth[query][order]
            tens = row[:10].sum() / min(10, row.sum())
            values.setdefault(query, []).append(np.array([tens, average_precision(row)]))
    return {query: np.mean(pairs, 0) for query, pairs in values.items()}


def mean_of(values: dict[str, Values], queries: Iterable[str]) -> Values:
    return np.mean([values[query] for query in queries], 0)  # type: ignore[no-any-return]


def kinds(model: TextSpace, draws: list[Database]) -> None:
    """Compare margins; choose one on half of the groups of queries and test it on the others."""
    groups = dict[bytes, list[str]]()  # of the same images
    for query, rows in draws[0].truth.items():
        groups.setdefault(rows.tobytes(), []).append(query)
    synsets, used = imagenet_synsets(), text_space.MARGINS

    def measure(margin: float, hypernyms: set[int]) -> tuple[dict[str, Values], Values]:
        all_hypernyms, synsets.hypernyms = synsets.hypernyms, hypernyms
        text_space.MARGINS = (used[0], margin)
        values = mean_values(model, draws)
        text_space.MARGINS, synsets.hypernyms = used, all_hypernyms
        return values, np.array([mean_of(values, group) for group in groups.values()])

    before, baseline = measure(used[1], synsets.covered)
    now, _ = measure(used[1], synsets.hypernyms)
    gains = {margin: measure(margin, synsets.hypernyms)[1] - baseline for margin in MARGINS}
    rng, tested = np.random.default_rng(0), list[Values]()
    for margin, gain in gains.items():
        samples = gain[rng.integers(0, len(gain), (RESAMPLES, len(gain)))].mean(1)
        low, high = np.quantile(samples, (0.025, 0.975), axis=0).round(3)
        print(f"margin {margin}: P@10, AP {(baseline + gain).mean(0).round(3)}, "
              f"gain {gain.mean(0).round(3)}, 95% from {low} to {high}")  # fmt: skip
    for _ in range(SPLITS):
        order = rng.permutation(len(groups))
        half, others = order[: len(groups) // 2], order[len(groups) // 2 :]
        best = max(MARGINS, key=lambda margin: gains[margin][half].sum())
        tested.append(gains[best][others].mean(0))
    print(f"chosen on half of {len(groups)} groups, gain on the others: mean of {SPLITS} splits "
          f"{np.mean(tested, 0).round(3)}, smallest {np.min(tested, 0).round(3)}\n")  # fmt: skip
    print("| kind | images | before: P@10 / AP | search |\n|---|---|---|---|")
    for query in sorted(now):
        cells = ["{:.2f} / {:.2f}".format(*values[query]) for values in (before, now)]
        print(f"| {query} | {draws[0].truth[query].sum()} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
