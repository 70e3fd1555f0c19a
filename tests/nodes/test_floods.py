"""Garbage and floods on every port of a real agent do not disturb its session."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import zmq

from nodes.net.curve import new_pair
from nodes.net.gate import UNKNOWN_PER_KNOWN
from nodes.net.keys import KeyFolder, write_public, write_secret
from nodes.protocol.codec import encode
from nodes.protocol.messages import (
    HOST,
    PROTOCOL,
    Attach,
    Credit,
    Hello,
    Ping,
    Pong,
    Query,
    Refused,
)
from tests.fuzz.good import ENCODED
from tests.fuzz.mutation import mutated
from tests.nodes.speaker import NEVER_MS, WAIT_S, AgentProcess, Speaker

pytestmark = [pytest.mark.slow, pytest.mark.alone]

CONNECTIONS = 64
GROWTH_BYTES = 64 << 20
"""How much more memory an agent may hold after a flood than before it."""

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01"
PLAIN = GREETING + b"NULL".ljust(20, b"\0") + bytes(32)
CURVE = GREETING + b"CURVE".ljust(20, b"\0") + bytes(32)


def huge(command: bytes, size: int) -> bytes:
    """A command frame that claims to be very long."""
    return b"\x06" + struct.pack(">Q", size) + command


RAW = {
    "nothing": b"",
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(99),
    "half a greeting": PLAIN[:11],
    "greeting only": CURVE,
    "wrong mechanism": GREETING + b"PLAIN".ljust(20, b"\0") + bytes(32),
    "huge command": CURVE + huge(b"\x05HELLO", 1 << 62),
    "long command": CURVE + huge(b"\x05HELLO", 200 << 20) + bytes(1 << 20),
    "wrong hello": CURVE + b"\x04\xc8\x05HELLO" + bytes(194),
    "ready": PLAIN + b"\x04\x29\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER",
    "noise": Random(1).randbytes(1 << 16),
}


@dataclass(frozen=True)
class Held:
    """What an agent holds."""

    rss_bytes: int
    descriptors: int
    threads: int

    @classmethod
    def by(cls, agent: AgentProcess) -> Held:
        """Look now."""
        return cls(agent.rss_bytes(), agent.descriptors(), len(agent.threads()))


class Attacked:
    """An agent, its launcher, and how to come to its ports."""

    def __init__(self, stack: ExitStack, folder: Path, guarded: bool) -> None:
        self._stack = stack
        self.context = stack.enter_context(zmq.Context())
        arguments = ["--connections", str(CONNECTIONS), "--log-level", "error"]
        self.keys: tuple[bytes, bytes] | None = None
        if guarded:
            public, secret = new_pair()
            mine, my_secret = new_pair()
            write_secret(folder / "keys", "n0", secret, public)
            write_public(folder / "keys" / "launchers" / "me.pub", "me", mine)
            self.keys = (my_secret, public)
            assert KeyFolder(folder / "keys").admits("control", mine)
            arguments += ["--keys", str(folder / "keys")]
        self.agent = AgentProcess(folder / "cache", *arguments)
        stack.callback(self.agent.end)
        self.ports = (self.agent.control, self.agent.data)
        self.launcher = self.speaker(self.agent.control)
        self.launcher.open_session()
        self.answers()
        self.before = Held.by(self.agent)

    def speaker(
        self, address: str, keys: tuple[bytes, bytes] | None = None, redial_ms: int = NEVER_MS
    ) -> Speaker:
        speaker = Speaker(self.context, address, keys or self.keys, redial_ms)
        self._stack.callback(speaker.close)
        return speaker

    def raw(self, address: str) -> socket.socket:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        return socket.create_connection((host, int(port)), WAIT_S)

    def answers(self) -> None:
        """The launcher is served as ever."""
        assert self.launcher.ask(Ping()) == Pong()
        self.launcher.ask(Query(("ab" * 32,)))

    def falls_to(self, descriptors: int) -> bool:
        """Whether it has closed all connections but so many, while the launcher is served."""
        for _ in range(2000):
            self.answers()
            if self.agent.descriptors() <= descriptors:
                return True
        return False

    def comes_to_hold(self, rss_bytes: float) -> bool:
        """Whether it holds so little memory in time."""
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            self.answers()
            if self.agent.rss_bytes() <= rss_bytes:
                return True
        return False

    def has_recovered(self) -> None:
        """Nothing of the flood stays: neither memory nor connections nor threads."""
        assert self.falls_to(self.before.descriptors + 2)
        assert self.agent.rss_bytes() <= self.before.rss_bytes + GROWTH_BYTES
        assert self.agent.falls_to(self.before.threads, lambda: len(self.agent.threads()))
        assert self.agent.process.poll() is None


@pytest.fixture(scope="module", params=[False, True], ids=["without keys", "with keys"])
def attacked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attacked]:
    with ExitStack() as stack:
        yield Attacked(stack, tmp_path_factory.mktemp("attacked"), request.param)


def test_garbage_below_zeromq(attacked: Attacked) -> None:
    with ExitStack() as open_ones:
        for address in attacked.ports:
            for data in RAW.values():
                connection = open_ones.enter_context(attacked.raw(address))
                with suppress(OSError):  # it may hang up before all of it has come
                    connection.sendall(data)
            attacked.answers()
    attacked.has_recovered()


def test_more_connections_than_there_is_room_for(attacked: Attacked) -> None:
    room = UNKNOWN_PER_KNOWN * CONNECTIONS
    for address in attacked.ports:
        with ExitStack() as open_ones:
            for _ in range(2 * room):
                with suppress(OSError):
                    open_ones.enter_context(attacked.raw(address))
            assert attacked.falls_to(attacked.before.descriptors + room + 2)
    attacked.has_recovered()


@contextmanager
def keyless(ports: tuple[str, ...], *arguments: str) -> Iterator[None]:
    """A process that opens silent connections to these ports without end."""
    command = [sys.executable, "-m", "tests.nodes.keyless", *ports, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as flood:
        assert flood.stdout is not None
        assert flood.stdout.readline(), "every connection has been opened once"
        yield
        flood.communicate(b"that will do")


@pytest.mark.parametrize("how", ["as many as there is room for", "more than that", "churning"])
def test_whoever_belongs_here_gets_in_beside_a_host_that_reopens_connections_without_end(
    attacked: Attacked, how: str
) -> None:
    """From the same address, on every port, with the first connection that is established."""
    room = UNKNOWN_PER_KNOWN * CONNECTIONS
    many = {"as many as there is room for": room, "more than that": room * 5 // 4, "churning": 64}
    arguments = ["--connections", str(many[how]), *(["--churn"] if how == "churning" else [])]
    with keyless(attacked.ports, *arguments):
        for _ in range(10):
            newcomer = attacked.speaker(attacked.agent.control, redial_ms=500)
            answer = newcomer.ask(Hello(PROTOCOL, "another launcher", 5.0))
            assert isinstance(answer, Refused), "the agent is taken, and says so"
            assert not newcomer.was_cut_off()
            newcomer.close()
            peer = attacked.speaker(attacked.agent.data, redial_ms=500)
            peer.say(Attach(5, HOST))
            peer.say_raw(b"\xc1 no message")
            peer.await_cut_off()
            peer.close()
            attacked.answers()
    attacked.has_recovered()


def taken_of(connection: socket.socket, chunk: bytes) -> int:
    """How much of it can be sent now."""
    try:
        return connection.send(chunk)
    except OSError:
        return 0


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed it; what it said before is read."""
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def peak_of_strangers(attacked: Attacked, address: str) -> int:
    """What the agent holds at most while 120 connections at once send 7 MB each."""
    size, chunk, peak_bytes = 7_000_000, bytes(1 << 14), 0
    with ExitStack() as open_ones:
        floods = [open_ones.enter_context(attacked.raw(address)) for _ in range(120)]
        left = dict.fromkeys(floods, size)
        for connection in left:
            with suppress(OSError):  # it may have been closed, here and below
                connection.sendall(CURVE + huge(b"\x05HELLO", size))
            connection.setblocking(False)
        while left:
            for connection in tuple(left):
                left[connection] -= taken_of(connection, chunk)
                if left[connection] <= 0 or is_closed(connection):
                    del left[connection]
            peak_bytes = max(peak_bytes, attacked.agent.rss_bytes())
    return peak_bytes


