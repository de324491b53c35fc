"""Pictures in a page: only those that lie in the page itself, in their own shape, in a frame that can be enlarged."""

from __future__ import annotations

import re
from base64 import b64decode
from functools import lru_cache
from io import BytesIO

from PIL import Image

from .markup import Child, Html, el

OWN = re.compile(r"data:image/(?:jpeg|png|webp);base64,[A-Za-z0-9+/]+={0,2}")


def checked(uri: str) -> str:
    """A page makes no request: a picture that is an address is refused."""
    if not OWN.fullmatch(uri):
        raise ValueError(f"a picture of a report is a data URI (see picture_of), not '{uri[:40]}'")
    return uri


@lru_cache(512)
def size_of(uri: str) -> tuple[int, int]:
    """Width and height in pixels."""
    try:
        with Image.open(BytesIO(b64decode(checked(uri).partition(",")[2]))) as image:
            return image.size
    except OSError as error:
        raise ValueError(f"a picture of a report is damaged: {error}") from error


def image(uri: str, alt: str, class_: str | None = None) -> Html:
    width, height = size_of(uri)
    return el("img", src=uri, alt=alt, width=width, height=height, class_=class_, decoding="async")


def figure(shot: Child, caption: Child, class_: str = "", about: str = "") -> Html:
    """A framed picture with words below. `about` names it in the enlarged view."""
    told = el("figcaption", caption)
    return el(
        "figure",
        el("div", shot, class_="shot"),
        told,
        class_=f"tile {class_}".strip(),
        data_about=about or None,
    )
