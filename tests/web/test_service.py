"""The worker answers as the commands do: boxes as `cenote localize`, search as `cenote search`."""

import csv
import json
import re
import shutil
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.exceptions import HTTPException

from cenote.cli import main
from cenote.data import Dataset, Record, open_dataset, pack, read_image
from cenote.data.digests import digest_of
from cenote.models import create_model, load, save_model
from cenote.models.saving import model_digest
from cenote.predict.boxes import BoxPrediction, predict_boxes
from cenote.predict.maps import MapPredictor
from cenote.predict.object_map import ObjectMapper, save_direction
from cenote.predict.open_model import class_names
from cenote.predict.thresholds import Calibration, threshold_for
from cenote.search.query import Searcher, SearchRequest, choose_method
from cenote.search.saved import SavedSearches
from cenote.search.store import Filter
from cenote.train.tournament.load import load_candidates
from cenote.web import photos as web_photos
from cenote.web.about import ContentsRequest
from cenote.web.look import LookRequest, LookResponse
from cenote.web.models import ServedModels
from cenote.web.photos import encode_photo, file_digest
from cenote.web.schemas import Photo, WorkerRequest
from cenote.web.search import (
    MAX_CORNERS,
    EntryPhotoRequest,
    ImageSearchRequest,
    MapRequest,
    PictureRequest,
    SavedSearchesRequest,
    SearchResponse,
    SearchTableRequest,
)
from cenote.web.service import SAFE_INTEGER, Service, example_photos
from cenote.web.sources import Sources, find_sources

# Of scores, weights and probabilities of the demo's small networks in float32: batches of another
# size are summed in another order, and the scores of an almost constant map are its differences,
# scaled to 0..1. Measured: at most 1.9e-5.
TOLERANCE = 5e-5


@pytest.fixture(scope="module")
def service(demo: Path) -> Service:
    return Service(find_sources([demo]))


def look(content: bytes, model: str = "run", **options: Any) -> LookRequest:
    return LookRequest(photo=file_digest(content), model=model, **options)


def search(**options: Any) -> ImageSearchRequest:
    names = {"without": "not", "classes": "class"}
    return ImageSearchRequest(**{names.get(name, name): value for name, value in options.items()})


def answer(service: Service, request: WorkerRequest, content: bytes = b"") -> Any:
    return service.answer(request, content)


def error(service: Service, request: WorkerRequest, content: bytes = b"") -> HTTPException:
    with pytest.raises(HTTPException) as raised:
        service.answer(request, content)
    return raised.value


@pytest.fixture(scope="module")
def photos(demo: Path) -> dict[str, bytes]:
    """Photographs as the server keeps them: one wide, one high, one small."""
    contents = {}
    for name, size in (("wide", (200, 90)), ("high", (70, 160)), ("small", (31, 33))):
        picture = read_image(next((demo / "world" / "images").rglob("*.png"))).resize(size)
        buffer = BytesIO()
        picture.save(buffer, "JPEG")
        contents[name] = buffer.getvalue()
    return contents