def peaks(attacked: Attacked, address: str) -> Iterator[int]:
    """What the agent holds at most in each of three floods, once it has given that back."""
    for _ in range(3):
        peak_bytes = peak_of_strangers(attacked, address)
        assert attacked.comes_to_hold(1.2 * attacked.before.rss_bytes)
        yield peak_bytes


def test_what_strangers_say_before_a_handshake_is_bounded_and_given_back(
    attacked: Attacked,
) -> None:
    """How much gets in between two looks depends on when the agent's thread gets a processor, so
    one of three peaks must be within the bound; each is given back."""
    if attacked.keys is None:
        pytest.skip("without keys nobody is a stranger")
    for address in attacked.ports:
        most_bytes = attacked.before.rss_bytes + 4 * GROWTH_BYTES
        assert any(peak_bytes <= most_bytes for peak_bytes in peaks(attacked, address))
    attacked.has_recovered()


def test_an_agent_ends_when_it_is_told_to_in_the_middle_of_a_flood(tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path / "cache")
    try:
        with keyless((agent.control, agent.data), "--connections", "200", "--churn"):
            agent.process.send_signal(signal.SIGTERM)
            assert agent.report()["why"] == "SIGTERM"
    finally:
        agent.end()


def test_strangers_who_knock_again_and_again(attacked: Attacked) -> None:
    if attacked.keys is None:
        pytest.skip("without keys nobody is a stranger")
    for address in attacked.ports:
        for _ in range(40):
            stranger = attacked.speaker(address, (new_pair()[1], attacked.keys[1]))
            with suppress(zmq.Again):  # it has been cut off already
                stranger.socket.send(encode(Ping()), zmq.DONTWAIT)
            stranger.await_cut_off()
            stranger.close()
    attacked.answers()
    attacked.has_recovered()


