"""Hostile files: each ends in a few sentences, within seconds of CPU time and a gigabyte.

Each runs in a process forked from this one, whose time and memory are its own.
"""

import io
import json
import os
import pickle
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cenote.cli import main
from tests.toy_models import narrow_resnet

pytestmark = pytest.mark.slow
SECONDS, BYTES = 30.0, 1 << 30  # far above what any takes: a slow machine must not fail
DEEP_LIST, DEEP_OBJECT = "[" * 200_000 + "]" * 200_000, '{"a":' * 200_000 + "1" + "}" * 200_000
DIGITS = "9" * 5000
LONG = "x" * 50_000_000
VALUES = {  # in place of a value in a JSON file
    "null": None, "text": "x", "negative": -1, "huge": 1 << 62, "float": 1e308, "list": [], "object": {},
    "nested": [[[[]]]], "digits": "DIGITS", "not-a-number": float("nan"), "deep": "DEEP",
}  # fmt: skip

Make = Callable[[Path], list[str]]  # writes into a folder, and returns the command
CASES: dict[str, Make] = {}


def case(name: str) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        CASES[name] = make
        return make

    return add


def dump(content: Any) -> str:
    return json.dumps(content).replace('"DIGITS"', DIGITS).replace('"DEEP"', DEEP_LIST)


