"""Finds everything that a laboratory left on this machine by its name, and removes it.

It does not rely on a file: the kernel lists namespaces, interfaces, control groups and mounts,
which are recognised by their names, and processes by the control group or network namespace they
are in. So a laboratory can be removed after any crash, and twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lab.cgroups import Hierarchies, existing
from benchmarks.lab.layout import PREFIX, group_name, probe_name
from benchmarks.lab.shell import LabError, end, run, wait_until

NAMESPACES = Path("/run/netns")
REMOVE_S = 10.0


@dataclass(frozen=True)
class Traces:
    """What there is of one laboratory."""

    processes: tuple[int, ...] = ()
    mounts: tuple[Path, ...] = ()
    interfaces: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    groups: tuple[Path, ...] = ()
    folder: Path | None = None

    def __bool__(self) -> bool:
        return self != Traces()


def find(lab: str, folder: Path, found: Hierarchies | None) -> Traces:
    """All traces of the laboratory called `lab`, whose files lie in `folder`."""
    namespaces = _namespaces(group_name(lab))
    names = (group_name(lab), probe_name(lab))
    groups = tuple(existing(found, names)) if found is not None else ()
    interface = f"{PREFIX}{lab}"
    return Traces(
        processes=tuple(sorted(_processes(namespaces, groups))),
        mounts=mounts_below(folder, Path("/proc/self/mountinfo").read_text()),
        interfaces=(interface,) if Path("/sys/class/net", interface).exists() else (),
        namespaces=namespaces,
        groups=groups,
        folder=folder if folder.is_dir() else None,
    )


def remove(lab: str, folder: Path, found: Hierarchies | None) -> Traces:
    """Remove them all, and say what there was; raises `LabError` if something stays."""
    traces = first = find(lab, folder, found)
    while traces.processes:  # a process may have started another one meanwhile
        end(traces.processes)
        traces = find(lab, folder, found)
    for mount in traces.mounts:
        run(("umount", str(mount)))
    for interface in traces.interfaces:
        run(("ip", "link", "delete", interface))
    for namespace in traces.namespaces:
        run(("ip", "netns", "delete", namespace))
    for group in traces.groups:
        wait_until(
            lambda group=group: _removed(group),  # type: ignore[misc]
            REMOVE_S,
            lambda group=group: f"the control group {group} is not empty",  # type: ignore[misc]
        )
    if traces.folder is not None:
        remove_folder(traces.folder)
    with contextlib.suppress(OSError):  # other laboratories are there, or it never was
        folder.parent.rmdir()
    return first


def processes_of(group: Path) -> set[int]:
    """The processes in a control group and those below it."""
    found: set[int] = set()
    for file in (group / "cgroup.procs", *group.glob("*/cgroup.procs")):
        # Gone meanwhile, or a threaded group, whose processes the one above lists.
        with contextlib.suppress(OSError):
            found.update(int(line) for line in file.read_text("ascii").split())
    return found


def mounts_below(folder: Path, mountinfo: str) -> tuple[Path, ...]:
    """Where file systems are mounted below a folder, innermost first."""
    places = [Path(line.split()[4]) for line in mountinfo.splitlines()]
    own = [place for place in places if folder in place.parents]
    return tuple(sorted(own, key=lambda place: len(place.parts), reverse=True))


def remove_folder(folder: Path) -> None:
    """Remove the folder of a laboratory, file by file, and nothing that is mounted or linked."""
    if not folder.is_absolute() or folder.parent.name != base_name() or folder.is_symlink():
        raise LabError(f"{folder} is not the folder of a laboratory")
    device = folder.stat().st_dev
    for place, folders, files in os.walk(folder, topdown=False):
        if os.stat(place).st_dev != device:
            raise LabError(f"{place} is another file system: `umount` it")
        for name in files:
            os.unlink(os.path.join(place, name))
        for name in folders:
            path = os.path.join(place, name)
            (os.unlink if os.path.islink(path) else os.rmdir)(path)
    folder.rmdir()


def base_name() -> str:
    """The folder that laboratories of this user have their folders in."""
    return f"{PREFIX}-{os.geteuid()}"


def _namespaces(group: str) -> tuple[str, ...]:
    names = os.listdir(NAMESPACES) if NAMESPACES.is_dir() else []
    return tuple(sorted(name for name in names if name.startswith((f"{group}-", f"{group}."))))


def _processes(namespaces: tuple[str, ...], groups: tuple[Path, ...]) -> Iterator[int]:
    found: set[int] = set()
    for group in groups:
        found |= processes_of(group)
    inodes = {os.stat(NAMESPACES / name).st_ino for name in namespaces}
    for entry in os.listdir("/proc") if inodes else ():
        if entry.isdigit() and _namespace_of(entry) in inodes:
            found.add(int(entry))
    return (pid for pid in found if pid != os.getpid())


def _namespace_of(pid: str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
