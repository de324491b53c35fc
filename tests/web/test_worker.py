"""The worker says what the commands say: looks as `cenote localize`, searches as `cenote search`."""

import json
import shutil
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.cli import main
from cenote.data import Record, pack, read_image
from cenote.data.cache import digest_of
from cenote.evaluate.find import find
from cenote.evaluate.tally import Eyes
from cenote.evaluate.thresholds import model_digest, threshold_for
from cenote.models import load
from cenote.search.ask import Question, ask
from cenote.search.filters import Filter
from cenote.search.opening import choose_method, open_for
from cenote.show.opening import class_names
from cenote.train.contenders import open_contenders
from cenote.web import shapes
from cenote.web.indexed import SAFE, Indexed
from cenote.web.models import Models
from cenote.web.questions import About, Adopt, Look, Picture, Refusal, Search, Unseen
from cenote.web.runs import Served, find_served
from cenote.web.worker import Room


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


@pytest.mark.parametrize("kind", ["auto", "cam", "gradcam"])
@pytest.mark.parametrize("given", [None, 0.4])
def test_a_look_is_what_localize_finds(
    room: Room, demo: Path, photos: dict[str, bytes], tmp_path: Path, kind: str, given: float | None
) -> None:
    if kind == "gradcam":
        pytest.importorskip("pytorch_grad_cam")
    records = []
    for name, content in photos.items():
        (tmp_path / f"{name}.jpg").write_bytes(content)
        records.append(Record(f"{name}.jpg"))
    model = load(demo / "run").eval()
    chosen = threshold_for(model, demo / "run", given, kind)
    eyes = Eyes(model, chosen.kind, chosen.size)
    truth = list(find(eyes, pack(records, tmp_path, "photos"), chosen.value))
    asked = [Look(name, "run", kind, given, content) for name, content in photos.items()]
    names = class_names(model)
    assert names is not None
    for expected, reply in zip(truth, room.answer(asked), strict=True):
        assert isinstance(reply, bytes)
        found = json.loads(reply)
        shapes.Look.model_validate(found)
        assert (found["width"], found["height"]) == expected.size  # type: ignore[union-attr]
        assert found["classes"][0]["name"] == names[expected.class_id]  # type: ignore[union-attr, index]
        assert found["classes"][0]["probability"] == pytest.approx(expected.probability, abs=1e-5)  # type: ignore[union-attr]
        boxes = [[box[side] for side in ("x0", "y0", "x1", "y1")] for box in found["boxes"]]
        assert boxes == expected.boxes.tolist()  # type: ignore[union-attr]
        assert [box["score"] for box in found["boxes"]] == pytest.approx(expected.scores.tolist(), abs=1e-5)  # type: ignore[union-attr]
        assert found["threshold"] == {"value": chosen.value, "source": chosen.source, "default": given is None}
        scores = np.array(found["scores"]["values"]).reshape(2 * [found["scores"]["side"]])
        assert scores.max() == 255 and scores.shape == (64, 64)
        assert np.abs(scores - (255 * expected.map).astype(int)).max() <= 1  # type: ignore[union-attr]


def test_weights_are_the_model_s_own_grid(room: Room, demo: Path, photos: dict[str, bytes]) -> None:
    (reply,) = room.answer([Look("wide", "run", "auto", None, photos["wide"])])
    assert isinstance(reply, bytes)
    found = json.loads(reply)["map"]
    model = load(demo / "run").eval()
    pixels = model.backbone.preprocessing.whole((64, 64))(read_image("x.jpg", content=photos["wide"]))[None]
    with torch.no_grad():
        own = model.attend(pixels)[0].mean(0)
    weights = torch.tensor(found["weights"])
    assert found["kind"] == "pool" and weights.shape == (found["rows"], found["columns"]) == tuple(own.shape)
    assert weights.sum() == pytest.approx(1, abs=1e-4) and torch.allclose(weights, own / own.sum(), atol=1e-5)


