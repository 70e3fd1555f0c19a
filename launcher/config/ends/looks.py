"""Decides by its form what a text of `cluster.yaml` or `--input` means as a source."""

from __future__ import annotations

import re
from pathlib import PurePath

from launcher.config.redaction import is_address

STDIN = "-"

VIDEO_SUFFIXES = (
    ".mp4", ".m4v", ".mkv", ".webm", ".avi", ".mov", ".ts", ".m2ts", ".mts", ".mpg", ".mpeg",
    ".mjpeg", ".mjpg", ".h264", ".h265", ".hevc", ".flv", ".3gp", ".wmv", ".ogv", ".gif", ".y4m",
)  # fmt: skip
"""The ends of names that mean a video file."""

_GLOB = re.compile(r"[*?]")
"""The characters that make a text a pattern; brackets are usual in names of videos."""


def is_device(text: str) -> bool:
    """Whether a text is the path of a device such as /dev/video0; /dev/shm is a folder of files."""
    return text.startswith("/dev/") and not text.startswith("/dev/shm/")  # noqa: S108


def is_source(text: str) -> bool:
    """Whether a value of `input:` means a source, and neither files nor `random`."""
    return text == STDIN or _is_video(text)


def is_video_file(text: str) -> bool:
    """Whether a text looks like the path of a video file."""
    return _is_video(text) and not is_address(text) and not is_device(text)


def source_mapping(text: str) -> dict[str, object]:
    """Return the mapping that a short text stands for; anything unrecognised is a folder."""
    if text == STDIN:
        return {"kind": "stdin"}
    return {"kind": "video", "url": text} if _is_video(text) else {"kind": "folder", "path": text}


def _is_video(text: str) -> bool:
    if is_address(text) or is_device(text):
        return True
    return PurePath(text).suffix.lower() in VIDEO_SUFFIXES and not _GLOB.search(text)
