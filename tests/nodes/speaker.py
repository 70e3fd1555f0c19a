"""An agent process, and a bare DEALER that exchanges messages with it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import zmq

from nodes.net.curve import secure_dialler
from nodes.protocol.codec import decode, encode
from nodes.protocol.messages import PROTOCOL, GetStats, Hello, Message, Stats, Welcome

WAIT_S = 20.0
"""What must happen happens within this, or the test fails."""

NEVER_MS = 3_600_000
"""Redials after longer than any test takes. If it never redialled (-1), ZeroMQ would drop what
arrived just before the connection ended."""


class AgentProcess:
    """A `node-agent` on free loopback ports; `control` and `data` are where it listens.

    `module` is what is run, with `environment` beside the test's own.
    """

    def __init__(
        self,
        cache: Path,
        *arguments: str,
        parent: bool = True,
        module: str = "nodes.cli",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        command = [sys.executable, "-m", module, "--cache", str(cache), "--json", *arguments]
        if parent:
            command.append("--exit-with-parent")
        if "--listen" not in arguments:
            command += ["--listen", "tcp://127.0.0.1:0"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.pid = self.process.pid
        self.await_ready()

    def await_ready(self) -> list[str]:
        """Wait until it says that it is ready; the lines that it wrote before."""
        before: list[str] = []
        while line := self.process.stderr.readline():
            found = re.search(r"control (\S+), data (\S+),", line)
            if found is not None:
                self.control, self.data = found.groups()
                return before
            before.append(line)
        self.end()
        raise AssertionError(before)

    def threads(self) -> dict[str, Path]:
        """Name of each thread → its directory under /proc."""
        found = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                found[(task / "comm").read_text().strip()] = task
        return found

    def falls_to(self, most: int, look: Callable[[], int]) -> bool:
        """Whether `look` gives no more than `most` in time: what ends or is closed takes a moment,
        and so does what an agent does now and then in a thread."""
        until_s = time.monotonic() + WAIT_S
        while look() > most:
            if time.monotonic() > until_s:
                return False
            select.select([], [], [], 0.01)
        return True

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def rss_bytes(self) -> int:
        """Its resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """CPU seconds of all threads, to the nanosecond."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9

    def report(self) -> dict[str, object]:
        """Wait for its end; what it said of it. Its exit code must be 0."""
        self.process.wait(WAIT_S)
        out, err = self.process.communicate()
        assert self.process.returncode == 0, err
        return json.loads(out)

    def end(self) -> None:
        """End it in any case."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.communicate(timeout=WAIT_S)


def refusal_of(cache: Path, *arguments: str) -> str:
    """Run a `node-agent` that cannot start: the one sentence that it says of that."""
    done = subprocess.run(
        [sys.executable, "-m", "nodes.cli", "--cache", str(cache), *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    said = done.stderr.strip()
    assert done.returncode == 2
    assert not done.stdout
    assert len(said.splitlines()) == 1
    return said


class Speaker:
    """A DEALER on one of an agent's ports, with an eye on its connection; with `keys`, its own
    secret and the agent's public key, guarded. It waits `redial_ms` for a connection to be
    established, and as long before it dials again."""

    def __init__(
        self,
        context: zmq.Context,
        address: str,
        keys: tuple[bytes, bytes] | None = None,
        redial_ms: int = NEVER_MS,
    ) -> None:
        self.socket = context.socket(zmq.DEALER)
        if keys is not None:
            secure_dialler(self.socket, *keys)
        self.socket.setsockopt(zmq.RCVTIMEO, int(WAIT_S * 1000))
        self.socket.setsockopt(zmq.SNDTIMEO, int(WAIT_S * 1000))  # it blocks once it is cut off
        self.socket.setsockopt(zmq.RECONNECT_IVL, redial_ms)
        self.socket.setsockopt(zmq.CONNECT_TIMEOUT, redial_ms)
        self.socket.setsockopt(zmq.LINGER, 0)
        self._monitor = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._monitor.setsockopt(zmq.RCVTIMEO, int(WAIT_S * 1000))
        self.socket.connect(address)

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.socket.send(encode(message))

    def say_raw(self, *parts: bytes) -> None:
        self.socket.send_multipart(parts)

    def hear(self, kind: type | None = None) -> Message:
        """The next message; the next of a kind, if one is named."""
        while True:
            message = decode(self.socket.recv())
            if kind is None or isinstance(message, kind):
                return message

    def ask(self, message: Message) -> Message:
        self.say(message)
        return self.hear()

    def open_session(self, name: str = "test", lease_s: float = 60.0) -> Welcome:
        answer = self.ask(Hello(PROTOCOL, name, lease_s))
        assert isinstance(answer, Welcome), answer
        return answer

    def stats(self) -> Stats:
        self.say(GetStats())
        return self.hear(Stats)

    def await_cut_off(self) -> None:
        """Wait until the other end has closed this connection."""
        event, _ = struct.unpack("=Hi", self._monitor.recv_multipart()[0])
        assert event == zmq.EVENT_DISCONNECTED

    def was_cut_off(self) -> bool:
        """Whether the other end has closed a connection of it that had been established."""
        return bool(self._monitor.poll(0))

    def close(self) -> None:
        if not self.socket.closed:
            self.socket.disable_monitor()
            self._monitor.close(0)
            self.socket.close()
