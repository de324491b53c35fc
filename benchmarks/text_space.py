"""Texts for ImageNet classes in the text-space model: a table of average precision.

    python benchmarks/text_space.py DATA [--domain photo] [--check DATA]

DATA has classes (shared/data/pacs); the query is the class name. Tries every text of a class x
number of most likely classes x temperature; the images are classified once. --check names other
images with boxes or classes (shared/data/coco): an image is relevant if its label or a box has the
class. The defaults were chosen with both tables in view, temperature 3 over 2 by the second: neither
is a test of them. Takes about a minute on one core.
"""

import argparse
import itertools

import numpy as np
import torch
from torch import Tensor

from cenote.allocator import keep_memory
from cenote.data import Dataset, open_dataset
from cenote.metrics.rankings import average_precision
from cenote.models.image_text.text_space import CLASS_TEXTS, TextSpace, class_vectors

TOPS, TEMPERATURES = (1, 5, 10, 20, 1000), (1.0, 2.0, 3.0)
MIN_IMAGES = 3  # of a class that is queried


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--domain", default=None, help="images of this domain only")
    parser.add_argument(
        "--check", default=None, metavar="DATA", help="other images to check the choice with"
    )
    args = parser.parse_args()
    keep_memory()
    model = TextSpace()
    data = open_dataset(args.data)
    if args.domain:
        domains = data.domains
        data = data.select(domains.codes == domains.names.index(args.domain))
    logits, truth = classify(model, data), classes_of(data)
    checks = open_dataset(args.check) if args.check else None
    check = None if checks is None else (classify(model, checks), classes_of(checks))
    print(
        f"| class text | top | temperature | {' | '.join(truth)} | mean |{' other images |' if check else ''}"
    )
    print(f"|---|---|---|{'---|' * (len(truth) + 1 + bool(check))}")
    for texts in CLASS_TEXTS:
        model.classes = class_vectors(model.words, texts)
        for model.top, model.temperature in itertools.product(TOPS, TEMPERATURES):
            scores = precision(model, logits, truth)
            cells = [f"{value:.2f}" for value in scores] + [f"{np.mean(scores):.3f}"]
            cells += [f"{np.mean(precision(model, *check)):.3f}"] if check else []
            print(f"| {texts} | {model.top} | {model.temperature:g} | {' | '.join(cells)} |")


@torch.no_grad()
def classify(model: TextSpace, data: Dataset, batch: int = 32) -> Tensor:
    """Return the logits (N, 1000)."""
    transform, starts = model.transform(), range(0, len(data), batch)
    batches = [
        [transform(data.image(i)) for i in range(s, min(s + batch, len(data)))] for s in starts
    ]
    return torch.cat([model.classifier(torch.stack(images)) for images in batches])


def classes_of(data: Dataset) -> dict[str, np.ndarray]:
    """Return which images have each class, as their label or in a box."""
    relevant: dict[str, np.ndarray] = {}
    for i, record in enumerate(data):
        for name in {record.label, *(box.label for box in record.boxes)} - {None}:
            relevant.setdefault(name, np.zeros(len(data), bool))[i] = True
    return {name: images for name, images in sorted(relevant.items()) if images.sum() >= MIN_IMAGES}


def precision(model: TextSpace, logits: Tensor, truth: dict[str, np.ndarray]) -> list[float]:
    """Return the average precision of every class name as a query."""
    similarities = (
        model.embed_texts([name.replace("_", " ") for name in truth]) @ model.embed_output(logits).T
    )
    orders = similarities.argsort(descending=True, stable=True, dim=1).numpy()
    return [
        float(average_precision(relevant[order]))
        for relevant, order in zip(truth.values(), orders, strict=True)
    ]


if __name__ == "__main__":
    main()