def photo(path: Path, size: tuple[int, int] = (40, 30)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise(size, 60).convert("RGB").save(path)
    return path


# Models: config.json with one wrong value, and damaged weights.


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A model, an index and a photograph, which the cases copy."""
    folder = tmp_path_factory.mktemp("bases")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CENOTE_CACHE", str(folder / "cache"))
        patch.setenv("CENOTE_RESIDENT", "0")
        model = narrow_resnet(num_classes=3, size=32)
        model.class_names = ["a", "b", "c"]
        model.save(folder / "model")
        for i in range(4):
            photo(folder / "photos" / "ab"[i % 2] / f"{i}.png")
        # In another process: threads of this one would not exist in forked ones.
        arguments = ["index", str(folder / "photos"), "-o", str(folder / "index"), "--quiet"]
        subprocess.run([sys.executable, "-m", "cenote", *arguments], check=True)
        assert main(["search", str(folder / "index"), "--text", "a"]) == 0  # imports what it needs
        yield folder


def model_case(name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    def make(folder: Path) -> list[str]:
        config = json.loads((folder / "model" / "config.json").read_text())
        config = change(config) or config
        (folder / "model" / "config.json").write_text(dump(config))
        return [
            "predict",
            str(folder / "model"),
            str(folder / "photos"),
            "-o",
            str(folder / "o.csv"),
        ]

    CASES[f"model {name}"] = make


for key in ("format", "model", "class_names", "preprocessing", "sha256"):
    for kind in ("null", "huge", "nested", "deep"):
        model_case(f"{key} {kind}", lambda c, k=key, v=VALUES[kind]: c.update({k: v}))
for key in ("size", "crop", "mean", "std", "interpolation"):
    for kind in ("null", "negative", "huge", "digits"):
        model_case(
            f"preprocessing {key} {kind}",
            lambda c, k=key, v=VALUES[kind]: c["preprocessing"].update({k: v}),
        )
model_case("preprocessing size 65536", lambda c: c["preprocessing"].update(size=65536))
for key, value in {
    "backbone": "vit_giant_patch14_224", "backbone up": "../../x", "backbone hub": "hf-hub:evil/x",
    "backbone local": "local-dir:/etc", "pool": "nothing", "num_classes": 1 << 19, "depth": 5000,
    "weights": "/etc/passwd", "pretrained": True, "img_size": 1 << 18, "embedding_dim": 1 << 20,
    "channels": [1 << 16] * 4, "layers": [500] * 4, "checkpoint_path": "/etc/passwd",
    "features_only": True, "in_chans": 1 << 20, "stride": 3, "fpn": "P9", "tokens": "none",
}.items():  # fmt: skip
    model_case(f"argument {key}", lambda c, k=key, v=value: c["model"].update({k.split()[0]: v}))


def weights_case(name: str, content: Callable[[bytes], bytes]) -> None:
    def make(folder: Path) -> list[str]:
        path = folder / "model" / "model.safetensors"
        path.write_bytes(content(path.read_bytes()))
        config = json.loads((folder / "model" / "config.json").read_text())
        del config["sha256"]
        (folder / "model" / "config.json").write_text(dump(config))
        return [
            "predict",
            str(folder / "model"),
            str(folder / "photos"),
            "-o",
            str(folder / "o.csv"),
        ]

    CASES[f"weights {name}"] = make


weights_case("empty", lambda b: b"")
weights_case("cut", lambda b: b[: len(b) // 2])
weights_case("huge header", lambda b: struct.pack("<Q", 1 << 62) + b[8:])
weights_case("header of text", lambda b: struct.pack("<Q", 4) + b"text")
weights_case("pickle", lambda b: pickle.dumps({"a": 1}))
weights_case("deep header", lambda b: struct.pack("<Q", len(DEEP_LIST)) + DEEP_LIST.encode())


# Lists of images.


def file_case(
    name: str, file: str, content: str | bytes, prefix: str = "", extra: str = ""
) -> None:
    def make(folder: Path) -> list[str]:
        path = folder / "data" / file
        photo(folder / "data" / "0.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return ["data", f"{prefix}{folder / 'data' / (extra or file)}"]

    CASES[f"{name} {file}"] = make


ROWS = {"file": "0.png", "label": "a", "boxes": [[1, 2, 3, 4]]}
for suffix, wrap in (("json", lambda r: dump([r])), ("jsonl", dump)):
    for key in ROWS:
        for kind in VALUES:
            file_case(f"list {key} {kind}", f"l.{suffix}", wrap({**ROWS, key: VALUES[kind]}))
for kind, content in {
    "deep": DEEP_LIST, "deep objects": DEEP_OBJECT, "long": LONG, "empty": "", "null bytes": "\0" * 1000,
    "half a pair": '[{"file": "\\ud800.png", "label": "\\ud800"}]', "number": "1", "digits": f"[{DIGITS}]",
    "not text": b"\xff\xfe\x00\xd8" * 100, "escape": '[{"file": "../../../etc/passwd", "label": "a"}]',
}.items():  # fmt: skip
    for suffix in ("json", "jsonl", "csv", "txt"):
        file_case(f"list {kind}", f"l.{suffix}", content)
file_case("list deep boxes", "l.csv", f'file,label,boxes\n0.png,a,"{DEEP_LIST}"\n')
file_case("list many columns", "l.csv", "file," + ",".join(map(str, range(100_000))) + "\n0.png\n")
file_case("list quotes", "l.csv", 'file,label\n0.png,"' + "x" * 1_000_000)

COCO: dict[str, Any] = {
    "images": [{"id": 1, "file_name": "0.png", "width": 40, "height": 30}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}],
    "categories": [{"id": 1, "name": "a"}],
}
for group, key in (
    ("images", "file_name"), ("images", "width"), ("annotations", "bbox"),
    ("annotations", "category_id"), ("annotations", "segmentation"), ("categories", "name"),
    ("categories", "id"), ("images", "id"),
):  # fmt: skip
    for kind in ("null", "text", "huge", "float", "nested", "deep"):
        content = {**COCO, group: [{**COCO[group][0], key: VALUES[kind]}]}
        file_case(f"coco {group} {key} {kind}", "instances.json", dump(content))
for kind, segmentation in {
    "runs of other size": {"size": [100_000, 100_000], "counts": [10_000_000_000]},
    "huge runs": {"size": [30, 40], "counts": [1 << 62, 1 << 62]},
    "negative runs": {"size": [30, 40], "counts": [-1, 1201]},
    "text runs": {"size": [30, 40], "counts": "\u20ac" * 10},
    "endless runs": {"size": [30, 40], "counts": "o" * 1_000_000},
    "far polygon": [[1e30, 1e30, -1e30, 1e30, 0, -1e30]],
}.items():
    content = {**COCO, "annotations": [{**COCO["annotations"][0], "segmentation": segmentation}]}
    file_case(f"coco {kind}", "instances.json", dump(content))
large = {**COCO, "images": [{**COCO["images"][0], "width": 100_000, "height": 100_000}]}
file_case("coco large", "instances.json", dump(large))


PAIRS = zip("abcdefgh", "bcdefghi", strict=True)
ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in PAIRS
)


def voc(body: str, head: str = "") -> str:
    size = "<size><width>40</width><height>30</height></size>"
    return f"{head}<annotation><filename>0.png</filename>{size}{body}</annotation>"


BOX = "<object><name>a</name><bndbox><xmin>{}</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
for kind, text in {
    "entities": voc(BOX.format("&e;"), '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'),
    "billion laughs": voc("&b;", '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'),
    "deep": "<a>" * 100_000 + "</a>" * 100_000, "empty": "", "infinite": voc(BOX.format("inf")),
    "nan": voc(BOX.format("nan")), "text": voc(BOX.format("x")), "digits": voc(BOX.format(DIGITS)),
    "many attributes": "<a " + " ".join(f'b{i}="1"' for i in range(50_000)) + "/>",
}.items():  # fmt: skip
    file_case(f"voc {kind}", "Annotations/0.xml", text, extra=".")
for kind, text in {
    "deep": DEEP_LIST, "tag": "!!python/object/apply:os.system ['true']", "aliases": ALIASES,
    "names": f"path: .\ntrain: .\nnames: {DIGITS}\n", "up": "path: /etc\ntrain: ../../..\nnames: [a]\n",
    "long": "names: " + "x" * 5_000_000, "null": "null", "number": "names: {1e400: a}\ntrain: .\n",
}.items():  # fmt: skip
    file_case(f"yolo {kind}", "data.yaml", text)

    def recipe(folder: Path, text: str = text) -> list[str]:
        (folder / "r.yaml").write_text(text)
        recipe = str(folder / "r.yaml")
        return ["fit", str(folder / "photos"), "--recipe", recipe, "-o", str(folder / "out")]

    CASES[f"recipe {kind}"] = recipe


# Images.


def png(width: int, height: int, data: bytes, depth: int = 8) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def progressive_bomb(scans: int) -> bytes:
    """Repeat the last scan of a progressive JPEG: every one decodes all pixels again."""
    file = io.BytesIO()
    Image.new("RGB", (8000, 6000)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last = content.rindex(b"\xff\xda")
    return content[:last] + content[last:-2] * scans + b"\xff\xd9"


ZEROS = zlib.compress(bytes(50_000_000))[:59990]
BITMAP = (99, 0, 0, 54, 40, -(1 << 31), 1 << 30, 1, 32, 0, 0, 0, 0, 0, 0)
IMAGES = {
    "bomb.png": lambda: png(30_000, 30_000, zlib.compress(b"")),
    "wide.png": lambda: png(1 << 31, 1, b""),
    "zeros.png": lambda: png(13_000, 13_000, zlib.compress(bytes(1 << 20))),
    "progressive.jpg": lambda: progressive_bomb(2000),
    "text.jpg": lambda: b"a letter",
    "empty.png": lambda: b"",
    "start.jpg": lambda: b"\xff\xd8",
    "svg.png": lambda: b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "script.png": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) run",
    "chunks.png": lambda: png(9, 9, b"")[:33] + b"\0\0\0\0tEXt\xad\xee\xee\xee" * 100_000,
    "text_bomb.png": lambda: png(9, 9, b"")[:33] + b"\0\0\xea\x60zTXta\0\0" + ZEROS,
    "zip.png": lambda: b"PK\x03\x04" + bytes(100),
    "tiff.tif": lambda: b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 10_000,
    "webp.webp": lambda: b"RIFF\xff\xff\xff\xffWEBPVP8X" + b"\xff" * 100,
    "gif.gif": lambda: b"GIF89a\xff\xff\xff\xff\xf7\0\0" + b"!\xff\x0b" * 10_000,
    "bmp.bmp": lambda: b"BM" + struct.pack("<IHHIIiiHHIIiiII", *BITMAP),
    "ico.ico": lambda: b"\0\0\1\0\xff\xff" + b"\xff" * 16_000,
}  # fmt: skip
for name, content in IMAGES.items():

    def picture(
        folder: Path, name: str = name, content: Callable[[], bytes] = content
    ) -> list[str]:
        photo(folder / "images" / "a" / "good.png")
        (folder / "images" / "a" / name).write_bytes(content())
        return ["data", str(folder / "images")]

    CASES[f"image {name}"] = picture


@case("image pipe and device")
def pipe(folder: Path) -> list[str]:
    photo(folder / "images" / "a" / "good.png")
    os.mkfifo(folder / "images" / "a" / "pipe.png")
    (folder / "images" / "a" / "zero.png").symlink_to("/dev/zero")
    (folder / "images" / "a" / "loop.png").symlink_to("loop.png")
    (folder / "images" / "a" / "up").symlink_to("..")
    return ["data", str(folder / "images")]


# Archives.


def tar_case(name: str, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    def make(folder: Path) -> list[str]:
        with tarfile.open(folder / "x.tar", "w") as tar:
            for info, content in members:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return ["data", f"wds:{folder / 'x.tar'}"]

    CASES[f"tar {name}"] = make


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


tar_case("empty", [])
tar_case("up", [(tarfile.TarInfo("../../x.png"), b"x"), (tarfile.TarInfo("/etc/x.json"), b"{}")])
tar_case(
    "links", [(link("a.png", "/etc/passwd"), b""), (link("b.png", "b.png", tarfile.LNKTYPE), b"")]
)
tar_case(
    "deep", [(tarfile.TarInfo("a.png"), b"x"), (tarfile.TarInfo("a.json"), DEEP_LIST.encode())]
)
tar_case("device", [(link("a.png", "", tarfile.CHRTYPE), b"")])
ARCHIVES = {
    "x.tar": b"x" * 1000, "y.tar": b"\0" * 100_000, "x.parquet": b"PAR1PAR1",
    "y.parquet": b"PAR1" + b"\xff" * 1000 + b"PAR1",
}  # fmt: skip
for name, content in ARCHIVES.items():
    kind = "wds:" if name.endswith("tar") else "parquet:"
    file_case("archive of nothing", name, content, prefix=kind)


# Indexes and word lists.


def index_case(name: str, change: Callable[[Path], object], *options: str) -> None:
    def make(folder: Path) -> list[str]:
        change(folder / "index")
        options_of = [option.format(folder=folder) for option in options]
        return ["search", str(folder / "index"), "--text", "a cat", *options_of]

    CASES[f"index {name}"] = make


def describe(folder: Path, **values: Any) -> None:
    path = folder / "index.json"
    path.write_text(dump({**json.loads(path.read_text()), **values}))


for key in ("format", "model", "identity", "dim", "dtype", "words", "local"):
    for kind in ("null", "negative", "huge", "nested", "deep"):
        index_case(f"{key} {kind}", lambda p, k=key, v=VALUES[kind]: describe(p, **{k: v}))
index_case("model download", lambda p: describe(p, model="open_clip/ViT-B-32/openai"))
index_case("model hub", lambda p: describe(p, model="timm/hf-hub:evil/model"))
index_case("model file", lambda p: describe(p, model="/etc/passwd"))
index_case("model device", lambda p: describe(p, model="/dev/zero"))
index_case("json", lambda p: (p / "index.json").write_text(DEEP_LIST))
for file in ("vectors-0.bin", "words-0.bin", "images.sqlite"):
    index_case(f"{file} empty", lambda p, f=file: (p / f).write_bytes(b""))
    index_case(f"{file} junk", lambda p, f=file: (p / f).write_bytes(b"\xff" * 100_000))
    index_case(f"{file} missing", lambda p, f=file: (p / f).unlink())
for name, text in {"long": LONG, "empty": "", "bytes": "\0" * 100_000}.items():
    index_case(
        f"words {name}", lambda p, t=text: (p.parent / "w.txt").write_text(t),
        "--method", "freedom", "--words", "{folder}/w.txt",
    )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_hostile(name: str, bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for base in ("model", "index", "photos"):
        shutil.copytree(bases / base, tmp_path / base)
    arguments = CASES[name](tmp_path)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        out, errors = io.StringIO(), io.StringIO()
        code: Any = None
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            with redirect_stdout(out), redirect_stderr(errors):
                code = main(arguments)
        except BaseException as error:
            errors.write(f"Traceback: {error!r}")
        try:
            after = resource.getrusage(resource.RUSAGE_SELF)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            size = 1024 * (after.ru_maxrss - before.ru_maxrss)
            os.write(write, json.dumps([code, seconds, size, errors.getvalue()[-3000:]]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    status = os.waitpid(child, 0)[1]
    assert content, f"the process ended with {status}"
    code, seconds, size, errors = json.loads(content)
    if log := os.environ.get("HOSTILE_LOG"):
        with open(log, "a") as file:
            file.write(json.dumps([name, code, seconds, size, errors[-400:]]) + "\n")
    assert code in (0, 1, 2), errors
    assert "Traceback" not in errors and "CENOTE_DEBUG" not in errors, errors
    assert len(errors.splitlines()) < 20 and all(len(line) < 1000 for line in errors.splitlines())
    assert seconds < SECONDS and size < BYTES, (seconds, size)


def test_there_are_enough() -> None:
    assert len(CASES) >= 150
