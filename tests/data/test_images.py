"""Files of every kind, made here: the same picture must come out of all of them."""

import os
import re
import struct
import tempfile
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageChops

from cenote.data import BadImage, find_images, read_image, write_atomically
from cenote.data.images import _formats

RED, GREEN, BLUE, GREY = (220, 30, 30), (30, 180, 30), (30, 30, 200), (128, 128, 128)


def picture(size: tuple[int, int] = (48, 32)) -> Image.Image:
    """Red, green / blue, grey quarters: any rotation or swap of channels shows."""
    w, h = size
    image = Image.new("RGB", size, RED)
    image.paste(GREEN, (w // 2, 0, w, h // 2))
    image.paste(BLUE, (0, h // 2, w // 2, h))
    image.paste(GREY, (w // 2, h // 2, w, h))
    return image


def quarters(image: Image.Image) -> np.ndarray:
    w, h = image.size
    places = [
        (w // 4, h // 4),
        (3 * w // 4, h // 4),
        (w // 4, 3 * h // 4),
        (3 * w // 4, 3 * h // 4),
    ]
    return np.array([image.getpixel(place) for place in places], dtype=int)


def assert_same(image: Image.Image, other: Image.Image, within: int = 6) -> None:
    assert image.mode == "RGB" and image.size == other.size
    assert np.abs(quarters(image) - quarters(other)).max() <= within


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "tif", "ppm", "tga", "gif"])
def test_plain_files(tmp_path: Path, suffix: str) -> None:
    picture().save(tmp_path / f"a.{suffix}")
    assert_same(read_image(tmp_path / f"a.{suffix}"), picture(), within=10)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
def test_exif_rotation_is_applied_once(tmp_path: Path, orientation: int, suffix: str) -> None:
    turns = Image.Transpose
    undo = [None, turns.FLIP_LEFT_RIGHT, turns.ROTATE_180, turns.FLIP_TOP_BOTTOM, turns.TRANSPOSE]
    undo += [
        turns.ROTATE_90,
        turns.TRANSVERSE,
        turns.ROTATE_270,
    ]  # how a camera held so stores the scene
    exif = Image.Exif()
    exif[0x0112] = orientation
    turn = undo[orientation - 1]
    stored = picture() if turn is None else picture().transpose(turn)
    stored.save(tmp_path / f"a.{suffix}", exif=exif)
    assert_same(read_image(tmp_path / f"a.{suffix}"), picture(), within=10)


def test_a_malformed_exif_block_does_not_lose_the_picture(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.jpg", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\x7f")
    assert_same(read_image(tmp_path / "a.jpg"), picture(), within=10)


def test_cmyk_of_a_tiff_and_of_adobe_s_jpeg(tmp_path: Path) -> None:
    cmyk = picture().convert("CMYK")
    cmyk.save(tmp_path / "a.tif")
    cmyk.save(
        tmp_path / "a.jpg", quality=95
    )  # Pillow writes Adobe's marker and the inverse, as Photoshop does
    assert b"Adobe" in (tmp_path / "a.jpg").read_bytes()
    assert_same(read_image(tmp_path / "a.tif"), picture())
    assert_same(read_image(tmp_path / "a.jpg"), picture(), within=12)


def test_cmyk_jpeg_without_adobe_s_marker_is_not_inverted(tmp_path: Path) -> None:
    ImageChops.invert(picture().convert("CMYK")).save(tmp_path / "a.jpg", quality=95)
    data = (tmp_path / "a.jpg").read_bytes()
    start = data.index(b"\xff\xee")
    length = struct.unpack(">H", data[start + 2 : start + 4])[0]
    (tmp_path / "a.jpg").write_bytes(data[:start] + data[start + 2 + length :])
    assert_same(read_image(tmp_path / "a.jpg"), picture(), within=12)


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bits(tmp_path: Path, suffix: str) -> None:
    ramp = np.linspace(0, 65535, 64 * 16).reshape(16, 64).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / f"a.{suffix}")
    out = np.asarray(read_image(tmp_path / f"a.{suffix}")).astype(float)
    assert np.abs(out - ramp[..., None] / 257).max() <= 0.51


def test_a_dark_sixteen_bit_picture_stays_dark(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 200, np.uint16)).save(tmp_path / "a.png")
    assert np.asarray(read_image(tmp_path / "a.png")).max() == 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            np.array([[0, 1 << 30], [1 << 29, 0]], np.int32),
            [[0, 255], [128, 0]],
        ),  # true 32 bits: its own range
        (np.array([[0, 1], [0.5, 0.25]], np.float32), [[0, 255], [128, 64]]),
        (np.array([[0, 255], [100, 7]], np.float32), [[0, 255], [100, 7]]),
        (np.array([[-1, 1], [0, 1]], np.float32), [[0, 255], [128, 255]]),
        (np.full((2, 2), 300.0, np.float32), [[0, 0], [0, 0]]),
    ],
)
def test_deeper_greyscale(tmp_path: Path, values: np.ndarray, expected: list[list[int]]) -> None:
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert np.asarray(read_image(tmp_path / "a.tif"))[..., 0].tolist() == expected


def test_nan_is_no_brightness(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, np.nan]], np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(BadImage, match=r"a\.tif: .*NaN"):
        read_image(tmp_path / "a.tif")


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA"])
def test_every_mode_of_a_png(tmp_path: Path, mode: str) -> None:
    picture().convert("RGB").convert(mode).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").mode == "RGB"


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_is_white(tmp_path: Path, mode: str) -> None:
    image = Image.new("L", (4, 4), 40).convert(mode)
    alpha = Image.new("L", (4, 4), 255)
    alpha.paste(0, (0, 0, 2, 4))
    image.putalpha(alpha)
    image.save(tmp_path / "a.png")
    out = read_image(tmp_path / "a.png")
    assert out.getpixel((0, 0)) == (255, 255, 255) and out.getpixel((3, 0)) == (40, 40, 40)


@pytest.mark.parametrize("suffix", ["png", "gif"])
def test_a_palette_with_transparency(tmp_path: Path, suffix: str) -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([10, 20, 30, 200, 100, 50, 0, 0, 0])
    image.putpixel((0, 0), 0)
    image.save(tmp_path / f"a.{suffix}", transparency=0)
    out = read_image(tmp_path / f"a.{suffix}")
    assert out.getpixel((0, 0)) == (255, 255, 255) and out.getpixel((3, 3)) == (200, 100, 50)


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tif"])
def test_the_first_of_many_frames(tmp_path: Path, suffix: str) -> None:
    frames = [picture(), Image.new("RGB", (48, 32), "black")]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:], duration=50)
    assert_same(read_image(tmp_path / f"a.{suffix}"), picture(), within=12)


