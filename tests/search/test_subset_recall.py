"""CIRR's second number is its definition: of the others of the query's group alone, is the right one among the K first.

The groups, references and targets of the oracles are read from the captions that the test wrote, not from the Dataset.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from cenote.cli import main
from cenote.data import Dataset, open_dataset
from cenote.search import ComposedQuery, compose, remember_words
from cenote.search.evaluation import TaskEvaluator, evaluate_method
from cenote.search.methods import MethodSpec, parse_method
from cenote.search.protocols import evaluation_split, make_tasks, sample_queries
from tests.data.benchmarks import annotated_trees
from tests.toy_models import WordSumModel, image_vectors

from .test_protocols import Seeing

CAPTIONS = "captions/cap.rc2.val.json"
SUBSETS = {"recall_subset@1", "recall_subset@2", "recall_subset@3"}


def tree(root: Path) -> Path:
    """Twenty images in three groups of six, two of them outside; a group's members are in no order."""
    draw = np.random.default_rng(0)
    names = [f"dev-{i}-0-img0" for i in range(20)]
    for name in names:
        path = root / "img_raw" / "dev" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8)).save(path)
    annotated_trees.dump(
        root / "image_splits" / "split.rc2.val.json", {name: f"./dev/{name}.png" for name in names}
    )
    order, entries = draw.permutation(20).tolist(), list[dict[str, Any]]()
    for group in range(3):
        members = [names[i] for i in order[6 * group : 6 * group + 6]]
        for i in range(6):
            target = {
                "target_hard": members[(i + 1 + group) % 6],
                "img_set": {"id": group, "members": members},
            }
            entries.append(
                {"pairid": len(entries), "reference": members[i], "caption": f"add {i} dogs"}
                | target
            )
    annotated_trees.dump(root / CAPTIONS, entries)
    return root


def captions(root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((root / CAPTIONS).read_text())
    return found


def opened(root: Path) -> Dataset:
    return evaluation_split(open_dataset(f"cirr:{root}"))


def change(root: Path, entry: int, **more: Any) -> None:
    entries = captions(root)
    entries[entry] |= more
    (root / CAPTIONS).write_text(json.dumps(entries))


def by_hand(root: Path, data: Dataset, scores_of: Any) -> dict[int, float]:
    """From the definition, in loops; of equal scores the first image of the data comes first."""
    place = {Path(record.image).stem: i for i, record in enumerate(data)}
    hits = {1: 0, 2: 0, 3: 0}
    for entry in captions(root):
        scores = scores_of(place[entry["reference"]], entry["caption"])
        others = [name for name in entry["img_set"]["members"] if name != entry["reference"]]
        assert len(others) == 5
        before = 0
        for name in others:
            ours, theirs = float(scores[place[entry["target_hard"]]]), float(scores[place[name]])
            before += theirs > ours or (
                theirs == ours and place[name] < place[entry["target_hard"]]
            )
        for k in hits:
            hits[k] += before < k
    return {k: 100 * count / len(captions(root)) for k, count in hits.items()}


@pytest.mark.parametrize(
    "method", ["image", "text", "product", "weicom:weight=0.3", "freedom:k=4:n=3:m=2"]
)
def test_it_is_the_share_of_queries_found_among_five(method: str, tmp_path: Path) -> None:
    data, x, model = opened(tree(tmp_path)), image_vectors(20), WordSumModel()
    words, asked = remember_words(model, [f"w{i}" for i in range(20)]), parse_method(method)
    (task,) = make_tasks(data)
    bench = TaskEvaluator(task, x, model, words)

    def scores_of(image: int, text: str) -> torch.Tensor:
        query = ComposedQuery(x[image], (text,), inside=image)
        return compose(asked.method, query, bench.database, model, words, **asked.options).scores(x)

    found, expected = evaluate_method([bench], asked), by_hand(tmp_path, data, scores_of)
    assert 0 < expected[1] < expected[2] < expected[3] < 100  # the three can be told apart
    for k, percent in expected.items():
        assert found[f"recall_subset@{k}"]["average"] == pytest.approx(percent)
        assert found[f"recall_subset@{k}"]["columns"] == {"cirr": pytest.approx(percent)}


def test_equal_scores_come_in_the_order_of_the_data(tmp_path: Path) -> None:
    data = opened(tree(tmp_path))
    signs = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, -1], [1, 1, -1, -1], [1, -1, -1, -1]])
    x = F.pad(signs / 2, (0, 20)).repeat(
        5, 1
    )  # twenty images, four vectors, whose similarities are exact
    (task,) = make_tasks(data)
    found, expected = (
        evaluate_method([TaskEvaluator(task, x, WordSumModel())], MethodSpec("image")),
        by_hand(tmp_path, data, lambda i, _: x @ x[i]),
    )
    assert {k: found[f"recall_subset@{k}"]["average"] for k in expected} == pytest.approx(expected)


def test_the_other_numbers_are_what_they_were(tmp_path: Path) -> None:
    """The same questions without their groups, over all images but the query."""
    (task,) = make_tasks(opened(tree(tmp_path)))
    plain = task._replace(queries=[question._replace(group=None) for question in task.queries])
    with_groups, without = (
        evaluate_method(
            [TaskEvaluator(one, image_vectors(20), WordSumModel())], MethodSpec("image"), at=[1, 5]
        )
        for one in (task, plain)
    )
    assert with_groups.keys() - without.keys() == SUBSETS
    for name in without.keys() - {"seconds"}:
        assert with_groups[name] == without[name]


