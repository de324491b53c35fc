"""Pictures of telephones and cameras: HEIC and RAW, with the extra `photos`, and a sentence without it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import BadImage, find_images, read_image


def dng(path: Path, orientation: int = 1) -> None:
    """160 x 120, all red."""
    tifffile = pytest.importorskip("tifffile", reason="needs: pip install tifffile")
    bayer = np.full((120, 160), 2000, np.uint16)
    bayer[::2, ::2] = 40000
    one, none = (1, 1), (0, 1)
    matrix = (*one, *none, *none, *none, *one, *none, *none, *none, *one)
    tags = [
        (33421, "H", 2, (2, 2), True),
        (33422, "B", 4, bytes([0, 1, 1, 2]), True),
    ]  # the pattern of colours
    tags += [
        (50706, "B", 4, bytes([1, 4, 0, 0]), True),
        (50708, "s", 0, "none", True),
        (50717, "I", 1, 65535, True),
    ]
    tags += [
        (50721, "2i", 9, matrix, True),
        (50728, "2I", 3, (1,) * 6, True),
        (274, "H", 1, orientation, True),
    ]
    tifffile.imwrite(path, bayer, photometric=32803, extratags=tags, metadata=None)


def test_raw(tmp_path: Path) -> None:
    pytest.importorskip("rawpy", reason="needs: pip install 'cenote[photos]'")
    for name, orientation, size in (("a.dng", 1, (160, 120)), ("turned.DNG", 6, (120, 160))):
        dng(tmp_path / name, orientation)
        image = read_image(tmp_path / name)
        red, green, blue = np.asarray(image, float).mean((0, 1))
        assert image.mode == "RGB" and image.size == size and red > 200 > 100 > max(green, blue)
    assert len(find_images([tmp_path])) == 2
    with pytest.raises(BadImage, match=r"a\.dng.*160 x 120"):
        read_image(tmp_path / "a.dng", max_pixels=1000)
    (tmp_path / "b.nef").write_bytes(b"no raw" * 99)
    with pytest.raises(BadImage, match=r"b\.nef"):
        read_image(tmp_path / "b.nef")


def test_heic(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif", reason="needs: pip install 'cenote[photos]'")
    heif.register_heif_opener()
    Image.new("RGB", (64, 40), (200, 30, 30)).save(tmp_path / "a.heic")
    image = read_image(tmp_path / "a.heic")
    assert image.size == (64, 40) and abs(image.getpixel((30, 20))[0] - 200) < 12
    assert find_images([tmp_path]) == [tmp_path / "a.heic"]


WITHOUT_THE_EXTRA = """
import sys
sys.modules["rawpy"] = sys.modules["pillow_heif"] = None  # as if they were not installed
from cenote.data import BadImage, read_image
for path in sys.argv[1:]:
    try:
        read_image(path)
    except BadImage as error:
        print(error)
"""


def test_without_the_extra(tmp_path: Path) -> None:
    """In a process of its own: formats are registered once."""
    paths = [str(tmp_path / "a.dng"), str(tmp_path / "a.heic")]
    for path in paths:
        Path(path).write_bytes(b"anything")
    command = [sys.executable, "-c", WITHOUT_THE_EXTRA, *paths]
    messages = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120
    ).stdout.splitlines()
    for path, message in zip(paths, messages, strict=True):
        assert path in message and "cenote[photos]" in message
