"""BASIC against an oracle that goes through its steps one query, one image, one word at a time.

The steps are those of the authors' program, github.com/billpsomas/icir, utils_retrieval.py: the offset of the matrix,
the scale of both similarities by the image minimum, and the header of a corpus that counts as a word are its.
"""

import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cenote.search import ComposedQuery, MatrixDatabase, compose_all
from cenote.search.basic import basic_space, read_mean, read_sample
from cenote.search.methods import parse_method
from cenote.search.words import remember_words
from tests.toy_models import WordSumModel, image_vectors

from .rankings import assert_ranked

SUBJECTS = [f"thing{i}" for i in range(12)]
STYLES = [f"style{i}" for i in range(9)]
DIM = 16


def slow(
    y: np.ndarray,
    text: str,
    x: np.ndarray,
    model: WordSumModel,
    components: int,
    expansion: int,
    contextual: int,
    subjects: list[str] = SUBJECTS,
    styles: list[str] = STYLES,
    mean_x: np.ndarray | None = None,
    sample: dict[str, np.ndarray] | None = None,
) -> list:
    """From the paper's description and the authors' program, in double."""
    a = model.embed_texts(subjects).double().numpy()
    b = model.embed_texts(styles).double().numpy()
    mean_t = a.mean(0)
    if mean_x is None:
        mean_x = x.mean(0)
    if sample is None:
        sample = {"image_features": x, "text_features": a}
    a, b, centred = a - mean_t, b - mean_t, x - mean_x
    s_a = sum(np.outer(row, row) for row in a) / (len(a) - 1)
    s_b = sum(np.outer(row, row) for row in b) / (len(b) - 1)
    values, axes = np.linalg.eigh(0.8 * s_a - 0.2 * s_b + 1e-5 * np.ones_like(s_a))
    order = [i for i in np.argsort(-values) if values[i] > 0][:components]
    project = sum(np.outer(axes[:, i], axes[:, i]) for i in order)
    around = [model.embed_texts([f"{s} {text}"])[0].double().numpy() for s in subjects[:contextual]]
    around += [
        model.embed_texts([f"{text} {s}"])[0].double().numpy() for s in subjects[:contextual]
    ]
    t = sum(around) / len(around) if around else model.embed_texts([text])[0].double().numpy()
    t = t / math.sqrt(sum(t * t)) - mean_t
    image = y - mean_x
    first = [float(row @ project @ image) for row in centred]
    near = sorted(range(len(x)), key=lambda i: -first[i])[:expansion]
    if expansion:
        weights = [math.exp(0.1 * first[i]) for i in near] + [math.exp(0.1)]
        image = sum(w * v for w, v in zip(weights, [*centred[near], image], strict=True)) / sum(
            weights
        )
    image = project @ image
    pictures = [v / math.sqrt(sum(v * v)) - mean_x for v in sample["image_features"]]
    captions = [v / math.sqrt(sum(v * v)) - mean_t for v in sample["text_features"]]
    least_t = min(float(caption @ picture) for caption in captions for picture in pictures)
    least_i = min(float(one @ other) for one in pictures for other in pictures)
    scores = []
    for row in centred:
        s_t = max((float(t @ row) - least_t) / abs(least_i), 0)
        s_i = max((float(image @ row) - least_i) / abs(least_i), 0)
        scores.append(s_t * s_i - 0.1 * (s_t + s_i) ** 2)
    return scores


@pytest.mark.parametrize(
    ("components", "expansion", "contextual"), [(6, 5, 4), (250, 0, 0), (3, 40, 12)]
)
def test_scores_are_the_oracle_s(components: int, expansion: int, contextual: int) -> None:
    model, x = WordSumModel(DIM), image_vectors(40, DIM)  # all of the database is the sample
    queries = [
        ComposedQuery(x[3], ("red",), inside=3),
        ComposedQuery(image_vectors(1, DIM, 8)[0], ("old dog",)),
    ]
    plans = compose_all(
        "basic", queries, MatrixDatabase(x), model, subjects=SUBJECTS, styles=STYLES, components=components,
        expansion=expansion, contextual=contextual,
    )  # fmt: skip
    for query, plan in zip(queries, plans, strict=True):
        assert query.image is not None
        expected = slow(
            query.image.double().numpy(),
            query.texts[0],
            x.double().numpy(),
            model,
            components,
            expansion,
            contextual,
        )
        np.testing.assert_allclose(plan.scores(x), expected, atol=1e-5, rtol=1e-5)
        assert_ranked(plan.scores(x).argsort(descending=True), torch.tensor(expected))


def test_candidates_hold_the_best() -> None:
    model, x = WordSumModel(DIM), image_vectors(3000, DIM)
    query = ComposedQuery(x[3], ("red",), inside=3)
    plan = compose_all(
        "basic", [query], MatrixDatabase(x), model, subjects=SUBJECTS, styles=STYLES
    )[0]
    candidates = MatrixDatabase(x).nearest(plan.direction[None], 300)[1][0].tolist()
    assert set(plan.scores(x).topk(10).indices.tolist()) <= set(candidates)


def test_the_projection_is_idempotent() -> None:
    model, x = WordSumModel(DIM), image_vectors(50, DIM)
    space = basic_space(
        MatrixDatabase(x),
        remember_words(model, SUBJECTS),
        remember_words(model, STYLES),
        components=5,
    )
    torch.testing.assert_close(
        space.projection @ space.projection, space.projection, atol=1e-5, rtol=0
    )
    assert int(torch.linalg.matrix_rank(space.projection, atol=1e-3)) == 5
    assert space.minima[0] < 0 and space.minima[1] < 0


