"""Photographs that were uploaded, in memory alone: the least recently used make room."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from PIL import Image

from .questions import Photo
from .remembered import Remembered

ROOM = 256 << 20  # bytes of all photographs
LARGEST = 20_000_000  # bytes of one that was not uploaded: it goes to the worker when it is first asked about
LONGEST = 1600  # pixels of the longer side of what is shown


class Photos:
    """By the digest of the file that was uploaded: the same photograph has the same address."""

    def __init__(self, room: int = ROOM) -> None:
        self.kept: Remembered[str, Photo] = Remembered(
            room, lambda photo: len(photo.content) + len(photo.shown)
        )
        self.examples: dict[str, Photo] = {}  # which stay

    def __contains__(self, digest: str) -> bool:
        return digest in self.examples or digest in self.kept

    def get(self, digest: str) -> Photo | None:
        return self.examples.get(digest) or self.kept.get(digest)

    def put(self, digest: str, photo: Photo) -> None:
        if digest not in self.examples:
            self.kept.put(digest, photo)


def file_of(path: Path, is_one: bool = True) -> bytes | None:
    """What is in the file, where that says it all: of a camera's raw data, only the name tells what it is."""
    from ..data.images import RAW  # the server, which only shows, needs no numpy

    return path.read_bytes() if is_one and path.suffix.lower() not in RAW else None


def photo_of(image: Image.Image, content: bytes | None, name: str = "") -> Photo:
    """`content` is the file; without one, the pixels are kept as a PNG. What is too large is seen as it is shown."""
    if content is None:
        into = BytesIO()
        image.save(into, "PNG", compress_level=1)
        content = into.getvalue()
    width, height = image.size
    image.thumbnail((LONGEST, LONGEST))
    shown = encode(image, 92)
    if len(content) > LARGEST:
        return Photo(shown, *image.size, name, shown)
    return Photo(content, width, height, name, shown)


def smaller(content: bytes, side: int) -> bytes:
    """Our own JPEG with its longer side at most so many pixels."""
    with Image.open(BytesIO(content), formats=["JPEG"]) as image:
        if max(image.size) <= side:
            return content
        image.draft("RGB", (side, side))
        image.thumbnail((side, side))
        return encode(image)


def encode(image: Image.Image, quality: int = 88) -> bytes:
    """A picture as a JPEG, without anything that the file knew of camera and place."""
    bare = Image.new("RGB", image.size)
    bare.paste(image)
    into = BytesIO()
    bare.save(into, "JPEG", quality=quality)
    return into.getvalue()
