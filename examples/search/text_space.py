"""What the text-space model calls ImageNet's classes, and how many of them make an image's vector: a table of AP.

    python examples/search/text_space.py DATA [--domain photo] [--check DATA]

DATA has classes (shared/data/pacs); the query is the class name. Every text of a class x number of likeliest classes x
temperature is tried. The images are seen once: all cells share the classifier's answers. --check names other images
with boxes or classes (shared/data/coco): a class is found in an image if any of its boxes has it. The defaults were
chosen with both tables in view, temperature 3 over 2 by the second: neither is a test of them. About a minute on one
core.
"""

import argparse
import itertools

import numpy as np
import torch
from torch import Tensor

from cenote.allocator import keep_memory
from cenote.data import Dataset, open_dataset
from cenote.metrics.average_precision import average_precision
from cenote.models.image_text.text_space import CLASS_TEXTS, TextSpace, class_vectors

TOPS, TEMPERATURES = (1, 5, 10, 20, 1000), (1.0, 2.0, 3.0)
AT_LEAST = 3  # images of a class, to be asked for


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--domain", default=None, help="images of this domain only")
    parser.add_argument(
        "--check", default=None, metavar="DATA", help="other images to look at the choice with"
    )
    asked = parser.parse_args()
    keep_memory()
    model = TextSpace()
    data = open_dataset(asked.data)
    if asked.domain:
        domains = data.domains
        data = data.select(domains.codes == domains.names.index(asked.domain))
    logits, truth = answers(model, data), classes_of(data)
    checks = open_dataset(asked.check) if asked.check else None
    other = None if checks is None else (answers(model, checks), classes_of(checks))
    print(
        f"| class told by | top | temperature | {' | '.join(truth)} | mean |{' other images |' if other else ''}"
    )
    print(f"|---|---|---|{'---|' * (len(truth) + 1 + bool(other))}")
    for texts in CLASS_TEXTS:
        model.classes = class_vectors(model.words, texts)
        for model.top, model.temperature in itertools.product(TOPS, TEMPERATURES):
            found = precision(model, logits, truth)
            cells = [f"{value:.2f}" for value in found] + [f"{np.mean(found):.3f}"]
            cells += [f"{np.mean(precision(model, *other)):.3f}"] if other else []
            print(f"| {texts} | {model.top} | {model.temperature:g} | {' | '.join(cells)} |")


@torch.no_grad()
def answers(model: TextSpace, data: Dataset, batch: int = 32) -> Tensor:
    """(N, 1000) logits."""
    transform, starts = model.transform(), range(0, len(data), batch)
    parts = [
        [transform(data.image(i)) for i in range(s, min(s + batch, len(data)))] for s in starts
    ]
    return torch.cat([model.classifier(torch.stack(part)) for part in parts])


def classes_of(data: Dataset) -> dict[str, np.ndarray]:
    """Which images hold each class, as their label or in a box."""
    held: dict[str, np.ndarray] = {}
    for i, record in enumerate(data):
        for name in {record.label, *(box.label for box in record.boxes)} - {None}:
            held.setdefault(name, np.zeros(len(data), bool))[i] = True
    return {name: images for name, images in sorted(held.items()) if images.sum() >= AT_LEAST}


def precision(model: TextSpace, logits: Tensor, truth: dict[str, np.ndarray]) -> list[float]:
    """AP of every class name as a query."""
    similarities = (
        model.embed_texts([name.replace("_", " ") for name in truth]) @ model.embed_logits(logits).T
    )
    orders = similarities.argsort(descending=True, stable=True, dim=1).numpy()
    return [
        float(average_precision(held[order]))
        for held, order in zip(truth.values(), orders, strict=True)
    ]


if __name__ == "__main__":
    main()
