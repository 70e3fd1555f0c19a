"""Reads a board's CPU time, memory and link from the kernel; parsing is pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lab.cgroups import Group
from benchmarks.lab.layout import INTERFACE, Layout, Place
from benchmarks.lab.shell import LabError, read_json
from benchmarks.lab.traces import processes_of


@dataclass(frozen=True)
class Used:
    """What a board's control groups have counted since they were made.

    CPU in seconds: `slice_cpu_s` in the slice that the quota holds for, `other_cpu_s` outside it.
    Memory in bytes: `anonymous_bytes` is what no file backs. `cpu_quota` is in cores.
    """

    slice_cpu_s: float
    other_cpu_s: float
    cpu_quota: float | None
    memory_limit_bytes: int | None
    memory_bytes: int
    memory_peak_bytes: int
    anonymous_bytes: int
    oom_kills: int


@dataclass(frozen=True)
class Link:
    """A board's interface: rate in bytes per second (None: no bound), bytes since it was made."""

    up: bool
    bytes_per_s: float | None
    sent_bytes: int
    received_bytes: int


def used(group: Group) -> Used:
    """Read a board's control groups; raises `LabError` if there are none."""
    try:
        return _used_v2(group) if group.found.version == 2 else _used_v1(group)
    except (OSError, KeyError, ValueError) as error:
        raise LabError(f"device {group.name!r}: its control groups cannot be read: {error}") from (
            error
        )


def _used_v1(group: Group) -> Used:
    cpu, memory = group.slice_folder("cpu"), group.folder("memory")
    accounts = "cpuacct" if "cpuacct" in group.found.roots else "cpu"
    whole = _number(group.folder(accounts) / "cpuacct.usage") / 1e9
    within = _number(group.slice_folder(accounts) / "cpuacct.usage") / 1e9
    quota_us = _number(cpu / "cpu.cfs_quota_us")
    limit = _number(memory / "memory.limit_in_bytes")
    return Used(
        slice_cpu_s=within,
        other_cpu_s=max(0.0, whole - within),
        cpu_quota=None if quota_us < 0 else quota_us / _number(cpu / "cpu.cfs_period_us"),
        memory_limit_bytes=None if limit >= 1 << 62 else limit,
        memory_bytes=_number(memory / "memory.usage_in_bytes"),
        memory_peak_bytes=_number(memory / "memory.max_usage_in_bytes"),
        anonymous_bytes=anonymous_bytes(group),
        oom_kills=_table(memory / "memory.oom_control").get("oom_kill", 0),
    )


def _used_v2(group: Group) -> Used:
    own = group.folder("cpu")
    slice_ = group.slice_folder("cpu")
    whole, within = _table(own / "cpu.stat"), _table(slice_ / "cpu.stat")
    quota_us, period_us = (slice_ / "cpu.max").read_text("ascii").split()
    limit = (own / "memory.max").read_text("ascii").strip()
    peak = own / "memory.peak"  # from Linux 5.19 on
    now = _number(own / "memory.current")
    return Used(
        slice_cpu_s=within["usage_usec"] / 1e6,
        other_cpu_s=max(0, whole["usage_usec"] - within["usage_usec"]) / 1e6,
        cpu_quota=None if quota_us == "max" else int(quota_us) / int(period_us),
        memory_limit_bytes=None if limit == "max" else int(limit),
        memory_bytes=now,
        memory_peak_bytes=_number(peak) if peak.exists() else now,
        anonymous_bytes=anonymous_bytes(group),
        oom_kills=_table(own / "memory.events").get("oom_kill", 0),
    )


def anonymous_bytes(group: Group) -> int:
    """What a board holds now that no file backs, in bytes."""
    key = "anon" if group.found.version == 2 else "rss"
    return _table(group.folder("memory") / "memory.stat")[key]


def are_stopped(pids: Iterable[int]) -> bool:
    """Whether there are such processes, and none of them runs."""
    states = []
    for pid in pids:
        with contextlib.suppress(OSError):  # gone meanwhile
            states.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    return bool(states) and set(states) == {"T"}


def link(place: Place) -> Link:
    """Read a board's interface; raises `LabError` if there is none."""
    ns = place.namespace
    found = read_json("ip", "-n", ns, "-j", "-s", "link", "show", "dev", INTERFACE)
    queues = read_json("tc", "-n", ns, "-j", "qdisc", "show", "dev", INTERFACE)
    counted = found[0]["stats64"]
    rates = [float(one["options"]["rate"]) for one in queues if one["kind"] == "tbf"]
    return Link(
        up="LOWER_UP" in found[0]["flags"],
        bytes_per_s=rates[0] if rates else None,
        sent_bytes=counted["tx"]["bytes"],
        received_bytes=counted["rx"]["bytes"],
    )


def processes(layout: Layout, place: Place) -> set[int]:
    """The processes of a board."""
    return processes_of(layout.group_of(place).folder("memory"))


def thread_called(pids: set[int], name: str) -> int | None:
    """The id of the first thread of that name in these processes."""
    for pid in sorted(pids):
        for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
            with contextlib.suppress(OSError):  # gone meanwhile
                if (task / "comm").read_text("utf-8").strip() == name:
                    return int(task.name)
    return None


def _number(path: Path) -> int:
    return int(path.read_text("ascii"))


def _table(path: Path) -> Mapping[str, int]:
    """Lines of a word and a number."""
    pairs = (line.split() for line in path.read_text("ascii").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
