"""Checks who may read and write cluster.yaml, which can hold tokens and passwords."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from nodes.doctor.findings import Finding, Severity

_SECRET = re.compile(
    r"""(?:^|[\s{,])["']?(?:token|password)["']?\s*:\s*\S|://[^/\s:@]+:[^/\s@]+@""", re.MULTILINE
)
"""A token, a password, or an address that has one in it."""

MOST_BYTES = 1 << 20
"""The bytes of the file that are searched."""

_ROOT = 0


@dataclass(frozen=True, slots=True)
class FileReading:
    """A file's mode and owner, the user who reads it, and whether it holds a secret."""

    path: Path
    mode: int
    owner: int
    user: int
    has_secret: bool


def read_cluster_file(path: Path) -> FileReading:
    """Read a file; raises OSError if that is impossible."""
    status = path.stat()
    with path.open("rb") as file:
        text = file.read(MOST_BYTES).decode("utf-8", "replace")
    secret = _SECRET.search(text) is not None
    return FileReading(path, status.st_mode & 0o7777, status.st_uid, os.geteuid(), secret)


def judge_cluster_file(reading: FileReading) -> list[Finding]:
    """Return what is wrong with the permissions of a cluster.yaml."""
    place, found = shlex.quote(str(reading.path)), []
    if reading.mode & 0o002:
        found.append(
            Finding(
                Severity.ERROR,
                str(reading.path),
                f"Everybody can write it (mode {reading.mode:04o}), and so choose what runs on the "
                "nodes and where results go.",
                f"chmod go-w {place}",
            )
        )
    if reading.owner not in (reading.user, _ROOT):
        found.append(
            Finding(
                Severity.WARNING,
                str(reading.path),
                f"It belongs to user {reading.owner}, who can change it; this is user "
                f"{reading.user}.",
                f"sudo chown {reading.user} {place}",
            )
        )
    if reading.has_secret and reading.mode & 0o044:
        found.append(
            Finding(
                Severity.WARNING,
                str(reading.path),
                f"It holds a token or a password, and other users can read it (mode "
                f"{reading.mode:04o}).",
                f"chmod 600 {place}",
            )
        )
    return found


def check_cluster_file(path: Path) -> list[Finding]:
    """Check the permissions of a cluster.yaml."""
    return judge_cluster_file(read_cluster_file(path))
