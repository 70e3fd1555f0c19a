"""Where a process's control groups lie, of version 1 and 2: from `/proc/PID` to their folders."""

from __future__ import annotations

from pathlib import Path, PurePosixPath


def group_folders(controller: str, process: Path) -> list[Path] | None:
    """The folder of the group that bounds `process` (a folder of /proc), and all above it that can
    be seen; none where the kernel has no such groups, None where they cannot be seen from here.

    Raises OSError or ValueError for what is not as the kernel writes it.
    """
    try:
        lines = (process / "cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = _group(lines, controller)
    if found is None:
        return []
    mounts = (process / "mountinfo").read_text("utf-8", "replace").splitlines()
    return _folders(mounts, *found, controller) or None


def _group(lines: list[str], controller: str) -> tuple[str, PurePosixPath] | None:
    """The kind of file system and the group, from `/proc/PID/cgroup`."""
    found = None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return "cgroup", PurePosixPath(path)
        if number == "0":
            found = "cgroup2", PurePosixPath(path)
    return found


def _folders(mounts: list[str], kind: str, group: PurePosixPath, controller: str) -> list[Path]:
    """The group's folder and all above it that can be seen, from `/proc/PID/mountinfo`."""
    for line in mounts:
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        found, *_, options = after.split()
        if found != kind or (kind == "cgroup" and controller not in options.split(",")):
            continue
        if group.is_relative_to(root):
            below = group.relative_to(root)
            folder = Path(place) / below
            if folder.is_dir():
                return [folder, *folder.parents[: len(below.parts)]]
    return []
