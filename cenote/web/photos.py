"""Photographs that were uploaded, in memory alone: the least recently used make room."""

from __future__ import annotations

from io import BytesIO

from PIL import Image

from .questions import Photo
from .remembered import Remembered

ROOM = 256 << 20  # bytes of all photographs
LONGEST = 1600  # pixels of the longer side


class Photos:
    """By the digest of the file that was uploaded: the same photograph has the same address."""

    def __init__(self, room: int = ROOM) -> None:
        self.kept: Remembered[str, Photo] = Remembered(room, lambda photo: len(photo.content))
        self.examples: dict[str, Photo] = {}  # which stay

    def __contains__(self, digest: str) -> bool:
        return digest in self.examples or digest in self.kept

    def get(self, digest: str) -> Photo | None:
        return self.examples.get(digest) or self.kept.get(digest)

    def put(self, digest: str, photo: Photo) -> None:
        if digest not in self.examples:
            self.kept.put(digest, photo)


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
