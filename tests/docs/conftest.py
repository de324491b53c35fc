"""A folder as the documents' reader has it: photographs under the names that the documents use."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.docs.shrinking import MICRO

PHOTOS = ("photos", "photographs", "birds", "captioned", "coco", "pacs", "DATA")
WORDS = ("dog", "cat", "tree", "house", "boat", "sketch", "sepia", "grass")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos with classes, splits, boxes, masks, captions and two domains; products of many classes; a backbone."""
    import torch
    from safetensors.torch import save_file

    from cenote.allocator import keep_memory
    from cenote.backbones import create_backbone
    from cenote.data.synthetic import World, write_world

    keep_memory()
    folder = tmp_path_factory.mktemp("prepared")
    write_world(
        World.preset("tiny", images=42, classes=6, domains=("photo", "sketch")),
        folder / "photos",
        jobs=1,
    )
    write_world(World.preset("tiny", images=48, classes=16), folder / "products", jobs=1)
    write_tar(folder / "shards", folder / "photos" / "images")
    torch.manual_seed(0)
    save_file(create_backbone("resnet_micro").model.state_dict(), folder / MICRO["--weights"])
    return folder


def write_tar(folder: Path, images: Path) -> None:
    """Write the images of a folder of classes to a shard as webdataset has them."""
    folder.mkdir()
    with tarfile.open(folder / "train-000.tar", "w") as tar:
        for path in sorted(images.rglob("*.png")):
            tar.add(path, f"{path.parent.name}-{path.name}")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of the same photographs serve every page."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path: Path, world: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page's commands are typed."""
    import skimage.data
    from PIL import Image

    (tmp_path / MICRO["--weights"]).symlink_to(world / MICRO["--weights"])
    for name in PHOTOS:
        (tmp_path / name).symlink_to(world / "photos", target_is_directory=True)
    (tmp_path / "products").symlink_to(
        world / "products" / "images", target_is_directory=True
    )  # class folders alone
    (tmp_path / "shards").symlink_to(world / "shards", target_is_directory=True)
    cat = Image.fromarray(skimage.data.chelsea()).resize((150, 100))
    for name in ("cat.jpg", "cat.png", "chelsea.png", "coffee.png"):
        cat.save(tmp_path / name)
    for name in ("words.txt", "open_images_v7.csv"):
        (tmp_path / name).write_text("\n".join(WORDS) + "\n")
    monkeypatch.setenv("CENOTE_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    return tmp_path
