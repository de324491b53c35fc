"""Queries that came with the data are asked as their authors do: which database, which part, and who is ranked."""

import json
from pathlib import Path

import numpy as np
import pytest

from cenote.cli import main
from cenote.data import open_dataset
from cenote.search.evaluation import TaskEvaluator, evaluate_method
from cenote.search.methods import MethodSpec
from cenote.search.protocols import evaluation_split, find_protocol, make_tasks
from tests.data.benchmarks import annotated_trees
from tests.toy_models import WordSumModel, image_vectors


def test_garments_have_databases_of_their_own(tmp_path: Path) -> None:
    annotated_trees.fashioniq(tmp_path)
    data = evaluation_split(open_dataset(f"fashioniq:{tmp_path}"))
    assert (
        list(data.splits) == ["val"] and find_protocol(data) == "triplets"
    )  # of test nothing is known
    tasks = make_tasks(data)
    assert [task.columns for task in tasks] == [["dress"], ["shirt"], ["toptee"]]
    for task in tasks:
        assert {data[int(i)].label for i in task.database} == set(task.columns) and len(
            task.database
        ) == 4
        (question,) = task.queries
        assert question.text == "is red and has a bow" and task.ranks_query
        (right,) = question.relevant
        assert Path(data[int(task.database[right])].image).stem == "shared"
    x = image_vectors(len(data))
    found = evaluate_method(
        [TaskEvaluator(task, x, WordSumModel()) for task in tasks], MethodSpec("image"), at=[2]
    )
    for task in tasks:
        (question,), own = task.queries, x[task.database]
        order = (own @ x[question.image]).sort(descending=True, stable=True).indices.tolist()
        place = order.index(int(question.relevant[0]))
        assert found["columns"][task.columns[0]] == pytest.approx(100 / (place + 1))
        assert found["recall@2"]["columns"][task.columns[0]] == 100 * (place < 2)
    assert found["average"] == pytest.approx(np.mean(list(found["columns"].values())))


def test_cirr_does_not_rank_the_query_itself(tmp_path: Path) -> None:
    annotated_trees.cirr(tmp_path)
    data = evaluation_split(open_dataset(f"cirr:{tmp_path}"))
    (task,) = make_tasks(data)
    (question,) = task.queries
    assert not task.ranks_query and len(task.database) == 6 and question.relevant.tolist() == [5]
    x = image_vectors(6)
    order = (x @ x[question.image]).sort(descending=True, stable=True).indices.tolist()
    assert order[0] == question.image  # the most like itself, and yet not before the others
    found = evaluate_method([TaskEvaluator(task, x, WordSumModel())], MethodSpec("image"))
    assert found["average"] == pytest.approx(100 / order.index(5))


def test_circo_has_several_right_images(tmp_path: Path) -> None:
    annotated_trees.circo(tmp_path)
    (task,) = make_tasks(evaluation_split(open_dataset(f"circo:{tmp_path}")))
    assert (
        task.ranks_query
        and task.queries[0].relevant.tolist() == [0, 1]
        and task.columns == ["circo"]
    )
    found = evaluate_method(
        [TaskEvaluator(task, image_vectors(3), WordSumModel())], MethodSpec("image"), at=[2]
    )
    assert found["average"] == pytest.approx(100 * (1 / 2 + 2 / 3) / 2)  # the query is the first
    assert found["recall@2"]["average"] == 50 and found["map@2"]["average"] == pytest.approx(25)


def icir_precision(order: list[int], right: set[int]) -> float:
    """The trapezoids of the authors' program, summed one relevant image at a time."""
    total, hits = 0.0, 0
    for rank, row in enumerate(order):
        if row in right:
            before = 1.0 if rank == 0 else hits / rank
            total += (before + (hits + 1) / (rank + 1)) / 2
            hits += 1
    return total / len(right)


