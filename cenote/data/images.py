"""Any image file as an upright 8-bit RGB picture, and any mix of files, folders and globs as a list of files."""

from __future__ import annotations

import glob
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageChops, ImageOps, UnidentifiedImageError

from ..extras import MissingExtra, require

# Formats that Pillow decodes by itself. EPS is left out on purpose: it would run Ghostscript on a stranger's file.
FORMATS = (
    "JPEG",
    "MPO",
    "PNG",
    "WEBP",
    "AVIF",
    "GIF",
    "TIFF",
    "BMP",
    "PPM",
    "JPEG2000",
    "TGA",
    "ICO",
    "HEIF",
)
SUFFIXES = {
    f".{s}"
    for s in (
        "jpg",
        "jpeg",
        "jfif",
        "mpo",
        "png",
        "apng",
        "webp",
        "avif",
        "gif",
        "tif",
        "tiff",
        "bmp",
    )
}
SUFFIXES |= {".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".tga"}
# Telephones' and cameras' own formats, with the extra `photos`.
HEIF = {".heic", ".heif", ".hif"}
RAW = {f".{s}" for s in ("dng", "cr2", "cr3", "nef", "arw", "orf", "rw2", "raf", "pef", "srw")}
SUFFIXES |= HEIF | RAW
MAX_PIXELS = 178_956_970  # where Pillow itself refuses; half a gigabyte as RGB


class BadImage(ValueError):
    """A file that is no readable image. The message names the file and the reason."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(f"{os.fspath(path)}: {reason}")
        self.path, self.reason = Path(path), reason


def read_image(
    path: str | os.PathLike[str], max_pixels: int = MAX_PIXELS, content: bytes | None = None
) -> Image.Image:
    """The first frame, upright (EXIF), as 8-bit RGB; what is transparent becomes white.

    A file whose header promises more than `max_pixels` is refused before anything is decoded. `content` is read in the
    file's place, which then is no more than a name.
    """
    with _sentences(path, max_pixels):
        image = open_raw(path, max_pixels, content)
        plain = image.format in ("JPEG", "MPO") and "adobe" not in image.info
        return _rgb(_upright(image), plain)


def open_raw(
    path: str | os.PathLike[str], max_pixels: int = MAX_PIXELS, content: bytes | None = None
) -> Image.Image:
    """The first frame as the file stores it, with its palette or depth; masks are numbers, not colours."""
    if (_length(path) if content is None else len(content)) == 0:
        raise BadImage(path, "the file is empty")
    with _sentences(path, max_pixels), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of large files (the limit is ours) and of corrupt metadata
        if _suffix(path) in RAW:  # Pillow would take its small preview for a TIFF
            return _developed(path, max_pixels, content)
        with Image.open(path if content is None else BytesIO(content), formats=_formats()) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise BadImage(path, _too_large(f"{width} x {height} pixels", max_pixels))
            image.load()
            return image


@contextmanager
def _sentences(path: str | os.PathLike[str], max_pixels: int) -> Iterator[None]:
    """Whatever goes wrong inside becomes a BadImage."""
    try:
        yield
    except BadImage:
        raise
    except Image.DecompressionBombError as error:  # Pillow's own limit, of the whole or of a tile
        pixels = re.search(r"\d+", str(error))
        told = f"{int(pixels[0]) / 1e6:.0f} megapixels" if pixels else "its header promises more"
        raise BadImage(path, _too_large(told, min(max_pixels, MAX_PIXELS))) from error
    except PermissionError as error:
        raise BadImage(path, "no permission to read it") from error
    except MissingExtra as error:
        raise BadImage(path, str(error)) from error
    except UnidentifiedImageError as error:
        if _suffix(path) in HEIF and "HEIF" not in _formats():
            raise BadImage(
                path, "this needs the package 'pillow_heif': pip install 'cenote[photos]'"
            ) from error
        raise BadImage(path, "not an image in a known format") from error
    except (
        Exception
    ) as error:  # decoders raise anything on malformed input: struct.error, IndexError, ...
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadImage(path, f"damaged or unreadable ({reason[:160]})") from error


def find_images(
    paths: Iterable[str | os.PathLike[str]], on_missing: Callable[[str], None] | None = None
) -> list[Path]:
    """Files, folders (and the folders in them) and globs -> image files, in the order given, sorted inside each.

    A file named twice, also through a link, comes once. A file given by name is taken whatever its suffix is.
    A path that matches nothing is a ValueError, or a sentence for `on_missing`.
    """
    found: dict[Path, Path] = {}  # the real file -> the name it was found by
    for given in [os.fspath(path) for path in paths]:
        matches = list(_expand(given))
        for match in matches:
            found.setdefault(match.resolve(), match)
        if not matches:
            sentence = (
                f"{given}: no images in this folder"
                if os.path.isdir(given)
                else f"{given}: no such file"
            )
            if on_missing is None:
                raise ValueError(sentence)
            on_missing(sentence)
    return list(found.values())


@cache
def _formats() -> list[str]:
    Image.init()
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    return [name for name in FORMATS if name in Image.OPEN]  # this Pillow may be built without some


def _suffix(path: str | os.PathLike[str]) -> str:
    return os.path.splitext(os.fspath(path))[1].lower()


def _developed(path: str | os.PathLike[str], max_pixels: int, content: bytes | None) -> Image.Image:
    """A camera's raw data as its own settings would have it, upright."""
    rawpy = require("rawpy", extra="photos")
    with rawpy.imread(os.fspath(path) if content is None else BytesIO(content)) as raw:
        if raw.sizes.width * raw.sizes.height > max_pixels:
            raise BadImage(
                path, _too_large(f"{raw.sizes.width} x {raw.sizes.height} pixels", max_pixels)
            )
        return Image.fromarray(raw.postprocess(use_camera_wb=True))


def _length(path: str | os.PathLike[str]) -> int:
    """Bytes of a file; what is none is refused, also a pipe, which would wait for ever."""
    try:
        found = os.stat(path)
    except PermissionError as error:
        raise BadImage(path, "no permission to read it") from error
    except (OSError, ValueError) as error:
        gone = (
            f"a link to {os.readlink(path)}, which is not there"
            if os.path.islink(path)
            else "no such file"
        )
        raise BadImage(path, gone) from error
    if stat.S_ISDIR(found.st_mode):
        raise BadImage(path, "is a folder, not an image")
    if not stat.S_ISREG(found.st_mode):
        raise BadImage(path, "no such file, but a pipe or a device")
    return found.st_size


def _too_large(what: str, limit: int) -> str:
    return f"too large to open safely: {what}; the limit is {limit / 1e6:.3g} megapixels"


def _upright(image: Image.Image) -> Image.Image:
    if image.format == "JPEG" and not ({"exif", "xmp"} & image.info.keys()):
        return image  # most photographs of a data set: nothing to parse
    try:
        ImageOps.exif_transpose(image, in_place=True)
        return image
    except Exception:  # a malformed EXIF block is no reason to lose the picture
        return image


def _rgb(image: Image.Image, plain_jpeg: bool) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_eight_bits(np.asarray(image), image.mode)).convert("RGB")
    if image.mode == "CMYK" and plain_jpeg:
        image = ImageChops.invert(
            image
        )  # Pillow took it for Adobe's, as it does with every JPEG of four inks
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(values: np.ndarray, mode: str) -> np.ndarray:
    """Deep greyscale -> uint8, by the range of its type, or by its own range where the type says nothing."""
    if not np.isfinite(values).all():
        raise ValueError("it holds NaN or infinite values")
    low, high = float(values.min()), float(values.max())
    if mode.startswith("I;16") or (mode == "I" and low >= 0 and high <= 65535):
        low, high = 0.0, 65535.0  # Pillow keeps some 16-bit files in 32 bits
    elif mode == "F" and low >= 0 and high <= 255:
        low, high = 0.0, 1.0 if high <= 1 else 255.0
    scaled = (values.astype(np.float64) - low) * (255 / ((high - low) or 1))
    return np.rint(scaled).astype(np.uint8)


def _expand(given: str) -> Iterator[Path]:
    if os.path.isdir(given):
        yield from _walk(given, set())
    elif os.path.lexists(given):  # first: a file may well be called "cat [1].jpg"
        yield Path(given)
    else:
        for match in sorted(glob.glob(os.path.expanduser(given), recursive=True)):
            if os.path.isfile(match) and Path(match).suffix.lower() in SUFFIXES:
                yield Path(match)


def _walk(folder: str, seen: set[str]) -> Iterator[Path]:
    """Images below a folder, hidden ones left out; links to folders are followed, but no circle is."""
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.startswith("."):
            continue
        if os.path.isdir(path):
            yield from _walk(path, seen)
        elif os.path.splitext(name)[1].lower() in SUFFIXES:
            yield Path(path)
