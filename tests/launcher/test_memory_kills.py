"""Processes killed for want of memory are counted by the control group, or else the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.run.processes import oom_kills


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "vmstat").write_text("pgfault 12\noom_kill 41\n")
    return tmp_path / "proc"


@pytest.mark.parametrize(
    ("kind", "options", "line", "file", "text"),
    [
        ("cgroup2", "rw", "0::/a/b\n", "memory.events", "max 9\noom 7\noom_kill 3\n"),
        ("cgroup", "rw,memory", "5:memory:/a/b\n", "memory.oom_control", "oom_kill 3\n"),
    ],
)
def test_the_group_s_own_count_comes_first(
    proc: Path, kind: str, options: str, line: str, file: str, text: str
) -> None:
    root = proc.parent / "fs"
    (proc / "self" / "cgroup").write_text(line)
    (proc / "self" / "mountinfo").write_text(f"31 23 0:28 / {root} rw - {kind} x {options}\n")
    (root / "a" / "b").mkdir(parents=True)
    assert oom_kills(proc) == 41
    (root / "a" / "b" / file).write_text(text)
    assert oom_kills(proc) == 3


def test_where_nothing_can_be_read_there_is_none(proc: Path) -> None:
    (proc / "vmstat").unlink()
    assert oom_kills(proc) == 0
