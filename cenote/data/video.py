"""Frames of videos as images: one per second, named clip@00h00m12s.mp4."""

from __future__ import annotations

import math
import os
import re
import threading
from pathlib import Path
from typing import Any

from PIL import Image

from ..extras import require
from .checks import check

SUFFIXES = {
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".wmv", ".flv", ".mpg", ".mpeg", ".3gp"),
    *(".mts", ".m2ts"),
}
FRAME = re.compile(r"(.*)@(\d{2,})h(\d\d)m(\d\d)s(\.\w+)", re.DOTALL)
# A playlist, whatever its suffix is, could open other files and addresses.
DEMUXERS = "mov,mp4,matroska,webm,avi,asf,flv,mpeg,mpegts,mpegvideo"
OPTIONS = {"format_whitelist": DEMUXERS, "protocol_whitelist": "file"}
MAX_AHEAD = 10  # seconds; to a later frame, seeking is faster than decoding all in between

AnyPath = str | os.PathLike[str]
_current = threading.local()  # the video that this thread reads


def is_video_name(path: AnyPath) -> bool:
    """Whether the suffix is that of a video."""
    return os.path.splitext(path)[1].lower() in SUFFIXES


def split_frame(path: AnyPath) -> tuple[str, int]:
    """Return the file of an image, and the second if it is a frame, else 0."""
    name = os.fspath(path)
    match = FRAME.fullmatch(name) if is_video_name(name) else None
    if match is None or os.path.lexists(name):
        return name, 0
    stem, hours, minutes, seconds, suffix = match.groups()
    return stem + suffix, 3600 * int(hours) + 60 * int(minutes) + int(seconds)


def frame_names(path: str, root: Path = Path()) -> list[str]:
    """Return the paths of a video's frames, relative to the root.

    A video that cannot be opened has one: reading it reports why.
    """
    stem, suffix = os.path.splitext(path)
    try:
        seconds = _Video(os.path.join(root, path)).seconds
    except Exception:  # a package is missing, or anything that a decoder raises
        return [path]
    times = [(s // 3600, s // 60 % 60, s % 60) for s in range(max(1, math.ceil(seconds)))]
    return [f"{stem}@{h:02}h{m:02}m{s:02}s{suffix}" for h, m, s in times]


def read_frame(path: AnyPath, max_pixels: int) -> Image.Image:
    """Return a frame by its path, upright; the first one for the path of the video."""
    file, second = split_frame(path)
    # Not across a fork: processes would share the position in the file.
    key = file, os.stat(file).st_mtime_ns, os.getpid()
    if getattr(_current, "key", None) != key:
        _current.key, _current.video = None, _Video(file)
    video: _Video = _current.video
    _current.key = None  # after an error the video is opened again
    width, height = video.stream.width, video.stream.height
    check(width * height <= max_pixels, f"too large to open safely: {width} x {height} pixels")
    image = video.read(second)
    _current.key = key
    return image


class _Video:
    """Decoder that reads frames in order without starting again at a key frame."""

    def __init__(self, path: str) -> None:
        av = require("av", extra="video")
        self.container = av.open(path, options=OPTIONS)
        check(self.container.streams.video, "it contains no video")
        self.stream = self.container.streams.video[0]
        # No threads, here and in `read`: a forked process that frees them waits for them forever.
        self.stream.codec_context.thread_count = 1
        self.start = float((self.stream.start_time or 0) * self.stream.time_base)
        if self.stream.duration is not None:
            self.seconds = float(self.stream.duration * self.stream.time_base)
        else:
            self.seconds = (self.container.duration or 0) / av.time_base
        self.time, self.frames = math.inf, iter(())

    def read(self, second: int) -> Image.Image:
        """Return the first frame from this second on, or the last one of the video."""
        if not self.time < second <= self.time + MAX_AHEAD:
            position = int((second + self.start) / self.stream.time_base)
            self.container.seek(position, stream=self.stream)
            self.frames = self.container.decode(self.stream)
        frame: Any = None
        for frame in self.frames:
            self.time = frame.time - self.start
            if self.time >= second - 1e-3:
                break
        check(frame is not None, f"it has no frame at {second} seconds")
        image: Image.Image = frame.to_image(threads=1)
        return image.rotate(frame.rotation, expand=True)
