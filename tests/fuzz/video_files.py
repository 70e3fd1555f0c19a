"""Videos as the source `video` decodes them, and bytes as the source `stdin` reads them."""

from __future__ import annotations

import ctypes
import io
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import imageio_ffmpeg
import numpy as np

from launcher.errors import BadInputError, LauncherError
from launcher.sources.base import FrameRefusedError
from launcher.sources.stdin import PipeSource
from launcher.sources.video import VideoConfig
from tests.fuzz import input_files

_KINDS = (
    "libx264 mp4", "libx264 mpegts", "libx265 matroska", "mjpeg avi", "libvpx webm", "mpeg4 mov",
    "libvpx-vp9 webm", "mpeg2video mpeg", "libaom-av1 mp4", "gif gif", "flv flv", "rawvideo nut",
)  # fmt: skip
"""Codec and format of each seed."""

MOST_FRAMES = 200
_ARENAS = -8
"""M_ARENA_MAX of mallopt(3)."""


@cache
def videos() -> tuple[bytes, ...]:
    """Return small videos that ffmpeg makes, one of each kind."""
    with TemporaryDirectory() as folder:
        return tuple(_video(Path(folder) / "seed", *kind.split()) for kind in _KINDS)


def _video(path: Path, codec: str, form: str) -> bytes:
    command = [
        *(imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "quiet", "-y", "-f", "lavfi"),
        *("-i", "testsrc=size=32x24:rate=10", "-frames:v", "4", "-c:v", codec),
        *(("-pix_fmt", "yuv420p") if codec.startswith(("lib", "mp")) else ()),
        *("-f", form, str(path)),
    ]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path.read_bytes()


def video_reader(folder: Path) -> Callable[[bytes], bool]:
    """Reads bytes as a video file."""
    # Every thread may reserve 64 MiB of address space otherwise, which is bounded where this runs.
    ctypes.CDLL(None).mallopt(_ARENAS, 1)
    path = folder / "input.mp4"

    def read(data: bytes) -> bool:
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        source = VideoConfig(url=str(path)).open(folder)
        try:
            for number, frame in enumerate(source.frames()):
                assert isinstance(frame.data, np.ndarray)
                assert frame.data.dtype == np.uint8
                assert frame.data.shape[2:] == (3,)
                if number == MOST_FRAMES:
                    break
        except BadInputError as error:
            input_files.is_good_sentence(error)
            return False
        finally:
            source.close()
        return True

    return read


def pipes() -> tuple[bytes, ...]:
    """Return arrays and JPEG images, one after the other."""
    jpegs = tuple(image for image in input_files.images() if image.startswith(b"\xff\xd8"))
    array = io.BytesIO()
    np.save(array, np.arange(6.0).reshape(2, 3))
    return (jpegs[0] + array.getvalue() + jpegs[1], array.getvalue() * 3, jpegs[2] + jpegs[0])


def read_pipe(data: bytes) -> bool:
    """Bytes on standard input."""
    descriptor = os.memfd_create("stdin")
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        source = PipeSource(descriptor, "standard input")
        assert any(_reaches_its_end(source) for _ in range(len(data) + 1))
        return True
    except BadInputError as error:
        _is_good_sentence(error)
        return False
    finally:
        os.close(descriptor)


def _reaches_its_end(source: PipeSource) -> bool:
    """Read on; returns False if a frame was refused."""
    try:
        return all(frame.data is not None for frame in source.frames())
    except FrameRefusedError as error:
        _is_good_sentence(error)
        return False


def _is_good_sentence(error: LauncherError) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 1000