@pytest.fixture(scope="module")
def dataset(photos: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The same photographs as files."""
    folder = tmp_path_factory.mktemp("photos")
    for name, content in photos.items():
        (folder / f"{name}.jpg").write_bytes(content)
    return pack([Record(f"{name}.jpg") for name in photos], folder, "photos")


def distance_to_cut(maps: Sequence[np.ndarray], level: int) -> float:
    """Distance of the scores, in levels of 1/255, to the lowest score that is above `level`."""
    return min(float(np.abs(255 * scores - (level + 1)).min()) for scores in maps)


def clear_threshold(maps: Sequence[np.ndarray]) -> float:
    """Return the threshold between 0.1 and 0.9 that all scores are farthest from.

    Rounding moves no cell across it: a box is of the cells whose score has a level, of 256, above
    the threshold's.
    """
    level = max(range(26, 230), key=lambda level: distance_to_cut(maps, level))
    assert distance_to_cut(maps, level) > 255 * TOLERANCE
    return (level + 0.5) / 255


def clear_thresholds(service: Service, dataset: Dataset) -> dict[tuple[str, str], float]:
    """For every model and kind of map, a threshold at which boxes do not depend on rounding."""
    thresholds, models = {}, service.models
    for row in models.rows:
        for kind in row.maps:
            threshold = models.threshold(row.id, kind, 0.5)
            predictor = MapPredictor.create(models.get(row.id).model, kind, threshold.size)
            maps = [found.map for found in predict_boxes(predictor, dataset, 0.5)]  # type: ignore[union-attr]
            thresholds[row.id, kind] = clear_threshold(maps)
    return thresholds


def corners(boxes: list[dict[str, float]]) -> list[list[float]]:
    return [[box[side] for side in ("x0", "y0", "x1", "y1")] for box in boxes]


def assert_same_look(reply: Any, other: Any) -> None:
    """Equal sizes and boxes; scores, weights and probabilities up to rounding of other batch sizes."""
    assert isinstance(reply, bytes) and isinstance(other, bytes), (reply, other)
    response, expected = json.loads(reply), json.loads(other)
    for name in ("photo", "model", "width", "height", "threshold"):
        assert response[name] == expected[name]
    assert corners(response["boxes"]) == corners(expected["boxes"])
    for name, number in (("boxes", "score"), ("classes", "probability")):
        values, others = ([row[number] for row in both[name]] for both in (response, expected))
        assert values == pytest.approx(others, abs=TOLERANCE)
    # Classes of equal probability may change places, also with the sixth.
    probability = {row["name"]: row["probability"] for row in expected["classes"]}
    smallest = min(probability.values())
    for row in response["classes"]:
        value = probability.get(row["name"], smallest)
        assert row["probability"] == pytest.approx(value, abs=TOLERANCE)
    assert response["map"]["kind"] == expected["map"]["kind"]
    weights, others = (both["map"]["weights"] for both in (response, expected))
    np.testing.assert_allclose(weights, others, rtol=0, atol=TOLERANCE)
    levels, others = (np.array(both["scores"]["values"]) for both in (response, expected))
    assert response["scores"]["side"] == expected["scores"]["side"]
    assert np.abs(levels - others).max() <= 1


@pytest.mark.parametrize("kind", ["auto", "pool", "cam", "gradcam"])
@pytest.mark.parametrize("default", [True, False])
def test_boxes_are_those_of_localize(
    service: Service,
    demo: Path,
    photos: dict[str, bytes],
    dataset: Dataset,
    kind: str,
    default: bool,
) -> None:
    """At the threshold of the run, and at a requested one."""
    if kind == "gradcam":
        pytest.importorskip("pytorch_grad_cam", reason="needs grad-cam: pip install 'cenote[cam]'")
    model = load(demo / "run").eval()
    calibrated, _ = threshold_for(model, demo / "run", None, kind)
    predictor = MapPredictor.create(model, calibrated.kind, calibrated.size)
    maps = [found.map for found in predict_boxes(predictor, dataset, 0.5)]  # type: ignore[union-attr]
    value = None if default else clear_threshold(maps)
    threshold, _ = threshold_for(model, demo / "run", value, kind)
    same_cells = distance_to_cut(maps, int(255 * threshold.value)) > 255 * TOLERANCE
    names = class_names(model)
    assert names is not None and (default or same_cells)
    replies = [
        answer(service, look(content, map=kind, threshold=value), content)
        for content in photos.values()
    ]
    for expected, reply in zip(
        predict_boxes(predictor, dataset, threshold.value), replies, strict=True
    ):
        assert isinstance(expected, BoxPrediction) and expected.class_id is not None
        response = LookResponse.model_validate_json(reply)
        assert (response.width, response.height) == expected.size
        probability = {row.name: row.probability for row in response.classes}
        assert max(probability.values()) == pytest.approx(expected.probability, abs=TOLERANCE)
        predicted = names[expected.class_id]
        assert probability[predicted] == pytest.approx(expected.probability, abs=TOLERANCE)
        if same_cells:
            boxes = [[box.x0, box.y0, box.x1, box.y1] for box in response.boxes]
            assert boxes == expected.boxes.tolist()
            scores = [box.score for box in response.boxes]
            assert scores == pytest.approx(expected.scores.tolist(), abs=TOLERANCE)
        assert response.threshold.model_dump() == {
            "value": threshold.value,
            "source": threshold.source,
            "default": default,
        }
        levels = np.array(response.scores.values).reshape(2 * [response.scores.side])
        assert levels.max() == 255 and levels.shape == (64, 64)
        if expected.map.shape == levels.shape:  # a larger map is averaged
            assert np.abs(levels - (255 * expected.map).astype(int)).max() <= 1


def test_the_default_is_the_object_map(
    demo: Path, tmp_path: Path, photos: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the direction of the run, once per photograph, for all models of a backbone."""
    content, run = photos["wide"], tmp_path / "tournament"
    shutil.copytree(demo / "tournament", run)
    models = ServedModels(Sources(models=[demo / "run"], tournaments=[run]))
    alone = models.look(look(content), content)
    assert alone.map.kind == "object" and "by itself" in alone.map.description
    buffer = BytesIO()
    Image.new("RGB", (64, 64), "white").save(buffer, "PNG")
    blank = models.look(look(buffer.getvalue()), buffer.getvalue())
    assert not blank.boxes and "blank" in blank.threshold.source
    dataset = open_dataset(demo / "world")
    save_direction(ObjectMapper(models.get("gap").model.backbone).fit(dataset), run)
    first = models.look(look(content, "gap"), content)  # by the models that are already open
    assert first.map.kind == "object" and f"{len(dataset)} images" in first.map.description
    monkeypatch.setattr(ObjectMapper, "maps", None)  # not called again
    others = [look(content, "gap", threshold=0.5), look(content, "cls"), look(content, "gap")]
    for request in others:
        response = models.look(request, b"")
        assert response.map == first.map
        assert response.threshold.value == (request.threshold or first.threshold.value)


def test_the_maps_of_a_calibrated_model_and_of_one_of_several_classes(
    demo: Path, tmp_path: Path, photos: dict[str, bytes]
) -> None:
    shutil.copytree(demo / "run", tmp_path / "calibrated")
    chosen_on = {"data": "cats", "split": "val", "images": 30}
    Calibration(0.2, "cam", 64, chosen_on, 50.0).save(tmp_path / "calibrated")
    model = create_model("resnet_micro", "simpool", num_classes=3)
    model.multi_label = True
    save_model(model, tmp_path / "several")
    models = ServedModels(Sources(models=[tmp_path / "calibrated", tmp_path / "several"]))
    for name, kind in (("calibrated", "cam"), ("several", "object")):
        assert models.look(look(photos["wide"], name), photos["wide"]).map.kind == kind
        response = models.look(look(photos["wide"], name, map="object"), photos["wide"])
        assert response.map.kind == "object"


def test_weights_are_on_the_grid_of_the_model(
    service: Service, demo: Path, photos: dict[str, bytes]
) -> None:
    content = photos["wide"]
    response = LookResponse.model_validate_json(answer(service, look(content, map="pool"), content))
    model = load(demo / "run").eval()
    transform = model.backbone.preprocessing.whole((64, 64))
    with torch.no_grad():
        image = transform(read_image("x.jpg", content=content))
        expected = model.attend(image[None])[0].mean(0)
    weights = torch.tensor(response.map.weights)
    assert response.map.kind == "pool" and not response.map.description
    assert weights.shape == (response.map.rows, response.map.columns) == tuple(expected.shape)
    assert weights.sum() == pytest.approx(1, abs=1e-4)
    assert torch.allclose(weights, expected / expected.sum(), atol=1e-5)


def test_cached_features_answer_as_the_file_does(
    service: Service, photos: dict[str, bytes], dataset: Dataset
) -> None:
    """Every photograph with every kind of map of every model."""
    features = service.models.features
    for (model, kind), threshold in clear_thresholds(service, dataset).items():
        for content in photos.values():
            features.clear()
            request = look(content, model, map=kind, threshold=threshold)
            reply = answer(service, request, content)
            assert len(features) == 1
            assert_same_look(answer(service, request), reply)


def test_contenders_share_a_backbone_and_are_what_the_tournament_saved(
    demo: Path, service: Service
) -> None:
    contenders = load_candidates(demo / "tournament")
    report = json.loads((demo / "tournament" / "results.json").read_text())
    assert next(iter(contenders)) == report["recommended"]
    assert set(contenders) == {row["name"] for row in report["standings"]}
    assert len({id(model.backbone) for model in contenders.values()}) == 1
    saved, images = load(demo / "tournament"), torch.rand(3, 3, 64, 64)
    with torch.no_grad():
        recommended = contenders[report["recommended"]](images)
        assert torch.allclose(recommended, saved(images), atol=1e-5)
    assert all(model.class_names == saved.class_names for model in contenders.values())
    rows = {row.id: row for row in service.models.rows}
    assert [name for name, row in rows.items() if row.recommended] == [report["recommended"]]
    assert [kind for kind in rows["gap"].maps if kind != "gradcam"] == ["cam", "cls", "object"]
    assert rows["simpool (gamma 1.25)"].maps[0] == "pool"
    means = {row["name"]: row["mean"] for row in report["standings"]}
    assert {name: row.accuracy for name, row in rows.items() if name in means} == means
    assert next(iter(rows)) == "run" and rows["run"].accuracy is None


def test_wrong_look_requests(service: Service, photos: dict[str, bytes]) -> None:
    content = photos["wide"]
    requests = [
        look(content, "nobody"),
        look(content, "run", map="cls"),
        look(content, "gap", map="pool"),
    ]
    errors = [error(service, request, content) for request in requests]
    assert [error.status_code for error in errors] == [404, 400, 400]
    assert "'nobody'" in errors[0].detail and "cls" in errors[1].detail


QUESTIONS: list[dict[str, Any]] = [
    {"text": ("bird",)},
    {"text": ("bird^2", "boat"), "without": ("sketch",)},
    {"entry": 3},
    {"photo": True},
    {"entry": 3, "text": ("sketch",)},
    {"photo": True, "text": ("sketch",), "weight": 0.7},
    {"entry": 5, "text": ("bird",), "method": "sum", "top": 5},
    {"text": ("bird",), "domain": ("sketch",)},
    {"entry": 5, "text": ("bird",), "method": "freedom"},
]


Ranking = list[tuple[str, float]]  # file names with their scores, the best first


def assert_same_ranking(ranking: Ranking, expected: Ranking) -> None:
    """Equal scores up to rounding, at every rank and for every image; ties may change places."""
    scores, expected_scores = ([score for _, score in both] for both in (ranking, expected))
    assert scores == pytest.approx(expected_scores, abs=1e-5)
    by_name = dict(expected)
    for name, score in ranking:
        assert score == pytest.approx(by_name.get(name, expected_scores[-1]), abs=1e-5), name


@pytest.mark.parametrize(
    "options", QUESTIONS, ids=lambda options: " ".join(f"{k}={v}" for k, v in options.items())
)
def test_a_search_is_what_the_command_finds(
    service: Service,
    demo: Path,
    photos: dict[str, bytes],
    tmp_path: Path,
    options: dict[str, Any],
) -> None:
    content, images = photos["wide"], ()
    if "photo" in options:
        file = tmp_path / "mine.jpg"
        file.write_bytes(content)
        options, images = options | {"photo": file_digest(content)}, (file,)
    request = search(**{"top": 12, **options})
    if request.entry is not None:
        (entry,) = service.index.store.entries(torch.tensor([request.entry]))
        images = (Path(entry.path),)
    reply = answer(service, request, content)
    response = SearchResponse.model_validate_json(reply)
    spec = choose_method(request.method, request.weight)
    question = SearchRequest(
        images,
        request.text,
        request.without,
        spec.method,
        request.top,
        filter=Filter(domains=request.domain),
        options=spec.options,
    )
    expected = Searcher.open(str(demo / "index")).ask(question)
    assert_same_ranking(
        [(result.name, result.score) for result in response.results],
        [(Path(result.entry.path).name, result.score) for result in expected.results],
    )
    matches = {tuple((m.field, m.text) for m in result.matches) for result in response.results}
    assert matches == {result.matches for result in expected.results}
    assert any(matches) == ("matches" in expected.why)
    values = (response.method, response.relevant, response.searched, response.exact)
    assert values == expected[1:5]
    assert str(demo) not in reply.decode(), "paths of the server are not sent"


def test_the_map_is_of_principal_components(service: Service) -> None:
    answer_map = json.loads(answer(service, MapRequest()))
    store = service.index.store
    vectors = store.vectors(store.rows).double().numpy()
    centred = vectors - vectors.mean(0)
    _, lengths, axes = np.linalg.svd(centred, full_matrices=False)
    assert answer_map["entries"] == store.rows.tolist() and answer_map["images"] == len(store)
    for name, axis in (("x", axes[0]), ("y", axes[1])):
        values = centred @ axis
        values = (values - values.min()) / (values.max() - values.min())
        shown = np.array(answer_map[name])
        assert min(abs(shown - values).max(), abs(shown - (1 - values)).max()) < 1e-3
    share = (lengths[:2] ** 2).sum() / (lengths**2).sum()
    assert answer_map["variance"] == pytest.approx(share, abs=1e-3)
    labels = [entry.label for entry in store.entries(store.rows)]
    assert [answer_map["classes"][i] for i in answer_map["labels"]] == labels


def test_a_region_of_the_map_filters(service: Service) -> None:
    shown = service.index.map
    region = ("0,0", "1,0", "0,1")  # the half above a diagonal
    points = zip(shown.entries, shown.x, shown.y, strict=True)
    inside = {row for row, x, y in points if x + y <= 1}
    response = json.loads(answer(service, search(text=["bird"], region=region, top=200)))
    assert response["searched"] == len(inside) < len(shown.entries)
    assert {result["entry"] for result in response["results"]} <= inside
    for wrong, message in ((region[:2], "at least 3 points"), (["0,0"] * 3, "choose a larger one")):
        failure = error(service, search(text=["bird"], region=wrong))
        assert failure.status_code == 400 and message in failure.detail


def test_proxies_of_freedom_have_names(
    service: Service, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = SearchRequest((5,), ("bird",), method="freedom", options={"k": 3})
    expected = Searcher.open(str(demo / "index")).ask(question)
    # A page cannot set options of a method.
    monkeypatch.setattr(Searcher, "ask", lambda self, request: expected)
    reply = answer(service, search(entry=5, text=("bird",), method="freedom", top=9))
    proxies = json.loads(reply)["why"]["proxies"]
    assert len(proxies) == 2
    names = [Path(path).name for path in expected.why["proxies"]]
    assert [proxy["name"] for proxy in proxies] == names


def test_a_photograph_that_is_in_the_index_is_found_by_its_digest(
    service: Service, photos: dict[str, bytes]
) -> None:
    def results(request: ImageSearchRequest, content: bytes = b"") -> Any:
        return json.loads(answer(service, request, content))["results"]

    (entry,) = service.index.store.entries(torch.tensor([7]))
    by_digest, by_row = search(photo=entry.digest, top=9), search(entry=7, top=9)
    assert results(by_digest, b"not read") == results(by_digest) == results(by_row)
    assert 7 not in [result["entry"] for result in results(by_row)]
    assert error(service, search(photo="f" * 32), b"not an image").status_code == 400
    assert results(search(photo="f" * 32), photos["small"])


def test_wrong_search_requests(service: Service) -> None:
    for request, status, value in (
        (search(), 400, ""),
        (search(entry=48), 404, ""),
        (search(entry=2**63 - 1), 404, ""),
        (search(text=("^",)), 400, "'^'"),
        (search(text=("a",), method="magic"), 400, "'magic'"),
        (search(text=("a",), method="sum"), 400, "'sum'"),
        (search(text=("a",), method="text:k=9"), 400, ""),
        (search(text=("a",), entry=1, method="freedom:n=9999999"), 400, ""),
        (search(text=("a",), entry=1, method="searle"), 400, "'searle'"),
        (search(text=("a",), entry=1, method="pic2word"), 400, "'pic2word'"),
        (search(text=("a^1e300",)), 400, "'a^1e300'"),
        (PictureRequest(entry=48, side=64), 404, ""),
        (EntryPhotoRequest(entry=2**63 - 1), 404, ""),
    ):
        failure = error(service, request)
        assert failure.status_code == status and value in failure.detail, request


def test_scores_that_json_does_not_have(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    request = search(text=("bird",))
    ask = Searcher.ask

    def nan(self: Searcher, request: SearchRequest) -> Any:
        found = ask(self, request)
        first = found.results[0]._replace(score=float("nan"))
        return found._replace(results=[first, *found.results[1:]])

    monkeypatch.setattr(Searcher, "ask", nan)
    failure = error(service, request)
    assert failure.status_code == 400 and "NaN" in failure.detail


def test_accuracy_is_of_the_seed_that_is_served(demo: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tournament"
    shutil.copytree(demo / "tournament", folder)
    report = json.loads((folder / "results.json").read_text())
    for row in report["standings"]:
        row["accuracy"], row["mean"] = [11.0, 33.0], 22.0
    (folder / "results.json").write_text(json.dumps(report))
    models = ServedModels(Sources(tournaments=[folder]))
    assert {row.accuracy for row in models.rows} == {11.0}


def test_a_worker_opens_candidates_that_were_trained_since(
    demo: Path, tmp_path: Path, photos: dict[str, bytes]
) -> None:
    """Without being asked for its contents: another worker may have listed the models."""
    folder = tmp_path / "tournament"
    shutil.copytree(demo / "tournament", folder)
    names = ("results.json", "config.json", "model.safetensors", "seed-0")
    for name in names:
        (folder / name).rename(tmp_path / name)
    service = Service(Sources(tournaments=[folder]))
    request, content = look(photos["wide"], "gap"), photos["wide"]
    assert error(service, request, content).status_code == 404
    for name in names:
        (tmp_path / name).rename(folder / name)
    assert json.loads(answer(service, request, content))["model"] == "gap"
    shutil.rmtree(folder)
    assert json.loads(answer(service, request, content))["model"] == "gap"


@pytest.mark.parametrize("threshold_file", ["other maps", "other model", "damaged"])
def test_no_path_of_a_model_is_sent(
    demo: Path, tmp_path: Path, photos: dict[str, bytes], threshold_file: str
) -> None:
    """Neither the source of a threshold nor an error contains more than names of files."""
    run = tmp_path / "run"
    shutil.copytree(demo / "run", run)
    threshold = {
        "threshold": 0.2,
        "kind": "cam",
        "size": 64,
        "model": model_digest(run) if threshold_file == "other maps" else "x",
        "chosen_on": {"data": str(tmp_path / "secret" / "cats"), "split": "val", "images": 30},
    }
    text = "{" if threshold_file == "damaged" else json.dumps(threshold)
    (run / "localization.json").write_text(text)
    service = Service(Sources(models=[run]))
    for kind in ("pool", "cam"):
        try:
            message = answer(service, look(photos["wide"], map=kind), photos["wide"]).decode()
        except HTTPException as failure:
            message = failure.detail
        assert str(tmp_path) not in message
        assert "localization.json" in message or re.search(r"\bcats\b.*\bval\b", message)


def test_no_path_of_the_index_is_sent(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(Sources(index=str(demo / "index")))

    def refuse(*_: Any) -> None:
        raise ValueError(f"{demo / 'index'} does not fit '{demo / 'clip'}'")

    monkeypatch.setattr("cenote.web.service.Searcher.ask", refuse)
    assert error(service, search(text=("a",))).detail == "index does not fit 'clip'"


def test_pictures_of_the_index_and_of_removed_files(service: Service, demo: Path) -> None:
    reply = answer(service, PictureRequest(entry=2, side=32))
    with Image.open(BytesIO(reply)) as image:
        assert image.format == "JPEG" and image.size == (32, 32)
    (entry,) = service.index.store.entries(torch.tensor([2]))
    path = Path(entry.path)
    photo = answer(service, EntryPhotoRequest(entry=2))
    assert isinstance(photo, Photo) and photo.digest == entry.digest, "a search with it finds it"
    assert photo.content == path.read_bytes(), "models get the file"
    path.rename(path.with_suffix(".gone"))
    try:
        assert error(service, EntryPhotoRequest(entry=2)).status_code == 410
        failure = error(service, PictureRequest(entry=2, side=33))
        assert failure.status_code == 410 and str(demo) not in failure.detail
        Image.new("RGB", (40, 30)).save(path)
        photo = answer(service, EntryPhotoRequest(entry=2))
        assert photo.digest == digest_of(path.read_bytes()).hex() != entry.digest
    finally:
        path.with_suffix(".gone").rename(path)


def test_contents_and_examples(service: Service, demo: Path) -> None:
    contents, examples = service.startup()
    assert 2 <= len(examples) <= 8
    indexed = [bool(service.index.store.rows_with_digest(digest)) for digest in examples]
    assert indexed == [False, False, *[True] * (len(examples) - 2)], "photographs, then test images"
    for photo in examples.values():
        with Image.open(BytesIO(photo.content)) as image:
            assert image.size == (photo.width, photo.height)
    index = contents.index
    assert index is not None and index.images == 48
    assert index.domains == ["photo", "sketch"] and len(set(index.entries)) == 24
    methods = {method.name for method in index.methods}
    assert methods >= {"weicom", "freedom"}
    assert not methods & {"searle", "pic2word"}, "they take minutes"
    report = json.loads((demo / "tournament" / "results.json").read_text())
    first_seed = {row["name"]: row["accuracy"][0] for row in report["standings"]}
    accuracy = {model.id: model.accuracy for model in contents.models}
    assert {name: accuracy[name] for name in first_seed} == first_seed
    assert answer(service, ContentsRequest()) == contents


def test_examples_without_any_data() -> None:
    photos = example_photos(None, None)
    assert [photo.name for photo in photos.values()] == ["coffee", "cat"]


def test_examples_are_the_files(service: Service, demo: Path) -> None:
    """Of a data set and of an index; a file that is too large for the worker is made smaller."""
    contents = [path.read_bytes() for path in (demo / "world").rglob("*.png")]
    files = {digest_of(content).hex(): content for content in contents}
    for world in (demo / "world", None):
        examples = list(example_photos(world, service.index).items())
        for digest, photo in examples[2:]:
            assert photo.content == files[digest] and photo.shown[:2] == b"\xff\xd8"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web_photos, "MAX_FILE_BYTES", 10)
        photo = encode_photo(Image.new("RGB", (3200, 100)), b"x" * 11, "d")
    assert photo.content == photo.shown and (photo.width, photo.height) == (1600, 50)


def test_milvus_is_an_index_too(demo: Path, tmp_path: Path) -> None:
    """Its row numbers are too large for JavaScript: they are sent as strings."""
    pytest.importorskip("milvus_lite", reason="needs milvus-lite")
    address, model = str(tmp_path / "ix.db"), str(demo / "clip")
    command = ["index", str(demo / "world"), "-o", address, "--model", model, "--quiet"]
    assert main(command) == 0
    milvus, local = (Service(Sources(index=where)) for where in (address, str(demo / "index")))
    info, expected = milvus.index.info(), local.index.info()
    for name in ("images", "classes", "domains", "suggestions", "model", "methods"):
        assert getattr(info, name) == getattr(expected, name)
    # One row in a thousand is a small number by chance.
    assert all(isinstance(entry, str) is (int(entry) >= SAFE_INTEGER) for entry in info.entries)
    assert any(isinstance(entry, str) for entry in info.entries)
    assert len(milvus.index.map.entries) == info.images
    assert not answer(milvus, SavedSearchesRequest()).can_save
    assert (
        error(milvus, SavedSearchesRequest(save="a", query=search(text=("a",)))).status_code == 400
    )
    request = search(text=("bird",), domain=("sketch",), top=9)
    remote, expected_results = (
        json.loads(answer(service, request))["results"] for service in (milvus, local)
    )
    assert_same_ranking(
        *([(row["name"], row["score"]) for row in rows] for rows in (remote, expected_results))
    )
    entries = {row["name"]: int(row["entry"]) for row in expected_results}
    row = next(row for row in remote if row["name"] in entries)
    picture = answer(milvus, PictureRequest(entry=int(row["entry"]), side=32))
    assert picture == answer(local, PictureRequest(entry=entries[row["name"]], side=32))
    assert error(milvus, PictureRequest(entry=12, side=32)).status_code == 404


def test_examples_saved_searches_and_a_table(demo: Path, tmp_path: Path) -> None:
    """Of a copy of the index: a saved search is written beside it."""
    of_others = shutil.ignore_patterns("searches.json")  # saved by other tests
    shutil.copytree(demo / "index", tmp_path / "index", ignore=of_others)
    service = Service(Sources(index=str(tmp_path / "index")))
    request = search(text=("bird",), like=(3, 4), unlike=(5,), top=9)
    response = json.loads(answer(service, request))
    assert response["why"]["examples"] == {"like": 2, "unlike": 1}
    assert not {3, 4, 5} & {row["entry"] for row in response["results"]}
    assert error(service, search(like=(48,))).status_code == 404
    assert error(service, search(unlike=(4,))).status_code == 400

    table = answer(service, SearchTableRequest(text=("bird",), like=(3, 4), unlike=(5,), top=9))
    rows = list(csv.DictReader(table.decode().splitlines()))
    assert [row["name"] for row in rows] == [row["name"] for row in response["results"]]
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(1, 10)]

    full = search(
        entry=7,
        text=("cat",),
        without=("dog",),
        weight=0.3,
        classes=("bird",),
        like=(3,),
        region=("0,0", "1,0.0001", "0.5,1"),
    )
    for name, query in (("birds", request), ("all", full)):
        answer(service, SavedSearchesRequest(save=name, query=query))
    saved = answer(service, SavedSearchesRequest())
    assert saved.can_save and [entry.name for entry in saved.searches] == ["birds", "all"]
    for entry, query in zip(saved.searches, (request, full), strict=True):
        parameters = {
            name: value for name, value in entry.query.items() if value not in (None, [], ())
        }
        if "entry" in parameters:
            (parameters["entry"],) = parameters["entry"]
        assert ImageSearchRequest(**parameters, top=query.top) == query
    store = service.index.store
    SavedSearches(store).save("by date", SearchRequest(texts=("a",), sort="date"))
    SavedSearches(store).save("file", SearchRequest(images=(str(demo / "vit.safetensors"),)))
    SavedSearches(store).save("two", SearchRequest(texts=("a", "b")))
    corners = SearchRequest(texts=("a",), region=((0.0, 0.0),) * (MAX_CORNERS + 1))
    SavedSearches(store).save("corners", corners)
    answer(service, SavedSearchesRequest(delete="birds"))
    queries = {
        entry.name: entry.query for entry in answer(service, SavedSearchesRequest()).searches
    }
    assert queries.pop("all")
    assert queries == {"by date": None, "file": None, "two": None, "corners": None}
    upload = SavedSearchesRequest(save="upload", query=search(photo="f" * 32))
    assert error(service, upload, b"a photograph").status_code == 400


def test_a_blocked_list_of_searches(demo: Path, tmp_path: Path) -> None:
    other_tests = shutil.ignore_patterns("searches.*")  # save searches in this index
    shutil.copytree(demo / "index", tmp_path / "index", ignore=other_tests)
    service = Service(Sources(index=str(tmp_path / "index")))
    (tmp_path / "index" / "searches.json").mkdir()  # cannot be replaced by a file
    failure = error(service, SavedSearchesRequest(save="a", query=search(text=("a",))))
    assert failure.status_code == 400 and "searches.json" in failure.detail
    assert str(tmp_path) not in failure.detail
