"""Near-duplicates are hidden behind the best of them that still exists, as in a double loop."""

from pathlib import Path

import numpy as np
import torch
from PIL import ImageFilter

from cenote.data import read_folders
from cenote.search.index import difference_hash, update_index
from cenote.search.local_store import LocalStore
from cenote.search.query import SearchRequest, ask
from cenote.search.results import results_without_duplicates
from cenote.search.store import ImageEntry, IndexDescription
from cenote.unit import unit
from tests.toy_models import COLOURS, ColourModel, picture

from .test_query import found as names_of


def bits_apart(a: int, b: int) -> int:
    return ((a ^ b) & 0xFFFF_FFFF_FFFF_FFFF).bit_count()


def test_twins_are_hidden_behind_the_best(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    first = picture("red", "square", 5).resize((640, 480))
    first.save(folder / "a.png")
    first.save(folder / "b.jpg", quality=80)
    first.resize((320, 240)).filter(ImageFilter.GaussianBlur(1)).save(folder / "c.jpg")
    (folder / "d.png").write_bytes((folder / "a.png").read_bytes())
    picture("red", "square", 8).save(folder / "other.png")
    index = LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy 1", 6))
    report = update_index(index, read_folders(folder), ColourModel())  # type: ignore[arg-type]
    assert (report.embedded, report.moved) == (4, 1)
    answer = ask(SearchRequest(texts=("red square",)), index, ColourModel())  # type: ignore[arg-type]
    assert len(answer.results) == 2
    groups = sorted(
        sorted(Path(p).name for p in (r.entry.path, *r.duplicates)) for r in answer.results
    )
    assert groups == [["a.png", "b.jpg", "c.jpg", "d.png"], ["other.png"]]
    assert len(names_of(index, texts=("red",), near_duplicates="show")) == 5
    # Whoever asks with an image of the index knows that one already.
    assert [
        r.entry.path for r in ask(SearchRequest((folder / "a.png",)), index, ColourModel()).results
    ] != []  # type: ignore[arg-type]
    names = names_of(index, images=(folder / "a.png",))
    assert not {"photos/a", "photos/d"} & set(names)


def test_twins_are_those_of_a_double_loop(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    kinds = draw.integers(0, 25, 300)
    looks = draw.integers(-(2**63), 2**63 - 1, 25)[kinds] ^ (
        1 << draw.integers(0, 63, (12, 300))
    ).sum(0)
    x = unit(
        torch.from_numpy(
            draw.normal(size=(25, 6))[kinds // 2] + 0.08 * draw.normal(size=(300, 6))
        ).float()
    )
    entries = [
        ImageEntry(f"/{i}.png", f"{i % 290:032x}", look=int(look)) for i, look in enumerate(looks)
    ]
    index = LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy 1", 6))
    with index.writer() as writer:
        writer.put(entries, x)
    index.refresh()
    similarities = x.double() @ x.double().T
    assert (similarities - 0.95).abs().min() > 1e-6  # the limit, which rounding may not cross
    scores = torch.from_numpy(draw.integers(0, 40, 300) / 40)  # many ties
    for top in (1, 7, 400):
        groups: list[tuple[int, list[str]]] = []
        for i in sorted(range(300), key=lambda i: (-float(scores[i]), i)):
            for other, paths in groups:
                near = (
                    bits_apart(entries[i].look, entries[other].look) <= 10
                    and similarities[i, other] >= 0.95
                )
                if near or entries[i].digest == entries[other].digest:
                    paths.append(entries[i].path)
                    break
            else:
                groups.append((i, []))
        found = results_without_duplicates(scores, torch.arange(300), index, top)
        assert [r.entry.path for r in found] == [entries[i].path for i, _ in groups[:top]]
        if top == 400:
            assert [list(r.duplicates) for r in found] == [paths for _, paths in groups]
            assert 50 < len(groups) < 290


def test_a_file_that_is_there_stands_for_one_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    for name in ("a.png", "b.png"):
        picture("red", "square", 1).save(tmp_path / "x" / name)
    index = LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy 1", 6))
    update_index(index, read_folders(tmp_path / "x"), ColourModel())  # type: ignore[arg-type]
    (tmp_path / "x" / "a.png").unlink()
    (result,) = ask(SearchRequest(texts=("red",)), index, ColourModel()).results  # type: ignore[arg-type]
    assert Path(result.entry.path).name == "b.png" and not result.missing
    assert [Path(path).name for path in result.duplicates] == ["a.png"]


def test_looks_survive_scaling_and_tell_pictures_apart() -> None:
    some = [
        picture(colour, "square", seed).resize((300, 200)) for seed, colour in enumerate(COLOURS)
    ]
    looks = [difference_hash(image) for image in some]
    assert all(
        bits_apart(difference_hash(image.resize((150, 100))), look) <= 10
        for image, look in zip(some, looks, strict=True)
    )
    assert min(bits_apart(a, b) for i, a in enumerate(looks) for b in looks[:i]) > 10
    assert bits_apart(-1, 0) == 64 and all(-(2**63) <= look < 2**63 for look in looks)
