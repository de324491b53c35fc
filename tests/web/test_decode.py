"""Every photograph is shown as an upright JPEG without metadata; other files are refused."""

import re
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from starlette.exceptions import HTTPException

from cenote.web.photos import MAX_SIDE, DecodeRequest
from cenote.web.schemas import Photo


def decode(name: str, content: bytes, max_pixels: int) -> Photo:
    request = DecodeRequest(digest="d", name=name, max_pixels=max_pixels)
    return request.run(None, content)  # type: ignore[arg-type]


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    into = BytesIO()
    image.save(into, kind, **options)
    return into.getvalue()


def rotated() -> bytes:
    image = Image.new("RGB", (60, 40))
    exif = image.getexif()
    exif[274] = 6  # the camera was turned
    return saved(image, "JPEG", exif=exif)


FRAMES = [Image.new("P", (5, 4), i) for i in range(3)]
GOOD = {
    "one pixel": (saved(Image.new("RGB", (1, 1), "red"), "PNG"), (1, 1)),
    "16 bits": (saved(Image.fromarray(np.full((4, 6), 40_000, np.uint16)), "PNG"), (6, 4)),
    "alpha": (saved(Image.new("RGBA", (5, 4), (255, 0, 0, 0)), "PNG"), (5, 4)),
    "CMYK": (saved(Image.new("CMYK", (5, 4)), "JPEG"), (5, 4)),
    "EXIF": (rotated(), (40, 60)),
    "a fraction": (saved(Image.new("RGB", (4000, 3300)), "JPEG"), (4000, 3300)),
    "animated": (saved(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]), (5, 4)),
    "large": (saved(Image.new("L", (3200, 100)), "PNG"), (3200, 100)),
    "a line": (saved(Image.new("L", (4000, 3)), "PNG"), (4000, 3)),
    "WebP": (saved(Image.new("RGB", (5, 4)), "WEBP"), (5, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_photographs_of_every_kind(name: str) -> None:
    content, size = GOOD[name]
    photo = decode("x.jpg", content, 50_000_000)
    assert isinstance(photo, Photo) and (photo.width, photo.height) == size
    assert photo.content == b"", "models see the file itself"
    share = max(size) / min(max(size), MAX_SIDE)
    with Image.open(BytesIO(photo.shown)) as image:
        assert image.format == "JPEG" and image.mode == "RGB" and not image.getexif()
        assert image.size == tuple(max(1, round(side / share)) for side in size)
        if name == "alpha":
            assert min(image.getpixel((1, 1))) > 250  # type: ignore[type-var, arg-type]


JPEG = saved(Image.effect_noise((300, 200), 90), "JPEG")
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
BAD = {
    "truncated": (JPEG[: len(JPEG) // 3], 415), "HTML": (b"<html><script>1</script></html>", 415), "SVG": (SVG, 415),
    "noise": (bytes(range(256)) * 9, 415), "text": (b"hello", 415), "PDF": (b"%PDF-1.4\n%%EOF", 415),
    "bomb": (saved(Image.new("1", (20_000, 20_000)), "PNG"), 413), "EPS": (b"%!PS-Adobe-3.0 EPSF-3.0\n", 415),
    "too large": (saved(Image.new("L", (1001, 1000)), "PNG"), 413),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_files_that_are_not_photographs(name: str) -> None:
    content, status = BAD[name]
    with pytest.raises(HTTPException) as raised:
        decode("photo.jpg", content, 1_000_000)
    assert raised.value.status_code == status and raised.value.detail.startswith("photo.jpg: ")
    if status == 413:
        assert re.search(r"\b1 ", raised.value.detail), (
            "the limit in megapixels is this server's, not Pillow's own"
        )


def test_heic_photographs() -> None:
    heif = pytest.importorskip("pillow_heif", reason="HEIC needs cenote[photos]")
    heif.register_heif_opener()
    photo = decode("photo.heic", saved(Image.new("RGB", (64, 48), "red"), "HEIF"), 1_000_000)
    assert (photo.width, photo.height) == (64, 48)


def test_raw_files_are_stored_as_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A camera's raw data looks like a TIFF, and a photograph's name is not kept."""
    pixels = Image.effect_noise((90, 60), 80).convert("RGB")
    monkeypatch.setattr("cenote.data.read_image", lambda *given: pixels.copy())
    photo = decode("photo.DNG", b"raw", 1_000_000)
    with Image.open(BytesIO(photo.content)) as image:
        assert image.format == "PNG" and (np.asarray(image) == np.asarray(pixels)).all()
