"""Photographs in memory, and the JPEGs of them that are shown."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from cachetools import LRUCache
from PIL import Image
from starlette.exceptions import HTTPException

from .schemas import PhotoInfo

STORE_BYTES = 256 << 20  # of all uploaded photographs
MAX_FILE_BYTES = 20_000_000  # of a photograph that was not uploaded
MAX_SIDE = 1600  # pixels of the longer side of what is shown


class Photo(NamedTuple):
    """A photograph in memory.

    Models get the file. Clients never do, because it may contain where the photograph was taken.
    """

    digest: str  # of the file
    content: bytes  # the file; empty in the worker's answer to an upload, where the server has it
    width: int  # after the EXIF rotation
    height: int
    shown: bytes  # a JPEG of at most MAX_SIDE pixels, without metadata
    name: str = ""

    def info(self) -> PhotoInfo:
        return PhotoInfo(photo=self.digest, width=self.width, height=self.height)


class PhotoRequired(HTTPException):
    """The worker does not have a photograph: the server sends the request again with the file."""

    def __init__(self) -> None:
        super().__init__(404, "this photograph is not stored here: upload it again")


class PhotoStore:
    """Uploaded photographs, the least recently used of which are dropped, and the examples."""

    def __init__(self, examples: dict[str, Photo], max_bytes: int = STORE_BYTES) -> None:
        self.examples = examples
        self.uploads: LRUCache[str, Photo] = LRUCache(
            max_bytes, lambda photo: len(photo.content) + len(photo.shown)
        )

    def __contains__(self, digest: str) -> bool:
        return digest in self.examples or digest in self.uploads

    def get(self, digest: str) -> Photo:
        photo = self.examples.get(digest) or self.uploads.get(digest)
        if photo is None:
            message = "this photograph is no longer stored: upload it again, or choose another one"
            raise HTTPException(404, message)
        return photo

    def put(self, photo: Photo) -> None:
        if photo.digest not in self.examples:
            self.uploads[photo.digest] = photo


def read_photo_file(path: Path, is_image_file: bool = True) -> bytes | None:
    """Return the file, or None where its bytes alone do not tell how to decode them (raw files)."""
    from ..data.images import RAW  # imports numpy, which the server does not need

    return path.read_bytes() if is_image_file and path.suffix.lower() not in RAW else None


def encode_photo(image: Image.Image, content: bytes | None, digest: str, name: str = "") -> Photo:
    """Build a photograph from its pixels and its file; without a file the pixels become a PNG.

    Where the file is too large for the worker's pipe, models get the shown JPEG instead.
    """
    if content is None:
        buffer = BytesIO()
        image.save(buffer, "PNG", compress_level=1)
        content = buffer.getvalue()
    width, height = image.size
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    shown = encode_jpeg(image, 92)
    if len(content) > MAX_FILE_BYTES:
        return Photo(digest, shown, *image.size, shown, name)
    return Photo(digest, content, width, height, shown, name)


def shrink_jpeg(content: bytes, side: int) -> bytes:
    """Resize one of our own JPEGs to `side` pixels at most."""
    with Image.open(BytesIO(content), formats=["JPEG"]) as image:
        if max(image.size) <= side:
            return content
        image.draft("RGB", (side, side))
        image.thumbnail((side, side))
        return encode_jpeg(image)


def encode_jpeg(image: Image.Image, quality: int = 88) -> bytes:
    """Encode without the metadata of the file, such as camera and place."""
    bare = Image.new("RGB", image.size)
    bare.paste(image)
    buffer = BytesIO()
    bare.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
