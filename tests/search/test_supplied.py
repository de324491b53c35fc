"""Rewritten queries, edited images and captions from files; wrong lines are named."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from cenote.cli import main
from cenote.search import ComposedQuery, compose
from cenote.search.evaluation import TaskEvaluator, dataset_vectors, evaluate_method
from cenote.search.methods import MethodSpec, parse_method
from cenote.search.protocols import domain_conversion, make_tasks
from cenote.unit import unit

from .test_protocols import Seeing, dataset, folder, image_vectors


def evaluator() -> TaskEvaluator:
    task = domain_conversion(dataset())
    return TaskEvaluator(task, image_vectors(24), Seeing())


def written(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return path


def test_texts_replace_the_query_and_several_are_averaged(tmp_path: Path) -> None:
    bench = evaluator()
    queries = bench.task.queries[:4]
    assert queries[0].image == queries[1].image and queries[0].text != queries[1].text
    lines: list[dict[str, object]] = [
        {"query": bench.task.dataset[q.image].image, "result": f"any of {q.image}"}
        for q in queries[2:]
    ]
    first = bench.task.dataset[queries[0].image].image
    for words in ("a dog", "the dog"):
        lines.append({"query": first, "text": queries[0].text, "result": words})
    lines.append({"query": first, "text": "", "result": "another"})
    file = written(tmp_path / "texts.jsonl", lines)
    scorers = bench.scorers(parse_method(f"supplied:texts={file}"), queries)
    expected = [["a dog", "the dog"], ["another"], *([f"any of {q.image}"] for q in queries[2:])]
    for scorer, texts in zip(scorers, expected, strict=True):
        torch.testing.assert_close(
            scorer.vectors[0], unit(Seeing().embed_texts(texts).mean(0)), rtol=1e-5, atol=1e-6
        )


def test_captions_are_the_words_of_freedom(tmp_path: Path) -> None:
    """Weighted by their similarity to the image, or as given."""
    bench = evaluator()
    query = bench.task.queries[0]
    name = bench.task.dataset[query.image].image
    file = tmp_path / "captions.csv"
    file.write_text(f'query,result,weight\n{name},"a dog, brown",\n{name},two dogs,0.25\n')
    (scorer,) = bench.scorers(parse_method(f"supplied:captions={file}"), [query])
    model, x = Seeing(), bench.vectors[query.image]
    weight = float(model.embed_texts(["a dog, brown"])[0] @ x)
    sentences = [f"a dog, brown {query.text}", f"two dogs {query.text}"]
    first, second = model.embed_texts(sentences)
    torch.testing.assert_close(scorer.vectors[0], weight * first + 0.25 * second)
    assert [word["word"] for word in scorer.why["words"]] == ["a dog, brown", "two dogs"]


def test_edited_images_are_searched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit that shows the relevant image finds it first; so do ids of queries."""
    data = dataset_of(folder_with(tmp_path / "data"))
    model = Seeing()
    vectors = dataset_vectors(model, data).vectors
    (task,) = make_tasks(data, "domains")
    edits = tmp_path / "edits"
    edits.mkdir()
    lines = ["query,text,result"]
    for i, query in enumerate(task.queries):
        target = data.path(int(task.database[query.relevant[0]]))
        with Image.open(target) as picture:
            picture.save(edits / f"{i}.png")
        lines.append(f"q{i},{query.text},{i}.png")
    (edits / "all.csv").write_text("\n".join(lines))
    named = task._replace(queries=[q._replace(name=f"q{i}") for i, q in enumerate(task.queries)])
    spec = parse_method(f"supplied:images={edits / 'all.csv'}")
    report = evaluate_method([TaskEvaluator(named, vectors, model)], spec, at=(1,))
    hits = [1 / len(query.relevant) for query in task.queries]
    assert report["recall@1"]["average"] == pytest.approx(100 * sum(hits) / len(hits), abs=5)
    image = evaluate_method([TaskEvaluator(named, vectors, model)], MethodSpec("image"), at=(1,))
    assert report["average"] > image["average"]


def folder_with(root: Path) -> Path:
    root.mkdir()
    folder(root)
    (root / "12.png").unlink()
    table = root / "annotations.csv"
    table.write_text(table.read_text().replace("12.png,dog,photo\n", ""))
    return root


def dataset_of(root: Path):  # type: ignore[no-untyped-def]
    from cenote.data import open_dataset

    return open_dataset(str(root))


@pytest.mark.parametrize(
    ("kind", "name", "content", "sentence"),
    [
        ("texts", "f.csv", "image,result\na,b\n", "f.csv, line 1: the header lacks query"),
        ("texts", "f.csv", "query,result,note\na,b,c\n", "line 2: fields are query, text, result, weight, got 'note'"),
        ("texts", "f.csv", "query,result\na,b,c\n", "f.csv, line 2: fields are"),
        ("texts", "f.csv", "query,result\n1.png,\n", "line 2: query and result must not be empty"),
        ("texts", "f.csv", "query,result,weight\n1.png,a,2\n", "line 2: only captions have a weight"),
        ("captions", "f.csv", "query,result,weight\n1.png,a,x\n", "line 2: a weight is a number, got 'x'"),
        ("images", "f.csv", "query,result\n1.png,none.png\n", "line 2: no image "),
        ("texts", "f.csv", "query,result\n", "f.csv has no generations"),
        ("texts", "f.jsonl", '{"query": "a", "result": "b"}\n{"query": \n', "f.jsonl, line 2 is not JSON"),
        ("texts", "f.jsonl", "\n[1]\n", "f.jsonl, line 2 is not an object"),
        ("texts", "f.jsonl", '{"query": "a", "result": 3}\n', "line 1: result is a text, got 3"),
        ("texts", "f.csv", "query,result\n1.png,a\n", "f.csv has no line for the image "),
        ("images", "f.csv", "query,result\n0.png,f.csv\n", "f.csv, line 2: "),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_file_and_line(
    kind: str,
    name: str,
    content: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = folder_with(tmp_path / "data")
    if kind == "images" and "0.png" in content:
        content = "query,result\n" + "".join(f"{i}.png,f.csv\n" for i in range(12))
    (tmp_path / name).write_text(content)
    monkeypatch.setattr("cenote.models.image_text.create_image_text", lambda name: Seeing())
    method = f"supplied:{kind}={tmp_path / name}"
    assert main(["evaluate-search", str(data), "--methods", method]) == 2
    assert sentence in capsys.readouterr().err


def test_one_file_is_needed_and_only_the_evaluation_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate-search", "world/domains", "--methods", "supplied"]) == 2
    assert "one of texts=FILE, images=FILE, captions=FILE" in capsys.readouterr().err
    assert main(["evaluate-search", "world/domains", "--methods", "supplied:texts=none.csv"]) == 2
    assert "'none.csv' does not exist" in capsys.readouterr().err
    bench, file = evaluator(), tmp_path / "texts.csv"
    file.write_text("query,result\na,b\n")
    with pytest.raises(ValueError, match="evaluate-search"):
        compose(
            "supplied",
            ComposedQuery(bench.vectors[0], ("a",)),
            bench.database,
            bench.model,
            texts=str(file),
        )
