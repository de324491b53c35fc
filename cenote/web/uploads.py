"""One uploaded file, read into memory as it comes, and no further than the limit."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from .questions import Refusal

ROUND = 64 << 10  # bytes around the file: names and separators
FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "string",
                            "format": "binary",
                            "description": "an image file",
                        }
                    },
                }
            }
        },
    }
}  # what FastAPI cannot know, since it does not read the body


class _InMemory(MultiPartParser):
    """Nothing is written to disk, whatever its size: the limit is ours."""

    spool_max_size = 1 << 40


async def read_upload(request: Request, limit: int) -> tuple[str, bytes]:
    """The file's name, of which nothing but the last part counts, and what is in it."""
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        raise Refusal(415, "an upload is multipart/form-data with a part called 'file'")
    too_large = Refusal(
        413, f"the file is larger than {limit / 1e6:g} MB, the limit of this server"
    )
    told = request.headers.get("content-length", "0")
    if told.isdigit() and int(told) > limit + ROUND:
        raise too_large

    async def counted() -> AsyncGenerator[bytes, None]:
        taken = 0
        async for chunk in request.stream():
            taken += len(chunk)
            if taken > limit + ROUND:
                raise too_large
            yield chunk

    try:
        form = await _InMemory(request.headers, counted(), max_files=1, max_fields=8).parse()
    except ClientDisconnect:
        raise Refusal(499, "the client has gone") from None
    except (MultiPartException, KeyError, ValueError, UnicodeError) as error:
        raise Refusal(
            400, f"the upload cannot be read ({getattr(error, 'message', error)})"
        ) from None
    file: Any = form.get("file")
    if not isinstance(file, UploadFile):
        raise Refusal(400, "the upload has no part called 'file'")
    content = await file.read()
    if len(content) > limit:
        raise too_large
    if not content:
        raise Refusal(400, "the file is empty")
    name = (file.filename or "").replace("\\", "/").rpartition("/")[2][-80:]
    return name.replace("\0", "") or "the file", content
