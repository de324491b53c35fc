"""`cenote index` and `cenote search` on real photographs, from first run to bad input, by a model without downloads."""

import csv
import functools
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageOps

from cenote.cli import main
from cenote.models import create_model, image_text
from cenote.models.image_text.small_clip import SmallClip, save_image_text
from cenote.models.image_text.text_encoder import TextTower, Words
from cenote.search.local_store import LocalStore
from cenote.search.map import draw_map
from cenote.search.query import SearchRequest
from cenote.search.saved import SavedSearches

ROOT = Path(__file__).parents[2]
CONTENTS = {
    "chelsea.png": "cat", "coffee.png": "cup of coffee", "rocket.jpg": "rocket", "motorcycle_left.png": "motorcycle",
    "clock_motion.png": "clock", "page.png": "book",
}  # fmt: skip


def skimage_photograph(name: str) -> Image.Image:
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        pytest.skip("the photographs are scikit-image's: install scikit-image")
    return Image.open(Path(spec.origin).parent / "data" / name).convert("RGB")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos") / "photos"
    for name in CONTENTS:
        path = folder / ("animals" if "chelsea" in name else "things") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        skimage_photograph(name).save(path)
    skimage_photograph("chelsea.png").resize((200, 133)).save(folder / "animals" / "small.jpg")
    (folder / "things" / "broken.jpg").write_bytes(b"\xff\xd8 no more of it")
    (folder.parent / "words.txt").write_text(
        "\n".join(["cat", "dog", "rocket", "cup", "coffee", "bicycle", "wheel", "tower"])
    )
    return folder


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for all tests of this file; each model is created once, as that takes longer than all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            image_text, "create_image_text", functools.cache(image_text.create_image_text)
        )
        patch.setenv("CENOTE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def index(photos: Path) -> Path:
    out = photos.parent / "ix"
    argv = ["index", str(photos), "-o", str(out), "--words", str(photos.parent / "words.txt")]
    assert main(argv) == 1  # one image is broken
    return out


def search(index: Path, *argv: str | Path) -> int:
    return main(["search", str(index), *map(str, argv)])


def found(
    capfd: pytest.CaptureFixture[str], index: Path, *argv: str | Path
) -> list[dict[str, object]]:
    capfd.readouterr()
    assert search(index, *argv, "--json") == 0
    captured = capfd.readouterr()
    assert not captured.err
    rows: list[dict[str, object]] = json.loads(captured.out)
    return rows


def names(rows: list[dict[str, object]]) -> list[str]:
    return [Path(str(row["path"])).name for row in rows]


def numbers(text: str, index: Path) -> list[str]:
    """The numbers in a text, without those in the name of the index."""
    return re.findall(r"\b\d+\b", text.replace(str(index), ""))


def test_words_of_names_count_and_are_shown(
    index: Path, photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = ("--text", "animals", "--top", "3", "--near-duplicates", "show")
    rows = found(capfd, index, *text)
    assert [row["class"] for row in rows] == ["animals", "animals", "things"]
    assert rows[0]["matches"] == [{"field": "class", "text": "animals"}] and not rows[2]["matches"]
    assert search(index, *text, "--why") == 0
    output = capfd.readouterr().out
    assert output.count("class: animals") == 2 and output.count("similarity ") == 3
    assert "matches: class 2" in output
    visual = found(capfd, index, *text, "--visual-only")
    assert not any(row["matches"] for row in visual)
    cosines = {row["path"]: row["visual"] for row in visual}
    shared = [row for row in rows if row["path"] in cosines]
    assert shared and all(row["visual"] == cosines[row["path"]] for row in shared)
    assert search(index, *text, "--visual-only") == 0
    assert "similarity" not in capfd.readouterr().out


def test_a_text_finds_its_photograph(
    index: Path, photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = found(capfd, index, "--text", "cat", "--top", "3")
    best = rows[0]
    assert names(rows)[0] in ("chelsea.png", "small.jpg") and best["class"] == "animals"
    assert best["duplicates"] and len(best["duplicates"]) == 1  # type: ignore[arg-type]
    assert (
        0 < float(str(best["score"])) <= 1
        and best["missing"] is False
        and best["width"] in (451, 200)
    )
    for name in ("rocket.jpg", "motorcycle_left.png"):
        assert names(found(capfd, index, "--text", CONTENTS[name], "--top", "1")) == [name]


def test_more_like_this_and_by_both(
    index: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.png"
    ImageOps.mirror(skimage_photograph("rocket.jpg")).save(mine)
    assert names(found(capfd, index, "--image", mine, "--top", "1")) == ["rocket.jpg"]
    rows = found(
        capfd,
        index,
        "--image",
        mine,
        "--text",
        "tower",
        "--method",
        "freedom:k=20",
        "--why",
        "--near-duplicates",
        "show",
    )
    why = rows[0]["why"]
    assert (
        isinstance(why, dict)
        and why["method"] == "freedom"
        and why["words"][0]["word"]
        and len(why["proxies"]) == 7
    )
    rows = found(
        capfd,
        index,
        "--image",
        mine,
        "--text",
        "cat",
        "--weight",
        "0.9",
        "--why",
        "--class",
        "animals",
        "--top",
        "1",
    )
    assert rows[0]["why"]["method"] == "weicom" and rows[0]["class"] == "animals"  # type: ignore[index]


def test_options_and_words_of_a_method(
    index: Path, photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch

    from cenote.search.methods import find_method
    from cenote.search.query import Searcher, SearchRequest

    mine = photos / "things" / "rocket.jpg"
    rows = found(
        capfd, index, "--image", mine, "--text", "tower", "--method", "freedom:k=3:m=2", "--why"
    )
    why = rows[0]["why"]
    assert isinstance(why, dict) and (
        why["k"],
        why["m"],
        len(why["words"]),
        len(why["proxies"]),
    ) == (3, 2, 2, 2)
    for method, texts, without, wanted in (
        ("searle", ("a",), (), True), ("freedom-e", ("a",), (), True), ("auto", ("a",), (), True),
        ("auto", (), ("a",), False), ("weicom", ("a",), (), False),
    ):  # fmt: skip
        request = SearchRequest((mine,), texts, without, method)
        assert find_method(request.resolve_method(has_words=True)).words is wanted, method
    searcher = Searcher.open(str(index), exact=True)
    assert searcher.ask(SearchRequest((mine,), ("a",))).method == "freedom"
    assert searcher.words.words and searcher.store.words(torch.tensor([0])) is not None


def test_a_table_and_a_sheet(
    index: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("found.jpg", "found.png"):
        sheet = tmp_path / name
        argv = (
            "--image",
            photos / "things" / "coffee.png",
            "--text",
            "cup^2",
            "--not",
            "dog",
            "--sheet",
            sheet,
        )
        assert search(index, *argv, "--why", "--cut", "-1", "--sort", "name") == 0
        text = capfd.readouterr().out
        assert "freedom" in text and str(sheet) in text
        assert "coffee.png" not in text.split("\n")[0]  # the query is not in its own results
        assert Image.open(sheet).width >= 1000 and sorted(os.listdir(tmp_path))[-1] == name
    assert search(index, "--text", "cat", "--folder", tmp_path) == 0  # nothing passes this filter
    assert not re.search(r"\.(png|jpg)", capfd.readouterr().out)


def test_a_part_of_an_image_is_found_by_its_cells(
    index: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    crop, box = tmp_path / "part.png", (130, 60, 330, 210)  # the face of chelsea.png, 451 x 300
    Image.open(photos / "animals" / "chelsea.png").crop(box).save(crop)
    local = tmp_path / "ix"
    assert main(["index", str(photos), "-o", str(local), "--local", "16", "--words", "none"]) == 1
    best, *_ = found(capfd, local, "--image", crop, "--rerank", "maxsim")
    assert Path(str(best["path"])).stem in ("chelsea", "small")  # the same photograph
    cells: list[dict[str, list[int]]] = best["cells"]  # type: ignore[assignment]
    assert len(cells) == 16 and float(str(best["score"])) < 1
    width, height = int(str(best["width"])), int(str(best["height"]))
    for match in cells:
        for x0, y0, x1, y1, w, h in (
            (*match["query"], 200, 150),
            (*match["result"], width, height),
        ):
            assert 0 <= x0 < x1 <= w and 0 <= y0 < y1 <= h
    sheet = tmp_path / "found.png"
    argv = ("--image", crop, "--rerank", "maxsim", "--candidates", "4", "--top", "2")
    assert search(local, *argv, "--why", "--sheet", sheet) == 0
    text = capfd.readouterr().out
    assert "maxsim: candidates 4, cells 16" in text and "cells of 2: 0." in text
    assert Image.open(sheet).width > 600
    assert search(index, "--image", crop, "--rerank", "maxsim") == 2
    assert "stores no local vectors" in capfd.readouterr().err


def test_a_missing_file_is_marked(
    photos: Path, index: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = photos / "things" / "rocket.jpg"
    os.rename(gone, tmp_path / "rocket.jpg")
    try:
        assert search(index, "--text", "rocket", "--top", "1", "--sheet", tmp_path / "s.png") == 0
        assert f"{gone}  things  (" in capfd.readouterr().out
    finally:
        os.rename(tmp_path / "rocket.jpg", gone)


def test_again_and_quiet(photos: Path, index: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert main(["index", str(photos), "-o", str(index)]) == 1
    captured = capfd.readouterr()
    assert numbers(captured.out, index) == ["7", "7", "1"]  # images in the index, unchanged, broken
    first, last = captured.err.splitlines()
    assert f"{photos / 'things' / 'broken.jpg'}: " in first and last.startswith("cenote index: 1 ")
    assert main(["index", str(photos / "animals"), "-o", str(index), "--quiet"]) == 0
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_another_process_is_writing(
    photos: Path, index: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from cenote.search.local_store import LocalStore

    with LocalStore.open(index).writer():
        capfd.readouterr()
        assert main(["index", str(photos / "animals"), "-o", str(index)]) == 1
    error = capfd.readouterr().err
    assert str(index) in error and error.count("\n") == 1


def test_a_killed_run_resumes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """kill -9 while images are embedded, one by one, with a small model: what is in the index stays there."""
    save_clip(tmp_path / "clip")
    photos, out = tmp_path / "photos", tmp_path / "ix"
    photos.mkdir()
    for i in range(60):
        Image.effect_noise((48, 48), 10 + i).convert("RGB").save(photos / f"{i}.png")
    argv = [
        "index",
        str(photos),
        "-o",
        str(out),
        "--model",
        str(tmp_path / "clip"),
        "--words",
        "none",
        "--batch",
        "1",
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-m", "cenote", *argv, "--quiet"], env=env)
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None and rows(out) < 3:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    done = rows(out)
    assert 3 <= done <= 60
    assert main(argv) == 0
    embedded = [str(60 - done)] if done < 60 else []
    assert numbers(capfd.readouterr().out, out) == ["60", *embedded, str(done)]


def save_clip(folder: Path) -> None:
    words = Words.of(("cat", "bird"), context=8)
    tower = TextTower(len(words), 16, 8, width=16, layers=1, heads=2)
    image = create_model("resnet_micro", "gap", 0, embedding_dim=16)
    save_image_text(SmallClip(image, tower, words, things=("cat", "bird")).eval(), folder)


def rows(index: Path) -> int:
    try:
        with sqlite3.connect(f"{(index / 'images.sqlite').as_uri()}?mode=ro", uri=True) as base:
            return int(base.execute("select count(*) from images").fetchone()[0])
    except sqlite3.Error:
        return 0


def test_milvus_lite_by_its_address(
    index: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    address = tmp_path / "photos.db"
    words = ["--words", str(photos.parent / "words.txt")]
    for _ in range(2):  # embedded, unchanged
        assert main(["index", str(photos), "-o", str(address), *words]) == 1
        assert numbers(capfd.readouterr().out, address) == ["7", "7", "1"]
    mine = photos / "things" / "rocket.jpg"
    for argv in (
        ("--text", "cat"),
        ("--image", mine, "--text", "tower"),
        ("--image", mine, "--text", "cat", "--weight", "0.4"),
    ):
        folder, milvus = (
            {row["path"]: row["score"] for row in found(capfd, ix, *argv)}
            for ix in (index, address)
        )
        assert folder == pytest.approx(
            milvus, abs=1e-5
        )  # in an order that may differ where scores do not


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "an empty query finds nothing: give --image, --text or both"),
        (["--text", " "], "an empty text finds nothing"),
        (["--text", "cat", "--method", "freedm"], "no method 'freedm'; did you mean 'freedom'?"),
        (["--text", "cat", "--since", "soon"], "'soon' is not a date"),
        (["--text", "cat", "--max-size", "huge"], "'huge' is not a size"),
        (["--text", "cat", "--sheet", "found.gif"], "the contact sheet must be a .jpg or .png"),
        (
            ["--image", "cat.jpg", "--text", "cat", "--words", "none.txt"],
            "none.txt: give a text file",
        ),
        (["--image", "none.jpg"], "none.jpg: No such file or directory"),
        (["--text", "cat", "--words", "none.txt"], "'text' uses no word list"),
        (["--text", "cat", "--cut", "nan"], "cut must be a number, got nan"),
        (["--text", "cat", "--not", "cat"], "cancel each other: cat, cat"),
        (["--text", "cat^x"], "'cat^x' is not a search term"),
        (["--image", "cat.jpg", "--text", "cat", "--method", "text"], "'text' ignores an image"),
        (
            ["--image", "cat.jpg", "--text", "cat", "--weight", "2"],
            "weicom's weight must be a number of at least 0",
        ),
        (
            ["--image", "cat.jpg", "--text", "cat", "--method", "weicom:weight=abc"],
            "weicom's weight must be a number",
        ),
        (
            ["--image", "cat.jpg", "--text", "cat", "--method", "freedom:k=1.5"],
            "freedom's k must be a whole number",
        ),
        (
            ["--image", "cat.jpg", "--text", "cat", "--method", "basic:subjects=x"],
            "basic's subjects is a file, 'x' does not exist",
        ),
        (
            ["--image", "cat.jpg", "--text", "cat", "--method", "freedom:injected=word"],
            "freedom's injected must be one of class, domain",
        ),
        (["dog"], "'dog': give words with --text"),
        (["--top", "3", "black", "dog", "--exact"], "'black dog': give words with --text"),
        (["--json", "cat.jpg"], "'cat.jpg': give words with --text"),
        (["--visual_only", "--text=black", "cat"], "'cat': give words with --text"),
    ],
)
def test_sentences_of_search(
    index: Path,
    argv: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "cat.jpg").touch()
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    assert search(index, *argv) == 2
    captured = capfd.readouterr()
    assert sentence in captured.err and len(captured.err.splitlines()) == 1 and not captured.out


def test_sentences_of_index(
    index: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def refused(argv: list[str], sentence: str) -> None:
        capfd.readouterr()
        assert main(argv) == 2
        captured = capfd.readouterr()
        assert sentence in captured.err and len(captured.err.splitlines()) == 1, captured.err

    ask = ["--text", "cat"]
    refused(["search", str(tmp_path / "none"), *ask], "none: `cenote index")
    refused(["search", str(photos), *ask], f"`cenote index {photos} -o INDEX` makes")
    refused(
        ["index", str(photos), "-o", str(photos / "animals")],
        "contains other files: name a new folder",
    )
    refused(["index", str(tmp_path / "nowhere"), "-o", str(tmp_path / "new")], "no such file")
    refused(
        ["index", str(photos), "-o", str(tmp_path / "new"), "--model", "text-spce"],
        "did you mean 'text-space'",
    )
    refused(
        ["index", str(photos), "-o", str(tmp_path / "new"), "--words", "none.txt"],
        "none.txt: give a text file",
    )
    assert not (tmp_path / "new").exists()
    refused(["index", str(photos), "-o", str(photos)], "name another folder for the index")
    refused(
        ["index", str(photos / "animals"), "-o", str(photos)], "name another folder for the index"
    )
    unreadable = str(photos / "things" / "broken.jpg")
    refused(["index", unreadable, "-o", str(tmp_path / "new")], "no image can be read")
    assert not (tmp_path / "new").exists()
    for argv, made in (
        (["--words", "none"], "the word list"),
        (["--precision", "float16"], "float32"),
    ):
        refused(["index", str(photos), "-o", str(index), *argv], f"was made with {made}")
    refused(
        ["index", str(photos), "-o", str(tmp_path / "x.db"), "--precision", "float16"],
        "stores float32",
    )
    refused(
        ["evaluate-search", "world/domains", "--methods", "weicom:weight=abc"],
        "weicom's weight must be a number",
    )
    simple = ["evaluate-search", "world/domains", "--methods", "text,weicom"]
    for option in (["--remove-words", "5"], ["--words", "words.txt"]):
        refused([*simple, *option], "--remove-words are options of --methods freedom-word")
    refused([*simple, "--memory", "photos"], "--memory is for --methods freedom:memory=other")
    other = tmp_path / "other"
    shutil.copytree(index, other)
    (other / "index.json").write_text(
        (other / "index.json").read_text().replace("text-space-2/lite0 ", "text-space-2/lite0 0")
    )
    refused(
        ["search", str(other), *ask],
        "was made with the model 'text-space', not with other weights of that name",
    )
    for name, content in (
        ("vectors-0.bin", b"short"),
        ("images.sqlite", b"none" * 999),
        ("index.json", b"[]"),
    ):
        broken = tmp_path / f"broken {name}"
        shutil.copytree(index, broken)
        (broken / name).write_bytes(content)
        refused(["search", str(broken), *ask], "is damaged (")


@pytest.mark.filterwarnings(
    "ignore::FutureWarning"
)  # TorchScript is deprecated; OpenAI's archives still use it
def test_weights_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are named by their absolute path; OpenAI's archives need the activation that they were trained with."""
    pytest.importorskip("open_clip")
    import torch

    from cenote.models.image_text.open_clip import OpenClip, is_script
    from cenote.search.store import absolute_model_name

    monkeypatch.chdir(tmp_path)
    torch.jit.script(torch.nn.Linear(2, 2)).save("script.pt")
    assert (
        absolute_model_name("open_clip/ViT-B-32/script.pt")
        == f"open_clip/ViT-B-32/{tmp_path / 'script.pt'}"
    )
    with pytest.raises(ValueError, match=r"open_clip/ViT-B-32-quickgelu/script\.pt"):
        OpenClip("ViT-B-32", "script.pt")
    torch.save({}, "state.pt")
    assert not is_script("state.pt")


def test_a_sheet_counts_hidden_duplicates() -> None:
    from PIL import ImageDraw

    from cenote.report.retrieval import FOUND_SIDE, score_note
    from cenote.report.sheet import shorten

    assert score_note(0.503, 0) == "0.503"
    draw = ImageDraw.Draw(Image.new("RGB", (9, 9)))
    assert shorten(score_note(-0.503, 1200), FOUND_SIDE / 2, 13, draw) == "-0.503 +1200"


def test_a_saved_region_of_the_map(
    index: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The page saves it."""
    shutil.copytree(index, tmp_path / "ix")
    store = LocalStore.open(tmp_path / "ix")
    map_ = draw_map(store)
    x, y = map_.points[map_.points.sum(1).argmin()].tolist()
    region = ((0.0, 0.0), (x, 0.0), (x, y), (0.0, y))
    cat = str(photos / "animals" / "chelsea.png")
    request = SearchRequest((cat,), near_duplicates="show", region=region)
    SavedSearches(store).save("corner", request)
    rows = torch.tensor(map_.rows_inside(region))
    results = found(capfd, tmp_path / "ix", "--saved", "corner")
    assert {result["path"] for result in results} == {entry.path for entry in store.entries(rows)}
    assert len(results) < len(store)


def test_examples_saved_searches_and_files(
    index: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """--like, --unlike, --save, --saved and -o."""
    own = tmp_path / "ix"
    shutil.copytree(index, own)
    rocket, clock = photos / "things" / "rocket.jpg", photos / "things" / "clock_motion.png"
    mirrored = tmp_path / "mine.png"
    ImageOps.mirror(skimage_photograph("rocket.jpg")).save(mirrored)
    assert names(found(capfd, own, "--like", mirrored, "--top", "1")) == ["rocket.jpg"]
    ask = ["--text", "cat", "--like", rocket, "--unlike", clock]
    rows = found(capfd, own, *ask, "--save", "my cats", "--why")
    assert not {"rocket.jpg", "clock_motion.png"} & set(names(rows))
    assert rows[0]["why"]["examples"] == {"like": 1, "unlike": 1}  # type: ignore[index]
    assert found(capfd, own, "--saved", "my cats", "--why") == rows
    assert found(capfd, own, "--saved", "my cats", "--top", "1", "--why") == rows[:1]
    coffee = found(capfd, own, "--saved", "my cats", "--text", "cup of coffee", "--top", "1")
    assert coffee != [row for row in rows[:1] if row.pop("why")], "another text"
    assert search(own, "--saved", "dogs") == 2
    assert "'dogs'" in (message := capfd.readouterr().err) and "my cats" in message
    table, folder = tmp_path / "found.csv", tmp_path / "found"
    assert search(own, "--saved", "my cats", "--top", "2", "-o", table) == 0
    assert str(table) in capfd.readouterr().out
    with table.open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert [cell["path"] for cell in cells] == [row["path"] for row in rows[:2]]
    assert [cell["rank"] for cell in cells] == ["1", "2"]
    assert cells[0]["class"] == rows[0].get("class", "")
    assert search(own, "--saved", "my cats", "--top", "2", "-o", folder) == 0
    for place, row in enumerate(rows[:2], 1):
        path = Path(str(row["path"]))
        assert (folder / f"{place:02d}_{path.name}").read_bytes() == path.read_bytes()
    capfd.readouterr()
    for out in (folder, table / "below"):
        assert search(own, "--text", "cat", "-o", out) == 2
        assert str(folder.parent) in capfd.readouterr().err
    assert search(own, "--text", "cat", "--like", tmp_path / "none.jpg") == 2
    assert "none.jpg" in capfd.readouterr().err
