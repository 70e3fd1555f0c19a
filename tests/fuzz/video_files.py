"""Videos as the source `video` decodes them, and bytes as the source `stdin` reads them."""

from __future__ import annotations

import ctypes
import io
import os
import subprocess
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import imageio_ffmpeg
import numpy as np

from launcher.config.ends.source import FrameRefusedError
from launcher.errors import BadInputError, LauncherError
from launcher.sources.stdin import PipeSource
from launcher.sources.video import VideoConfig
from tests.fuzz import input_files
from tests.fuzz.mutation import mutated, mutated_text
from tests.sources.watched import Watched

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
        return _is_video(VideoConfig.model_validate({"url": str(path)}), folder)

    return read


def _is_video(config: VideoConfig, folder: Path) -> bool:
    """Read a video's first frames."""
    source = config.open(folder)
    try:
        for _ in range(MOST_FRAMES):
            with suppress(FrameRefusedError):
                for frame in islice(source.frames(), MOST_FRAMES):
                    assert isinstance(frame.data, np.ndarray)
                    assert frame.data.dtype == np.uint8
                    assert frame.data.shape[2:] == (3,)
                break
    except BadInputError as error:
        input_files.is_good_sentence(error)
        return False
    finally:
        source.close()
    return True


# ---------------------------------------------------------------- what refers to other files

NAMES = (
    "in.mp4", "in.ts", "in.m3u8", "in.sdp", "in.ffconcat", "in.idx", "in.mlv", "in.mpd", "in.avs",
    "in.xml", "in%d.png", "in.mov", "in.mxf", "in.rm", "in.txt", "in.svg",
)  # fmt: skip
FORMATS = (
    None, None, None, None, "concat", "hls", "sdp", "rtsp", "rtp", "sap", "image2", "image2pipe",
    "vobsub", "mlv", "tedcaptions", "webm_dash_manifest", "svg_pipe", "mov", "matroska", "rm",
    "mxf", "ivr", "ffmetadata", "realtext", "concat,hls", "nonsense",
)  # fmt: skip


@cache
def references() -> tuple[bytes, ...]:
    """Return files that refer to others: the name and the format that are used, and the content."""
    other, web = "/etc/passwd", "http://127.0.0.1:9/a.ts"
    texts = (
        *(f"ffconcat version 1.0\nfile {name}\n" for name in (other, web, "other.mp4")),
        f"file {other}\nfile '{web}'\n",
        f"ffconcat version 1.0\nstream\nfile 'subfile,,start,0,end,9,,:{other}'\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=a\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 45454 RTP/AVP 96\n"
        "a=rtpmap:96 H264/90000\n",
        *(
            f"#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{name}\n#EXT-X-ENDLIST\n"
            for name in (other, web, "other.mp4", f"file://{other}", f"crypto+file://{other}")
        ),
        f'#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI="{web}"\n#EXT-X-MAP:URI="{other}"\n#EXTINF:1,\na.ts\n',
        f'#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,URI="{web}",GROUP-ID="a"\n#EXT-X-STREAM-INF:AUDIO="a"\n{web}\n',
        "# VobSub index file, v7 (do not modify this line!)\nsize: 720x576\nid: en, index: 0\n"
        "timestamp: 00:00:01:000, filepos: 000000000\n",
        f'<?xml version="1.0"?><MPD><Period><BaseURL>{web}</BaseURL></Period></MPD>',
        f'<svg xmlns:x="http://www.w3.org/1999/xlink"><image x:href="{other}"/></svg>',
        f'AviSource("{other}")\n',
        f"[Reference]\nRef1={web}\n",
        f"movie={other}",
        f'<asx version="3"><entry><ref href="{web}"/></entry></asx>',
        f"rtsp://127.0.0.1:9/a\n{web}\n",
    )
    magic = b"MLVI\x34\0\0\0v2.0\0\0\0\0" + bytes(36)
    contents = (*(text.encode() for text in texts), magic, _external_mov(other), *videos())
    return tuple(
        bytes((n % len(NAMES), form)) + content
        for n, content in enumerate(contents)
        for form in (0, n % len(FORMATS))
    )


def _external_mov(name: str) -> bytes:
    """Return a QuickTime file whose video is said to be in another file."""
    whole = next(video for video in videos() if video[4:8] == b"ftyp")
    alias = b"\0\0\0\0" + bytes(150) + len(name).to_bytes(2, "big") + name.encode()
    entry = (8 + len(alias)).to_bytes(4, "big") + b"alis" + alias
    return whole.replace(b"\0\0\0\x0curl \0\0\0\x01", entry)


def reference_reader(folder: Path) -> Callable[[bytes], bool]:
    """Reads bytes as a video file whose name and format its first two bytes choose."""
    ctypes.CDLL(None).mallopt(_ARENAS, 1)

    def read(data: bytes) -> bool:
        if len(data) < 2:
            return False
        path = folder / NAMES[data[0] % len(NAMES)]
        path.unlink(missing_ok=True)
        path.write_bytes(data[2:])
        keys = {"format": FORMATS[data[1] % len(FORMATS)], "options": {"safe": "0"}}
        return _is_video(VideoConfig.model_validate({"url": str(path), **keys}), folder)

    return read


class WatchedReferences:
    """Files that refer to others, read where every open is watched; nothing else is opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watched: Watched | None = None

    def read(self, data: bytes) -> bool:
        """Raises `AssertionError` if anything but the file is opened."""
        if self._watched is None:
            place = "tests.fuzz.video_files:reference_reader"
            self._watched = Watched(place, self._folder, NAMES)
            weakref.finalize(self, self._watched.close)
        return self._watched.read(data)


def changed_reference(seeds: Sequence[bytes], random: Random) -> bytes:
    """One of them with other content or another name and format, or as it is."""
    seed = random.choice(seeds)
    match random.randrange(4):
        case 0:
            return random.randbytes(2) + seed[2:]
        case 1:
            text = [seed[2:].decode("latin-1") for seed in seeds if len(seed) < 600]
            return seed[:2] + mutated_text(text, random).encode("latin-1", "replace")
        case 2:
            return mutated(seeds, random)
        case _:
            return seed


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
