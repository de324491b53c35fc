"""The worker says what the commands say: looks as `cenote localize`, searches as `cenote search`."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.cli import main
from cenote.data import Dataset, Record, pack, read_image
from cenote.data.digests import digest_of
from cenote.models import load
from cenote.predict.boxes import Found, find
from cenote.predict.maps import MapPredictor
from cenote.predict.open_model import class_names
from cenote.predict.thresholds import model_digest, threshold_for
from cenote.search.filters import Filter
from cenote.search.opening import choose_method, open_for
from cenote.search.query import SearchRequest, ask
from cenote.train.tournament.load import open_contenders
from cenote.web import shapes
from cenote.web.indexed import SAFE, Indexed
from cenote.web.models import Models
from cenote.web.questions import About, Adopt, Look, Picture, Refusal, Search, Unseen
from cenote.web.runs import Served, find_served
from cenote.web.worker import Room

# Of scores, weights and probabilities of the demo's small networks in float32: batches of another size are summed in
# another order, and the scores of an almost constant map are its differences, scaled to 0..1. Measured: at most 1.9e-5.
TOLERANCE = 5e-5


@pytest.fixture(scope="module")
def room(demo: Path) -> Room:
    return Room(find_served([demo]))


@pytest.fixture(scope="module")
def photos(demo: Path) -> dict[str, bytes]:
    """Photographs as the server keeps them: one wide, one high, one small."""
    found = {}
    for name, size in (("wide", (200, 90)), ("high", (70, 160)), ("small", (31, 33))):
        picture = read_image(next((demo / "world" / "images").rglob("*.png"))).resize(size)
        into = BytesIO()
        picture.save(into, "JPEG")
        found[name] = into.getvalue()
    return found


@pytest.fixture(scope="module")
def dataset(photos: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The same photographs as files."""
    folder = tmp_path_factory.mktemp("photos")
    for name, content in photos.items():
        (folder / f"{name}.jpg").write_bytes(content)
    return pack([Record(f"{name}.jpg") for name in photos], folder, "photos")


def distance_to_cut(maps: Sequence[np.ndarray], level: int) -> float:
    """Distance of the scores, in levels of 1/255, to the least score that is above `level`."""
    return min(float(np.abs(255 * each - (level + 1)).min()) for each in maps)


def clear_threshold(maps: Sequence[np.ndarray]) -> float:
    """Return the threshold between 0.1 and 0.9 that all scores are farthest from: rounding moves no cell across it.

    Boxes are of the cells whose score has a level, of 256, above the threshold's.
    """
    level = max(range(26, 230), key=lambda level: distance_to_cut(maps, level))
    assert distance_to_cut(maps, level) > 255 * TOLERANCE
    return (level + 0.5) / 255


def clear_thresholds(room: Room, dataset: Dataset) -> dict[tuple[str, str], float]:
    """For every model and kind of map, a threshold at which boxes do not depend on rounding."""
    thresholds = {}
    for row in room.models.rows:
        for kind in row["maps"]:
            chosen = room.models.threshold(row["id"], kind, 0.5)
            looks = find(
                MapPredictor(room.models.get(row["id"]).model, chosen.kind, chosen.size),
                dataset,
                0.5,
            )
            thresholds[row["id"], kind] = clear_threshold([look.map for look in looks])  # type: ignore[union-attr]
    return thresholds


def corners(boxes: list[dict[str, float]]) -> list[list[float]]:
    return [[box[side] for side in ("x0", "y0", "x1", "y1")] for box in boxes]


def assert_same_look(reply: Any, other: Any) -> None:
    """Equal sizes and boxes; scores, weights and probabilities up to rounding of other batch sizes."""
    assert isinstance(reply, bytes) and isinstance(other, bytes), (reply, other)
    look, expected = json.loads(reply), json.loads(other)
    for name in ("photo", "model", "width", "height", "threshold"):
        assert look[name] == expected[name]
    assert corners(look["boxes"]) == corners(expected["boxes"])
    for part, number in (("boxes", "score"), ("classes", "probability")):
        assert [e[number] for e in look[part]] == pytest.approx(
            [e[number] for e in expected[part]], abs=TOLERANCE
        )
    probability = {e["name"]: e["probability"] for e in expected["classes"]}
    for row in look[
        "classes"
    ]:  # classes of equal probability may change places, also with the sixth
        least = min(probability.values())
        assert row["probability"] == pytest.approx(
            probability.get(row["name"], least), abs=TOLERANCE
        )
    assert look["map"]["kind"] == expected["map"]["kind"]
    np.testing.assert_allclose(
        look["map"]["weights"], expected["map"]["weights"], rtol=0, atol=TOLERANCE
    )
    levels, others = (np.array(each["scores"]["values"]) for each in (look, expected))
    assert (
        look["scores"]["side"] == expected["scores"]["side"] and np.abs(levels - others).max() <= 1
    )


