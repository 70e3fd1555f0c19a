"""Checks the addresses that an agent is to listen on: free, held by an agent, or held by others."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from nodes.doctor.findings import Finding, Severity
from nodes.doctor.setup import AgentSetup
from nodes.protocol.addresses import host_of

LONGEST_IPC_PATH = 107
"""Bytes of a Unix socket's path (unix(7))."""

_LISTENING = "0A"
"""TCP_LISTEN in /proc/net/tcp."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that listens on a port: its number (0 if it is not visible) and command line."""

    pid: int = 0
    command: str = ""

    @property
    def is_agent(self) -> bool:
        """Whether it is an agent of this package."""
        return "node-agent" in self.command or "nodes.cli" in self.command


@dataclass(frozen=True, slots=True)
class PortReading:
    """An address, and why it cannot be listened on: an `errno`, or 0 if it can.

    If it is in use, `holder` is the process that has it.
    """

    address: str
    error: int
    holder: Holder = Holder()


def read_port(address: str, proc: Path = Path("/proc")) -> PortReading:
    """Try to listen on an address as an agent would, and stop at once."""
    error = _try(address)
    if error != errno.EADDRINUSE:
        return PortReading(address, error)
    return PortReading(address, error, _holder(int(address.rpartition(":")[2]), proc))


def _try(address: str) -> int:
    if address.startswith("ipc://"):
        return _try_path(Path(address.removeprefix("ipc://")))
    host, port = host_of(address), int(address.rpartition(":")[2])
    if host is None:
        return errno.EINVAL
    try:
        if host == "*" or host in [name for _, name in socket.if_nameindex()]:
            host = "0.0.0.0"  # noqa: S104 - closed at once
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except ValueError:  # agents do not listen on names
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


def _try_path(path: Path) -> int:
    if len(os.fsencode(path)) > LONGEST_IPC_PATH:
        return errno.ENAMETOOLONG
    if not path.parent.is_dir():
        return errno.ENOENT
    return 0 if os.access(path.parent, os.W_OK | os.X_OK) else errno.EACCES


def _holder(port: int, proc: Path) -> Holder:
    """Return the process that listens on a TCP port."""
    sockets = {f"socket:[{inode}]" for inode in _listeners(port, proc)}
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for descriptor in (folder / "fd").iterdir():
                if os.readlink(descriptor) in sockets:
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    command = " ".join(word.decode("utf-8", "replace") for word in words if word)
                    return Holder(int(folder.name), command[:200])
    return Holder()


def _listeners(port: int, proc: Path) -> set[str]:
    """Return the inodes of the sockets that listen on a TCP port."""
    found = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / name).read_text("ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                    found.add(words[9])
    return found


def judge_port(reading: PortReading) -> Iterator[Finding]:
    """Yield what keeps an agent from listening on an address."""
    if not reading.error:
        return
    where, port = reading.address, reading.address.rpartition(":")[2]
    host = host_of(where)
    if reading.error == errno.EADDRINUSE and reading.holder.is_agent:
        yield Finding(
            Severity.NOTE,
            where,
            f"An agent listens there already, process {reading.holder.pid}. That is as it "
            "should be, unless you want to start another one.",
            "",
        )
        return
    if reading.error == errno.EADDRINUSE:
        holder = reading.holder
        if not holder.pid:
            yield Finding(
                Severity.ERROR,
                where,
                "Another user's process listens there; the command shows which. End it, or "
                "choose another port with --listen and --data.",
                f"sudo ss -ltnp 'sport = :{port}'",
            )
            return
        yield Finding(
            Severity.ERROR,
            where,
            f"Another program listens there, process {holder.pid} ({holder.command}). End it, "
            "or choose another port with --listen and --data.",
            f"kill {holder.pid}",
        )
        return
    if reading.error == errno.EADDRNOTAVAIL:
        yield Finding(
            Severity.ERROR,
            where,
            f"{host} is not an address of this machine.",
            f"node-agent --listen tcp://0.0.0.0:{port}",
        )
        return
    if reading.error == errno.EACCES and host is not None:
        yield Finding(
            Severity.ERROR,
            where,
            f"Only root may listen on ports below 1024, and {port} is one of them.",
            f"node-agent --listen tcp://{host}:5500",
        )
        return
    yield Finding(Severity.ERROR, where, *_unusable_path(reading))


def _unusable_path(reading: PortReading) -> tuple[str, str]:
    """Return what is wrong with the path of a Unix socket, or with any other address."""
    folder = shlex.quote(str(Path(reading.address.removeprefix("ipc://")).parent))
    if reading.error == errno.ENOENT:
        return "Its folder does not exist.", f"mkdir -p {folder}"
    if reading.error == errno.EACCES:
        return "This user may not write its folder.", f"sudo chown {os.geteuid()} {folder}"
    if reading.error == errno.ENAMETOOLONG:
        return (
            f"The path of a Unix socket has at most {LONGEST_IPC_PATH} bytes.",
            "node-agent --listen ipc:///tmp/agent",
        )
    return (
        f"The system refuses to listen on it ({os.strerror(reading.error)}).",
        "node-agent --listen tcp://0.0.0.0:5500",
    )


def check_ports(setup: AgentSetup) -> Iterable[Finding]:
    """Check the addresses of an agent."""
    return [finding for address in setup.addresses for finding in judge_port(read_port(address))]
