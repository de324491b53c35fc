"""Uploaded photographs: POST and GET /api/photos."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from hashlib import blake2b
from pathlib import PurePath
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from ..jobs import busy
from ..photos import MAX_SIDE, Photo, PhotoRequired, encode_photo
from ..schemas import JPEG, PhotoInfo
from ..service import Service, WorkerRequest
from ..state import State

MAX_UPLOADS = 8  # that are read at the same time
UPLOAD_SECONDS = 120.0
FORM_BYTES = 64 << 10  # of an upload, around the file: names and separators
IMMUTABLE = {"cache-control": "private, max-age=86400, immutable"}
FILE = {"type": "string", "format": "binary", "description": "an image file"}
FORM = {"type": "object", "required": ["file"], "properties": {"file": FILE}}
UPLOAD_BODY = {  # FastAPI cannot generate it, because the body is parsed here
    "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": FORM}}}
}

DIGEST = "^[0-9a-f]{32}$"
PhotoDigest = Annotated[
    str, Field(pattern=DIGEST, description="digest of a photograph, from POST /api/photos")
]
Side = Annotated[int, Query(ge=16, le=MAX_SIDE, description="longer side at most, in pixels")]

router = APIRouter()


@router.post("/api/photos", status_code=201, openapi_extra=UPLOAD_BODY)
async def upload_photo(request: Request, state: State) -> PhotoInfo:
    """Keep a photograph in memory, under the digest of its file."""
    if state.uploads >= MAX_UPLOADS:
        raise busy("many photographs are being uploaded: try again in a moment")
    state.uploads += 1
    try:
        async with asyncio.timeout(UPLOAD_SECONDS):
            name, content = await read_upload(request, state.limits.bytes)
    except TimeoutError:
        raise HTTPException(
            408, f"the upload took longer than {UPLOAD_SECONDS:g} seconds"
        ) from None
    finally:
        state.uploads -= 1
    digest = await asyncio.to_thread(file_digest, content)
    if digest not in state.photos:
        decode = DecodeRequest(digest=digest, name=name, max_pixels=state.limits.pixels)
        photo: Photo = await state.answer(request, decode, content)
        state.photos.put(photo._replace(content=photo.content or content))
    return state.photos.get(digest).info()


@router.get("/api/photos/{photo}", response_class=Response, responses=JPEG)
async def get_photo(
    state: State, photo: Annotated[PhotoDigest, Path()], side: Side = MAX_SIDE
) -> Response:
    """Return an uploaded photograph, or an example."""
    return Response(await state.jpeg(photo, side), media_type="image/jpeg", headers=IMMUTABLE)


def file_digest(content: bytes) -> str:
    """Return the digest by which an index, too, finds the file."""
    return blake2b(content, digest_size=16).hexdigest()


class DecodeRequest(WorkerRequest):
    """Decode an uploaded file, in the worker: a decoder that crashes must not end the server."""

    queue_share = 1 / 8  # files are large
    digest: str
    name: str
    max_pixels: int

    def run(self, service: Service, content: bytes | None) -> Photo:
        from ...data import BadImage, read_image
        from ...data.images import RAW

        if content is None:
            raise PhotoRequired
        try:
            image = read_image(self.name, self.max_pixels, content)
        except BadImage as error:
            status = 413 if error.reason.startswith("too large") else 415
            raise HTTPException(status, str(error)) from None
        is_raw = PurePath(self.name).suffix.lower() in RAW  # cannot be decoded without its name
        return encode_photo(image, None if is_raw else b"", self.digest)


class _InMemoryParser(MultiPartParser):
    spool_max_size = 1 << 40  # never write to disk: read_upload limits the size


async def read_upload(request: Request, max_bytes: int) -> tuple[str, bytes]:
    """Return the name, without directories, and the content of one uploaded file."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise HTTPException(415, "an upload must be multipart/form-data with a part named 'file'")
    too_large = HTTPException(413, f"the file is larger than the limit of {max_bytes / 1e6:g} MB")
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > max_bytes + FORM_BYTES:
        raise too_large

    async def limited_stream() -> AsyncGenerator[bytes, None]:
        received = 0
        async for chunk in request.stream():
            received += len(chunk)
            if received > max_bytes + FORM_BYTES:
                raise too_large
            yield chunk

    try:
        parser = _InMemoryParser(request.headers, limited_stream(), max_files=1, max_fields=8)
        form = await parser.parse()
    except ClientDisconnect:
        raise HTTPException(499, "the client has disconnected") from None
    except (MultiPartException, KeyError, ValueError, UnicodeError) as error:
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