def test_a_photograph_s_answer_does_not_depend_on_its_company(room: Room, photos: dict[str, bytes]) -> None:
    models = [row["id"] for row in room.models.rows]
    asked = [Look(name, model, "auto", 0.3, content) for model in models for name, content in photos.items()]
    room.looking.seen.clear()
    together = room.answer(asked)
    for seen in room.looking.seen.values():  # nor does what is remembered of it hold the others in memory
        for kept in (seen.images, seen.features.tokens):
            assert kept.untyped_storage().nbytes() == kept.nbytes
    room.looking.seen.clear()
    for look, one in zip(asked, together, strict=True):
        (alone,) = room.answer([look])
        assert isinstance(one, bytes) and isinstance(alone, bytes)
        a, b = json.loads(one), json.loads(alone)
        assert a["boxes"] == b["boxes"] and [c["name"] for c in a["classes"]] == [c["name"] for c in b["classes"]]
        assert np.allclose(a["map"]["weights"], b["map"]["weights"], atol=1e-5)


def test_what_is_known_of_a_photograph_answers_as_its_file_does(
    room: Room, photos: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last digit; and once it is forgotten, the file is asked for again."""
    models, maps = [row["id"] for row in room.models.rows], {row["id"]: row["maps"] for row in room.models.rows}
    asked = [
        Look(name, model, kind, threshold, content)
        for model in models for kind in maps[model] for threshold in (0.2, 0.6) for name, content in photos.items()
    ]  # fmt: skip
    known = [replace(look, content=None) for look in asked]
    room.looking.seen.clear()
    assert all(isinstance(reply, Unseen) for reply in room.answer(known)) and not room.looking.seen
    for look, digest in zip(asked, known, strict=True):
        room.looking.seen.clear()
        (file,) = room.answer([look])
        (again,) = room.answer([digest])
        assert isinstance(file, bytes) and isinstance(again, bytes)
        assert json.loads(again) | {"seconds": 0} == json.loads(file) | {"seconds": 0}
    monkeypatch.setattr("cenote.web.looking.KEPT", 1)
    room.answer([Look("another", "run", "auto", None, photos["small"])])
    assert isinstance(room.answer([replace(asked[0], model="run", map="auto", content=None)])[0], Unseen)


def test_contenders_share_a_backbone_and_are_what_the_tournament_saved(demo: Path, room: Room) -> None:
    found = open_contenders(demo / "tournament")
    report = json.loads((demo / "tournament" / "results.json").read_text())
    assert next(iter(found)) == report["recommended"] and set(found) == {row["name"] for row in report["standings"]}
    assert len({id(model.backbone) for model in found.values()}) == 1
    saved, images = load(demo / "tournament"), torch.rand(3, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(found[report["recommended"]](images), saved(images), atol=1e-5)
    assert all(model.class_names == saved.class_names for model in found.values())
    rows = {row["id"]: row for row in room.models.rows}
    assert [name for name, row in rows.items() if row["recommended"]] == [report["recommended"]]
    assert [kind for kind in rows["gap"]["maps"] if kind != "gradcam"] == ["cam", "cls"] and rows["simpool"]["maps"][
        0
    ] == "pool"
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
    assert "no model 'nobody'" in replies[0].sentence and "no attention map" in replies[2].sentence  # type: ignore[union-attr]
    assert isinstance(replies[3], bytes), "one that is refused does not spoil the others"


QUESTIONS = [
    {"texts": ("bird",)}, {"texts": ("bird^2", "boat"), "without": ("sketch",)}, {"entry": 3}, {"photo": True},
    {"entry": 3, "texts": ("sketch",)}, {"photo": True, "texts": ("sketch",), "weight": 0.7},
    {"entry": 5, "texts": ("bird",), "method": "sum", "top": 5}, {"texts": ("bird",), "domains": ("sketch",)},
    {"entry": 5, "texts": ("bird",), "method": "freedom"},
]  # fmt: skip


@pytest.mark.parametrize("given", QUESTIONS, ids=lambda given: " ".join(f"{k}={v}" for k, v in given.items()))
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
    question = Question(
        images, given["texts"], given["without"], method, given["top"], filter=Filter(domains=given["domains"]),
        options=options,
    )  # fmt: skip
    answer = ask(question, *open_for(question, str(demo / "index")))
    assert [result["name"] for result in found["results"]] == [Path(r.entry.path).name for r in answer.results]
    assert [r["score"] for r in found["results"]] == pytest.approx([r.score for r in answer.results], abs=1e-5)
    assert (found["method"], found["relevant"], found["searched"], found["exact"]) == answer[1:5]
    assert str(demo) not in reply.decode(), "no path of the server's is told"


def test_the_images_that_told_freedom_are_named(room: Room, demo: Path) -> None:
    assert room.index is not None
    question = Question((5,), ("bird",), method="freedom", options={"k": 3})
    answer = ask(question, *open_for(question, str(demo / "index")))
    told = room.index._told(answer)["why"]["proxies"]
    assert len(told) == 2 and [each["name"] for each in told] == [Path(path).name for path in answer.why["proxies"]]


def test_a_photograph_that_is_in_the_index_is_known_again(room: Room, demo: Path, photos: dict[str, bytes]) -> None:
    assert room.index is not None
    (entry,) = room.index.store.entries(torch.tensor([7]))
    inside, row = (
        Search(photo, n, (), (), None, "auto", 9, (), (), b"not read") for photo, n in ((entry.digest, None), (None, 7))
    )
    first, second = (json.loads(reply) for reply in room.answer([inside, row]))  # type: ignore[arg-type]
    (digest,) = room.answer([replace(inside, content=None)])
    assert isinstance(digest, bytes) and json.loads(digest)["results"] == first["results"]
    (other,) = room.answer([replace(inside, photo="f" * 32, content=None)])
    assert isinstance(other, Unseen), "a photograph that the index does not hold is asked for"
    new = replace(inside, photo="e" * 32, content=photos["small"])
    told = [json.loads(room.answer([asked])[0]) for asked in (new, replace(new, content=None))]  # type: ignore[arg-type]
    assert told[0]["results"] == told[1]["results"], "and is known from then on"
    assert first["results"] == second["results"] and 7 not in [result["entry"] for result in first["results"]]


def test_what_cannot_be_searched(room: Room, photos: dict[str, bytes]) -> None:
    plain = Search(None, None, (), (), None, "auto", 5, (), (), None)
    for question, status, told in (
        (plain, 400, "empty question"), (replace(plain, entry=48), 404, "no such image"),
        (replace(plain, entry=2**63), 404, "no such image"), (replace(plain, texts=("^",)), 400, "no search term"),
        (replace(plain, texts=("a",), method="magic"), 400, "no method"),
        (replace(plain, texts=("a",), method="sum"), 400, "needs an image"),
        (replace(plain, texts=("a",), method="text:k=9"), 400, "options are not taken"),
        (replace(plain, texts=("a",), entry=1, method="freedom:n=9999999"), 400, "options are not taken"),
        (replace(plain, texts=("a",), entry=1, method="searle"), 400, "too long"),
        (replace(plain, texts=("a",), entry=1, method="pic2word"), 400, "too long"),
        (replace(plain, texts=("a^1e300",)), 400, "no search term"),
        (Picture(48, 64), 404, "no such image"), (Adopt(2**63), 404, "no such image"),
    ):  # fmt: skip
        (reply,) = room.answer([question])
        assert isinstance(reply, Refusal) and reply.status == status and told in reply.sentence


def test_numbers_that_json_does_not_have(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Indexed, "search", lambda self, asked: {"score": float("nan")})
    (reply,) = room.answer([Search(None, None, ("a",), (), None, "auto", 5, (), (), None)])
    assert isinstance(reply, Refusal) and reply.status == 400 and "NaN" in reply.sentence


def test_accuracy_is_of_the_seed_that_is_shown(demo: Path, tmp_path: Path) -> None:
    played = tmp_path / "played"
    shutil.copytree(demo / "tournament", played)
    report = json.loads((played / "results.json").read_text())
    for row in report["standings"]:
        row["accuracy"], row["mean"] = [11.0, 33.0], 22.0
    (played / "results.json").write_text(json.dumps(report))
    assert {row["accuracy"] for row in Models(Served(tournaments=(played,))).rows} == {11.0}


@pytest.mark.parametrize("kept", ["other maps", "other model", "damaged"])
def test_no_path_of_the_server_is_told(demo: Path, tmp_path: Path, photos: dict[str, bytes], kept: str) -> None:
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
        assert str(tmp_path) not in told and ("localization.json" in told or "images of cats, val" in told)


def test_no_path_of_the_index_is_told(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(Served(index=str(demo / "index")))

    def refuse(*_: Any) -> None:
        raise ValueError(f"{demo / 'index'} was made with another model: index again ('{demo / 'clip'}')")

    monkeypatch.setattr("cenote.web.indexed.ask", refuse)
    (reply,) = room.answer([Search(None, None, ("a",), (), None, "auto", 5, (), (), None)])
    assert isinstance(reply, Refusal)
    assert reply.sentence == "index was made with another model: index again ('clip')"


def test_pictures_of_the_index_and_of_files_that_are_gone(room: Room, demo: Path) -> None:
    assert room.index is not None
    (reply,) = room.answer([Picture(2, 32)])
    assert isinstance(reply, bytes)
    with Image.open(BytesIO(reply)) as image:
        assert image.format == "JPEG" and image.size == (32, 32)
    (entry,) = room.index.store.entries(torch.tensor([2]))
    path = Path(entry.path)
    (taken,) = room.answer([Adopt(2)])
    assert isinstance(taken, dict) and taken["digest"] == entry.digest, "so a search from it finds it"
    assert taken["photo"].content == path.read_bytes(), "models see the file"
    path.rename(path.with_suffix(".gone"))
    try:
        (reply,) = room.answer([Adopt(2)])
        assert isinstance(reply, Refusal) and reply.status == 410
        (reply,) = room.answer([Picture(2, 33)])
        assert isinstance(reply, Refusal) and reply.status == 410 and str(demo) not in reply.sentence
        Image.new("RGB", (40, 30)).save(path)
        (taken,) = room.answer([Adopt(2)])
        assert isinstance(taken, dict) and taken["digest"] == digest_of(path.read_bytes()).hex() != entry.digest
    finally:
        path.with_suffix(".gone").rename(path)


def test_about_and_examples(room: Room, demo: Path) -> None:
    ready = room.ready()
    assert 2 <= len(ready["examples"]) <= 8
    for digest, photo in ready["examples"].items():
        assert room.index is not None and room.index.store.find(digest), "an example of the world is in its index"
        with Image.open(BytesIO(photo.content)) as image:
            assert image.size == (photo.width, photo.height)
    index = ready["index"]
    assert index["images"] == 48 and index["domains"] == ["photo", "sketch"] and len(set(index["entries"])) == 24
    names = {m["name"] for m in index["methods"]}
    assert names >= {"weicom", "freedom"} and not names & {"searle", "pic2word"}, "what takes minutes is not offered"
    report = json.loads((demo / "tournament" / "results.json").read_text())
    first = {row["name"]: row["accuracy"][0] for row in report["standings"]}
    assert {m["id"]: m["accuracy"] for m in ready["models"] if m["id"] in first} == first
    (about,) = room.answer([About()])
    assert isinstance(about, dict)
    limits = {"bytes": 1, "pixels": 1, "queue": 1}
    shapes.About.model_validate(
        {**about, "version": "1", "title": "t", "examples": [], "tournament": None, "report": True, "limits": limits}
    )


def test_something_to_see_without_any_data() -> None:
    from cenote.web.examples import examples

    found = examples(Served(), None)
    assert len(found) == 2 and all(photo.width == 256 for photo in found.values())


def test_examples_are_as_their_files(room: Room, demo: Path, tmp_path: Path) -> None:
    """Of a data set and of an index; one that is too large to go to the worker is made smaller."""
    from cenote.web import photos
    from cenote.web.examples import examples

    files = {digest_of(path.read_bytes()).hex(): path.read_bytes() for path in (demo / "world").rglob("*.png")}
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
    assert main(["index", str(demo / "world"), "-o", address, "--model", str(demo / "clip"), "--quiet"]) == 0
    milvus, folder = Indexed(address), Indexed(str(demo / "index"))
    told, own = milvus.about(), folder.about()
    assert all(told[name] == own[name] for name in ("images", "classes", "domains", "suggestions", "model", "methods"))
    # One row in a thousand is a small number by chance.
    assert all(isinstance(entry, str) is (int(entry) >= SAFE) for entry in told["entries"])
    assert any(isinstance(entry, str) for entry in told["entries"])
    asked = Search(None, None, ("bird",), (), None, "auto", 9, (), ("sketch",), None)
    here, there = (index.search(asked)["results"] for index in (milvus, folder))
    assert [each["name"] for each in here] == [each["name"] for each in there]
    assert milvus.picture(Picture(int(here[0]["entry"]), 32)) == folder.picture(Picture(int(there[0]["entry"]), 32))
    with pytest.raises(Refusal, match="no such image"):
        milvus.picture(Picture(12, 32))
