"""A folder with every kind of file that goes wrong, and every odd kind that must not."""

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

GOOD = {
    "animated.gif": "animated",
    "alpha.png": "transparent",
    "cmyk.jpg": "CMYK",
    "deep.png": "16 bits or more",
    "grey.jpg": "greyscale",
    "palette.png": "palette",
    "png.jpg": "PNG named .jpg",
    "turned.jpg": "turned by EXIF",
}
BAD = {  # and a value that the reason names
    "bomb.png": "179 megapixels",
    "dangling.jpg": "nowhere.jpg",
    "empty.jpg": "",
    "text.jpg": "",
    "truncated.jpg": "image file is truncated",  # Pillow's words
}


def noise(seed: int, size: tuple[int, int] = (48, 32)) -> Image.Image:
    return Image.fromarray(
        np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    )


def make_good(folder: Path) -> None:
    folder.mkdir(parents=True)
    noise(1).save(folder / "animated.gif", save_all=True, append_images=[noise(2)], duration=50)
    noise(3).convert("RGBA").save(folder / "alpha.png")
    noise(4).convert("CMYK").save(folder / "cmyk.jpg")
    Image.fromarray(np.arange(32 * 48, dtype=np.uint16).reshape(32, 48) * 40).save(
        folder / "deep.png"
    )
    noise(5).convert("L").save(folder / "grey.jpg")
    noise(6).convert("P").save(folder / "palette.png")
    noise(7).save(folder / "png.jpg", format="PNG")
    exif = Image.Exif()
    exif[0x0112] = 6
    noise(8).save(folder / "turned.jpg", exif=exif)


def make_bad(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "bomb.png").write_bytes(_bomb())
    (folder / "dangling.jpg").symlink_to("nowhere.jpg")
    (folder / "empty.jpg").touch()
    (folder / "text.jpg").write_text("This is a letter, not a picture.\n")
    noise(9).save(folder / "whole.jpg", quality=95)
    data = (folder / "whole.jpg").read_bytes()
    (folder / "truncated.jpg").write_bytes(data[: len(data) // 2])
    (folder / "whole.jpg").unlink()


def _bomb() -> bytes:
    """A PNG of 30,000 x 30,000 pixels in a hundred bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )
