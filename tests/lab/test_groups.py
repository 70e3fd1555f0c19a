"""Control groups of both versions, on a tree of plain files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lab import DeviceConfig, LabConfig, LabError, plans
from benchmarks.lab.cgroups import Group, Hierarchies, hierarchies, quota
from benchmarks.lab.readings import used
from benchmarks.lab.traces import mounts_below, remove_folder
from tests.lab.layouts import layout, perform_files

V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
34 31 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_version_1_is_known_by_its_controllers() -> None:
    both = Path("/sys/fs/cgroup/cpu,cpuacct")
    found = hierarchies(V1, controllers_v2="")
    assert found == Hierarchies(
        1, {"cpu": both, "cpuacct": both, "memory": Path("/sys/fs/cgroup/memory")}
    )
    assert len(found.trees) == 2


def test_version_2_needs_both_controllers() -> None:
    root = Path("/sys/fs/cgroup")
    assert hierarchies(V2, "cpuset cpu io memory pids") == Hierarchies(
        2, {"cpu": root, "memory": root}
    )
    assert hierarchies(V2, "cpuset cpu pids") is None
    assert hierarchies("", "") is None


@given(st.floats(0.001, 64))
def test_a_quota_is_what_was_asked_for_and_what_the_kernel_takes(cores: float) -> None:
    quota_us, period_us = quota(cores)
    assert quota_us >= 1_000
    assert 10_000 <= period_us <= 1_000_000
    assert quota_us / period_us == pytest.approx(cores, rel=0.06)
    if cores >= 0.4:
        assert period_us == 10_000
    if cores >= 0.004:
        assert quota_us >= 4_000, "a tick of the kernel"


COUNTED: dict[int, dict[str, str]] = {
    1: {
        "cpuacct/{0}/cpuacct.usage": "2500000000\n",
        "cpuacct/csdflab-one/board/cpuacct.usage": "3000000000\n",
        "memory/csdflab-one/board/memory.usage_in_bytes": "70\n",
        "memory/csdflab-one/board/memory.max_usage_in_bytes": "90\n",
        "memory/csdflab-one/board/memory.stat": "cache 30\nrss 40\n",
        "memory/csdflab-one/board/memory.oom_control": "under_oom 0\noom_kill 1\n",
    },
    2: {
        "csdflab-one/board/cpu.stat": "usage_usec 3000000\nuser_usec 1\n",
        "{0}/cpu.stat": "usage_usec 2500000\n",
        "csdflab-one/board/memory.current": "70\n",
        "csdflab-one/board/memory.peak": "90\n",
        "csdflab-one/board/memory.stat": "anon 40\nfile 30\n",
        "csdflab-one/board/memory.events": "low 0\noom_kill 1\n",
    },
}


@pytest.mark.parametrize("version", [1, 2])
def test_both_versions_tell_the_same(tmp_path: Path, version: Literal[1, 2]) -> None:
    """What the plans write is read back; what a kernel would count is put there by hand."""
    config = LabConfig(name="one", devices=(DeviceConfig(name="board", cpu=0.25, memory=4096),))
    made = layout(config, tmp_path, version)
    perform_files(tuple(plans.up(made)))
    group = made.group_of(made.places["board"])
    perform_files(plans.settle(made, made.places["board"], 5))
    for name, text in COUNTED[version].items():
        (tmp_path / "cgroup" / name.format("csdflab-one/board/compute")).write_text(text)
    found = used(group)
    assert (found.slice_cpu_s, found.other_cpu_s) == (2.5, 0.5)
    assert found.cpu_quota == 0.25
    assert (found.memory_limit_bytes, found.memory_bytes) == (4096, 70)
    assert (found.memory_peak_bytes, found.anonymous_bytes, found.oom_kills) == (90, 40, 1)


def test_groups_that_are_gone_are_named(tmp_path: Path) -> None:
    group = Group(layout(LabConfig(devices=(DeviceConfig(),)), tmp_path).found, "g", "b", "cpu")
    with pytest.raises(LabError, match="device 'b': its control groups cannot be read"):
        used(group)


def test_mounts_are_found_by_the_folder_they_are_in() -> None:
    info = "\n".join(
        f"{n} 1 0:1 / {place} rw - ext4 /dev/x rw"
        for n, place in enumerate(["/", "/var/tmp/a", "/var/tmp/a/b", "/var/tmp/a/b/c", "/var/ab"])
    )
    found = mounts_below(Path("/var/tmp/a"), info)
    assert found == (Path("/var/tmp/a/b/c"), Path("/var/tmp/a/b"))


def test_no_folder_is_removed_but_a_laboratorys(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    with pytest.raises(LabError, match="is not the folder of a laboratory"):
        remove_folder(tmp_path / "precious")
    assert (tmp_path / "precious").is_dir()