@pytest.mark.parametrize("kind", ["auto", "cam", "gradcam"])
@pytest.mark.parametrize("default", [True, False])
def test_a_look_is_what_localize_finds(
    room: Room, demo: Path, photos: dict[str, bytes], dataset: Dataset, kind: str, default: bool
) -> None:
    """At the threshold of the run, and at one that was asked for."""
    if kind == "gradcam":
        pytest.importorskip("pytorch_grad_cam", reason="needs grad-cam: pip install 'cenote[cam]'")
    model = load(demo / "run").eval()
    chosen = threshold_for(model, demo / "run", None, kind)
    predictor = MapPredictor(model, chosen.kind, chosen.size)
    maps = [look.map for look in find(predictor, dataset, 0.5)]  # type: ignore[union-attr]
    threshold = None if default else clear_threshold(maps)
    chosen = threshold_for(model, demo / "run", threshold, kind)
    same_cells = distance_to_cut(maps, int(255 * chosen.value)) > 255 * TOLERANCE
    asked = [Look(name, "run", kind, threshold, content) for name, content in photos.items()]
    names = class_names(model)
    assert names is not None and (default or same_cells)
    for expected, reply in zip(
        find(predictor, dataset, chosen.value), room.answer(asked), strict=True
    ):
        assert (
            isinstance(reply, bytes)
            and isinstance(expected, Found)
            and expected.class_id is not None
        )
        look = json.loads(reply)
        shapes.Look.model_validate(look)
        assert (look["width"], look["height"]) == expected.size
        assert look["classes"][0]["probability"] == pytest.approx(
            expected.probability, abs=TOLERANCE
        )
        probability = {row["name"]: row["probability"] for row in look["classes"]}
        assert probability[names[expected.class_id]] == pytest.approx(
            expected.probability, abs=TOLERANCE
        )
        if same_cells:
            assert corners(look["boxes"]) == expected.boxes.tolist()
            scores = [box["score"] for box in look["boxes"]]
            assert scores == pytest.approx(expected.scores.tolist(), abs=TOLERANCE)
        assert look["threshold"] == {
            "value": chosen.value,
            "source": chosen.source,
            "default": default,
        }
        levels = np.array(look["scores"]["values"]).reshape(2 * [look["scores"]["side"]])
        assert levels.max() == 255 and levels.shape == (64, 64)
        assert np.abs(levels - (255 * expected.map).astype(int)).max() <= 1


def test_weights_are_the_model_s_own_grid(room: Room, demo: Path, photos: dict[str, bytes]) -> None:
    (reply,) = room.answer([Look("wide", "run", "auto", None, photos["wide"])])
    assert isinstance(reply, bytes)
    found = json.loads(reply)["map"]
    model = load(demo / "run").eval()
    pixels = model.backbone.preprocessing.whole((64, 64))(
        read_image("x.jpg", content=photos["wide"])
    )[None]
    with torch.no_grad():
        own = model.attend(pixels)[0].mean(0)
    weights = torch.tensor(found["weights"])
    assert found["kind"] == "pool" and weights.shape == (found["rows"], found["columns"]) == tuple(
        own.shape
    )
    assert weights.sum() == pytest.approx(1, abs=1e-4) and torch.allclose(
        weights, own / own.sum(), atol=1e-5
    )


