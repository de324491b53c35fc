"""One string names any data: a folder, a list, a published set, or the world."""

from __future__ import annotations

from pathlib import Path

from .dataset import Dataset
from .folders import read_folders
from .lists import SUFFIXES, read_list
from .trees import WrongTree

# Lists that a folder may keep beside its images; metadata is Hugging Face's name for them.
LISTS = tuple(
    f"{stem}.{suffix}"
    for stem in ("annotations", "metadata")
    for suffix in ("csv", "tsv", "jsonl", "json")
)


def open_dataset(data: str | Path, split: str | None = None) -> Dataset:
    """`DATA` as the commands take it.

    A folder (class folders, or one with annotations.csv, VOC's Annotations/, COCO's annotations/), a list (.csv, .tsv,
    .txt, .jsonl, .json), `NAME:FOLDER` for a published set (`cub:birds/CUB_200_2011`), `hf:NAME` for a Hugging Face
    data set, or `world/small` and its siblings.
    """
    dataset = _open(str(data))
    return dataset if split is None else dataset.split(split)


def _open(data: str) -> Dataset:
    name, colon, rest = data.partition(":")
    path = Path(data).expanduser()
    if path.is_dir():
        return _open_folder(path)
    if path.is_file():
        return _open_file(path)
    if data.startswith("world/"):
        from .synthetic import world

        return world(data)
    if name == "hf" and colon:
        from .huggingface import read_huggingface

        return read_huggingface(rest)
    if colon and len(name) > 1:  # one letter is a Windows drive
        from .benchmarks import find_benchmark

        return find_benchmark(name).read(Path(rest).expanduser())
    raise WrongTree(
        f"{data} is not there: give a folder, a list, NAME:FOLDER, hf:NAME or world/small"
    )


def _open_folder(path: Path) -> Dataset:
    found = next((path / name for name in LISTS if (path / name).is_file()), None)
    if found is not None:
        return _open_file(found)
    instances = sorted((path / "annotations").glob("instances_*.json"))
    if instances:
        from .coco import Part, read_parts

        return read_parts([Part(file) for file in instances], path.resolve().name)
    if (path / "Annotations").is_dir():
        from .voc import read_voc

        return read_voc(path)
    if (path / "world.json").is_file():
        raise WrongTree(
            f"{path} is an unfinished world: run `cenote world {path}` again with its settings"
        )
    return read_folders(path)


def _open_file(path: Path) -> Dataset:
    if path.suffix.lower() not in SUFFIXES:
        raise WrongTree(
            f"{path} is no list of images: expected one of {', '.join(SUFFIXES)}, or a folder"
        )
    if path.suffix.lower() == ".json" and _is_coco(path):
        from .coco import read_coco

        return read_coco(path)
    return read_list(path)


def _is_coco(path: Path) -> bool:
    """By its first character: COCO's file is an object, a list of images is an array."""
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.read(4096).lstrip()[:1] == "{"
