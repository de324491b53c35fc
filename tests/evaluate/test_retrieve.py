"""A model's retrieval is the metric on its vectors; what cannot be read is named, and cases name the right files."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.data import Dataset, Record, pack
from cenote.data.benchmarks import find_benchmark
from cenote.evaluate.retrieve import are_landmarks, crop_queries, landmarks, retrieve
from cenote.metrics import alignment, landmark_scores, retrieval_scores, uniformity
from cenote.models import PooledModel
from cenote.predict.embedding import Loading, embed_dataset
from tests.data.benchmarks import annotated_trees
from tests.synthetic import ShapeImages, rectangle, rectangles
from tests.toy_models import localizer


@pytest.fixture(scope="module")
def model() -> PooledModel:
    return localizer()


def marked(images: int = 24, bad: tuple[int, ...] = (), labels: str = "abc") -> Dataset:
    """Half of the images ask, half are asked; every eighth has no class."""
    records = [
        Record(f"{i}.png", None if i % 8 == 7 else labels[i % 3], "query" if i % 2 else "gallery")
        for i in range(images)
    ]
    dataset = pack(records, Path("rectangles"), "rectangles", classes=list("abcd"))
    dataset.pixels = ShapeImages(rectangle, bad=bad)
    return dataset


def test_every_image_against_the_others(model: PooledModel) -> None:
    data = rectangles(15, bad=(4,))
    result = retrieve(model, data, ks=(1, 3))
    report = result.to_json()
    answers = embed_dataset(model, data)
    labels = answers.labels(data)
    wanted = retrieval_scores(answers.vectors, labels, (1, 3))
    for name in ("recall@1", "recall@3", "p@1", "r_precision", "map@r"):
        assert report[name] == pytest.approx(100 * wanted[name], abs=1e-9)
    assert (
        report["queries"] == report["images"] == 14
        and report["gallery"] is None
        and report["classes"] == 3
    )
    assert len(report["unreadable"]) == 1 and "4.png" in report["unreadable"][0]
    assert report["alignment"] == pytest.approx(alignment(answers.vectors, labels), rel=1e-4)
    assert report["uniformity"] == pytest.approx(uniformity(answers.vectors), rel=1e-4)
    assert [asdict(case) for case in result.cases] == report["cases"]


def test_the_batch_does_not_matter(model: PooledModel) -> None:
    data = rectangles(15, bad=(4,))
    alone, together = embed_dataset(model, data, Loading(1)), embed_dataset(model, data)
    torch.testing.assert_close(alone.vectors, together.vectors, rtol=1e-4, atol=1e-5)


def test_queries_against_a_gallery(model: PooledModel) -> None:
    data = marked(bad=(1, 2))
    queries, gallery = data.split("query"), data.split("gallery")
    result = retrieve(model, queries, gallery)
    report, cases = result.to_json(), result.cases
    labelled = [images.select(images.labels >= 0) for images in (queries, gallery)]
    asking, searched = (embed_dataset(model, images) for images in labelled)
    wanted = retrieval_scores(
        asking.vectors,
        asking.labels(labelled[0]),
        gallery=searched.vectors,
        gallery_labels=searched.labels(labelled[1]),
    )
    assert report["map@r"] == pytest.approx(100 * wanted["map@r"], abs=1e-9)
    assert (report["images"], report["gallery"], report["no_class"]) == (8, 11, 3)
    assert ["1.png" in message for message in report["unreadable"]] == [True, False]
    assert "2.png" in report["unreadable"][1]
    for case in cases:
        assert (
            Path(case.file).name == queries[case.position].image
            and case.label == queries[case.position].label
        )
        for near in case.neighbours:
            assert Path(near.file).name == gallery[near.position].image
            assert near.label is not None and near.right == (near.label == case.label)


def test_cases_are_the_best_and_the_worst_each_of_a_class_of_its_own(model: PooledModel) -> None:
    data = rectangles(15)
    cases = retrieve(model, data).cases
    vectors = torch.nn.functional.normalize(embed_dataset(model, data).vectors, dim=1)
    best, worst = ([case for case in cases if case.group == group] for group in ("best", "worst"))
    assert (
        sorted(str(case.label) for case in best)
        == sorted(str(case.label) for case in worst)
        == ["a", "b", "c"]
    )
    assert len({case.position for case in cases}) == 6
    assert all(b.map_at_r >= w.map_at_r for b in best for w in worst if b.label == w.label)
    for case in cases:
        sims = vectors @ vectors[case.position]
        sims[case.position] = -2
        shown = sims[[near.position for near in case.neighbours]]  # in order, up to rounding
        torch.testing.assert_close(shown, sims.topk(6).values, rtol=0, atol=1e-5)
        assert case.matches == 4


def test_a_class_of_one_image(model: PooledModel) -> None:
    data = marked(6, labels="aab")  # b at 2 and 5
    part = data.select([0, 1, 2, 3])
    assert retrieve(model, part).without_match == 1
    missed = retrieve(model, part, without_match="miss").to_json()
    assert missed["queries"] == 4 and missed["recall@4"] == 75
    with pytest.raises(ValueError, match=r"\b2\b"):
        retrieve(model, data.select([0, 2]))


def test_what_cannot_be_judged_is_refused(model: PooledModel) -> None:
    with pytest.raises(ValueError, match=r"0\.png"):
        retrieve(model, rectangles(2, bad=(0, 1)))
    with pytest.raises(ValueError, match="rectangles"):
        retrieve(model, marked(8).select([7]))
    with pytest.raises(ValueError, match=r"rectangles.*rectangles"):
        retrieve(model, rectangles(6), marked(6))


def test_landmarks_by_hand(model: PooledModel, tmp_path: Path) -> None:
    annotated_trees.landmarks(tmp_path, "roxford5k")
    data = find_benchmark("roxford").read(tmp_path)
    rng = np.random.default_rng(0)
    for path in sorted({data.path(i) for i in range(len(data))}):  # pictures that differ in colour
        pixels = rng.integers(0, 255, 3) + rng.integers(-40, 40, (30, 40, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    assert are_landmarks(data) and not are_landmarks(rectangles(3))
    report = landmarks(model, data)
    transform = model.backbone.preprocessing.transform()
    asking = [query.image for query in data.queries]
    rest = [i for i in range(len(data)) if i not in asking]
    crops = [data.image(q.image).crop(tuple(map(round, q.box))) for q in data.queries if q.box]
    with torch.inference_mode():
        q, x = (
            torch.cat([model.embed(transform(i)[None]) for i in part])
            for part in (crops, map(data.image, rest))
        )
    sims = torch.nn.functional.cosine_similarity(q[:, None], x[None], dim=2)
    assert sims.sort(dim=1).values.diff(dim=1).min() > 1e-5, (
        "rounding could change the order: take other pictures"
    )
    order = sims.argsort(dim=1, descending=True)
    wanted = landmark_scores(np.array(rest)[order.numpy()], [query.truth for query in data.queries])
    for name, score in wanted.items():
        assert report.scores[name]["queries"] == score.queries
        assert report.scores[name]["map"] == pytest.approx(100 * score.map, nan_ok=True)
        assert report.scores[name]["mp@5"] == pytest.approx(100 * score.mp[5], nan_ok=True)
    assert report.images == len(rest) and not report.unreadable
    assert [crop_queries(data).image(i).size for i in range(len(crops))] == [
        crop.size for crop in crops
    ]


def test_an_unreadable_landmark_is_found_by_nobody(model: PooledModel, tmp_path: Path) -> None:
    annotated_trees.landmarks(tmp_path, "rparis6k")
    data = find_benchmark("rparis").read(tmp_path)
    easy = data.queries[0].truth["easy"][0]
    data.path(easy).write_bytes(b"")
    report = landmarks(model, data)
    assert report.images == len(data) - len(data.queries) - 1
    assert len(report.unreadable) == 1 and str(data.path(easy)) in report.unreadable[0]