def png(width: int, height: int, body: bytes = b"") -> bytes:
    """A PNG whose header may promise anything."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(body))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("size", [(30_000, 30_000), (13_500, 13_500), (1 << 30, 1 << 30)])
def test_a_bomb_is_refused_by_its_header(tmp_path: Path, size: tuple[int, int]) -> None:
    (tmp_path / "bomb.png").write_bytes(png(*size))
    with pytest.raises(BadImage, match=r"bomb\.png.*\b179 megapixels"):
        read_image(tmp_path / "bomb.png")
    with pytest.raises(
        BadImage, match=r"bomb\.png.*\b50 megapixels"
    ):  # the caller's, where that is smaller
        read_image(tmp_path / "bomb.png", max_pixels=50_000_000)


def test_the_limit_is_an_argument_and_inclusive(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", max_pixels=48 * 32)
    with pytest.raises(BadImage, match=r"a\.png.*\b48 x 32\b"):
        read_image(tmp_path / "a.png", max_pixels=48 * 32 - 1)


@pytest.mark.filterwarnings("error")
def test_a_large_photograph_within_the_limit_raises_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow itself warns from its limit on, and refuses from twice that."""
    picture().save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 48 * 32 - 1)
    with (tmp_path / "a.png").open("rb") as file, pytest.raises(Image.DecompressionBombWarning):
        Image.open(file)
    _formats.cache_clear()  # pytest restores the filters of warnings after each test
    assert read_image(tmp_path / "a.png").size == (48, 32)


def test_threads_do_not_change_the_filters_of_warnings(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(50)]
    for path in paths:
        picture().save(path)
    read_image(paths[0])
    filters = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read_image, paths * 10))
    assert list(warnings.filters) == filters


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "tif"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6])
def test_a_truncated_file_is_one_sentence(tmp_path: Path, suffix: str, share: float) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    noise.save(tmp_path / f"a.{suffix}")
    data = (tmp_path / f"a.{suffix}").read_bytes()
    (tmp_path / f"a.{suffix}").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BadImage) as caught:
        read_image(tmp_path / f"a.{suffix}")
    assert str(caught.value).startswith(f"{tmp_path / f'a.{suffix}'}: ") and "\n" not in str(
        caught.value
    )


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"GIF89a\x00"]
)
def test_a_foreign_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.jpg").write_bytes(data)
    with pytest.raises(BadImage) as caught:
        read_image(tmp_path / "a.jpg")
    assert caught.value.path == tmp_path / "a.jpg" and "\n" not in str(caught.value)