def test_a_draw_of_the_queries_keeps_their_groups(tmp_path: Path) -> None:
    (task,) = make_tasks(opened(tree(tmp_path)))
    some = sample_queries(task, 3)
    assert len(some.queries) == 3
    assert all(len(question.group) == 5 for question in some.queries)  # type: ignore[attr-defined]
    assert (
        evaluate_method(
            [TaskEvaluator(some, image_vectors(20), WordSumModel())], MethodSpec("image")
        ).keys()
        >= SUBSETS
    )


@pytest.mark.parametrize("name", ["fashioniq", "circo"])
def test_sets_without_groups_have_no_such_number(name: str, tmp_path: Path) -> None:
    getattr(annotated_trees, name)(tmp_path)
    data = evaluation_split(open_dataset(f"{name}:{tmp_path}"))
    found = evaluate_method(
        [
            TaskEvaluator(task, image_vectors(len(data)), WordSumModel())
            for task in make_tasks(data)
        ],
        MethodSpec("image"),
        at=[1],
    )
    assert not any("subset" in key for key in found)


def test_queries_with_groups_alone_are_counted(tmp_path: Path) -> None:
    data, x = opened(tree(tmp_path)), image_vectors(20)
    whole = evaluate_method(
        [TaskEvaluator(make_tasks(data)[0], x, WordSumModel())], MethodSpec("image")
    )
    bare = [query._replace(truth={"targets": query.truth["targets"]}) for query in data.queries]
    data.queries = [*data.queries, *bare]
    (task,) = make_tasks(data)
    found = evaluate_method([TaskEvaluator(task, x, WordSumModel())], MethodSpec("image"))
    assert len(task.queries) == 36 and {key: found[key] for key in SUBSETS} == {
        key: whole[key] for key in SUBSETS
    }


def test_a_right_image_that_cannot_be_read_is_not_found_in_its_group(tmp_path: Path) -> None:
    data, entry = opened(tree(tmp_path)), captions(tmp_path)[0]
    lost = next(
        i for i, record in enumerate(data) if Path(record.image).stem == entry["target_hard"]
    )
    readable = data.select([i for i in range(20) if i != lost])
    (task,) = make_tasks(readable)
    one = task._replace(
        queries=[question for question in task.queries if not len(question.relevant)][:1]
    )
    assert len(one.queries) == 1 and len(one.queries[0].group) == 4  # type: ignore[attr-defined]
    found = evaluate_method(
        [TaskEvaluator(one, image_vectors(19), WordSumModel())], MethodSpec("image")
    )
    assert all(found[key]["average"] == 0 for key in SUBSETS)


def test_a_group_without_its_right_image_is_refused(tmp_path: Path) -> None:
    entry = captions(tree(tmp_path))[4]
    members = [name for name in entry["img_set"]["members"] if name != entry["target_hard"]]
    change(tmp_path, 4, img_set={"members": members})
    right = f"dev/{entry['target_hard']}.png"
    with pytest.raises(ValueError, match=rf"^cirr: .*\b4\b.*{right}"):
        make_tasks(opened(tmp_path))


def test_a_group_of_missing_images_is_refused(tmp_path: Path) -> None:
    data = opened(tree(tmp_path))
    first = data.queries[0]
    data.queries[0] = first._replace(truth={**first.truth, "subset": (*first.truth["subset"], 20)})
    with pytest.raises(ValueError, match=r"\b0\b.*\b20\b"):
        make_tasks(data)


def judged(root: Path, *more: str) -> int:
    return main(["evaluate-search", f"cirr:{root}", "--methods", "image,sum", *more])


def test_the_command_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("cenote.models.image_text.create_image_text", lambda name: Seeing())
    data, out = tree(tmp_path / "data"), tmp_path / "out"
    assert judged(data, "--at", "1", "-o", str(out)) == 0
    found = json.loads((out / "results.json").read_text())
    assert found["questions"] == 18 and found["columns"] == ["cirr"]
    for method in found["methods"].values():
        recalls = [method[f"recall_subset@{k}"]["average"] for k in (1, 2, 3)]
        assert 0 <= method["recall@1"]["average"] <= recalls[0] <= recalls[1] <= recalls[2] <= 100
    assert "method, recall_subset@3" in capsys.readouterr().out
    assert "| method, recall_subset@1 | cirr | average |" in (out / "table.md").read_text()

    nowhere = [*captions(data)[0]["img_set"]["members"][1:], "nowhere"]
    change(data, 0, img_set={"members": nowhere})
    assert judged(data, "--json") == 0
    captured = capsys.readouterr()
    (line,) = [line for line in captured.err.splitlines() if "cap.rc2.val.json" in line]
    assert "entry 1" in line and "'nowhere'" in line
    assert json.loads(captured.out)["questions"] == 17


def test_the_command_refuses_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "cenote.models.image_text.create_image_text", lambda name: pytest.fail("a model was loaded")
    )
    reference = captions(tree(tmp_path))[0]["reference"]
    change(tmp_path, 0, img_set={"members": [reference]})
    assert judged(tmp_path) == 2
    assert re.search(r"\bquery 0\b", capsys.readouterr().err)
