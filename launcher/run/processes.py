"""Agents that the launcher starts on its own machine, and their certain end.

Each runs in a session of its own, so that Ctrl-C in a terminal reaches the launcher alone, which
then ends its agents in order. Three things end them: the protocol's `Shutdown`; this module, which
closes their standard input, sends SIGTERM and then SIGKILL with a bounded wait after each; and, if
the launcher itself is killed, the kernel, which closes that same pipe.

How often the kernel has ended a process here for want of memory.

The counter is that of the control group that bounds this process and those that it starts. Where it
cannot be read, that of the machine takes its place, on which others' processes count too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from launcher.errors import BadInputError, RunFailedError
from launcher.run.access import launcher_keys
from launcher.run.runtime import Node
from launcher.signals import unwinding_on_signals
from nodes.host.control_groups import group_folders
from nodes.protocol.addresses import host_of

NAME = "oom_kill"
"""What both versions of control groups and the machine call it."""


def oom_kills(proc: Path = Path("/proc")) -> int:
    """How often so far; 0 if it is unknown."""
    places = [proc / "vmstat"]
    try:
        for folder in (group_folders("memory", proc / "self") or ())[:1]:
            places = [folder / "memory.events", folder / "memory.oom_control", *places]
    except (OSError, ValueError):
        pass
    return next((count for count in map(_count, places) if count is not None), 0)


def _count(path: Path) -> int | None:
    try:
        lines = path.read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    found = [line.split()[1:] for line in lines if line.split()[:1] == [NAME]]
    return int(found[0][0]) if found and found[0] and found[0][0].isdigit() else None


TAIL_BYTES = 4096
"""How much of the end of an agent's standard error is kept."""

LEAVE_S = 3.0
"""How long an agent may take to leave by itself, and again after SIGTERM, before SIGKILL."""

LONGEST_IPC_PATH = 107
"""Bytes that a Unix socket's path may have on Linux."""


