"""Starts agents on the launching machine, and makes sure that they end.

Each agent runs in its own session, so that Ctrl-C in a terminal reaches the launcher only, which
then ends its agents in order. An agent ends by the protocol's `Shutdown`. If it does not, the
launcher closes the agent's standard input, sends SIGTERM and at last SIGKILL, with a bounded wait
after each. If the launcher is killed, the kernel closes the agent's standard input.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from launcher.config.access import launcher_keys
from launcher.errors import BadInputError, RunFailedError
from launcher.run.runtime import Node
from launcher.scratch import NAME_BYTES, scratch_folder
from launcher.signals import unwinding_on_signals
from nodes.core.engines import AUTO
from nodes.host.control_groups import group_folders
from nodes.host.process import python_command
from nodes.protocol.addresses import host_of

TAIL_BYTES = 4096
"""How much of the end of an agent's standard error is kept."""

LEAVE_S = 3.0
"""How long an agent may take to end by itself, and again after SIGTERM, before SIGKILL."""

LONGEST_IPC_PATH = 107
"""The longest path of a Unix socket on Linux, in bytes."""

OOM_KILL = "oom_kill"
"""The name of the counter of processes that were killed for lack of memory, in the control groups
of either version and in `/proc/vmstat`.
"""


def oom_kills(proc: Path = Path("/proc")) -> int:
    """Return how many processes the kernel has killed for lack of memory; 0 if that is unknown.

    The counter is that of the control group of this process and of those that it starts. If it
    cannot be read, that of the whole machine is used, which counts the processes of others too.
    """
    places = [proc / "vmstat"]
    try:
        for folder in (group_folders("memory", proc / "self") or ())[:1]:
            places = [folder / "memory.events", folder / "memory.oom_control", *places]
    except (OSError, ValueError):
        pass
    return next((count for count in map(_read_counter, places) if count is not None), 0)


def _read_counter(path: Path) -> int | None:
    try:
        lines = path.read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    found = [line.split()[1:] for line in lines if line.split()[:1] == [OOM_KILL]]
    return int(found[0][0]) if found and found[0] and found[0][0].isdigit() else None


