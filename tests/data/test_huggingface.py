"""Hugging Face data sets from disk: what their features declare becomes records, pixels are decoded by our rules."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cenote.data import BadImage, Box, LayoutError, open_dataset
from cenote.data.huggingface import read_huggingface

hf = pytest.importorskip("datasets", reason="needs: pip install 'cenote[datasets]'")


def picture(colour: str = "red", mode: str = "RGB") -> Image.Image:
    return Image.new(mode, (12, 8), colour)


def save(
    root: Path, columns: dict[str, Any], features: dict[str, Any], split: str | None = None
) -> Path:
    hf.Dataset.from_dict(columns, features=hf.Features(features), split=split).save_to_disk(
        str(root)
    )
    return root


def two_splits(root: Path) -> Path:
    features = hf.Features(
        {
            "img": hf.Image(),
            "label": hf.ClassLabel(names=["zebra", "ant"]),
            "coarse": hf.ClassLabel(names=["x", "y"]),
        }
    )
    tables = {
        split: hf.Dataset.from_dict(
            {
                "img": [picture(c) for c in colours],
                "label": [0, 1, -1][: len(colours)],
                "coarse": [1] * len(colours),
            },
            features=features,
        )
        for split, colours in (
            ("train", ["red", "lime", "blue"]),
            ("validation", ["black", "white"]),
        )
    }
    hf.DatasetDict(tables).save_to_disk(str(root))
    return root


def test_splits_classes_and_pixels(tmp_path: Path) -> None:
    dataset = open_dataset(f"hf:{two_splits(tmp_path / 'saved')}")
    assert dataset.classes == ["zebra", "ant"] and dataset.splits == {"train": 3, "val": 2}
    assert [r.label for r in dataset] == ["zebra", "ant", None, "zebra", "ant"]
    assert dataset[0].attributes == {"coarse": "y"} and not dataset.problems
    again = pickle.loads(pickle.dumps(dataset))
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0), (255, 255, 255)]
    assert [again.image(i).getpixel((3, 3)) for i in range(5)] == colours
    assert (
        dataset.split("val").image(1).getpixel((0, 0)) == (255, 255, 255)
        and dataset.mask(0) is None
    )


def test_words_as_labels_captions_and_masks(tmp_path: Path) -> None:
    target = np.zeros((8, 12), np.uint8)
    target[2:5, 3:7] = 255
    columns = {
        "image": [picture()] * 2,
        "mask": [Image.fromarray(target)] * 2,
        "label": ["wolf", "bear"],
        "captions": [["a wolf", "it howls"], []],
    }
    features = {"image": hf.Image(), "mask": hf.Image(), "label": hf.Value("string")}
    dataset = read_huggingface(
        str(save(tmp_path / "d", columns, features | {"captions": hf.List(hf.Value("string"))}))
    )
    assert (
        dataset.classes == ["bear", "wolf"]
        and dataset[0].caption == "a wolf\nit howls"
        and dataset[1].caption is None
    )
    found = dataset.mask(0)
    assert found is not None and np.array_equal(found, target > 0)
    assert dataset.splits == {"all": 2}


@pytest.mark.parametrize("form", ["dict of lists", "list of dicts"])
def test_objects(form: str, tmp_path: Path) -> None:
    names = hf.ClassLabel(names=["Coverall", "Mask"])
    box = hf.List(hf.Value("float32"), length=4)
    objects: list[Any] = [
        [{"bbox": [1, 2, 3, 4], "category": 1}, {"bbox": [0, 0, 5, 0], "category": 0}],
        [],
    ]
    kind: Any = hf.List({"bbox": box, "category": names})
    if form == "dict of lists":
        objects = [{key: [o[key] for o in row] for key in ("bbox", "category")} for row in objects]
        kind = {"bbox": hf.List(box), "category": hf.List(names)}
    columns = {"image": [picture()] * 2, "objects": objects}
    dataset = read_huggingface(
        str(save(tmp_path / "d", columns, {"image": hf.Image(), "objects": kind}, "test"))
    )
    assert dataset.classes == ["Coverall", "Mask"] and dataset.splits == {"test": 2}
    assert dataset[0].boxes == (Box(1, 2, 4, 6, "Mask"),) and dataset[1].boxes == ()
    (problem,) = dataset.problems
    assert "test, row 0" in problem and "5 x 0" in problem


def test_images_by_path_and_broken_ones(tmp_path: Path) -> None:
    picture("blue").save(tmp_path / "a.png")
    turned = Image.Exif()
    turned[0x0112] = 6
    stored = io.BytesIO()
    picture().save(stored, "JPEG", exif=turned)
    images: list[Any] = [str(tmp_path / "a.png"), {"bytes": stored.getvalue(), "path": "x.jpg"}]
    images += [{"bytes": b"no image", "path": "y.jpg"}, None]
    columns = {"image": images}
    dataset = read_huggingface(str(save(tmp_path / "d", columns, {"image": hf.Image()}, "train")))
    assert dataset.image(0).getpixel((1, 1)) == (0, 0, 255)
    assert dataset.image(1).size == (8, 12)  # upright
    with pytest.raises(BadImage, match=r"hf:.*, train, row 2, image"):
        dataset.image(2)
    with pytest.raises(BadImage, match="row 3, image"):
        dataset.image(3)


def test_what_is_not_an_image_data_set_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(LayoutError, match=r"hf:.*empty\b.*save_to_disk"):
        read_huggingface(str(empty))
    words = save(tmp_path / "words", {"text": ["a"]}, {"text": hf.Value("string")})
    with pytest.raises(LayoutError, match=r"hf:.*words\b.*Image.*text \(Value\)"):
        read_huggingface(str(words))
    rows = hf.Dataset.from_dict({"image": []}, features=hf.Features({"image": hf.Image()}))
    monkeypatch.setattr(hf, "load_dataset", lambda *_: hf.DatasetDict({"train": rows}))
    with pytest.raises(LayoutError, match="hf:user/name"):
        read_huggingface("user/name")


def test_hub_names_are_passed_on_without_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    table = hf.Dataset.from_dict(
        {"image": [picture()]}, features=hf.Features({"image": hf.Image()})
    )
    calls: list[Any] = []

    def load(*arguments: Any, **settings: Any) -> Any:
        calls.append((arguments, settings))
        return hf.DatasetDict({"train": table})

    monkeypatch.setattr(hf, "load_dataset", load)
    for name in ("mnist", "user/name", "user/name/config"):
        assert len(open_dataset(f"hf:{name}")) == 1
    assert calls == [
        (("mnist", None), {}),
        (("user/name", None), {}),
        (("user/name", "config"), {}),
    ]


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any) -> Any:
        raise ConnectionError("no route\nto the hub")

    monkeypatch.setattr(hf, "load_dataset", load)
    with pytest.raises(LayoutError, match=r"^hf:user/name .* no route to the hub$"):
        read_huggingface("user/name")
