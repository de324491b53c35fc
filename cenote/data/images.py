"""Read any image file as upright 8-bit RGB, read masks, and find image files."""

from __future__ import annotations

import glob
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageChops, ImageOps, UnidentifiedImageError

from ..extras import MissingExtra, require
from .checks import check
from .table import natural
from .video import frame_names, is_video_name, read_frame, split_frame

# Formats that Pillow decodes by itself. Not EPS: it would run Ghostscript on an untrusted file.
FORMATS = (
    *("JPEG", "MPO", "PNG", "WEBP", "AVIF", "GIF", "TIFF", "BMP", "PPM", "JPEG2000", "TGA"),
    *("ICO", "HEIF"),
)
# Formats of phones and cameras, which need the extra `photos`.
HEIF = {".heic", ".heif", ".hif"}
RAW = {".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".pef", ".srw"}
SUFFIXES = {
    *(".jpg", ".jpeg", ".jfif", ".mpo", ".png", ".apng", ".webp", ".avif", ".gif", ".tif"),
    *(".tiff", ".bmp", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".tga", *HEIF, *RAW),
}
START_OF_SCAN = re.compile(rb"\xff\xda\x00[\x08\x0a\x0c\x0e]")  # of a JPEG, with its length
MAX_SCANS = 32  # encoders write about 10
MAX_PIXELS = 178_956_970  # Pillow's limit; half a gigabyte as RGB

FULL_SIZE = "full size"  # in `Image.info`, of a JPEG that was decoded at a fraction of it
TOO_LARGE = "too large to open safely"

AnyPath = str | os.PathLike[str]
MaskCodes = Literal["object", "trimap", "classes", "classes from 1"]
MASK_IGNORE = 255
TRIMAP = np.array([0, 1, 0, MASK_IGNORE], np.uint8)


class BadImage(ValueError):
    """An image file cannot be read. The message contains the file and the reason."""

    def __init__(self, path: AnyPath, reason: str) -> None:
        super().__init__(f"{Path(path)}: {reason}")
        self.path, self.reason = Path(path), reason


def read_image(
    path: AnyPath,
    max_pixels: int = MAX_PIXELS,
    content: bytes | None = None,
    min_side: int | None = None,
) -> Image.Image:
    """Return the first frame, upright (EXIF), as 8-bit RGB; transparent pixels become white.

    A file whose header declares more than `max_pixels` is refused before it is decoded. `content`
    is read instead of the file; the path is then just a name. With `min_side` a JPEG is decoded at
    1/2, 1/4 or 1/8 of its size if both sides keep that many pixels: `full_size` is the file's.
    """
    with _bad_image_errors(path, max_pixels):
        image = open_raw(path, max_pixels, content, min_side)
        plain_jpeg = image.format in ("JPEG", "MPO") and "adobe" not in image.info
        with suppress(Exception):  # a malformed EXIF block must not lose the image
            sideways = image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
            ImageOps.exif_transpose(image, in_place=True)
            if sideways and FULL_SIZE in image.info:
                image.info[FULL_SIZE] = image.info[FULL_SIZE][::-1]
        return _to_rgb(image, plain_jpeg)


def full_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height of the file that `read_image` read, maybe at a fraction of them."""
    size: tuple[int, int] = image.info.get(FULL_SIZE, image.size)
    return size


def image_size(path: AnyPath) -> tuple[int, int]:
    """Return width and height of an upright image, from its header where that is enough."""
    if _suffix(path) in RAW or is_video_name(path):
        return read_image(path).size
    with _bad_image_errors(path, MAX_PIXELS):
        _check_file(path)
        with Image.open(path, formats=_formats()) as image:
            width, height = image.size
            with suppress(Exception):  # malformed EXIF
                if image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8):
                    return height, width
            return width, height


def open_raw(
    path: AnyPath,
    max_pixels: int = MAX_PIXELS,
    content: bytes | None = None,
    min_side: int | None = None,
) -> Image.Image:
    """Return the first frame as stored, with its palette or depth: masks are numbers."""
    with _bad_image_errors(path, max_pixels):
        source: Any = os.fspath(path)
        if content is not None:
            source = BytesIO(content)
        else:
            _check_file(split_frame(path)[0])
            if is_video_name(path):
                return read_frame(path, max_pixels)
        if _suffix(path) in RAW:  # Pillow would read the small preview as a TIFF
            with require("rawpy", extra="photos").imread(source) as raw:
                _check_pixels(path, (raw.sizes.width, raw.sizes.height), max_pixels)
                return Image.fromarray(raw.postprocess(use_camera_wb=True))  # upright
        with Image.open(source, formats=_formats()) as image:
            size = image.size
            _check_pixels(path, size, max_pixels)
            if image.info.get("progressive"):
                _check_scans(path, content)
            if min_side is not None:
                image.draft(None, (min_side, min_side))  # does nothing to other formats
            image.load()
            if image.size != size:
                image.info[FULL_SIZE] = size
            return image


@contextmanager
def _bad_image_errors(path: AnyPath, max_pixels: int) -> Iterator[None]:
    """Turn every error inside into a BadImage."""
    try:
        yield
    except BadImage:
        raise
    except Exception as error:  # decoders raise anything: struct.error, IndexError, ...
        raise BadImage(path, _reason(path, error, max_pixels)) from error


def _reason(path: AnyPath, error: Exception, max_pixels: int) -> str:
    if isinstance(error, Image.DecompressionBombError):  # Pillow's limit, of the image or a tile
        return f"{TOO_LARGE}; the limit is {min(max_pixels, MAX_PIXELS) / 1e6:.3g} megapixels"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, FileNotFoundError):
        if os.path.islink(path):
            return f"a link to {os.readlink(path)}, which does not exist"
        return "no such file"
    if isinstance(error, MissingExtra):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        if _suffix(path) in HEIF and "HEIF" not in _formats():
            return "this needs the package 'pillow_heif': pip install 'cenote[photos]'"
        return "not an image in a known format"
    details = " ".join(str(error).split()) or type(error).__name__
    return f"damaged or unreadable ({details[:160]})"


def _check_file(path: AnyPath) -> None:
    """Refuse empty files, folders, and pipes, which would block forever."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        kind = "folder" if stat.S_ISDIR(status.st_mode) else "pipe or a device"
        raise BadImage(path, f"is a {kind}, not an image file")
    if not status.st_size:
        raise BadImage(path, "the file is empty")


@contextmanager
def open_regular(path: AnyPath) -> Iterator[BinaryIO]:
    """Open a file for reading; raise ValueError for pipes and devices, which would block."""
    _check_file(path)
    with open(path, "rb") as file:
        yield file


def _check_pixels(path: AnyPath, size: tuple[int, int], limit: int) -> None:
    if size[0] * size[1] > limit:
        pixels = f"{size[0]} x {size[1]} pixels; the limit is {limit / 1e6:.3g} megapixels"
        raise BadImage(path, f"{TOO_LARGE}: {pixels}")


def _check_scans(path: AnyPath, content: bytes | None) -> None:
    """Refuse progressive JPEGs of many scans: every scan decodes all pixels again."""
    scans = len(START_OF_SCAN.findall(Path(path).read_bytes() if content is None else content))
    if scans > MAX_SCANS:
        raise BadImage(path, f"a JPEG of {scans} scans; the limit is {MAX_SCANS}")


def find_images(
    paths: Iterable[AnyPath], on_missing: Callable[[str], None] | None = None
) -> list[Path]:
    """Return the image files of files, folders (recursively) and globs, in this order.

    Files of one folder are sorted; a file that is named twice, or through a link, is returned
    once. A file given by name is returned whatever its suffix is. A path that matches nothing is a
    ValueError, or a message for `on_missing` if others match.
    """
    by_real_path: dict[Path, Path] = {}
    problems = []
    for text in [os.fspath(path) for path in paths]:
        matches = list(_expand(text))
        for match in matches:
            by_real_path.setdefault(match.resolve(), match)
        if not matches:
            problem = "no images in this folder"
            if not os.path.isdir(text):
                problem = "no such file or folder"
            problems.append(f"{text}: {problem}")
    for problem in problems:
        if on_missing is None or not by_real_path:
            raise ValueError(", ".join(problems))
        on_missing(problem)
    return list(by_real_path.values())


def is_image_name(name: str) -> bool:
    """Whether the suffix of a file name is that of an image."""
    return _suffix(name) in SUFFIXES


def images_in_file(path: str, root: Path = Path()) -> list[str]:
    """Return the path of an image, the paths of a video's frames, or nothing for other files.

    Paths are relative to the root.
    """
    if is_video_name(path):
        return frame_names(path, root)
    return [path] if is_image_name(path) else []


@cache
def _formats() -> list[str]:
    # Pillow warns of large files (we have our own limit) and of corrupt metadata. Not in a
    # `catch_warnings` around each file: threads would restore each other's filters.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    Image.init()
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    return [name for name in FORMATS if name in Image.OPEN]  # some Pillow builds lack formats


def _suffix(path: AnyPath) -> str:
    return os.path.splitext(os.fspath(path))[1].lower()


def _to_rgb(image: Image.Image, plain_jpeg: bool) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_to_8_bits(np.asarray(image), image.mode)).convert("RGB")
    if image.mode == "CMYK" and plain_jpeg:
        image = ImageChops.invert(image)  # Pillow inverts every CMYK JPEG, as if it were Adobe's
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _to_8_bits(values: np.ndarray, mode: str) -> np.ndarray:
    """Scale deep greyscale to uint8, by the range of its type or, without one, by its values."""
    check(np.isfinite(values).all(), "it contains NaN or infinite values")
    low, high = float(values.min()), float(values.max())
    if mode.startswith("I;16") or (mode == "I" and low >= 0 and high <= 65535):
        low, high = 0.0, 65535.0  # Pillow keeps some 16-bit files in 32 bits
    elif mode == "F" and low >= 0 and high <= 255:
        low, high = 0.0, 1.0 if high <= 1 else 255.0
    scaled = (values.astype(np.float64) - low) * (255 / ((high - low) or 1))
    return np.rint(scaled).astype(np.uint8)


