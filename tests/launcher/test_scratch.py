"""Temporary folders of the launcher, and what is left of processes that were killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from launcher.scratch import NAME_BYTES, scratch_folder

HOLD = """
import sys
from pathlib import Path
from launcher.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "subnets").mkdir()
    (folder / "subnets" / "first.onnx").write_bytes(b"weights")
    print(folder, flush=True)
    sys.stdin.read()
"""


def holder(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder, and the folder."""
    command = [sys.executable, "-c", HOLD, str(parent)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_goes_with_its_context(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        (folder / "file").touch()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert len(folder.name) == NAME_BYTES
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_running_one_stays(
    tmp_path: Path,
) -> None:
    killed, left = holder(tmp_path)
    running, used = holder(tmp_path)
    killed.kill()
    killed.communicate()
    with scratch_folder(tmp_path):
        assert not left.exists()
        assert (used / "subnets" / "first.onnx").exists()
    running.communicate()
    assert list(tmp_path.iterdir()) == []


def test_what_only_has_such_a_name_stays(tmp_path: Path) -> None:
    mine = tmp_path / "csdf-edge-tmp.mine"
    mine.mkdir()
    with scratch_folder(tmp_path):
        assert mine.exists()