def test_messages_that_are_none(attacked: Attacked) -> None:
    """Of somebody who is admitted, on every port, changed at random."""
    random = Random(7)
    for address in attacked.ports:
        for _ in range(60):
            peer = attacked.speaker(address)
            for _ in range(5):
                parts = [mutated(ENCODED, random) for _ in range(random.choice((1, 1, 2, 3)))]
                with suppress(zmq.Again):  # it has been cut off already
                    peer.socket.send_multipart(parts, zmq.DONTWAIT)
            with suppress(zmq.Again):
                peer.socket.send(b"\xc1 the end", zmq.DONTWAIT)
            peer.await_cut_off()
            peer.close()
        attacked.answers()
    attacked.has_recovered()


def test_more_messages_than_anybody_can_read(attacked: Attacked) -> None:
    """They are ignored, of an epoch that is not there; and refused, without a session."""
    flood = {
        attacked.agent.data: [encode(Attach(5, HOST)), *[encode(Credit(5, 0, 1))] * 5_000],
        attacked.agent.control: [encode(Ping())] * 5_000,
    }
    for address, messages in flood.items():
        peer = attacked.speaker(address)
        peer.socket.setsockopt(zmq.SNDTIMEO, int(WAIT_S * 1000))
        for message in messages:
            peer.socket.send(message)
        attacked.answers()
        peer.close()
    attacked.has_recovered()
