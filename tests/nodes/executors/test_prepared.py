"""Prepared files are complete or absent, whichever other agents write them or die."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodes.executors.base import ExecutorError
from nodes.executors.preparing.entries import PreparedFiles


def make(files: PreparedFiles, key: str, content: bytes) -> None:
    with files.making(key) as folder:
        (folder / "model").write_bytes(content)


def test_an_entry_is_there_once_its_block_ends(tmp_path: Path) -> None:
    files = PreparedFiles(tmp_path)
    with files.making("key") as folder:
        (folder / "model").write_bytes(b"content")
        assert files.find("key") is None
    entry = files.find("key")
    assert entry is not None
    assert (entry / "model").read_bytes() == b"content"


def test_an_entry_whose_making_fails_never_is(tmp_path: Path) -> None:
    files = PreparedFiles(tmp_path)

    def fail() -> None:
        with files.making("key") as folder:
            (folder / "model").write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_of_two_who_make_an_entry_at_once_the_first_wins(tmp_path: Path) -> None:
    one, two = PreparedFiles(tmp_path), PreparedFiles(tmp_path)
    with one.making("key") as folder:
        (folder / "model").write_bytes(b"late")
        make(two, "key", b"early")
    entry = one.find("key")
    assert entry is not None
    assert (entry / "model").read_bytes() == b"early"
    assert list(tmp_path.iterdir()) == [entry]


def test_whoever_comes_second_replaces_a_damaged_first(tmp_path: Path) -> None:
    one, two = PreparedFiles(tmp_path), PreparedFiles(tmp_path)
    with one.making("key") as folder:
        (folder / "model").write_bytes(b"late")
        make(two, "key", b"early")
        (tmp_path / "key" / "model").write_bytes(b"EARLY")
    entry = one.find("key")
    assert entry is not None
    assert (entry / "model").read_bytes() == b"late"


def test_finding_an_entry_is_using_it(tmp_path: Path) -> None:
    files = PreparedFiles(tmp_path)
    make(files, "key", b"content")
    os.utime(tmp_path / "key", (100, 100))
    files.find("key")
    assert (tmp_path / "key").stat().st_mtime > 100


DIES = """
import os, sys
from pathlib import Path
from nodes.executors.preparing.entries import PreparedFiles
with PreparedFiles(Path(sys.argv[1])).making("key") as folder:
    (folder / "model").write_bytes(b"half")
    os._exit(9)
"""


def test_what_a_dead_process_left_is_cleared(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    living = PreparedFiles(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with living.making("key") as folder:
        PreparedFiles(tmp_path)
        assert folder.exists()


def test_a_full_disk_is_said_so(tmp_path: Path) -> None:
    files = PreparedFiles(tmp_path)
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")

    def write() -> None:
        with files.making("key"), full.open("wb", buffering=0) as file:
            file.write(b"x")

    with pytest.raises(ExecutorError, match="No space left on device; make room"):
        write()
    assert list(tmp_path.iterdir()) == []