class LocalAgent:
    """The process of one agent, with its node's name and its control address."""

    def __init__(self, name: str, address: str, arguments: list[str]) -> None:
        """Start the process; raises `RunFailedError` if that is impossible."""
        self.name = name
        self.address = address
        command = python_command("nodes.cli", "--listen", address, "--name", name)
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
        """The file descriptor from which its standard error is read; it does not block."""
        assert self._process.stderr is not None  # noqa: S101 - for the type checker: a PIPE
        return self._process.stderr.fileno()

    def read_stderr(self) -> bool:
        """Read what it has written and keep the end; return False if standard error is closed."""
        while True:
            try:
                data = os.read(self.stderr, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._tail = (self._tail + data)[-TAIL_BYTES:]

    def exit_code(self) -> int | None:
        """Its exit code (negative: minus the signal that ended it); None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._kill_group()
        return code

    def stderr_tail(self) -> str:
        """Return the end of what it wrote to standard error, cut to whole lines."""
        self.read_stderr()
        text = self._tail.decode(errors="replace")
        return text.partition("\n")[2] if len(self._tail) == TAIL_BYTES else text

    def oom_kills(self) -> int:
        """Return how many processes were killed for lack of memory since this one was started."""
        return oom_kills() - self._kills_before

    def forget_stderr(self) -> None:
        """Drop what it has written so far, which concerns its successful start."""
        self.read_stderr()
        self._tail = b""

    def ask_to_end(self) -> None:
        """Close its standard input, upon which it ends."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def signal(self, number: int) -> None:
        """Signal its process group, unless that has been killed."""
        if not self._has_ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _kill_group(self) -> None:
        """Kill the rest of its process group now; later, another group may have the same id."""
        self.signal(signal.SIGKILL)
        self._has_ended = True

    def wait(self, until_s: float) -> bool:
        """Wait until it has ended, or the monotonic clock shows `until_s`; return whether it
        has."""
        try:
            self._process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        self._kill_group()
        return True

    def close(self) -> None:
        """Close the pipes of a process that has ended."""
        self.ask_to_end()
        if self._process.stderr is not None:
            self._process.stderr.close()


class LocalAgents(Mapping[str, LocalAgent]):
    """The agents that were started, by node name."""

    def __init__(self) -> None:
        self._agents: dict[str, LocalAgent] = {}
        self._process = os.getpid()

    def __getitem__(self, name: str) -> LocalAgent:
        return self._agents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    def start(self, name: str, address: str, arguments: list[str]) -> None:
        """Start another agent; raises `RunFailedError` if that is impossible."""
        self._agents[name] = LocalAgent(name, address, arguments)

    def end(self) -> None:
        """End all agents and the processes that they started, within about `2 * LEAVE_S`.

        Does nothing in a forked child of the process that started them.
        """
        if os.getpid() != self._process:
            return
        agents = list(self._agents.values())
        try:
            for agent in agents:
                agent.ask_to_end()
            left = _wait(agents)
            for agent in left:
                agent.signal(signal.SIGTERM)
            _wait(left)
        finally:  # a process cannot refuse SIGKILL
            for agent in agents:
                agent.signal(signal.SIGKILL)
            _wait(agents)
            for agent in agents:
                agent.close()
            self._agents.clear()


def _wait(agents: list[LocalAgent]) -> list[LocalAgent]:
    """Wait up to `LEAVE_S`; return the agents that still run."""
    until_s = time.monotonic() + LEAVE_S
    return [agent for agent in agents if not agent.wait(until_s)]


@contextlib.contextmanager
def start_agents(nodes: Iterable[Node], cache: Path | None = None) -> Iterator[LocalAgents]:
    """Start an agent for every node without an address; end all of them when the context ends.

    Enter the context before planning, so that the agents import their engines meanwhile. `cache` is
    the folder in which they keep subnets (None: their own default). Inside of the context, SIGTERM
    and SIGHUP raise an exception as Ctrl-C does (in the main thread only). Raises `BadInputError`
    if the host in another node's address is unknown or its key is missing, `RunFailedError` if an
    agent cannot be started.
    """
    nodes = tuple(nodes)
    agents = LocalAgents()
    with scratch_folder(_short_parent()) as directory, unwinding_on_signals():
        try:
            remote = [node.address for node in nodes if node.address is not None]
            for node in nodes:
                if node.address is not None:  # check keys now rather than after the search
                    launcher_keys(node.access, {node.name: node.address})
            for number, node in enumerate(n for n in nodes if n.address is None):
                address = _listen_address(directory, number, remote)
                keys = node.access.agent_arguments(node.name, address)
                agents.start(node.name, address, _arguments(node, cache) + keys)
            yield agents
        finally:
            agents.end()


def _arguments(node: Node, cache: Path | None) -> list[str]:
    arguments = [] if cache is None else ["--cache", str(cache)]
    for option, value in (
        ("--engine", node.engine.engine),
        ("--device", node.engine.device),
        ("--meter", node.meter),
    ):
        if value != AUTO:
            arguments += [option, value]
    if node.cpus:
        arguments += ["--cpus", ",".join(str(cpu) for cpu in node.cpus)]
    return arguments


def _short_parent() -> Path | None:
    """A folder whose path leaves room for a socket's name; None for the usual temporary folder."""
    longest = LONGEST_IPC_PATH - len("//9999.data") - NAME_BYTES
    is_short = len(os.fsencode(tempfile.gettempdir())) <= longest
    return None if is_short else Path("/tmp")  # noqa: S108 - the folder made there is private


def _listen_address(directory: Path, number: int, remote: list[str]) -> str:
    """A local agent's address: TCP if agents on other machines have to reach it, else a socket."""
    if not remote:
        return f"ipc://{directory}/{number}"
    host = _own_address_towards(remote[0])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _own_address_towards(address: str) -> str:
    """This machine's own address on the route to a remote one."""
    host = host_of(address)
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # UDP: this finds the route and sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise BadInputError(f"{address}: this machine cannot reach {host!r} ({error})") from error