def test_objects_of_icir_have_databases_of_their_own(tmp_path: Path) -> None:
    annotated_trees.icir(tmp_path)
    data = evaluation_split(open_dataset(f"icir:{tmp_path}"))
    assert find_protocol(data) == "triplets"
    tasks = make_tasks(data)
    assert [task.database.tolist() for task in tasks] == [[0, 1, 2, 3], [4, 5, 6]]
    x, model = image_vectors(len(data)), WordSumModel()
    found = evaluate_method(
        [TaskEvaluator(task, x, model) for task in tasks], MethodSpec("sum"), at=[1]
    )
    # An image is right if its object and its text are the query's.
    asked = [(7, "at sunset", {0, 1}), (7, "as a drawing", {2}), (8, "at sunset", {0, 1})]
    rows: list[list[int]] = [[0, 1, 2, 3]] * 3 + [[4, 5, 6]]
    precisions = []
    for (image, text, right), own in zip([*asked, (9, "on a table", {5})], rows, strict=True):
        query = x[image] + model.embed_texts([text])[0]
        order = sorted(own, key=lambda i, q=query: -float(x[i] @ q))  # type: ignore[misc]
        precisions.append(icir_precision(order, right))
    temple, mug = precisions[:3], precisions[3:]
    assert len({round(value, 6) for value in precisions}) > 2  # or the means would be the same
    assert found["average"] == pytest.approx(100 * np.mean(precisions))
    assert found["columns"] == {"icir": found["average"]}
    assert found["mmap"]["average"] == pytest.approx(50 * (np.mean(temple) + np.mean(mug)))
    assert found["minmap"]["average"] == pytest.approx(50 * (min(temple) + min(mug)))


def test_the_command_on_icir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    annotated_trees.icir(tmp_path / "icir")
    out = tmp_path / "out"
    command = ["evaluate-search", f"icir:{tmp_path / 'icir'}", "--methods", "image,basic"]
    assert main([*command, "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert "method, mmAP" in text and "method, minmAP" in text and "trapezoid" in text
    report = json.loads((out / "results.json").read_text())
    assert report["columns"] == ["icir"] and report["questions"] == 4 and report["database"] == 7
    assert "| method, minmAP | icir | average |" in (out / "table.md").read_text()


def test_queries_without_public_answers_are_refused(tmp_path: Path) -> None:
    annotated_trees.circo(tmp_path)
    test = open_dataset(f"circo-test:{tmp_path}")
    with pytest.raises(ValueError, match="circo-test"):
        make_tasks(test, "triplets")
    with pytest.raises(ValueError, match="circo-test"):
        find_protocol(test)


def test_a_right_image_that_cannot_be_read_counts_as_not_found(tmp_path: Path) -> None:
    annotated_trees.fashioniq(tmp_path)
    data = evaluation_split(open_dataset(f"fashioniq:{tmp_path}"))
    lost = [
        i for i, record in enumerate(data) if record.label == "dress" and "shared" in record.image
    ]
    readable = data.select([i for i in range(len(data)) if i not in lost])
    tasks = make_tasks(readable)
    assert [len(task.queries[0].relevant) for task in tasks] == [0, 1, 1]
    found = evaluate_method(
        [TaskEvaluator(task, image_vectors(len(readable)), WordSumModel()) for task in tasks],
        MethodSpec("image"),
        at=[1],
    )
    assert found["columns"]["dress"] == found["map@1"]["columns"]["dress"] == 0


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "cache"))
    annotated_trees.fashioniq(tmp_path / "data")
    words = tmp_path / "words.txt"
    words.write_text("dress\nshirt\nbow\n")
    asked = [
        "evaluate-search",
        f"fashioniq:{tmp_path / 'data'}",
        "--methods",
        "image,freedom:k=1:n=2:m=1",
    ]
    asked += ["--words", str(words), "--at", "1", "3", "-o", str(tmp_path / "out")]
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert "recall@3" in text and "triplets" in text
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (
        found["columns"] == ["dress", "shirt", "toptee"]
        and found["questions"] == 3
        and found["at"] == [1, 3]
    )
    assert not (tmp_path / "out" / "similarities.png").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        (["--at", "0"], "--at"),
        (["--sources", "dress"], "--sources"),
        (["--say-as", "x"], "x"),
        (["--most", "0"], "--most"),
        (["--protocol", "domains"], "domains"),
    ],
)
def test_wrong_options_are_refused_before_images_are_read(
    option: list[str],
    value: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "cenote.models.image_text.create_image_text", lambda name: pytest.fail("a model was loaded")
    )
    annotated_trees.fashioniq(tmp_path)
    assert main(["evaluate-search", f"fashioniq:{tmp_path}", *option]) == 2
    assert value in capsys.readouterr().err
