"""Programs that run on boards, and what is left of a laboratory as others than it see it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.lab import Lab
from benchmarks.lab.programs import programs

SPIN = """
print("ready", flush=True)
while True:
    pass
"""
SINK = """
import socket, sys
with socket.create_server((sys.argv[1], 7000)) as server:
    print("ready", flush=True)
    with server.accept()[0] as peer:
        while peer.recv(1 << 16):
            pass
"""
SOURCE = """
import socket, sys
with socket.create_server((sys.argv[1], 7001)) as server:
    print("ready", flush=True)
    with server.accept()[0] as peer:
        while True:
            peer.sendall(bytes(1 << 16))
"""
LOOK_S = 0.5
TRIES = 20


@contextmanager
def program(lab: Lab, device: str, text: str) -> Iterator[None]:
    """A Python program on a board, in its slice, once it says `ready`."""
    with programs(lab, {device: (sys.executable, "-c", text, lab.place(device).host)}):
        yield


def comes_to(wanted: float, look: Callable[[], float | None]) -> None:
    """Fails if `look` finds nothing within a tenth of this, however often it looks.

    On a machine that has other work to do, whoever measures may be late, and then is mistaken.
    """
    found: list[float | None] = []
    while len(found) < TRIES:
        found.append(look())
        if found[-1] == pytest.approx(wanted, rel=0.1):
            return
    pytest.fail(f"{wanted:g} was wanted, and found were {found}")


def receives(lab: Lab, device: str, bytes_per_s: float) -> None:
    """A board gets what this machine sends as fast as it can at this rate."""
    address = (lab.place(device).host, 7000)
    with program(lab, device, SINK), socket.create_connection(address) as connection:
        comes_to(bytes_per_s, lambda: _rate(lab, device, 0, lambda: _send(connection, LOOK_S)))


def sends(lab: Lab, device: str, bytes_per_s: float) -> None:
    """What a board sends as fast as it can arrives at this rate."""
    address = (lab.place(device).host, 7001)
    with program(lab, device, SOURCE), socket.create_connection(address) as connection:
        comes_to(bytes_per_s, lambda: _rate(lab, device, 1, lambda: _receive(connection, LOOK_S)))


def _rate(lab: Lab, device: str, way: int, go_on: Callable[[], None]) -> float:
    before, began_s = _link(lab, device)[way], time.monotonic()
    go_on()
    after, seconds = _link(lab, device)[way], time.monotonic() - began_s
    return (after - before) / seconds


def _link(lab: Lab, device: str) -> tuple[int, int]:
    seen = lab.status(over_s=0.0)[device].link
    return seen.received_bytes, seen.sent_bytes


def _send(connection: socket.socket, seconds: float) -> None:
    until_s, data = time.monotonic() + seconds, bytes(1 << 16)
    while time.monotonic() < until_s:
        connection.sendall(data)


def _receive(connection: socket.socket, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        assert connection.recv(1 << 20)


def left_of(name: str) -> set[str]:
    """Namespaces, interfaces, control groups, mounts, files and processes of a laboratory.

    Looked for by other ways than the laboratory's own.
    """
    marks = (f"csdflab-{name}-", f"csdflab-{name}.", f"csdflab-{name}/", f"/{name}/")
    said = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    found = {f"namespace {line}" for line in said.stdout.splitlines() if line.startswith(marks)}
    said = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    found |= {line for line in said.stdout.splitlines() if f"csdflab{name}" in line}
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found |= {line for line in mounts if "csdflab" in line and f"/{name}/" in line}
    for root in (line.split()[4] for line in mounts if " - cgroup" in line):
        found |= {str(path) for path in Path(root).rglob(f"csdflab-{name}*")}
    found |= {str(path) for path in Path("/var/tmp").glob(f"csdflab-*/{name}")}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            groups = (process / "cgroup").read_text()
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            agent = f"/{name}/" in command and "nodes.cli" in command
            ours = f"csdflab-{name}" in groups or agent
            if ours and int(process.name) != os.getpid():
                found.add(f"process {process.name}: {command}")
    return found
