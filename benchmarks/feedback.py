"""Relevance feedback: how much marked results improve the remaining ranking.

    cenote index pets/ -o pets-ix ; ...
    python benchmarks/feedback.py pets-ix cub-ix pacs-ix [--seeds 5] [--like 3] [--unlike 3] [--tune]

A query is the name of a class, or one of its images. Of its first 24 results `--like` relevant and
`--unlike` irrelevant ones are marked at random; P@10 and AP are those of all other images, before
and after, the mean and the deviation over the seeds. Three ways to learn are compared: linear
discriminant analysis with the index's covariance (`cenote.search.feedback`), the same without the
covariance, which is Rocchio's rule, and logistic regression with 100 random images of the index as
further negatives. Queries are every second class: with --tune those on which the constants of all
three were chosen, without it the others. If images have a domain, a second line searches for the
images of one class in one domain.

Takes two minutes for 2,800 images. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from cenote.metrics import average_precision
from cenote.search.composition import encode_texts, single
from cenote.search.database import Moments
from cenote.search.feedback import refine
from cenote.search.query import Searcher
from cenote.unit import unit

PAGE, IMAGES_PER_CLASS, NEGATIVES = 24, 3, 100
Learner = Callable[[Tensor, Tensor, Tensor], Tensor]  # query, liked, disliked -> direction


def learners(vectors: Tensor, moments: Moments) -> dict[str, Learner]:
    mean, variance = moments.mean.float(), moments.covariance.diagonal().mean()
    negatives = vectors[torch.randperm(len(vectors), generator=torch.Generator().manual_seed(0))]
    negatives = negatives[:NEGATIVES]

    def discriminant(query: Tensor, like: Tensor, unlike: Tensor) -> Tensor:
        return refine(single(query), like, unlike, moments).direction

    def rocchio(query: Tensor, like: Tensor, unlike: Tensor) -> Tensor:
        b = 4 * len(like) / (len(like) + 2)
        vector = query
        if len(like):
            vector = vector + b * like.mean(0)
        if len(unlike):
            vector = vector - (0.5 * b + 0.1) * unlike.mean(0)
        return vector

    def logistic(query: Tensor, like: Tensor, unlike: Tensor) -> Tensor:
        groups = [(like, 1, 1.0), (query[None], 1, 0.5), (unlike, 0, 0.5), (negatives, 0, 0.5)]
        groups = [group for group in groups if len(group[0])]
        x = (torch.cat([rows for rows, _, _ in groups]) - mean) / (variance * len(mean)).sqrt()
        y = np.concatenate([np.full(len(rows), label) for rows, label, _ in groups])
        weights = np.concatenate([np.full(len(rows), w / len(rows)) for rows, _, w in groups])
        model = LogisticRegression(C=100, max_iter=300).fit(x.float().numpy(), y, weights)
        return torch.from_numpy(model.coef_[0]).float()

    return {"LDA": discriminant, "Rocchio": rocchio, "logistic": logistic}


def measure(
    vectors: Tensor,
    labels: np.ndarray,
    texts: dict[str, Tensor] | None,
    methods: dict[str, Learner],
    marked: tuple[int, int],
    seed: int,
    tune: bool,
) -> dict[str, np.ndarray]:
    """Return mean P@10 and AP by method, also "before"; `texts` are query vectors by class."""
    rng, results = np.random.default_rng(seed), defaultdict[str, list[tuple[float, float]]](list)
    for name in sorted(set(labels))[int(not tune) :: 2]:
        relevant = labels == name
        if texts is None:
            images = rng.permutation(np.flatnonzero(relevant))[:IMAGES_PER_CLASS]
            queries = [(vectors[row], row) for row in images]
        else:
            queries = [(texts[name], -1)]
        for query, row in queries:
            order = np.argsort(-(vectors @ query).numpy(), kind="stable")
            order = order[order != row]
            page = rng.permutation(order[:PAGE])
            like, unlike = page[relevant[page]][: marked[0]], page[~relevant[page]][: marked[1]]
            others = np.setdiff1d(order, np.concatenate([like, unlike]))
            if len(like) + len(unlike) == 0 or not relevant[others].any():
                continue
            directions = {"before": query}
            for method, learn in methods.items():
                directions[method] = learn(query, vectors[like], vectors[unlike])
            for method, direction in directions.items():
                ranking = np.argsort(-(vectors[others] @ direction).numpy(), kind="stable")
                hits = relevant[others[ranking]]
                precision = float(hits[:10].mean())
                results[method].append((precision, float(average_precision(hits, "standard"))))
    return {method: np.mean(pairs, 0) for method, pairs in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("indexes", nargs="+", metavar="INDEX")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--like", type=int, default=3)
    parser.add_argument("--unlike", type=int, default=3)
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    totals = defaultdict[str, list[np.ndarray]](list)
    for index in options.indexes:
        searcher = Searcher.open(index)
        images = sorted(searcher.store.images().values())
        vectors = unit(searcher.store.vectors(torch.tensor([row for row, _ in images])))
        methods = learners(vectors, searcher.store.moments())
        kinds = {"class": [str(entry.label) for _, entry in images]}
        if any(entry.domain for _, entry in images):
            kinds["class in domain"] = [f"{entry.label}/{entry.domain}" for _, entry in images]
        for kind, names in kinds.items():
            words = {
                name: re.sub(r"^\d+\.", "", name.split("/")[0]).replace("_", " ") for name in names
            }
            encoded = encode_texts(searcher.model, list(words.values()))
            by_class = dict(zip(words, encoded, strict=True))
            for query, texts in (("text", by_class), ("image", None)):
                marked = options.like, options.unlike
                runs = [
                    measure(vectors, np.array(names), texts, methods, marked, seed, options.tune)
                    for seed in range(options.seeds)
                ]
                print(f"{index}, {kind}, query by {query}")
                for method in runs[0]:
                    values = 100 * np.array([run[method] for run in runs])
                    totals[method].append(values.mean(0))
                    (p, ap), (p_sd, ap_sd) = values.mean(0), values.std(0)
                    print(f"  {method:9} P@10 {p:5.1f} ± {p_sd:.1f}  AP {ap:5.1f} ± {ap_sd:.1f}")
    print("mean of all")
    for method, means in totals.items():
        p, ap = np.mean(means, 0)
        print(f"  {method:9} P@10 {p:5.1f}        AP {ap:5.1f}")


if __name__ == "__main__":
    main()
