"""The two protocols of the papers: loops over images give the same questions, right images and averages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from cenote.cli import main
from cenote.data import Dataset, Record, open_dataset, pack
from cenote.metrics.rankings import average_precision
from cenote.search import ComposedQuery, MatrixDatabase, WordMemory, compose, remember_words
from cenote.search.evaluation import (
    TaskEvaluator,
    average_by_cell,
    evaluate_method,
    places_of,
    score_all,
)
from cenote.search.methods import MethodSpec, parse_method
from cenote.search.protocols import (
    attribute_modification,
    domain_conversion,
    evaluation_split,
    find_protocol,
    make_tasks,
    parse_texts,
    sample_queries,
)
from tests.toy_models import WordSumModel, image_vectors

DOMAINS = ("photo", "art_painting", "sketch")


def records(count: int = 24, **more: str) -> list[Record]:
    kinds = ("plain", "striped", "dotted")
    return [
        Record(
            f"{i}.png",
            "abc"[i % 3],
            domain=DOMAINS[i // 3 % 3],
            attributes={"texture": kinds[i % 2]},
            **more,
        )  # type: ignore[arg-type]
        for i in range(count)
    ]


def dataset(rows: list[Record] | None = None, name: str = "small") -> Dataset:
    return pack(rows or records(), Path(name), name)


def test_domain_conversion_asks_for_the_class_in_each_other_domain() -> None:
    data = dataset()
    task = domain_conversion(data, {"photo": "photograph"})
    assert task.kind == "trapezoid" and task.columns == ["art painting", "photograph", "sketch"]
    words = {"photo": "photograph", "art_painting": "art painting", "sketch": "sketch"}
    expected = []
    for domain in sorted(DOMAINS):
        for i, record in enumerate(data):
            for other in sorted(DOMAINS):
                if record.domain == domain and other != domain:
                    right = [
                        j
                        for j, one in enumerate(data)
                        if one.label == record.label and one.domain == other
                    ]
                    expected.append((i, words[other], right, words[domain], words[other]))
    assert [
        (q.image, q.text, q.relevant.tolist(), q.column, q.cell) for q in task.queries
    ] == expected


def test_queries_and_gallery_are_apart() -> None:
    rows = [
        record._replace(split="query" if i % 4 == 0 else "gallery")
        for i, record in enumerate(records())
    ]
    data = dataset(rows)
    task = domain_conversion(data)
    assert {q.image for q in task.queries} == {i for i in range(24) if i % 4 == 0}
    assert task.database.tolist() == [i for i in range(24) if i % 4]
    for q in task.queries:
        for row in q.relevant:
            found = data[int(task.database[row])]
            assert (
                found.label == data[q.image].label
                and (found.domain or "").replace("_", " ") == q.text
            )
    bench = TaskEvaluator(task, image_vectors(24), WordSumModel())
    assert not any(query.image in bench.rows for query in task.queries)


def test_a_class_without_images_in_the_target_counts_zero() -> None:
    rows = [record for record in records() if (record.label, record.domain) != ("a", "sketch")]
    task = domain_conversion(dataset(rows))
    nothing = [q for q in task.queries if not len(q.relevant)]
    assert nothing and all(q.text == "sketch" for q in nothing)
    judged = task._replace(queries=nothing)
    assert (
        evaluate_method(
            [TaskEvaluator(judged, image_vectors(len(rows)), WordSumModel())],
            MethodSpec("image"),
            at=[5],
        )["average"]
        == 0
    )


def test_attributes_ask_for_every_other_value_of_the_class() -> None:
    data = dataset()
    task = attribute_modification(data)
    assert task.kind == "standard" and task.columns == ["texture"]
    expected = []
    for i, record in enumerate(data):
        other = "striped" if record.attributes["texture"] == "plain" else "plain"
        right = [
            j
            for j, one in enumerate(data)
            if one.label == record.label and one.attributes["texture"] == other
        ]
        expected.append((i, other, right))
    assert [(q.image, q.text, q.relevant.tolist()) for q in task.queries] == expected
    said = attribute_modification(data, {"plain": "without a pattern"})
    assert {q.text for q in said.queries} == {"without a pattern", "striped"}


def patterncom(root: Path) -> Path:
    """A small PatternNet: parking spaces and lots are one class."""
    names = [f"parkinglot{i:03}.jpg" for i in range(4)] + [
        f"parkingspace{i:03}.jpg" for i in range(3)
    ]
    names += [f"river{i:03}.jpg" for i in range(3)]
    for name in names:
        kind = name[:-7]  # the folders have a line where the files have none
        folder = {"parkinglot": "parking_lot", "parkingspace": "parking_space"}.get(kind, kind)
        path = root / "images" / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (len(name), 3, 3)).save(path)
    tables: dict[str, list[str]] = {key: [] for key in ("color", "context", "density", "quantity")}
    tables["existence"] = [
        f"{name},existence,{'with' if i % 2 else 'without'} cars"
        for i, name in enumerate(names[:6])
    ]
    tables["shape"] = [
        f"{name},shape,{'curved' if i else 'straight'}" for i, name in enumerate(names[7:])
    ]
    (root / "PatternCom").mkdir()
    for attribute, lines in tables.items():
        (root / "PatternCom" / f"{attribute}.csv").write_text(
            "".join(f"{line}\n" for line in lines)
        )
    return root


def test_patterncom_merges_classes_and_averages_attributes(tmp_path: Path) -> None:
    data = open_dataset(f"patterncom:{patterncom(tmp_path)}")
    assert find_protocol(data) == "attributes"
    task = attribute_modification(data)
    assert task.columns == ["existence", "shape"] and len(task.queries) == 6 + 3
    for q in task.queries:
        own = data[q.image].attributes[q.column]
        assert q.text != own and q.image not in q.relevant
        assert {data[int(row)].attributes[q.column] for row in q.relevant} == {q.text}
    assert {len(q.relevant) for q in task.queries if q.column == "existence"} == {
        3
    }  # over both kinds of parking
    lots = {
        task.labels[i]
        for i, record in enumerate(data)
        if (record.label or "").startswith("parking")
    }
    assert len(lots) == 1
    values = [1.0 if q.column == "shape" else 0.5 for q in task.queries]
    table = average_by_cell(task.queries, task.columns, values)
    assert table["columns"] == {"existence": 50.0, "shape": 100.0} and table["average"] == 75


def test_patterncom_lists_an_image_twice_and_asks_by_plain_classes(tmp_path: Path) -> None:
    """The last row of an image is its value. Colours are asked by the class of the file, contexts by
    the merged class; both kinds of bridge are relevant.
    """
    rows = [
        ("bridge001.jpg", "grey"),
        ("bridge002.jpg", "red"),
        ("overpass001.jpg", "red"),
        ("overpass002.jpg", "blue"),
        ("bridge001.jpg", "blue"),
        ("overpass003.jpg", "white"),
        ("overpass003.jpg", "red"),
    ]
    for name, _ in rows:
        path = tmp_path / "images" / name[:-7] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    (tmp_path / "PatternCom").mkdir()
    for table in ("color", "context", "density", "existence", "quantity", "shape"):
        lines = [f"{name},{table},{value}\n" for name, value in rows]
        text = "".join(lines if table in ("color", "context") else [])
        (tmp_path / "PatternCom" / f"{table}.csv").write_text(text)
    data = open_dataset(f"patterncom:{tmp_path}")
    names = [Path(record.image).name for record in data]
    expected = []
    for table in ("color", "context"):
        for image, own in rows:
            for value in ("grey", "red", "blue", "white"):
                kin = [v for n, v in rows if table == "context" or n[:-7] == image[:-7]]
                if value != own and value in kin:
                    found = [n for n in names if [v for m, v in rows if m == n][-1] == value]
                    expected.append((table, image, value, found))
    queries = attribute_modification(data).queries
    asked = [
        (q.column, names[q.image], q.text, [names[row] for row in sorted(q.relevant)])
        for q in queries
    ]
    assert sorted(asked) == sorted(expected)
    assert any(text == "grey" and not relevant for *_, text, relevant in asked)


def test_places_are_those_of_a_stable_sort() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        scores = draw.integers(0, 6, 40) / 6.0
        right = np.sort(draw.choice(40, 7, replace=False))
        order = np.argsort(-scores, kind="stable").tolist()
        assert places_of(scores, right).tolist() == sorted(order.index(i) for i in right)


@pytest.mark.parametrize("method", ["image", "product", "weicom:weight=0.3", "freedom:k=4:n=3:m=2"])
def test_a_table_is_one_query_after_the_other(method: str) -> None:
    """Composed, ranked and averaged one by one, with the query in the database as a distractor."""
    data, x, model = dataset(), image_vectors(24), WordSumModel()
    words = remember_words(model, [f"w{i}" for i in range(20)])
    task, asked = domain_conversion(data), parse_method(method)
    bench = TaskEvaluator(task, x, model, words)
    cells: dict[str, dict[str, list[float]]] = {}
    for q in task.queries:
        query = ComposedQuery(x[q.image], (q.text,), inside=q.image)
        plan = compose(asked.method, query, bench.database, model, words, **asked.options)
        order = plan.scores(x).sort(descending=True, stable=True).indices
        relevance = [int(i) in q.relevant for i in order]
        assert len(relevance) == 24  # the query as well
        cells.setdefault(q.column, {}).setdefault(q.cell, []).append(
            average_precision(relevance, "trapezoid")
        )
    columns = {
        c: float(np.mean([100 * np.mean(v) for v in own.values()])) for c, own in cells.items()
    }
    found = evaluate_method([bench], asked)
    assert found["columns"] == pytest.approx(columns)
    assert found["average"] == pytest.approx(np.mean(list(columns.values())))


def test_one_source_has_its_targets_as_columns() -> None:
    data = dataset()
    task, of_all = domain_conversion(data, sources=["sketch"]), domain_conversion(data)
    assert task.columns == ["art painting", "photo"]
    own = [q for q in of_all.queries if q.column == "sketch"]
    assert [(q.image, q.text, q.column) for q in task.queries] == [
        (q.image, q.text, q.cell) for q in own
    ]
    said = domain_conversion(
        data, {"sketch": "drawing"}, sources=["drawing"]
    )  # as the table calls it
    assert [q.image for q in said.queries] == [q.image for q in task.queries]
    two = domain_conversion(data, sources=["sketch", "photo"])
    assert two.columns == ["photo", "sketch"]
    with pytest.raises(ValueError, match=r"'skech'.*'sketch'"):
        domain_conversion(data, sources=["skech"])
    with pytest.raises(ValueError, match=r"--sources.*attributes"):
        make_tasks(data, "attributes", sources=["sketch"])


def test_recall_and_precision_among_the_first() -> None:
    """Recall@k is the share of the right images that is found (Table 4.2); both are averaged as the whole list is."""
    data, x = dataset(), image_vectors(24)
    task = domain_conversion(data, sources=["photo"])
    found = evaluate_method(
        [TaskEvaluator(task, x, WordSumModel())], MethodSpec("image"), at=[1, 7, 24]
    )
    for k in (1, 7, 24):
        recalls: dict[str, list[float]] = {}
        precisions: dict[str, list[float]] = {}
        for q in task.queries:
            hits = [
                int(i) in q.relevant
                for i in (x @ x[q.image]).sort(descending=True, stable=True).indices
            ]
            recalls.setdefault(q.column, []).append(100 * sum(hits[:k]) / len(q.relevant))
            area, right = 0.0, 0
            for place, hit in enumerate(hits[:k]):
                if hit:
                    area += ((right / place if place else 1.0) + (right + 1) / (place + 1)) / 2
                    right += 1
            precisions.setdefault(q.column, []).append(100 * area / min(len(q.relevant), k))
        assert found[f"recall@{k}"]["columns"] == pytest.approx(
            {c: np.mean(v) for c, v in recalls.items()}
        )
        assert found[f"map@{k}"]["columns"] == pytest.approx(
            {c: np.mean(v) for c, v in precisions.items()}
        )
    assert found["recall@24"]["average"] == 100 and found["map@24"]["columns"] == pytest.approx(
        found["columns"]
    )


def test_blocks_do_not_change_scores() -> None:
    data, x, model = dataset(), image_vectors(24), WordSumModel()
    bench = TaskEvaluator(domain_conversion(data), x, model)
    plans = bench.scorers(MethodSpec("weicom"), bench.task.queries)
    whole, small = list(score_all(plans, x)), list(score_all(plans, x, budget=200))
    np.testing.assert_allclose(np.stack(whole), np.stack(small), atol=1e-5)


def test_injected_words_are_asked_of_each_question() -> None:
    data, x, model = dataset(), image_vectors(24), WordSumModel()
    words = remember_words(model, [f"w{i}" for i in range(20)])
    bench = TaskEvaluator(domain_conversion(data), x, model, words)
    asked = MethodSpec("freedom-l+", {"m": 0, "injected": "class"})
    for plan, q in zip(bench.scorers(asked, bench.task.queries), bench.task.queries, strict=True):
        wanted = model.embed_texts([f"{data.classes[q.label]} {q.text}"])[0]
        torch.testing.assert_close(plan.vectors[0], wanted)
    assert json.dumps(evaluate_method([bench], asked)["options"])


def test_groups_are_the_four_of_the_figure() -> None:
    data, x = dataset(), image_vectors(24)
    bench = TaskEvaluator(domain_conversion(data), x, WordSumModel())
    q = bench.task.queries[0]
    found = bench.scores_by_match(MethodSpec("image"), q).scores
    right = [float(x[q.image] @ x[i]) for i in q.relevant]
    assert found["both"] == pytest.approx(right, abs=1e-5) and sum(map(len, found.values())) == 24


def test_fewer_images_ask_all_their_questions() -> None:
    task = domain_conversion(dataset())
    some = sample_queries(task, 2)
    for column in task.columns:
        images = {q.image for q in some.queries if q.column == column}
        own = [(q.image, q.cell) for q in some.queries if q.column == column]
        assert len(images) == 2
        assert own == [
            (q.image, q.cell) for q in task.queries if q.column == column and q.image in images
        ]
    assert len(sample_queries(task, 99).queries) == len(task.queries)


def test_the_part_that_is_judged() -> None:
    rows = [
        record._replace(split="test" if i % 2 else "train") for i, record in enumerate(records())
    ]
    assert len(evaluation_split(dataset(rows))) == 12
    assert len(evaluation_split(dataset(rows), "train")) == 12
    assert len(evaluation_split(dataset())) == 24


def test_bad_data_and_names() -> None:
    one = dataset([record._replace(domain="photo", attributes={}) for record in records()])
    with pytest.raises(ValueError, match=r"small.*two domains"):
        domain_conversion(one)
    with pytest.raises(ValueError, match="small"):
        find_protocol(one)
    with pytest.raises(ValueError, match="small"):
        attribute_modification(one)
    with pytest.raises(ValueError, match=r"'textur'.*'texture'"):
        attribute_modification(dataset(), attributes=["textur"])
    with pytest.raises(ValueError, match="art_painting"):
        parse_texts(["art_painting"])
    with pytest.raises(ValueError, match=r"'wicom'.*'weicom'"):
        parse_method("wicom")
    with pytest.raises(ValueError, match=r"'weicom'.*'k'"):
        parse_method("weicom:k=3")
    with pytest.raises(ValueError, match=r"0\.3"):
        parse_method("weicom:0.3")
    assert parse_method("freedom:k=10:weights=uniform") == MethodSpec(
        "freedom", {"k": 10, "weights": "uniform"}
    )


def folder(root: Path) -> Path:
    """Twelve pictures, a class in two domains, and one file that is none."""
    lines = ["file,label,domain"]
    for i in range(12):
        pixels = np.random.default_rng(i).integers(0, 255, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(root / f"{i}.png")
        lines.append(f"{i}.png,{'dog' if i % 2 else 'cat'},{'photo' if i % 3 else 'sketch'}")
    (root / "12.png").write_bytes(b"no picture")
    (root / "annotations.csv").write_text("\n".join([*lines, "12.png,dog,photo"]) + "\n")
    return root


class Seeing(WordSumModel):
    """WordSumModel with an image encoder: four pixels times a random matrix."""

    def transform(self):  # type: ignore[no-untyped-def]
        return lambda image: (
            torch.from_numpy(np.array(image.resize((2, 2)), np.float32)).permute(2, 0, 1) / 255
        )

    def embed_images(self, pixels: torch.Tensor) -> torch.Tensor:
        mix = torch.randn(12, self.dim, generator=torch.Generator().manual_seed(0))
        return torch.nn.functional.normalize(pixels.flatten(1) @ mix, dim=1)


def test_the_command_writes_results_table_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    data, out = folder(tmp_path / "data"), tmp_path / "out"
    (tmp_path / "words.txt").write_text("dog\ncat\nhouse\n")
    monkeypatch.setattr("cenote.models.image_text.create_image_text", lambda name: Seeing())
    command = [
        "evaluate-search",
        str(data),
        "--methods",
        "text,weicom:weight=0.3,freedom:k=3",
    ]
    assert main([*command, "-o", str(out), "--words", str(tmp_path / "words.txt")]) == 0
    captured = capsys.readouterr()
    assert "12.png" in captured.err and "weicom:weight=0.3" in captured.out
    report = json.loads((out / "results.json").read_text())
    assert (
        report["questions"] == 12
        and report["database"] == 12
        and report["columns"] == ["photo", "sketch"]
    )
    assert (out / "table.md").read_text().startswith("| method | photo | sketch | average |")
    with Image.open(out / "similarities.png") as picture:
        assert picture.width > 600
    monkeypatch.setattr(Seeing, "embed_images", None)  # all vectors are cached
    assert main([*command, "--words", str(tmp_path / "words.txt"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["methods"]["text"]["average"] == report["methods"]["text"]["average"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--methods", "fredom"], "no method 'fredom'; did you mean 'freedom'?"),
        (["--words", "nowhere.txt"], "no word list nowhere.txt"),
        (["--protocol", "attributes"], "has no query of attribute modification"),
        (["--say-as", "photo"], "NAME=WORDS"),
        (["--split", "val"], "has no split 'val'"),
        (["--most", "0"], "--most must be a whole number of at least 1"),
    ],
)
def test_sentences_of_evaluate_search(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    sentence: str,
) -> None:
    monkeypatch.setattr("cenote.models.image_text.create_image_text", lambda name: Seeing())
    given = more if "--methods" in more or "--words" in more else [*more, "--methods", "text"]
    assert main(["evaluate-search", str(folder(tmp_path)), *given]) == 2
    assert sentence in capsys.readouterr().err


def made(**options: Any) -> tuple[TaskEvaluator, Tensor, WordMemory]:
    x, model = image_vectors(24), WordSumModel()
    words = remember_words(model, [f"w{i}" for i in range(20)])
    return TaskEvaluator(domain_conversion(dataset()), x, model, words, **options), x, words


def test_words_of_the_ground_truth_are_injected() -> None:
    """[Dissertation Table 4.6], and the class name alone, the upper bound of Sec. 4.4.7."""
    bench, _, _ = made()
    queries = bench.task.queries[:3]
    for kind in ("class", "domain"):
        spec = parse_method(f"freedom-l+:m=0:injected={kind}")
        for scorer, query in zip(bench.scorers(spec, queries), queries, strict=True):
            record = bench.task.dataset[query.image]
            word = {"class": record.label, "domain": record.domain}[kind].replace("_", " ")
            assert scorer.why["words"] == [{"word": word, "weight": 1.0}]
    with pytest.raises(ValueError, match="evaluate-search"):
        compose(
            "freedom",
            bench.composed_queries(queries)[0],
            bench.database,
            bench.model,
            bench.words,
            injected="class",
        )


def test_another_visual_memory() -> None:
    """[Dissertation Table 4.5]"""
    bench, x, words = made(other_memory=image_vectors(9, seed=5))
    query = bench.task.queries[0]
    memories = {"other": image_vectors(9, seed=5), "both": torch.cat([image_vectors(9, seed=5), x])}
    for name, images in memories.items():
        (scorer,) = bench.scorers(parse_method(f"freedom:k=4:n=3:memory={name}"), [query])
        composed = bench.composed_queries([query])[0]
        options = {"k": 4, "n": 3, "memory": MatrixDatabase(images)}
        expected = compose("freedom", composed, bench.database, bench.model, words, **options)
        torch.testing.assert_close(scorer.direction, expected.direction)


def test_the_words_nearest_to_the_class_are_removed() -> None:
    """[Dissertation Sec. 4.4.7]"""
    bench, _, words = made(removed_words=5)
    queries = bench.task.queries
    found = bench.scorers(parse_method("freedom:k=4:n=3"), queries)
    for scorer, query in zip(found, queries, strict=True):
        name = bench.task.dataset.classes[query.label].replace("_", " ")
        nearest = (words.vectors @ bench.model.embed_texts([name])[0]).argsort(descending=True)[:5]
        kept = [i for i in range(20) if i not in nearest.tolist()]
        memory = WordMemory([words.words[i] for i in kept], words.vectors[kept])
        composed = bench.composed_queries([query])[0]
        expected = compose("freedom", composed, bench.database, bench.model, memory, k=4, n=3)
        torch.testing.assert_close(scorer.direction, expected.direction)
