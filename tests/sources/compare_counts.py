"""Counts the frames of joined and damaged videos, ours against ffmpeg's: `python -m
tests.sources.compare_counts`.

Fifty files of several containers and codecs are made: joined, cut, with packets lost, and with
bytes changed. A frame counts as decoded by ffmpeg if its null output gets it. A picture that the
decoder itself calls broken is refused by us and put out by ffmpeg; so those are added to what we
give. (A packet of which the decoder makes no picture is refused by us, too, and counted by
neither.) Prints a line for each file where that was so, and ends with exit code 1 if the sums
differ.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from launcher.config.ends.source import FrameRefusedError
from launcher.errors import LauncherError
from launcher.sources.video import VideoConfig
from tests.sources.media import FFMPEG, write_video

FRAMES = 60

KINDS = {
    "h264.ts": ("-c:v", "libx264", "-g", "12"),
    "h264-bframes.mp4": ("-c:v", "libx264", "-g", "24", "-bf", "3", "-movflags", "faststart"),
    "h264.mkv": ("-c:v", "libx264", "-g", "12"),
    "h264.flv": ("-c:v", "libx264", "-g", "12"),
    "h265.ts": ("-c:v", "libx265", "-g", "12", "-x265-params", "log-level=none"),
    "mpeg2.mpg": ("-c:v", "mpeg2video", "-g", "12"),
    "mpeg2.ts": ("-c:v", "mpeg2video", "-g", "12"),
    "mpeg4.avi": ("-c:v", "mpeg4", "-g", "12"),
    "mjpeg.avi": ("-c:v", "mjpeg"),
    "vp9.webm": ("-c:v", "libvpx-vp9", "-g", "12", "-deadline", "realtime"),
}
"""The name of each video and how it is coded."""


def damaged(whole: bytes, random: Random) -> Iterator[tuple[str, bytes]]:
    """Yield what was done to a video, and what is left of it."""
    middle = len(whole) // 3 + random.randrange(len(whole) // 3)
    yield "joined", whole + whole
    yield "cut", whole[:middle]
    packets = middle // 188 * 188
    yield "lost", whole[:packets] + whole[packets + 188 * 3 :]
    noise = bytearray(whole)
    for _ in range(8):
        noise[random.randrange(len(noise) // 4, len(noise))] ^= 1 << random.randrange(8)
    yield "noise", bytes(noise)
    yield "joined behind a cut", whole[:middle] + whole


def counted_by_ffmpeg(path: Path) -> int:
    """Return how many frames ffmpeg decodes."""
    command = [FFMPEG, "-hide_banner", "-i", str(path), "-fps_mode", "passthrough", "-an"]
    said = subprocess.run(
        [*command, "-f", "null", "-"],
        check=False,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ).stderr.decode("utf-8", "replace")
    counts = re.findall(r"frame= *(\d+)", said)
    return int(counts[-1]) if counts else 0


def counted_by_us(path: Path) -> tuple[int, int, str]:
    """Return how many frames the source gives, and how many it refuses that are pictures, and what
    it says at the end."""
    source = VideoConfig.model_validate({"url": str(path)}).open(path.parent)
    given = refused = 0
    while True:
        try:
            for _ in source.frames():
                given += 1
        except FrameRefusedError as error:  # noqa: PERF203
            refused += str(error).endswith("a part of it is missing")
        except LauncherError as error:
            return given, refused, str(error).removeprefix(f"{path}: ")
        else:
            return given, refused, ""


def main() -> int:
    """Compare, and say where counts differ."""
    files = equal = refusing = 0
    random = Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for name, options in KINDS.items():
            whole = write_video(Path(folder) / name, FRAMES, *options).read_bytes()
            for what, content in damaged(whole, random):
                path = Path(folder) / f"{what}-{name}"
                path.write_bytes(content)
                theirs = counted_by_ffmpeg(path)
                given, refused, end = counted_by_us(path)
                files += 1
                equal += given == theirs
                refusing += given != theirs and given + refused == theirs
                if given != theirs:
                    line = f"{name} {what}: ffmpeg {theirs}, given {given}, refused {refused}"
                    sys.stdout.write(f"{line}; {end}\n" if end else f"{line}\n")
    rest = files - equal - refusing
    sys.stdout.write(
        f"{files} files: {equal} equal, {refusing} with what is refused, {rest} otherwise\n"
    )
    return int(bool(rest))


if __name__ == "__main__":
    sys.exit(main())
