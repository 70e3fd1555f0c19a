"""Finds what this machine can emulate, and what it lacks for the rest."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lab.cgroups import Hierarchies, hierarchies
from benchmarks.lab.config import DeviceConfig, LabConfig
from benchmarks.lab.layout import free_network, probe_name
from benchmarks.lab.shell import LabError, read_json, run
from benchmarks.lab.traces import base_name
from launcher.errors import BadInputError

PROGRAMS = {
    "ip": "iproute2 (`ip`) is not installed",
    "tc": "iproute2's `tc` is not installed",
    "nsenter": "util-linux (`nsenter`) is not installed",
    "taskset": "util-linux's `taskset` is not installed",
}
DISK_PROGRAMS = {
    "mkfs.ext4": "e2fsprogs (`mkfs.ext4`) is not installed, which `disk` needs",
    "mount": "`mount` is not installed, which `disk` needs",
}


@dataclass(frozen=True)
class Machine:
    """Control groups and a free network for emulated boards, or sentences about what is missing."""

    found: Hierarchies
    network: str
    missing: tuple[str, ...]

    def check(self) -> None:
        """Raise `BadInputError` if something is missing."""
        if self.missing:
            raise BadInputError(f"boards cannot be emulated here: {'; '.join(self.missing)}")


def require() -> None:
    """Raise `BadInputError` if boards cannot be emulated on this machine."""
    look(LabConfig(devices=(DeviceConfig(),))).check()


def look(config: LabConfig) -> Machine:
    """Try out what this laboratory needs. Leaves nothing behind."""
    missing: list[str] = []
    found = here()
    if sys.platform != "linux":
        return _without("namespaces and control groups are Linux's")
    if os.geteuid() != 0:
        missing.append("root's rights: network namespaces and control groups need them")
    needed = dict(PROGRAMS)
    if any(board.disk is not None for board in (config.defaults, *config.devices)):
        needed |= DISK_PROGRAMS
    missing += [sentence for name, sentence in needed.items() if shutil.which(name) is None]
    if found is None:
        missing.append("control groups for cpu and memory are not mounted, in either version")
    if missing or found is None:
        return _without(*missing)
    probe = probe_name(config.name)
    missing += [*_network_missing(probe), *_groups_missing(found, probe)]
    if missing:
        return _without(*missing)
    addresses = [
        f"{one['local']}/{one['prefixlen']}"
        for interface in read_json("ip", "-j", "address", "show")
        for one in interface.get("addr_info", ())
    ]
    return Machine(found, free_network(addresses, config.name), ())


def _without(*missing: str) -> Machine:
    return Machine(Hierarchies(1), "", missing)


def here() -> Hierarchies | None:
    """The control groups of this machine."""
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text("utf-8")
    except OSError:
        return None
    places = re.findall(r"^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 ", mountinfo, re.MULTILINE)
    file = Path(places[-1], "cgroup.controllers") if places else None
    controllers = file.read_text("ascii") if file is not None and file.exists() else ""
    return hierarchies(mountinfo, controllers)


def base() -> Path:
    """Where laboratories of this user have their folders; the first of them makes it.

    On a disk, not in memory: the agents keep subnets there. Raises `BadInputError` if somebody else
    has taken its name.
    """
    parent = Path("/var/tmp")  # noqa: S108 - the folder in it is ours alone, or refused
    folder = (parent if parent.is_dir() else Path(tempfile.gettempdir())) / base_name()
    if folder.is_symlink() or (folder.exists() and folder.stat().st_uid != os.geteuid()):
        raise BadInputError(f"{folder} belongs to somebody else: have it removed")
    return folder


def _network_missing(probe: str) -> list[str]:
    """Make in a namespace what a laboratory is made of, and remove it all with the namespace."""
    commands = {
        "bridges": f"ip -n {probe} link add name b type bridge",
        "veth pairs": f"ip -n {probe} link add name v type veth peer name w",
        "tbf queues": f"tc -n {probe} qdisc add dev v root tbf rate 1mbit burst 16kb limit 64kb",
    }
    refused = _refused("network namespaces", ("ip", "netns", "add", probe))
    if refused:
        return refused
    try:
        return [
            sentence
            for what, command in commands.items()
            for sentence in _refused(what, tuple(command.split()))
        ]
    finally:
        run(("ip", "netns", "delete", probe))


def _refused(what: str, command: tuple[str, ...]) -> list[str]:
    try:
        run(command)
    except LabError as error:
        return [f"{what}: {error}"]
    return []


def _groups_missing(found: Hierarchies, probe: str) -> list[str]:
    try:
        for root in found.trees:
            (root / probe).mkdir()
            (root / probe).rmdir()
    except OSError as error:
        return [f"control groups cannot be changed: {error.filename}: {error.strerror}"]
    return []
