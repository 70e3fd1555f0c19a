"""Connects to agents' ports as a stranger: with garbage, floods, or wrong keys."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from random import Random
from urllib.parse import urlsplit

import zmq

from benchmarks.chaos.bed import Wait
from nodes.net.curve import secure_dialler
from nodes.protocol.codec import encode
from nodes.protocol.messages import HOST, Attach, Credit, Hello, Ping, Shutdown

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01"
CURVE = GREETING + b"CURVE".ljust(20, b"\0") + bytes(32)
PLAIN = GREETING + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x29\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
LONG = b"\x06" + struct.pack(">Q", 1 << 40) + b"\x05HELLO"

GARBAGE = (
    b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", PLAIN[:11], CURVE, GREETING + bytes(52),
    CURVE + LONG, CURVE + b"\x04\xc8\x05HELLO" + bytes(194), PLAIN + READY,
    PLAIN + READY + b"\x02" + struct.pack(">Q", 1 << 40), Random(1).randbytes(1 << 16),
)  # fmt: skip

ROUNDS_A_SECOND = 10.0


def garbage(addresses: Iterable[str], wait: Wait, seconds: float) -> int:
    """Bytes below ZeroMQ, on every port, from many connections that stay open; how many."""
    ends = [end_of(address) for address in addresses]
    random, said = Random(2), 0
    with ExitStack() as held:
        for _ in range(round(seconds * ROUNDS_A_SECOND)):
            for end in ends:
                with suppress(OSError):  # nobody has to take it
                    connection = socket.create_connection(end, 1.0)
                    held.callback(connection.close)
                    connection.settimeout(0.2)
                    connection.sendall(random.choice(GARBAGE))
                said += 1
            if not wait(1 / ROUNDS_A_SECOND):
                break
    return said


def wrong_keys(keys: Iterable[tuple[str, bytes]], wait: Wait, seconds: float, secret: bytes) -> int:
    """Well-formed messages under a secret key, to addresses whose public keys are known; how many
    were said."""
    return _say(keys, wait, seconds, secret)


def messages(addresses: Iterable[str], wait: Wait, seconds: float) -> int:
    """Well-formed messages out of turn, without keys: commands, attaches, credits by the score."""
    return _say([(address, b"") for address in addresses], wait, seconds, b"")


def _say(keys: Iterable[tuple[str, bytes]], wait: Wait, seconds: float, secret: bytes) -> int:
    words = [encode(one) for one in (Hello(1, "x", 5.0), Ping(), Shutdown(), Attach(1, HOST))]
    words += [encode(Credit(1, 0, 1))] * 100
    said, ends = 0, list(keys)
    with zmq.Context() as context:
        for _ in range(round(seconds * ROUNDS_A_SECOND)):
            for address, public in ends:
                with context.socket(zmq.DEALER) as stranger:
                    stranger.setsockopt(zmq.LINGER, 200)
                    stranger.setsockopt(zmq.RECONNECT_IVL, -1)
                    if public:
                        secure_dialler(stranger, secret, public)
                    stranger.connect(address)
                    for word in words:
                        with suppress(zmq.Again):
                            stranger.send(word, zmq.DONTWAIT)
                            said += 1
            if not wait(1 / ROUNDS_A_SECOND):
                break
    return said


def end_of(address: str) -> tuple[str, int]:
    """The host and port of tcp://HOST:PORT."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def data_of(address: str) -> str:
    """The data port of an agent: the one after its control port."""
    host, port = end_of(address)
    return f"tcp://{host}:{port + 1}"
