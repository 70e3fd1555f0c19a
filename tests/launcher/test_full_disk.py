"""If a disk is full, a sentence names the file, and no partial or empty file is left."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from launcher.errors import BadInputError, RunFailedError
from launcher.files import whole_file, write_whole
from launcher.results.outputs import OutputFolder
from tests.launcher.models import write_branches
from tests.launcher.test_hostile_files import CLUSTER
from tests.launcher.test_terminal import command

SCRIPT = """
mount -t tmpfs -o size=64k none full || exit 77
head -c $((64 * 1024 - $1)) /dev/zero > full/filler; shift
"$@"; code=$?
rm full/filler
find full -type f -printf '%s %P\\n' > left
exit $code
"""
"""Fills a disk in its own mount namespace, and lists what the command left there."""


def why_not() -> str | None:
    """Why no disk can be mounted here; None if it can."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None:
        return "a disk of one's own needs root and Linux's mount namespaces"
    probe = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"]
    done = subprocess.run(probe, capture_output=True, check=False)
    return None if done.returncode == 0 else "mounting is not allowed here"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster, a saved plan, a graph, and where the full disk is mounted."""
    path = tmp_path_factory.mktemp("disk")
    (path / "full").mkdir()
    write_branches(path / "branches.onnx")
    (path / "cluster.yaml").write_text(CLUSTER.replace(", {name: b}", ""))  # starts sooner
    (path / "graph.json").write_text(
        '{"actors": [{"name": "a", "execution_times": [1]}], "channels": [{"name": "c", "source": '
        '"a", "target": "a", "production": [1], "consumption": [1], "initial_tokens": 1}]}'
    )
    save = command("launcher.commands.launch", "cluster.yaml", "--plan-only", "--save", "plan")
    subprocess.run(save, cwd=path, check=True, capture_output=True, timeout=120)
    return path


LAUNCH = command("launcher.commands.launch", "cluster.yaml")
PARTITION = command("launcher.commands.partition")
CSDF = command("csdf.cli.command")
COMMANDS = {
    "plan": (*LAUNCH, "--plan-only", "--save", "full/plan"),
    "results": (*LAUNCH, "--output", "full/out", "--frames", "9"),
    "trace": (*LAUNCH, "--trace", "full/trace.json"),
    "journal": (*LAUNCH, "--journal", "full/journal", "--frames", "9"),
    "scratch": ("env", "TMPDIR=full", *LAUNCH, "--frames", "40"),
    "picture": (*PARTITION, "show", "plan", "--output", "full/plan.svg"),
    "page": (*PARTITION, "show", "plan", "--output", "full/plan.html"),
    "drawing": (*CSDF, "draw", "graph.json", "--output", "full/graph.svg"),
    "conversion": (*CSDF, "convert", "graph.json", "full/graph.xml"),
    "schedule": (*CSDF, "simulate", "graph.json", "--gantt", "full/gantt.svg"),
}

SEVERAL = ("plan", "results", "journal")
"""Those that write several files, of which some fit."""


@pytest.mark.slow
@pytest.mark.namespaces
@pytest.mark.parametrize(
    ("name", "room_bytes"),
    [
        *((name, 0) for name in COMMANDS),
        *((name, 4096) for name in SEVERAL),
        ("journal", 8192),
        *(pytest.param(name, 8192, marks=pytest.mark.further) for name in SEVERAL[:2]),
    ],
)
def test_a_full_disk_is_named_and_left_without_pieces(
    folder: Path, name: str, room_bytes: int
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    shell = ("unshare", "-m", "sh", "-c", SCRIPT, "sh", str(room_bytes))
    ended = subprocess.run(
        (*shell, *COMMANDS[name]), cwd=folder, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    listed = (folder / "left").read_text().splitlines()
    left = {path: size for size, path in (line.split(" ", 1) for line in listed)}
    assert "Traceback" not in ended.stderr
    if ended.returncode == 0:
        assert room_bytes or name == "scratch", "Python looks for another folder for scratch only"
    else:
        last = ended.stderr.strip().splitlines()[-1]
        assert ended.returncode in (1, 2)
        assert "full" in last
        assert "No space left on device" in last or "0.0 MB are free; make room" in last
        assert "TMPDIR" not in last or "--save" in last, "of a saved plan, subnets are beside it"
    grows = {"journal/journal"}  # a record for each settled frame: none yet
    assert {path for path, size in left.items() if size == "0"} <= grows
    assert not [path for path in left if Path(path).name.startswith(".")]


@pytest.mark.parametrize("arguments", [("--plan-only",), ("--plan-only", "--json"), ("--version",)])
def test_a_full_disk_behind_standard_output_is_a_sentence(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            (*LAUNCH, *arguments), cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=120, check=False,
        )  # fmt: skip
    last = ended.stderr.splitlines()[-1]
    assert last == "launch: standard output: cannot be written: No space left on device"
    assert ended.returncode == 1


@contextlib.contextmanager
def files_of(most_bytes: int) -> Iterator[None]:
    """Files may have so many bytes and no more, as on a disk that fills up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_cannot_be_written_keeps_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")
    path.chmod(0o640)
    with pytest.raises(OSError, match="File too large") as caught, files_of(2000):
        write_whole(path, bytes(2001))
    assert caught.value.filename == str(path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a"]
    write_whole(path, "after")
    assert path.read_text() == "after"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_with_a_mode_is_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("of others, too")
    path.chmod(0o644)
    with whole_file(path, mode=0o600) as file:
        (draft,) = (each for each in tmp_path.iterdir() if each != path)
        assert draft.stat().st_mode & 0o777 == 0o600
        file.write(b"mine")
    assert path.read_text() == "mine"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with contextlib.suppress(KeyError), whole_file(tmp_path / "a") as file:
        file.write(b"half")
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "x"
    write_whole(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()
    reading, writing = os.pipe()
    write_whole(Path(f"/dev/fd/{writing}"), "x")
    os.close(writing)
    with open(reading) as pipe:
        assert pipe.read() == "x"


def test_results_are_whole_or_not_there(tmp_path: Path) -> None:
    def folder() -> OutputFolder:
        return OutputFolder(tmp_path / "out", ("y",), input_name=lambda frame: "n" * 300, top=1)

    small, large = np.ones((1, 3), np.float32), np.ones((1, 2000), np.float32)
    with folder() as writer, files_of(2000):
        writer.write(0, {"y": small})
        with pytest.raises(RunFailedError, match=r"frame 1 in .*/000001\.npy: cannot be written"):
            writer.write(1, {"y": large})
        for frame in range(2, 7):
            writer.write(frame, {"y": small})
        with pytest.raises(RunFailedError, match=r"in .*/classes\.csv: cannot be written"):
            writer.write(7, {"y": small})
    table = (tmp_path / "out" / "classes.csv").read_text()
    assert table.endswith("\n")
    assert all(len(line.split(",")) == 6 for line in table.splitlines())
    assert "000001.npy" not in os.listdir(tmp_path / "out")
    with pytest.raises(BadInputError, match="cannot be written"), files_of(0):
        folder()
    assert (tmp_path / "out" / "classes.csv").read_text() == table