class LocalAgent:
    """One agent process: its name, control address, exit code and last words."""

    def __init__(self, name: str, address: str, arguments: list[str]) -> None:
        """Start it; raises `RunFailedError` if that is impossible."""
        self.name = name
        self.address = address
        command = [sys.executable, "-m", "nodes.cli", "--listen", address, "--name", name]
        try:
            self._process = subprocess.Popen(
                [*command, "--exit-with-parent", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise RunFailedError(f"node {name!r}: cannot start its agent: {error}") from error
        self._tail = b""
        self._has_ended = False
        self._kills_before = oom_kills()
        os.set_blocking(self.stderr, False)

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def stderr(self) -> int:
        """The file descriptor of what it writes to standard error."""
        assert self._process.stderr is not None  # noqa: S101 - for the type checker: a PIPE
        return self._process.stderr.fileno()

    def read_stderr(self) -> bool:
        """Keep the end of what it has written; False when it has closed standard error."""
        while True:
            try:
                data = os.read(self.stderr, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._tail = (self._tail + data)[-TAIL_BYTES:]

    def exit_code(self) -> int | None:
        """Its exit code (minus the signal that ended it), None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._end_what_is_left()
        return code

    def stderr_tail(self) -> str:
        """The end of what it wrote to standard error, cut to whole lines."""
        self.read_stderr()
        text = self._tail.decode(errors="replace")
        return text.partition("\n")[2] if len(self._tail) == TAIL_BYTES else text

    def oom_kills(self) -> int:
        """How many processes the kernel has ended for want of memory since it was started."""
        return oom_kills() - self._kills_before

    def forget_stderr(self) -> None:
        """Drop what it has written so far: it is about its start, which went well."""
        self.read_stderr()
        self._tail = b""

    def hint(self) -> None:
        """Close its standard input: time to leave."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def signal(self, number: int) -> None:
        """Signal it and every process it has started, unless it has ended."""
        if not self._has_ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _end_what_is_left(self) -> None:
        """Of its process group, at once: later its id may be that of somebody else's."""
        self.signal(signal.SIGKILL)
        self._has_ended = True

    def wait(self, until_s: float) -> bool:
        """Wait until it has ended or the monotonic clock shows `until_s`; whether it has."""
        try:
            self._process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        self._end_what_is_left()
        return True

    def close(self) -> None:
        """Release its pipes; it has ended."""
        self.hint()
        if self._process.stderr is not None:
            self._process.stderr.close()


class LocalAgents(Mapping[str, LocalAgent]):
    """The agents that were started, by node name."""

    def __init__(self) -> None:
        self._agents: dict[str, LocalAgent] = {}

    def __getitem__(self, name: str) -> LocalAgent:
        return self._agents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    def start(self, name: str, address: str, arguments: list[str]) -> None:
        """Start one more."""
        self._agents[name] = LocalAgent(name, address, arguments)

    def end(self) -> None:
        """End all of them and what they started, in `2 * LEAVE_S` seconds at most."""
        agents = list(self._agents.values())
        try:
            for agent in agents:
                agent.hint()
            leaving = _wait(agents)
            for agent in leaving:
                agent.signal(signal.SIGTERM)
            _wait(leaving)
        finally:
            # Whoever is left. It cannot be refused.
            for agent in agents:
                agent.signal(signal.SIGKILL)
            _wait(agents)
            for agent in agents:
                agent.close()
            self._agents.clear()


def _wait(agents: list[LocalAgent]) -> list[LocalAgent]:
    until_s = time.monotonic() + LEAVE_S
    return [agent for agent in agents if not agent.wait(until_s)]


@contextlib.contextmanager
def start_agents(nodes: Iterable[Node], cache: Path | None = None) -> Iterator[LocalAgents]:
    """Start an agent for every node without an address; end them all on the way out.

    Enter it before planning, so that the agents import their engines meanwhile. `cache` is where
    they keep subnets (None: their own default). While inside, SIGTERM and SIGHUP to this process
    unwind it like Ctrl-C does (only where called in the main thread). Raises `BadInputError` for
    the address of another node whose host is unknown or whose key is missing, `RunFailedError` if
    an agent cannot start.
    """
    nodes = tuple(nodes)
    agents = LocalAgents()
    place = tempfile.TemporaryDirectory(
        prefix="csdf-", dir=_short_parent(), ignore_cleanup_errors=True
    )
    with place as directory, unwinding_on_signals():
        try:
            remote = [node.address for node in nodes if node.address is not None]
            for node in nodes:
                if node.address is not None:  # refused now rather than after the search
                    launcher_keys(node.access, {node.name: node.address})
            for number, node in enumerate(n for n in nodes if n.address is None):
                address = _listen_address(Path(directory), number, remote)
                keys = node.access.agent_arguments(node.name, address)
                agents.start(node.name, address, _arguments(node, cache) + keys)
            yield agents
        finally:
            agents.end()


def _arguments(node: Node, cache: Path | None) -> list[str]:
    arguments = [] if cache is None else ["--cache", str(cache)]
    if node.cpus:
        arguments += ["--cpus", ",".join(str(cpu) for cpu in node.cpus)]
    return arguments


def _short_parent() -> str | None:
    """Where a directory's path leaves room for a socket's name; None: in the usual place."""
    longest = LONGEST_IPC_PATH - len("/csdf-xxxxxxxx/9999.data")
    return None if len(os.fsencode(tempfile.gettempdir())) <= longest else "/tmp"  # noqa: S108 - the directory made there is private


def _listen_address(directory: Path, number: int, remote: list[str]) -> str:
    """Where a local agent listens: on TCP if agents elsewhere have to reach it."""
    if not remote:
        return f"ipc://{directory}/{number}"
    host = _own_address_towards(remote[0])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _own_address_towards(address: str) -> str:
    """This machine's address on the network through which it reaches a remote one."""
    host = host_of(address)
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # UDP: looks up the route, sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise BadInputError(f"{address}: this machine has no way to {host!r} ({error})") from error
