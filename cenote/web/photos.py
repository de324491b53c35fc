"""Photographs: encoding, and the endpoints POST and GET /api/photos."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from hashlib import blake2b
from io import BytesIO
from pathlib import PurePath
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from PIL import Image
from pydantic import Field
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from .jobs import busy
from .schemas import JPEG, Photo, PhotoInfo, WorkerRequest, WorkerService
from .state import State

MAX_UPLOADS = 8  # that are read at the same time
UPLOAD_SECONDS = 10.0  # for the first bytes; then a slow upload gives up its place
MIN_SPEED = 50_000  # bytes per second of an upload
FORM_BYTES = 64 << 10  # of an upload, around the file: names and separators
MAX_FILE_BYTES = 20_000_000  # of a photograph that was not uploaded
MAX_SIDE = 1600  # pixels of the longer side of what is shown
IMMUTABLE = {"cache-control": "private, max-age=86400, immutable"}
FILE = {"type": "string", "format": "binary", "description": "an image file"}
FORM = {"type": "object", "required": ["file"], "properties": {"file": FILE}}
UPLOAD_BODY = {  # FastAPI cannot generate it, because the body is parsed here
    "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": FORM}}}
}

PhotoDigest = Annotated[
    str,
    Field(pattern="^[0-9a-f]{32}$", description="digest of a photograph, from POST /api/photos"),
]
Side = Annotated[int, Query(ge=16, le=MAX_SIDE, description="longer side at most, in pixels")]

router = APIRouter()


class DecodeRequest(WorkerRequest):
    """Decode an uploaded file, in the worker: a decoder that crashes must not end the server."""

    queue_share = 1 / 8  # files are large
    digest: str
    name: str
    max_pixels: int

    def run(self, service: WorkerService, content: bytes) -> Photo:
        from ..data import BadImage, read_image
        from ..data.images import RAW

        try:
            image = read_image(self.name, self.max_pixels, content, MAX_SIDE)
        except BadImage as error:
            status = 413 if error.reason.startswith("too large") else 415
            raise HTTPException(status, str(error)) from None
        is_raw = PurePath(self.name).suffix.lower() in RAW  # cannot be decoded without its name
        return encode_photo(image, None if is_raw else b"", self.digest)


@router.post("/api/photos", status_code=201, openapi_extra=UPLOAD_BODY)
async def upload_photo(request: Request, state: State) -> PhotoInfo:
    """Keep a photograph in memory, under the digest of its file."""
    if state.uploads >= MAX_UPLOADS:
        raise busy("many photographs are being uploaded: try again in a moment")
    state.uploads += 1
    try:
        async with asyncio.timeout(UPLOAD_SECONDS) as timer:
            name, content = await read_upload(request, state.limits.bytes, timer)
    except TimeoutError:
        message = f"the upload is slower than {MIN_SPEED / 1000:g} kB per second"
        raise HTTPException(408, message) from None
    finally:
        state.uploads -= 1
    digest = await asyncio.to_thread(file_digest, content)
    if digest not in state.photos:
        decode = DecodeRequest(digest=digest, name=name, max_pixels=state.limits.pixels)
        photo: Photo = await state.answer(request, decode, content)
        state.photos[digest] = photo._replace(content=photo.content or content)
    return state.photos[digest].info()


@router.get("/api/photos/{photo}", response_class=Response, responses=JPEG)
async def get_photo(
    state: State, photo: Annotated[PhotoDigest, Path()], side: Side = MAX_SIDE
) -> Response:
    """Return an uploaded photograph, or an example."""
    content = await asyncio.to_thread(shrink_jpeg, state.photos[photo].shown, side)
    return Response(content, media_type="image/jpeg", headers=IMMUTABLE)


class _InMemoryParser(MultiPartParser):
    spool_max_size = 1 << 40  # never write to disk: read_upload limits the size


async def read_upload(
    request: Request, max_bytes: int, timer: asyncio.Timeout
) -> tuple[str, bytes]:
    """Return the name, without directories, and the content of one uploaded file.

    Bytes that arrive move the end of `timer`.
    """
    started = asyncio.get_running_loop().time()
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise HTTPException(415, "an upload must be multipart/form-data with a part named 'file'")
    too_large = HTTPException(413, f"the file is larger than the limit of {max_bytes / 1e6:g} MB")

    async def limited_stream() -> AsyncGenerator[bytes, None]:
        received = 0
        async for chunk in request.stream():
            received += len(chunk)
            if received > max_bytes + FORM_BYTES:
                raise too_large
            timer.reschedule(started + UPLOAD_SECONDS + received / MIN_SPEED)
            yield chunk

    try:
        parser = _InMemoryParser(request.headers, limited_stream(), max_files=1, max_fields=8)
        form = await parser.parse()
    except ClientDisconnect:
        raise HTTPException(499, "the client has disconnected") from None
    except (MultiPartException, KeyError, ValueError) as error:
        message = getattr(error, "message", error)
        raise HTTPException(400, f"the upload cannot be parsed ({message})") from None
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise HTTPException(400, "the upload has no file in a part named 'file'")
    content = await file.read()
    if len(content) > max_bytes:
        raise too_large
    if not content:
        raise HTTPException(400, "the file is empty")
    name = (file.filename or "").replace("\\", "/").rpartition("/")[2][-80:]
    return name.replace("\0", "") or "the file", content


def file_digest(content: bytes) -> str:
    """Return the digest by which an index, too, finds the file."""
    return blake2b(content, digest_size=16).hexdigest()


def encode_photo(image: Image.Image, content: bytes | None, digest: str, name: str = "") -> Photo:
    """Build a photograph from its pixels and its file; without a file the pixels become a PNG.

    Where the file is too large for the worker's pipe, models get the shown JPEG instead.
    """
    from ..data.images import full_size

    if content is None:
        buffer = BytesIO()
        image.save(buffer, "PNG", compress_level=1)
        content = buffer.getvalue()
    width, height = full_size(image)
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
