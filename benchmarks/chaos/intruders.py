"""Defines faults of the network between boards: damaged bytes, and connections of strangers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from random import Random
from urllib.parse import urlsplit

import zmq

from benchmarks.chaos.bed import Bed, Wait
from benchmarks.chaos.faults import VICTIM
from benchmarks.lab.layout import PORT
from benchmarks.lab.shell import run
from benchmarks.programs import Program
from launcher.config.access import LAUNCHER
from nodes.net.curve import new_pair, secure_dialler
from nodes.net.keys import KeyFolder
from nodes.protocol.codec import encode
from nodes.protocol.messages import HOST, Attach, Credit, Hello, Ping, Shutdown

ALIAS = 201
"""The last number of the address that the proxy listens at."""

CONTROL, DATA = 0, 1
"""The ports of an agent, counted from its address."""

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

ROUNDS, ROUND_S = 50, 0.1
"""Strangers knock for five seconds."""


def interpose(harm: str, port: int) -> Callable[[Bed], None]:
    """From now on the launcher and all boards reach the victim through a proxy, which harms what
    comes to that port as soon as the fault strikes. To be called before the stream."""

    def prepare(bed: Bed) -> None:
        layout, place = bed.lab.layout, bed.lab.place(VICTIM)
        alias = f"{place.host.rpartition('.')[0]}.{ALIAS}"
        address = (f"{alias}/32", "dev", layout.host_interface)
        bed.harmed.add(VICTIM)
        bed.lab.kill(VICTIM)
        run(("ip", "address", "add", *address))
        bed.tools.callback(run, ("ip", "address", "delete", *address))
        bed.start_as(VICTIM, listen=f"tcp://0.0.0.0:{PORT}")
        ports = (str(PORT), str(PORT + 1))
        harming = ("--harm", harm, "--on", ports[port])
        proxy = ("-m", "benchmarks.chaos.proxy", alias, place.host, *ports, *harming)
        bed.help_by(Program.python(*proxy))
        bed.readdress(VICTIM, f"tcp://{alias}:{PORT}")

    return prepare


def switch_on(bed: Bed, _: Wait) -> None:
    """From now on the proxy harms what passes."""
    bed.set_off()


def garbage(bed: Bed, wait: Wait) -> None:
    """Bytes below ZeroMQ on all ports, from many connections that stay open."""
    random = Random(2)
    with ExitStack() as held:
        for _ in range(ROUNDS):
            for address in _ports(bed):
                parts = urlsplit(address)
                with suppress(OSError):  # nobody has to take it
                    connection = socket.create_connection((parts.hostname, parts.port), 1.0)
                    held.callback(connection.close)
                    connection.settimeout(0.2)
                    connection.sendall(random.choice(GARBAGE))
            if not wait(ROUND_S):
                break


def messages(bed: Bed, wait: Wait) -> None:
    """Well-formed messages out of turn on all ports, without keys: commands, attaches, credits."""
    _say(dict.fromkeys(_ports(bed), b""), wait, b"")


def wrong_keys(bed: Bed, wait: Wait) -> None:
    """The same under a secret key that nobody admits."""
    ring = KeyFolder(bed.lab.layout.keys / LAUNCHER)
    known = {address: ring.key_of(board) for address, board in _ports(bed).items()}
    _say(known, wait, new_pair()[1])


def _ports(bed: Bed) -> dict[str, str]:
    """Every port of every agent, and whose it is: the data port follows the control port."""
    places = bed.lab.layout.places.items()
    return {
        f"tcp://{place.host}:{PORT + port}": board
        for board, place in places
        for port in (CONTROL, DATA)
    }


def _say(keys: Mapping[str, bytes], wait: Wait, secret: bytes) -> None:
    """Say everything to each address; `keys` are the public ones, empty without encryption."""
    words = [encode(one) for one in (Hello(1, "x", 5.0), Ping(), Shutdown(), Attach(1, HOST))]
    words += [encode(Credit(1, 0, 1))] * 100
    with zmq.Context() as context:
        for _ in range(ROUNDS):
            for address, public in keys.items():
                with context.socket(zmq.DEALER) as stranger:
                    stranger.setsockopt(zmq.LINGER, 200)
                    stranger.setsockopt(zmq.RECONNECT_IVL, -1)
                    if public:
                        secure_dialler(stranger, secret, public)
                    stranger.connect(address)
                    for word in words:
                        with suppress(zmq.Again):
                            stranger.send(word, zmq.DONTWAIT)
            if not wait(ROUND_S):
                break