def test_a_photograph_s_answer_does_not_depend_on_its_company(
    room: Room, photos: dict[str, bytes], dataset: Dataset
) -> None:
    asked = [
        Look(name, model, kind, threshold, content)
        for (model, kind), threshold in clear_thresholds(room, dataset).items() for name, content in photos.items()
    ]  # fmt: skip
    room.looking.seen.clear()
    together = room.answer(asked)
    for (
        seen
    ) in room.looking.seen.values():  # nor does what is remembered of it hold the others in memory
        for kept in (seen.images, seen.features.tokens):
            assert kept.untyped_storage().nbytes() == kept.nbytes
    room.looking.seen.clear()
    for look, reply in zip(asked, together, strict=True):
        (alone,) = room.answer([look])
        assert_same_look(reply, alone)


def test_what_is_known_of_a_photograph_answers_as_its_file_does(
    room: Room, photos: dict[str, bytes], dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its features are forgotten, the file is asked for again."""
    asked = [
        Look(name, model, kind, threshold, content)
        for (model, kind), threshold in clear_thresholds(room, dataset).items() for name, content in photos.items()
    ]  # fmt: skip
    known = [replace(look, content=None) for look in asked]
    room.looking.seen.clear()
    assert all(isinstance(reply, Unseen) for reply in room.answer(known)) and not room.looking.seen
    for look, digest in zip(asked, known, strict=True):
        room.looking.seen.clear()
        (file,) = room.answer([look])
        (again,) = room.answer([digest])
        assert_same_look(again, file)
    monkeypatch.setattr("cenote.web.looking.KEPT", 1)
    room.answer([Look("another", "run", "auto", None, photos["small"])])
    assert isinstance(
        room.answer([replace(asked[0], model="run", map="auto", content=None)])[0], Unseen
    )


def test_contenders_share_a_backbone_and_are_what_the_tournament_saved(
    demo: Path, room: Room
) -> None:
    found = open_contenders(demo / "tournament")
    report = json.loads((demo / "tournament" / "results.json").read_text())
    assert next(iter(found)) == report["recommended"] and set(found) == {
        row["name"] for row in report["standings"]
    }
    assert len({id(model.backbone) for model in found.values()}) == 1
    saved, images = load(demo / "tournament"), torch.rand(3, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(found[report["recommended"]](images), saved(images), atol=1e-5)
    assert all(model.class_names == saved.class_names for model in found.values())
    rows = {row["id"]: row for row in room.models.rows}
    assert [name for name, row in rows.items() if row["recommended"]] == [report["recommended"]]
    assert [kind for kind in rows["gap"]["maps"] if kind != "gradcam"] == ["cam", "cls"] and rows[
        "simpool"
    ]["maps"][0] == "pool"
    means = {row["name"]: row["mean"] for row in report["standings"]}
    assert {name: row["accuracy"] for name, row in rows.items() if name in means} == means
    assert next(iter(rows)) == "run" and rows["run"]["accuracy"] is None


def test_what_cannot_be_looked_at(room: Room, photos: dict[str, bytes]) -> None:
    asked = [
        Look("wide", "nobody", "auto", None, photos["wide"]),
        Look("wide", "run", "cls", None, photos["wide"]),
        Look("wide", "gap", "pool", None, photos["wide"]),
        Look("wide", "run", "auto", None, photos["wide"]),
    ]
    replies = room.answer(asked)
    assert [reply.status for reply in replies if isinstance(reply, Refusal)] == [404, 400, 400]
    assert "'nobody'" in replies[0].sentence and "cls" in replies[1].sentence  # type: ignore[union-attr]
    assert isinstance(replies[3], bytes), "one that is refused does not spoil the others"


QUESTIONS = [
    {"texts": ("bird",)}, {"texts": ("bird^2", "boat"), "without": ("sketch",)}, {"entry": 3}, {"photo": True},
    {"entry": 3, "texts": ("sketch",)}, {"photo": True, "texts": ("sketch",), "weight": 0.7},
    {"entry": 5, "texts": ("bird",), "method": "sum", "top": 5}, {"texts": ("bird",), "domains": ("sketch",)},
    {"entry": 5, "texts": ("bird",), "method": "freedom"},
]  # fmt: skip


Ranking = list[tuple[str, float]]  # file names with their scores, the best first


def assert_same_ranking(ranking: Ranking, expected: Ranking) -> None:
    """Equal scores up to rounding, at every place and for every image; images of equal scores may change places."""
    assert [score for _, score in ranking] == pytest.approx(
        [score for _, score in expected], abs=1e-5
    )
    scores, last = dict(expected), expected[-1][1]
    for name, score in ranking:
        assert score == pytest.approx(scores.get(name, last), abs=1e-5), name


@pytest.mark.parametrize(
    "given", QUESTIONS, ids=lambda given: " ".join(f"{k}={v}" for k, v in given.items())
)
def test_a_search_is_what_the_command_finds(
    room: Room, demo: Path, photos: dict[str, bytes], tmp_path: Path, given: dict[str, Any]
) -> None:
    given = {"photo": None, "entry": None, "texts": (), "without": (), "weight": None, "method": "auto", "top": 12,
             "classes": (), "domains": (), **given}  # fmt: skip
    mine = tmp_path / "mine.jpg"
    mine.write_bytes(photos["wide"])
    images: tuple[Path, ...] = ()
    if given["photo"]:
        given["photo"], images = digest_of(photos["wide"]).hex(), (mine,)
    if given["entry"] is not None:
        assert room.index is not None
        images = (Path(room.index.store.entries(torch.tensor([given["entry"]]))[0].path),)
    (reply,) = room.answer([Search(**given, content=photos["wide"])])
    assert isinstance(reply, bytes), reply
    found = json.loads(reply)
    shapes.Search.model_validate(found)
    method, options = choose_method(given["method"], given["weight"])
    question = SearchRequest(
        images, given["texts"], given["without"], method, given["top"], filter=Filter(domains=given["domains"]),
        options=options,
    )  # fmt: skip
    answer = ask(question, *open_for(question, str(demo / "index")))
    assert_same_ranking(
        [(row["name"], row["score"]) for row in found["results"]],
        [(Path(result.entry.path).name, result.score) for result in answer.results],
    )
    assert (found["method"], found["relevant"], found["searched"], found["exact"]) == answer[1:5]
    assert str(demo) not in reply.decode(), "no path of the server's is told"


def test_the_images_that_freedom_takes_as_proxies_are_named(
    room: Room, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = SearchRequest((5,), ("bird",), method="freedom", options={"k": 3})
    answer = ask(question, *open_for(question, str(demo / "index")))
    monkeypatch.setattr(
        "cenote.web.indexed.ask", lambda *_: answer
    )  # a page cannot ask with options
    (reply,) = room.answer([Search(None, 5, ("bird",), (), None, "freedom", 9, (), (), None)])
    assert isinstance(reply, bytes)
    proxies = json.loads(reply)["why"]["proxies"]
    assert len(proxies) == 2
    assert [proxy["name"] for proxy in proxies] == [
        Path(path).name for path in answer.why["proxies"]
    ]


def test_a_photograph_that_is_in_the_index_is_known_again(
    room: Room, demo: Path, photos: dict[str, bytes]
) -> None:
    assert room.index is not None
    (entry,) = room.index.store.entries(torch.tensor([7]))
    inside, row = (
        Search(photo, n, (), (), None, "auto", 9, (), (), b"not read")
        for photo, n in ((entry.digest, None), (None, 7))
    )
    first, second = (json.loads(reply) for reply in room.answer([inside, row]))  # type: ignore[arg-type]
    (digest,) = room.answer([replace(inside, content=None)])
    assert isinstance(digest, bytes) and json.loads(digest)["results"] == first["results"]
    (other,) = room.answer([replace(inside, photo="f" * 32, content=None)])
    assert isinstance(other, Unseen), "a photograph that the index does not hold is asked for"
    new = replace(inside, photo="e" * 32, content=photos["small"])
    told = [json.loads(room.answer([asked])[0]) for asked in (new, replace(new, content=None))]  # type: ignore[arg-type]
    assert told[0]["results"] == told[1]["results"], "and is known from then on"
    assert first["results"] == second["results"] and 7 not in [
        result["entry"] for result in first["results"]
    ]


def test_what_cannot_be_searched(room: Room, photos: dict[str, bytes]) -> None:
    plain = Search(None, None, (), (), None, "auto", 5, (), (), None)
    for question, status, value in (
        (plain, 400, ""), (replace(plain, entry=48), 404, ""),
        (replace(plain, entry=2**63), 404, ""), (replace(plain, texts=("^",)), 400, "'^'"),
        (replace(plain, texts=("a",), method="magic"), 400, "'magic'"),
        (replace(plain, texts=("a",), method="sum"), 400, "'sum'"),
        (replace(plain, texts=("a",), method="text:k=9"), 400, ""),
        (replace(plain, texts=("a",), entry=1, method="freedom:n=9999999"), 400, ""),
        (replace(plain, texts=("a",), entry=1, method="searle"), 400, "'searle'"),
        (replace(plain, texts=("a",), entry=1, method="pic2word"), 400, "'pic2word'"),
        (replace(plain, texts=("a^1e300",)), 400, "'a^1e300'"),
        (Picture(48, 64), 404, ""), (Adopt(2**63), 404, ""),
    ):  # fmt: skip
        (reply,) = room.answer([question])
        assert isinstance(reply, Refusal) and reply.status == status and value in reply.sentence, (
            question
        )


def test_numbers_that_json_does_not_have(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Indexed, "search", lambda self, asked: {"score": float("nan")})
    (reply,) = room.answer([Search(None, None, ("a",), (), None, "auto", 5, (), (), None)])
    assert isinstance(reply, Refusal) and reply.status == 400


def test_accuracy_is_of_the_seed_that_is_shown(demo: Path, tmp_path: Path) -> None:
    played = tmp_path / "played"
    shutil.copytree(demo / "tournament", played)
    report = json.loads((played / "results.json").read_text())
    for row in report["standings"]:
        row["accuracy"], row["mean"] = [11.0, 33.0], 22.0
    (played / "results.json").write_text(json.dumps(report))
    assert {row["accuracy"] for row in Models(Served(tournaments=(played,))).rows} == {11.0}


@pytest.mark.parametrize("kept", ["other maps", "other model", "damaged"])
def test_no_path_of_the_server_is_told(
    demo: Path, tmp_path: Path, photos: dict[str, bytes], kept: str
) -> None:
    """Neither where a threshold came from nor why there is none says more than names of files."""
    run = tmp_path / "run"
    shutil.copytree(demo / "run", run)
    found = {
        "threshold": 0.2, "kind": "cam", "size": 64, "model": model_digest(run) if kept == "other maps" else "x",
        "chosen_on": {"data": str(tmp_path / "secret" / "cats"), "split": "val", "images": 30},
    }  # fmt: skip
    (run / "localization.json").write_text("{" if kept == "damaged" else json.dumps(found))
    room = Room(Served(models=(run,)))
    for kind in ("pool", "cam"):
        (reply,) = room.answer([Look("wide", "run", kind, None, photos["wide"])])
        told = reply.sentence if isinstance(reply, Refusal) else reply.decode()  # type: ignore[union-attr]
        assert str(tmp_path) not in told and (
            "localization.json" in told or re.search(r"\bcats\b.*\bval\b", told)
        )


def test_no_path_of_the_index_is_told(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(Served(index=str(demo / "index")))

    def refuse(*_: Any) -> None:
        raise ValueError(f"{demo / 'index'} does not fit '{demo / 'clip'}'")

    monkeypatch.setattr("cenote.web.indexed.ask", refuse)
    (reply,) = room.answer([Search(None, None, ("a",), (), None, "auto", 5, (), (), None)])
    assert isinstance(reply, Refusal)
    assert reply.sentence == "index does not fit 'clip'"


def test_pictures_of_the_index_and_of_files_that_are_gone(room: Room, demo: Path) -> None:
    assert room.index is not None
    (reply,) = room.answer([Picture(2, 32)])
    assert isinstance(reply, bytes)
    with Image.open(BytesIO(reply)) as image:
        assert image.format == "JPEG" and image.size == (32, 32)
    (entry,) = room.index.store.entries(torch.tensor([2]))
    path = Path(entry.path)
    (taken,) = room.answer([Adopt(2)])
    assert isinstance(taken, dict) and taken["digest"] == entry.digest, (
        "so a search from it finds it"
    )
    assert taken["photo"].content == path.read_bytes(), "models see the file"
    path.rename(path.with_suffix(".gone"))
    try:
        (reply,) = room.answer([Adopt(2)])
        assert isinstance(reply, Refusal) and reply.status == 410
        (reply,) = room.answer([Picture(2, 33)])
        assert (
            isinstance(reply, Refusal) and reply.status == 410 and str(demo) not in reply.sentence
        )
        Image.new("RGB", (40, 30)).save(path)
        (taken,) = room.answer([Adopt(2)])
        assert (
            isinstance(taken, dict)
            and taken["digest"] == digest_of(path.read_bytes()).hex() != entry.digest
        )
    finally:
        path.with_suffix(".gone").rename(path)


def test_about_and_examples(room: Room, demo: Path) -> None:
    ready = room.ready()
    assert 2 <= len(ready["examples"]) <= 8
    for digest, photo in ready["examples"].items():
        assert room.index is not None and room.index.store.find(digest), (
            "an example of the world is in its index"
        )
        with Image.open(BytesIO(photo.content)) as image:
            assert image.size == (photo.width, photo.height)
    index = ready["index"]
    assert (
        index["images"] == 48
        and index["domains"] == ["photo", "sketch"]
        and len(set(index["entries"])) == 24
    )
    names = {m["name"] for m in index["methods"]}
    assert names >= {"weicom", "freedom"} and not names & {"searle", "pic2word"}, (
        "what takes minutes is not offered"
    )
    report = json.loads((demo / "tournament" / "results.json").read_text())
    first = {row["name"]: row["accuracy"][0] for row in report["standings"]}
    assert {m["id"]: m["accuracy"] for m in ready["models"] if m["id"] in first} == first
    (about,) = room.answer([About()])
    assert isinstance(about, dict)
    limits = {"bytes": 1, "pixels": 1, "queue": 1}
    shapes.About.model_validate(
        {
            **about,
            "version": "1",
            "title": "t",
            "examples": [],
            "tournament": None,
            "report": True,
            "limits": limits,
        }
    )


def test_something_to_see_without_any_data() -> None:
    from cenote.web.examples import examples

    found = examples(Served(), None)
    assert len(found) == 2 and all(photo.width == 256 for photo in found.values())


def test_examples_are_as_their_files(room: Room, demo: Path, tmp_path: Path) -> None:
    """Of a data set and of an index; one that is too large to go to the worker is made smaller."""
    from cenote.web import photos
    from cenote.web.examples import examples

    files = {
        digest_of(path.read_bytes()).hex(): path.read_bytes()
        for path in (demo / "world").rglob("*.png")
    }
    for served in (Served(worlds=(demo / "world",)), Served()):
        for digest, photo in examples(served, room.index).items():
            assert photo.content == files[digest] and photo.shown[:2] == b"\xff\xd8"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(photos, "LARGEST", 10)
        found = photos.photo_of(Image.new("RGB", (3200, 100)), b"x" * 11)
    assert found.content == found.shown and (found.width, found.height) == (1600, 50)


def test_milvus_is_an_index_too(demo: Path, tmp_path: Path) -> None:
    """Its rows are larger than JavaScript's numbers: they are told as text."""
    pytest.importorskip("milvus_lite", reason="needs milvus-lite")
    address = str(tmp_path / "ix.db")
    assert (
        main(
            ["index", str(demo / "world"), "-o", address, "--model", str(demo / "clip"), "--quiet"]
        )
        == 0
    )
    milvus, folder = Indexed(address), Indexed(str(demo / "index"))
    told, own = milvus.about(), folder.about()
    assert all(
        told[name] == own[name]
        for name in ("images", "classes", "domains", "suggestions", "model", "methods")
    )
    # One row in a thousand is a small number by chance.
    assert all(isinstance(entry, str) is (int(entry) >= SAFE) for entry in told["entries"])
    assert any(isinstance(entry, str) for entry in told["entries"])
    asked = Search(None, None, ("bird",), (), None, "auto", 9, (), ("sketch",), None)
    here, there = (index.search(asked)["results"] for index in (milvus, folder))
    assert_same_ranking(*([(row["name"], row["score"]) for row in rows] for rows in (here, there)))
    entries = {row["name"]: int(row["entry"]) for row in there}
    same = next(row for row in here if row["name"] in entries)
    assert milvus.picture(Picture(int(same["entry"]), 32)) == folder.picture(
        Picture(entries[same["name"]], 32)
    )
    with pytest.raises(Refusal) as refused:
        milvus.picture(Picture(12, 32))
    assert refused.value.status == 404
