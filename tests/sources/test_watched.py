"""What watches a decoder's opens does see them; nothing else would tell if it did not."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sources.watched import Watched, can_watch

pytestmark = pytest.mark.skipif(not can_watch(), reason="system calls of this machine are unknown")


def opener(folder: Path) -> Callable[[bytes], bool]:
    """Opens what it is told to, by C where it can."""

    def read(data: bytes) -> bool:
        if data == b"socket":
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        elif data:
            return bool(ctypes.CDLL(None).open(data, 0) >= 0)
        return (folder / "own").read_bytes() == b"mine"

    return read


def test_what_a_reader_opens_besides_its_own_file_is_denied_and_reported(tmp_path: Path) -> None:
    (tmp_path / "own").write_bytes(b"mine")
    (tmp_path / "other").write_bytes(b"other")
    watched = Watched("tests.sources.test_watched:opener", tmp_path, ("own",))
    try:
        assert watched.read(b"")
        with pytest.raises(AssertionError, match=r"it opened \['.*/other'\]"):
            watched.read(str(tmp_path / "other").encode())
        with pytest.raises(AssertionError, match="system call"):
            watched.read(b"socket")
        assert watched.read(str(tmp_path / "own").encode())
    finally:
        watched.close()
