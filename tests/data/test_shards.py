"""Tar and Parquet shards: the same images, labels and captions as the files; damage is named."""

import io
import json
import tarfile
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

from cenote.data import BadImage, Dataset, LayoutError, open_dataset
from cenote.data.digests import digest_of, digests
from cenote.data.loading import load
from cenote.data.shards import find_shards

COLOURS = {"a": (255, 0, 0), "b": (0, 255, 0), "c": (0, 0, 255)}


def png(colour: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (6, 4), colour).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def samples(prefix: str = "") -> dict[str, bytes]:
    """Three samples whose class and caption are stored in the three ways of webdataset."""
    return {
        f"{prefix}a.png": png(COLOURS["a"]),
        f"{prefix}a.cls": b"red\n",
        f"{prefix}a.txt": b"a red field",
        f"{prefix}b.json": json.dumps({"label": 7, "caption": "green"}).encode(),
        f"{prefix}b.png": png(COLOURS["b"]),
        f"{prefix}c.png": png(COLOURS["c"]),
    }


def pixels(dataset: Dataset) -> list[tuple[int, ...]]:
    return [tuple(np.asarray(dataset.image(i))[0, 0].tolist()) for i in range(len(dataset))]


def test_tar_shards(tmp_path: Path) -> None:
    for number in range(3):
        write_tar(tmp_path / f"train-{number:03d}.tar", samples(f"s{number}/"))
    (tmp_path / "notes.txt").write_text("not a shard")
    for pattern in ("", "/train-*.tar", "/train-{000..002}.tar"):
        dataset = open_dataset(f"wds:{tmp_path}{pattern}")
        assert len(dataset) == 9 and not dataset.problems
        assert pixels(dataset) == [*COLOURS.values()] * 3
    assert [record.label for record in dataset] == ["red", "7", None] * 3
    assert [record.caption for record in dataset][:3] == ["a red field", "green", None]
    assert dataset[4].image == f"{tmp_path}/train-001.tar/s1/b.png"
    assert len(open_dataset(f"wds:{tmp_path}/train-{{001..002}}.tar")) == 6
    assert digests(dataset.select([1, 5])) == [digest_of(png(COLOURS[name])) for name in "bc"]


def test_samples_of_two_folders_with_the_same_name(tmp_path: Path) -> None:
    one, two = png(COLOURS["a"]), png(COLOURS["b"])
    write_tar(tmp_path / "x.tar", {"u/1.png": one, "v/1.png": two, "v/1.left.cls": b"no class"})
    dataset = open_dataset(f"wds:{tmp_path}/x.tar")
    assert pixels(dataset) == [COLOURS["a"], COLOURS["b"]]
    assert [record.label for record in dataset] == [None, None]


def test_any_file_system(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    with system.open("/shards/x.tar", "wb") as file:
        file.write(write_tar(tmp_path / "x.tar", samples()).read_bytes())
    assert pixels(open_dataset("wds:memory://shards")) == [*COLOURS.values()]


@pytest.mark.parametrize("workers", [0, 2])
def test_parquet_shards(tmp_path: Path, workers: int) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs: pip install 'cenote[parquet]'")
    import pyarrow.parquet as parquet

    contents = [png(colour) for colour in COLOURS.values()]
    for name, images in {
        "bytes": contents,
        "struct": [{"bytes": content, "path": None} for content in contents],
        "paths": ["1.png", "2.png", "3.png"],
    }.items():
        columns = {"image": images, "label": ["x", None, "y"], "text": ["one", "two", None]}
        parquet.write_table(arrow.table(columns), tmp_path / f"{name}.parquet", row_group_size=2)
    for number, content in enumerate(contents, 1):
        (tmp_path / f"{number}.png").write_bytes(content)
    dataset = open_dataset(f"parquet:{tmp_path}")
    assert pixels(dataset) == [*COLOURS.values()] * 3
    assert [record.label for record in dataset] == ["x", None, "y"] * 3
    assert dataset[1].caption == "two" and dataset.classes == ["x", "y"]
    order = [i for batch in load(dataset, np.array, 2, workers) for i in batch.indices.tolist()]
    assert order == list(range(9))


def test_class_names_of_hugging_face(tmp_path: Path) -> None:
    hf = pytest.importorskip("datasets", reason="needs: pip install 'cenote[datasets]'")
    features = {"img": hf.Image(), "label": hf.ClassLabel(names=["zebra", "ant"])}
    images = [Image.new("RGB", (6, 4), colour) for colour in COLOURS.values()]
    table = hf.Dataset.from_dict(
        {"img": images, "label": [1, 0, -1]}, features=hf.Features(features)
    )
    table.to_parquet(str(tmp_path / "hf.parquet"))
    dataset = open_dataset(f"parquet:{tmp_path}/hf.parquet")
    assert [record.label for record in dataset] == ["ant", "zebra", None]
    assert pixels(dataset) == [*COLOURS.values()]


def test_damaged_shards_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "1-whole.tar", samples()).read_bytes()
    (tmp_path / "2-cut.tar").write_bytes(whole[:3000])
    header = whole.index(b"b.json")
    (tmp_path / "3-header.tar").write_bytes(whole[:header] + b"?" * 512 + whole[header + 512 :])
    (tmp_path / "4-empty.tar").write_bytes(b"")
    (tmp_path / "5-text.tar").write_text("this is not a tar file" * 100)
    write_tar(tmp_path / "6-image.tar", {"a.png": b"not an image", "b.png": png(COLOURS["b"])})
    dataset = open_dataset(f"wds:{tmp_path}")
    named = {Path(problem.partition(":")[0]).name for problem in dataset.problems}
    assert named == {"2-cut.tar", "3-header.tar", "4-empty.tar", "5-text.tar"}
    assert len(dataset) == 3 + 1 + 1 + 2  # of 2-cut and 3-header the first image
    with pytest.raises(BadImage, match="6-image"):
        dataset.image(len(dataset) - 2)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="no such file"):
        find_shards(f"wds:{tmp_path}/no-{{0..3}}.tar")
    with pytest.raises(LayoutError, match="cannot be reached"):
        open_dataset("wds:nosuchprotocol://bucket/x.tar")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(LayoutError, match="contains no images"):
        open_dataset(f"parquet:{tmp_path}")


def test_a_missing_shard_of_a_range_is_named(tmp_path: Path) -> None:
    for number in (0, 2):
        write_tar(tmp_path / f"{number}.tar", samples())
    dataset = open_dataset(f"wds:{tmp_path}/{{0..2}}.tar")
    assert len(dataset) == 6
    (problem,) = dataset.problems
    assert f"{tmp_path}/1.tar: " in problem and "No such file" in problem


def test_the_split_is_that_of_the_file_name(tmp_path: Path) -> None:
    splits = {"train-00000-of-00002": "train", "birds_validation-001": "val", "0": None}
    for name in splits:
        write_tar(tmp_path / f"{name}.tar", samples())
    (tmp_path / "test").mkdir()
    write_tar(tmp_path / "test" / "0000.tar", samples())
    records = {
        Path(r.image.rpartition("/")[0]).stem: r.split for r in open_dataset(f"wds:{tmp_path}")
    }
    assert records == splits | {"0000": "test"}
