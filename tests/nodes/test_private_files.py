"""Private files: a lock shows whether their creator has ended, in any namespace, at any time."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodes.cache.room import clear_left_behind
from nodes.host import private_files
from nodes.host.private_files import PrivateFile, left_behind, make_file, make_folder
from tests.nodes.steps import before_step

HOLDS = """
import sys
from pathlib import Path
from nodes.host.private_files import make_file, make_folder
held = make_file(Path(sys.argv[1]), "file"), make_folder(Path(sys.argv[1]), "folder")
print("ready", flush=True)
sys.stdin.read()
"""

MAKERS = pytest.mark.parametrize("make", [make_file, make_folder])


def is_left(path: Path) -> bool:
    with left_behind(path) as answer:
        return answer


def holding(folder: Path, *before: str) -> subprocess.Popen[bytes]:
    """A process that has made a file and a folder there, and holds them."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", HOLDS, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@MAKERS
def test_what_is_held_is_not_left_behind_and_what_was_let_go_is(
    tmp_path: Path, make: Callable[[Path, str], PrivateFile]
) -> None:
    made = make(tmp_path, "it")
    assert made.path.stat().st_mode & 0o077 == 0
    assert not is_left(made.path)
    made.close()
    assert is_left(made.path)


def test_what_a_killed_process_held_is_left_behind(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        assert [is_left(path) for path in tmp_path.iterdir()] == [False, False]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [is_left(path) for path in tmp_path.iterdir()] == [True, True]


def test_whoever_lives_in_another_pid_namespace_is_seen_whatever_the_clock_says(
    tmp_path: Path,
) -> None:
    command = [str(shutil.which("unshare")), "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make PID namespaces")
    with holding(tmp_path, *command) as process:
        for path in tmp_path.iterdir():
            os.utime(path, (1, 1))
            assert not is_left(path)
        process.communicate(b"")
    assert [is_left(path) for path in tmp_path.iterdir()] == [True, True]


@MAKERS
def test_whoever_clears_up_at_any_step_of_the_making_takes_nothing_away(
    tmp_path: Path, make: Callable[[Path, str], PrivateFile]
) -> None:
    number, goes_on = 0, True
    while goes_on:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        made: list[PrivateFile] = []
        goes_on = before_step(
            number,
            lambda folder=folder: clear_left_behind(folder.iterdir()),
            lambda folder=folder, made=made: made.append(make(folder, "it")),
        )
        assert list(folder.iterdir()) == [made[0].path]
        assert not is_left(made[0].path)
        made[0].close()
    assert number > 5


def test_a_former_boot_s_files_are_left_behind_where_one_kernel_only_has_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere another machine may hold them, and its locks need not be seen here."""
    made = make_file(tmp_path, "it")
    name, _, token = made.path.name.rsplit(".", 2)
    made.rename(tmp_path / f"{name}.00000000-former-boot.{token}")
    made.close()
    ours = make_file(tmp_path, "it")
    ours.close()
    assert is_left(made.path)
    monkeypatch.setattr(private_files, "LOCAL_FILE_SYSTEMS", frozenset())
    assert not is_left(made.path)
    assert is_left(ours.path)


def test_without_locks_nothing_is_ever_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    made = make_file(tmp_path, "it")
    made.close()
    assert not is_left(made.path)


@pytest.mark.parametrize("name", ["notes.txt", "a", "x.y.zzzzzzzz", ".0.01234567"])
def test_files_of_unknown_origin_are_never_left_behind(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    assert not is_left(tmp_path / name)


def test_links_are_not_followed(tmp_path: Path) -> None:
    made = make_file(tmp_path, "it")
    made.close()
    link = made.path.with_name(made.path.name[:-8] + "01234567")
    link.symlink_to(made.path)
    assert not is_left(link)
