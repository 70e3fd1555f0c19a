"""The CPU quota of a thread as the kernel reports it, and measured times corrected by it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nodes.host.control_groups import quota_cores, undisturbed_s

MOUNT = "31 23 0:28 {root} {place} rw,nosuid - {kind} cgroup {options}\n"
NO_SOURCE = "30 23 0:27 / /tmp rw - tmpfs  rw\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


def thread_in(proc: Path, groups: str, mounts: str) -> None:
    (proc / "thread-self").mkdir(parents=True)
    (proc / "thread-self" / "cgroup").write_text(groups)
    (proc / "thread-self" / "mountinfo").write_text(NO_SOURCE + mounts)


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


def v2(proc: Path, path: str, *, root: str = "/") -> Path:
    """A machine with version 2 only, and a thread at `path`; where its groups lie."""
    place = proc.parent / "cgroup"
    mount = MOUNT.format(root=root, place=place, kind="cgroup2", options="rw,nsdelegate")
    thread_in(proc, f"0::{path}\n", mount)
    return place


def v1(proc: Path, path: str, *, root: str = "/") -> Path:
    """A machine with version 1 for CPU time, and version 2 mounted beside it."""
    places = [proc.parent / name for name in ("memory", "unified", "cpu")]
    kinds = [("cgroup", "rw,memory"), ("cgroup2", "rw"), ("cgroup", "rw,cpu,cpuacct")]
    mounts = "".join(
        MOUNT.format(root=root, place=place, kind=kind, options=options)
        for place, (kind, options) in zip(places, kinds, strict=True)
    )
    thread_in(proc, f"4:memory:/elsewhere\n2:cpu,cpuacct:{path}\n0::/\n", mounts)
    return places[2]


def test_a_quota_is_read_in_version_2(proc: Path) -> None:
    place = v2(proc, "/board/compute")
    group(place / "board", cpu_max="max 100000\n")
    group(place / "board" / "compute", cpu_max="2000 10000\n")
    assert quota_cores(proc=proc) == 0.2


def test_a_quota_is_read_in_version_1(proc: Path) -> None:
    place = v1(proc, "/board/compute")
    group(place / "board", cpu_cfs_quota_us="-1\n", cpu_cfs_period_us="100000\n")
    group(place / "board" / "compute", cpu_cfs_quota_us="1000\n", cpu_cfs_period_us="20000\n")
    assert quota_cores(proc=proc) == 0.05


def test_a_group_above_may_grant_less(proc: Path) -> None:
    place = v2(proc, "/board/compute")
    group(place / "board", cpu_max="10000 100000\n")
    group(place / "board" / "compute", cpu_max="2000 10000\n")
    assert quota_cores(proc=proc) == 0.1


def test_in_a_container_only_what_is_below_its_root_is_seen(proc: Path) -> None:
    place = v1(proc, "/docker/4711/inner", root="/docker/4711")
    group(place / "inner", cpu_cfs_quota_us="-1", cpu_cfs_period_us="100000")
    (place / "cpu.cfs_quota_us").write_text("150000")
    (place / "cpu.cfs_period_us").write_text("100000")
    (place.parent / "cpu.cfs_quota_us").write_text("1000")  # not a group: above the mount
    assert quota_cores(proc=proc) == 1.5


@pytest.mark.parametrize("machine", [v1, v2])
def test_without_a_quota_there_is_no_bound(proc: Path, machine) -> None:
    machine(proc, "/").mkdir()
    assert quota_cores(proc=proc) == math.inf


def test_without_control_groups_there_is_no_bound(proc: Path) -> None:
    assert quota_cores(proc=proc) == math.inf


@pytest.mark.parametrize("machine", [v1, v2])
def test_groups_that_cannot_be_seen_may_have_a_bound(proc: Path, machine) -> None:
    machine(proc, "/../another", root="/mine").mkdir()
    assert quota_cores(proc=proc) is None


def test_a_file_that_says_something_else_tells_nothing(proc: Path) -> None:
    group(v2(proc, "/board") / "board", cpu_max="lots\n")
    assert quota_cores(proc=proc) is None


def test_on_this_machine_it_can_be_told() -> None:
    for entry in ("self", "thread-self"):
        cores = quota_cores(entry)
        assert cores is None or cores > 0


def test_waits_for_others_are_left_out_and_those_for_a_quota_are_not() -> None:
    assert undisturbed_s(1.0, 0.3, 0.7, 1.0) == pytest.approx(0.3)
    assert undisturbed_s(1.0, 0.2, 0.8, 0.2) == pytest.approx(1.0)
    assert undisturbed_s(1.4, 0.2, 1.2, 0.2) == pytest.approx(1.0), "others took 0.4"
    assert undisturbed_s(0.2, 0.2, 0.0, 0.2) == pytest.approx(1.0), "it had some left"


def test_an_accelerator_is_as_fast_under_a_quota() -> None:
    assert undisturbed_s(1.0, 0.1, 0.4, 0.2) == pytest.approx(0.5 + 0.1 / 0.2)


@pytest.mark.parametrize(("waited_s", "share"), [(None, 0.2), (0.7, None)])
def test_where_something_is_not_known_nothing_is_left_out(waited_s, share) -> None:
    assert undisturbed_s(1.0, 0.3, waited_s, share) == 1.0
