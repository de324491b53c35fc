"""Videos as frames, with the extra `video`; without it, and for a damaged video, a sentence."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import BadImage, find_images, open_dataset, read_image
from cenote.data.digests import digests
from cenote.data.video import split_frame

SIZE = (96, 64)


def clip(path: Path, seconds: int = 4, fps: int = 10) -> None:
    """Write a video with a grey level of 20 + 50 per second; the upper left quarter is white."""
    av = pytest.importorskip("av", reason="needs: pip install 'cenote[video]'")
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=fps)
        stream.width, stream.height = SIZE
        stream.pix_fmt, stream.bit_rate = "yuv420p", 2_000_000
        for i in range(seconds * fps):
            pixels = np.full((SIZE[1], SIZE[0], 3), 20 + 50 * (i // fps), np.uint8)
            pixels[: SIZE[1] // 2, : SIZE[0] // 2] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def level(image: Image.Image) -> int:
    """Return the second that the grey level stands for."""
    return round((image.getpixel((80, 50))[0] - 20) / 50)


def frames(*seconds: int) -> list[str]:
    return [f"clip@00h00m{second:02}s.mp4" for second in seconds]


def test_one_frame_per_second(tmp_path: Path) -> None:
    clip(tmp_path / "clip.mp4")
    Image.new("RGB", (9, 9)).save(tmp_path / "a.jpg")
    paths = find_images([tmp_path])
    assert [path.name for path in paths] == ["a.jpg", *frames(0, 1, 2, 3)]
    assert find_images([tmp_path / "clip.mp4"]) == find_images([str(tmp_path / "*.mp4")])
    assert find_images([paths[2]]) == [paths[2]]  # a frame by its name
    for second, path in enumerate(paths[1:]):
        image = read_image(path)
        assert image.size == SIZE and image.mode == "RGB" and level(image) == second
    order = [3, 0, 2, 2, 1]  # also backwards
    assert [level(read_image(paths[1 + second])) for second in order] == order
    assert level(read_image(tmp_path / "clip.mp4")) == 0
    with pytest.raises(BadImage, match=r"@00h00m01s.*96 x 64"):
        read_image(paths[2], max_pixels=1000)


def test_data_sets(tmp_path: Path) -> None:
    for name in ("cat/clip.mp4", "dog/clip.mp4", "clip.mp4"):
        clip(tmp_path / name, seconds=2)
    dataset = open_dataset(tmp_path)
    assert len(dataset) == 6 and dataset.classes == ["cat", "dog"]
    assert [record.label for record in dataset].count(None) == 2
    assert [record.image for record in open_dataset(str(tmp_path / "clip.mp4"))] == [
        str(tmp_path / name) for name in frames(0, 1)
    ]
    first = digests(dataset, tmp_path / "digests.sqlite")
    assert len(set(first)) == 2 and None not in first  # of the same contents
    assert digests(dataset, tmp_path / "digests.sqlite") == first


@pytest.mark.timeout(60)  # a worker that frees a decoder's threads hangs
def test_workers_and_threads_read_the_same_frames(tmp_path: Path) -> None:
    import torch

    from cenote.data.loading import load

    class Pixels:
        min_side = None

        def __call__(self, image: Image.Image) -> torch.Tensor:
            return torch.from_numpy(np.array(image)).float()

    clip(tmp_path / "clip.mp4")
    dataset = open_dataset(tmp_path)
    read_image(dataset.path(1))  # the parent has the video open when workers start
    batches = {}
    for workers in (0, 2):
        (batch,) = load(dataset, Pixels(), batch=4, workers=workers)
        batches[workers] = batch.images
    assert (batches[0] == batches[2]).all()
    assert (batches[0].mean((1, 2, 3)).diff() > 0).all()


def test_a_video_of_a_turned_telephone_is_upright(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    clip(path, seconds=1)
    content = path.read_bytes()
    matrix = content.index(b"tkhd") + 4 + 40  # of the track's header, 9 numbers
    one, minus = b"\0\1\0\0", b"\xff\xff\0\0"
    zero = b"\0" * 4
    turned = (zero, one, zero, minus, zero, zero)  # a quarter to the right
    path.write_bytes(content[:matrix] + b"".join(turned) + content[matrix + 24 :])
    image = read_image(path)
    assert image.size == SIZE[::-1]
    assert image.getpixel((50, 20))[0] > 200 and image.getpixel((10, 20))[0] < 100


def test_damaged_videos_are_reported_and_others_read(tmp_path: Path) -> None:
    clip(tmp_path / "clip.mp4", seconds=2)
    content = (tmp_path / "clip.mp4").read_bytes()
    (tmp_path / "broken.mp4").write_bytes(content[:300])
    (tmp_path / "empty.mov").write_bytes(b"")
    secret = tmp_path / "secret.ts"
    secret.write_bytes(content)
    (tmp_path / "list.mp4").write_text(f"#EXTM3U\n#EXTINF:1,\n{secret}\n#EXT-X-ENDLIST\n")
    dataset = open_dataset(tmp_path)
    names = [record.image for record in dataset]
    assert names == ["broken.mp4", *frames(0, 1), "empty.mov", "list.mp4"]
    for i, name in enumerate(names):
        if name.startswith("clip"):
            assert dataset.image(i).size == SIZE
        else:
            with pytest.raises(BadImage, match=name):
                dataset.image(i)
    (tmp_path / "clip.mp4").unlink()
    with pytest.raises(BadImage, match="no such file"):
        dataset.image(1)


def test_a_file_with_the_name_of_a_frame_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "clip@00h00m01s.mp4"
    assert split_frame(path) == (str(tmp_path / "clip.mp4"), 1)
    clip(path, seconds=1)
    assert split_frame(path) == (str(path), 0) and level(read_image(path)) == 0
    assert split_frame("mail@00h00m01s.jpg") == ("mail@00h00m01s.jpg", 0)


def test_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"anything")
    Image.new("RGB", (9, 9)).save(tmp_path / "a.jpg")
    program = """
import sys
sys.modules["av"] = None  # as if it were not installed
from cenote.data import open_dataset
dataset = open_dataset(sys.argv[1])
print(dataset.image(0).size)
dataset.image(1)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert result.stdout == "(9, 9)\n"
    assert "clip.mp4: this needs the package 'av': pip install 'cenote[video]'" in result.stderr