def test_missing_files_folders_and_pipes(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match=r"none\.jpg"):
        read_image(tmp_path / "none.jpg")
    with pytest.raises(BadImage, match=re.escape(str(tmp_path))):
        read_image(tmp_path)
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(BadImage, match=r"pipe\.jpg"):
        read_image(tmp_path / "pipe.jpg")


def test_a_link_to_nothing_says_where_it_points(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").symlink_to("moved/a.jpg")
    with pytest.raises(BadImage, match=r"a\.jpg.*moved/a\.jpg"):
        read_image(tmp_path / "a.jpg")


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o755)
        path = Path(folder) / "a.png"
        picture().save(path)
        path.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # the superuser may read everything
        try:
            with pytest.raises(BadImage, match=r"a\.png.*permission"):
                read_image(path)
        finally:
            os.seteuid(user)


@pytest.mark.parametrize(
    ("format", "suffix"), [("PNG", "jpg"), ("JPEG", "png"), ("WEBP", "gif"), ("GIF", "bmp")]
)
def test_a_wrongly_named_file_is_what_its_content_says(
    tmp_path: Path, format: str, suffix: str
) -> None:
    picture().save(tmp_path / f"a.{suffix}", format=format)
    assert_same(read_image(tmp_path / f"a.{suffix}"), picture(), within=12)


@pytest.mark.parametrize("seed", range(30))
def test_random_damage_never_escapes_as_another_error(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    suffix = ["jpg", "png", "gif", "tif", "webp"][seed % 5]
    picture().save(tmp_path / f"a.{suffix}")
    data = bytearray((tmp_path / f"a.{suffix}").read_bytes())
    for place in rng.integers(0, len(data), 12):
        data[place] = rng.integers(256)
    (tmp_path / f"a.{suffix}").write_bytes(bytes(data))
    try:
        assert read_image(tmp_path / f"a.{suffix}").mode == "RGB"
    except BadImage as error:
        assert error.path.name == f"a.{suffix}" and "\n" not in str(error)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in [
        "b.jpg",
        "a.PNG",
        "sub/c.jpeg",
        "sub/.hidden.jpg",
        ".cache/d.jpg",
        "notes.txt",
        "cat [1].jpg",
    ]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def names(found: list[Path], root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in found]


def test_a_folder_gives_its_images_in_order(tree: Path) -> None:
    assert names(find_images([tree]), tree) == ["a.PNG", "b.jpg", "cat [1].jpg", "sub/c.jpeg"]


def test_globs_files_and_duplicates(tree: Path) -> None:
    (tree / "link.jpg").symlink_to(tree / "b.jpg")
    found = find_images(
        [tree / "sub", str(tree / "*.jpg"), tree / "b.jpg", tree / "sub" / ".." / "b.jpg", tree]
    )
    assert [path.name for path in found] == ["c.jpeg", "b.jpg", "cat [1].jpg", "a.PNG"]
    assert names(find_images([str(tree / "**" / "*.jpeg")]), tree) == ["sub/c.jpeg"]


def test_a_name_with_brackets_is_a_name_first(tree: Path) -> None:
    assert names(find_images([str(tree / "cat [1].jpg")]), tree) == ["cat [1].jpg"]


def test_a_file_given_by_name_may_have_any_suffix(tree: Path) -> None:
    assert names(find_images([tree / "notes.txt"]), tree) == ["notes.txt"]


def test_a_circle_of_links_ends(tree: Path) -> None:
    (tree / "sub" / "up").symlink_to(tree)
    assert len(find_images([tree])) == 4


def test_what_matches_nothing_is_told(tree: Path) -> None:
    (tree / "empty").mkdir()
    for path in ("none.jpg", "*.tiff", "empty"):
        with pytest.raises(ValueError, match=re.escape(str(tree / path))):
            find_images([tree / path])
    messages: list[str] = []
    assert names(find_images([tree / "none.jpg", tree / "b.jpg"], messages.append), tree) == [
        "b.jpg"
    ]
    assert len(messages) == 1 and str(tree / "none.jpg") in messages[0]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    with write_atomically(path) as temporary:
        temporary.write_text("old")
    with pytest.raises(KeyboardInterrupt), write_atomically(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_a_jpeg_of_many_scans_is_refused(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.jpg", progressive=True)
    content = (tmp_path / "a.jpg").read_bytes()
    assert read_image(tmp_path / "a.jpg").size == picture().size
    last = content.rindex(b"\xff\xda")
    (tmp_path / "b.jpg").write_bytes(content[:last] + content[last:-2] * 40 + b"\xff\xd9")
    with pytest.raises(BadImage, match="scans; the limit is 32"):
        read_image(tmp_path / "b.jpg")