def _expand(text: str) -> Iterator[Path]:
    if os.path.isdir(text):
        for name in walk(Path(text), ""):
            yield Path(text, name)
    elif os.path.lexists(text):  # before globs: a file may be named "cat [1].jpg"
        yield from map(Path, images_in_file(text) or [text])
    elif os.path.lexists(split_frame(text)[0]):
        yield Path(text)
    else:
        for match in sorted(glob.glob(os.path.expanduser(text), recursive=True)):
            if os.path.isfile(match):
                yield from map(Path, images_in_file(match))


def walk(root: Path, prefix: str, parents: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the images and frames of videos below `root/prefix`, sorted, as paths relative to the root.

    Hidden files are left out, and a link to a parent folder is not followed.
    """
    real = os.path.realpath(root / prefix)
    if real in parents:
        return
    for name, is_folder in list_folder(root / prefix):
        if is_folder:
            yield from walk(root, f"{prefix}{name}/", parents | {real})
        else:
            yield from images_in_file(prefix + name, root)


def list_folder(folder: Path) -> list[tuple[str, bool]]:
    """Return the names in a folder, sorted and without hidden ones; is it a folder?"""
    with os.scandir(folder) as entries:
        visible = [(e.name, e.is_dir()) for e in entries if not e.name.startswith(".")]
    return sorted(visible, key=lambda entry: natural(entry[0]))


# Masks: 0 background, 1 object or class ids, 255 ignore.


def read_mask(
    paths: Sequence[Path], ignore: Path | None = None, codes: MaskCodes = "object"
) -> npt.NDArray[np.uint8]:
    """Return the union of masks; background pixels where the `ignore` mask is set become 255.

    object: all values but 0 are object; a file with nothing but 1, 2 and 3 is read as a trimap.
    trimap: 1 object, 2 background, 3 border to ignore.
    classes: as stored, 255 ignore. classes from 1: 0 ignore, k is class k - 1.
    """
    union: npt.NDArray[np.uint8] | None = None
    for path in paths:
        values = decode_mask(open_raw(path), codes)
        if union is not None:
            _check_size(path, values, union)
            values = np.where(values > 0, values, union)
        union = values
    if ignore is not None:
        ignored = _values(open_raw(ignore)) > 0
        if union is None:
            union = np.zeros(ignored.shape, np.uint8)
        _check_size(ignore, ignored, union)
        union = np.where(ignored & (union == 0), np.uint8(MASK_IGNORE), union)
    assert union is not None, "a mask has at least one file"
    return union


def decode_mask(image: Image.Image, codes: MaskCodes = "object") -> npt.NDArray[np.uint8]:
    """Convert one mask file, opened with `open_raw`."""
    values = _values(image)
    if codes == "classes":
        return values
    if codes == "classes from 1":
        return values - np.uint8(1)  # 0 becomes 255
    has_trimap_values = values.min() >= 1 and values.max() <= 3 and (values == 2).any()
    if codes == "trimap" or has_trimap_values:
        return TRIMAP[np.minimum(values, 3)]
    return (values > 0).astype(np.uint8)


def _values(image: Image.Image) -> npt.NDArray[np.uint8]:
    """Return the values as stored: the index of a palette, the brightest channel of a color."""
    values: npt.NDArray[np.generic] = np.asarray(image)
    if values.ndim == 3:
        values = values[..., :3].max(-1)
    return np.asarray(np.minimum(values, 255), np.uint8)


def _check_size(path: Path, mask: npt.NDArray[np.generic], union: npt.NDArray[np.uint8]) -> None:
    if mask.shape != union.shape:
        size, other_size = (f"{x.shape[1]} x {x.shape[0]}" for x in (mask, union))
        raise BadImage(path, f"this mask is {size} pixels, another mask of the image {other_size}")


def stretch(a: npt.NDArray[Any], size: tuple[int, int]) -> npt.NDArray[Any]:
    """Resize a map (H, W) to a picture of `size` (width, height): smooth and non-negative.

    Cells are areas, not points: the centre of cell i is at (i + 1/2) / W of the width.
    """
    picture = Image.fromarray(np.ascontiguousarray(a, dtype=np.float32))
    resized = np.asarray(picture.resize(size, Image.Resampling.BICUBIC))
    return np.asarray(np.clip(resized, 0, None))  # bicubic dips below zero next to a peak
