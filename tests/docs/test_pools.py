"""Every method's page has its picture, its equation and its source, and the pictures are small."""

import re

import pytest
from PIL import Image

from cenote.pooling import list_pools
from cenote.pooling.registry import entry
from tests.docs.reading import ROOT

POOLS = ROOT / "docs" / "pools"
EACH, ALL = 25_000, 800_000  # bytes


@pytest.mark.parametrize("name", list_pools())
def test_a_page_has_its_picture_equation_and_source(name: str) -> None:
    text = (POOLS / f"{name}.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    with Image.open(POOLS / picture) as image:
        assert image.width > 5 * image.height  # three pictures, each with its map beside it
    assert (POOLS / picture).stat().st_size <= EACH
    described = text.split("## Its row")[0]
    assert re.search(r"\S [=←∝] \S|\(mean_j|\(1/r\)|log Σ_j", described), "no equation"
    assert entry(name).source in described


def test_the_pictures_are_those_of_the_pools_and_small() -> None:
    pictures = list(POOLS.glob("*.jpg"))
    assert {path.stem for path in pictures} == set(list_pools())
    assert sum(path.stat().st_size for path in pictures) <= ALL
