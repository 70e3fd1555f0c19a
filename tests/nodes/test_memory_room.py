"""How much memory a process can still allocate: on the machine, and in groups of both versions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nodes.host.control_groups import room_bytes

MB = 1 << 20


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path / "proc"


def in_group(proc: Path, kind: str, options: str, line: str) -> Path:
    root = proc.parent / "fs"
    (proc / "self" / "cgroup").write_text(line)
    (proc / "self" / "mountinfo").write_text(f"31 23 0:28 / {root} rw - {kind} x {options}\n")
    folder = root / "boards" / "one"
    folder.mkdir(parents=True)
    return folder


def test_a_machine_has_what_the_kernel_calls_available(proc: Path) -> None:
    (proc / "meminfo").write_text("MemTotal: 9999 kB\nMemAvailable:  2048 kB\n")
    assert room_bytes(proc) == 2 * MB


def test_nothing_known_is_no_bound(proc: Path) -> None:
    assert room_bytes(proc) == math.inf


def test_a_group_has_its_limit_less_what_no_file_backs(proc: Path) -> None:
    folder = in_group(proc, "cgroup", "rw,memory", "5:memory:/boards/one\n")
    (folder / "memory.limit_in_bytes").write_text(f"{100 * MB}\n")
    (folder / "memory.stat").write_text(f"cache {70 * MB}\nrss 0\ntotal_rss {30 * MB}\n")
    (folder.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert room_bytes(proc) == 70 * MB


def test_the_tightest_group_and_the_machine_bound_it(proc: Path) -> None:
    folder = in_group(proc, "cgroup2", "rw", "0::/boards/one\n")
    (folder / "memory.max").write_text("max\n")
    (folder.parent / "memory.max").write_text(f"{50 * MB}\n")
    (folder.parent / "memory.stat").write_text(f"anon {20 * MB}\nfile {25 * MB}\n")
    assert room_bytes(proc) == 30 * MB
    (proc / "meminfo").write_text("MemAvailable: 1024 kB\n")
    assert room_bytes(proc) == MB