def test_bad_options() -> None:
    for option, value in (("contrast", 2), ("components", 0), ("harris", -1), ("expansion", 1.5)):
        with pytest.raises(ValueError, match=option):
            compose_all(
                "basic",
                [ComposedQuery(image_vectors(1)[0], ("a",))],
                MatrixDatabase(image_vectors(5)),
                WordSumModel(),
                **{option: value},
            )


def save_files(folder: Path, rng: np.random.Generator, dim: int = DIM) -> dict[str, Any]:
    """The authors' files in their formats: pickled tensor, CSV with and without a header, np.save of a dictionary."""
    mean = 0.1 * torch.from_numpy(rng.normal(size=(1, dim)).astype(np.float32))
    (folder / "laion_1m_mean_clip.pkl").write_bytes(pickle.dumps({"laion_1m_mean": mean}))
    subjects = ["object_name", "Thing0", "thing0", *SUBJECTS[1:]]
    styles = ["old‑fashioned", "wet", "in a box, closed", *STYLES[3:]]
    (folder / "subjects.csv").write_text("".join(f"{word}\n" for word in subjects), "utf-8")
    quoted = "".join(f'"{word}",1\r\n' for word in styles)
    (folder / "styles.csv").write_bytes(quoted.encode())
    sample = {
        f"{kind}_features": rng.normal(size=(count, dim)).astype(np.float32)
        for kind, count in (("image", 30), ("text", 7))
    }
    np.save(folder / "dataset_1_sd_clip.pkl.npy", sample)  # type: ignore[arg-type]
    return {
        "mean_x": mean[0].double().numpy(),
        "subjects": subjects,
        "styles": styles,
        "sample": sample,
    }


FILES = {
    "mean": "laion_1m_mean_clip.pkl",
    "subjects": "subjects.csv",
    "styles": "styles.csv",
    "scale": "dataset_1_sd_clip.pkl.npy",
}


@pytest.mark.parametrize(("expansion", "contextual"), [(25, 100), (0, 0)])
def test_the_authors_files(tmp_path: Path, expansion: int, contextual: int) -> None:
    model, x = WordSumModel(DIM), image_vectors(60, DIM)
    contents = save_files(tmp_path, np.random.default_rng(0))
    options = ":".join(f"{key}={tmp_path / name}" for key, name in FILES.items())
    spec = parse_method(f"basic:{options}:expansion={expansion}:contextual={contextual}")
    query = ComposedQuery(image_vectors(1, DIM, 8)[0], ("old dog",))
    assert query.image is not None
    (scorer,) = compose_all(spec.method, [query], MatrixDatabase(x), model, **spec.options)
    arguments = (query.image.double().numpy(), "old dog", x.double().numpy(), model)
    expected = slow(*arguments, 250, expansion, contextual, **contents)
    np.testing.assert_allclose(scorer.scores(x), expected, atol=1e-5, rtol=1e-4)
    for left_out in FILES:  # every file counts
        less = {key: value for key, value in spec.options.items() if key != left_out}
        (other,) = compose_all("basic", [query], MatrixDatabase(x), model, **less)
        assert not np.allclose(other.scores(x), expected, atol=1e-4)


def test_a_mean_of_numpy(tmp_path: Path) -> None:
    mean = np.linspace(-1, 1, DIM, dtype=np.float32)
    np.save(tmp_path / "mean.npy", mean)
    assert read_mean(tmp_path / "mean.npy", DIM).tolist() == mean.tolist()


@pytest.mark.parametrize("key", FILES)
def test_damaged_files_are_named(key: str, tmp_path: Path) -> None:
    save_files(tmp_path, np.random.default_rng(0))
    path = tmp_path / FILES[key]
    query = ComposedQuery(image_vectors(1, DIM)[0], ("red",))
    database, model = MatrixDatabase(image_vectors(9, DIM)), WordSumModel(DIM)
    for content in (b"", b"\xff\xfe\x00", path.read_bytes()[:7]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=path.name):
            compose_all("basic", [query], database, model, **{key: str(path)})
    path.unlink()
    with pytest.raises(ValueError, match=rf"basic's {key} is a file, .*{path.name}"):
        parse_method(f"basic:{key}={path}")


def test_files_of_another_model_are_refused(tmp_path: Path) -> None:
    save_files(tmp_path, np.random.default_rng(0), DIM + 1)
    for key, read in (("mean", read_mean), ("scale", read_sample)):
        with pytest.raises(ValueError, match=rf"{FILES[key]}.*16 dimensions.*17"):
            read(tmp_path / FILES[key], DIM)


@pytest.mark.parametrize("name", ["mean.pkl", "scale.npy"])
def test_files_run_nothing(name: str, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    if name.endswith(".npy"):
        np.save(tmp_path / name, {"image_features": Evil()})  # type: ignore[arg-type]
    else:
        (tmp_path / name).write_bytes(pickle.dumps({"laion_1m_mean": Evil()}))
    with pytest.raises(ValueError, match=rf"{name}.*mkdir"):
        (read_sample if name.endswith(".npy") else read_mean)(tmp_path / name, DIM)
    assert not (tmp_path / "ran").exists()
