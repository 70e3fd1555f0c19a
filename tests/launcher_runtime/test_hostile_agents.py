"""What a board that was taken over may send to the launcher: too long, too much, without end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from launcher.core.blueprint import Blueprint
from launcher.core.events import DataConnected, Disconnected
from launcher.run.connections import Arrival, Connections
from launcher.run.frame_list import listed
from launcher.run.host import Host
from nodes.core.events import DataReceived
from nodes.net.sockets import MAX_UNREAD
from nodes.net.waiter import BATCH
from nodes.protocol.codec import MAX_MESSAGE_BYTES, encode
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import (
    HOST,
    Attach,
    ChannelSpec,
    Credit,
    Message,
    Ping,
    TensorHeader,
)
from tests.launcher_runtime.clusters import RandomFrames

NODE = "n0"
WAIT_S = 5.0


class Board:
    """A data port that says whatever it is told to, to the launcher that has dialled it."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], address: str, heartbeat_ms: int = 0
    ) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.socket.setsockopt(zmq.HEARTBEAT_IVL, heartbeat_ms)
        self.socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2 * heartbeat_ms)
        self.socket.bind(address)

    def greeted_by(self) -> bytes:
        assert self.socket.poll(WAIT_S * 1000)
        return self.socket.recv_multipart()[0]


@pytest.fixture
def board(tmp_path: Path) -> Iterator[tuple[Board, Connections, bytes]]:
    """A board, the launcher's connections, and as whom the board knows it."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    board = Board(context, f"ipc://{tmp_path}/b")
    with Connections() as connections:
        connections.open_data(NODE, f"ipc://{tmp_path}/b", 4000)
        connections.send_data(NODE, Attach(1, HOST))
        yield board, connections, board.greeted_by()
    board.socket.close()
    context.term()


def until(connections: Connections, wanted: type) -> list[Arrival]:
    """All that arrives up to the first of a kind."""
    found: list[Arrival] = []
    until_s = time.monotonic() + WAIT_S
    while not any(isinstance(arrival, wanted) for arrival in found):
        assert time.monotonic() < until_s, found
        found += connections.wait(0.1)
    return found


def test_a_tensor_longer_than_was_agreed_costs_the_connection(
    board: tuple[Board, Connections, bytes],
) -> None:
    there, connections, launcher = board
    until(connections, DataConnected)
    elements = MAX_MESSAGE_BYTES // 4 + 100
    header = encode(TensorHeader(1, 0, 0, "float32", (elements,)))
    there.socket.send_multipart([launcher, header, np.zeros(elements, np.float32).data])
    assert not any(
        isinstance(arrival, DataReceived) for arrival in until(connections, Disconnected)
    )


@pytest.mark.parametrize("shape", [(65536,) * 4, (0, *[2**31 - 1] * 3), (*[2**31 - 1] * 3, 0)])
def test_a_shape_that_no_array_can_have_is_unreadable(
    board: tuple[Board, Connections, bytes], shape: tuple[int, ...]
) -> None:
    """Its number of elements is 0, or comes to that in 64 bits, as that of the bytes that came."""
    there, connections, launcher = board
    header = encode(TensorHeader(1, 0, 0, "float32", shape))
    there.socket.send_multipart([launcher, header, b""])
    (found,) = (x for x in until(connections, DataReceived) if isinstance(x, DataReceived))
    host = Host(
        Blueprint(1, {}, (), ()), listed(RandomFrames(3), lambda *_: None), connections, 0.0
    )
    with pytest.raises(RemoteProtocolError, match="0 bytes arrived for float32"):
        host.arrived(NODE, found.message, found.payload, found.payload_bytes)


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        (Credit(1, 0, 1), b"more"),
        (TensorHeader(1, 0, 0, "float32", (1,)), None),
        (TensorHeader(1, 0, 0, "float32", (2,)), b"four"),
        (Ping(), None),
    ],
)
def test_what_may_not_come_on_a_data_connection_is_a_breach(
    message: Message, payload: bytes | None
) -> None:
    with Connections() as connections:
        host = Host(
            Blueprint(1, {}, (), ()), listed(RandomFrames(3), lambda *_: None), connections, 0.0
        )
        with pytest.raises(RemoteProtocolError):
            host.arrived(NODE, message, payload, len(payload or b""))


def test_no_event_of_a_connection_follows_once_the_launcher_has_closed_it(
    board: tuple[Board, Connections, bytes],
) -> None:
    """Not even what had arrived with the message on account of which it hung up."""
    there, connections, launcher = board
    until(connections, DataConnected)
    for _ in range(3):
        there.socket.send_multipart([launcher, encode(Credit(0, 0, 1))])
    heard = []
    until_s = time.monotonic() + WAIT_S
    while not heard:
        assert time.monotonic() < until_s
        for arrival in connections.wait(0.1):
            heard.append(arrival)
            connections.close_data()
    assert [type(arrival) for arrival in heard] == [DataReceived]
    assert list(connections.wait(0.05)) == []


def test_a_peer_that_keeps_the_protocol_is_not_cut_off_while_the_launcher_is_busy(
    tmp_path: Path,
) -> None:
    """Behind what waits unread, heartbeats would go unanswered."""
    agreed = 4 * MAX_UNREAD
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    there = Board(context, f"ipc://{tmp_path}/b", heartbeat_ms=50)
    try:
        with Connections() as connections:
            connections.open_data(NODE, f"ipc://{tmp_path}/b", 4000, agreed)
            connections.send_data(NODE, Attach(1, HOST))
            launcher = there.greeted_by()
            header = encode(TensorHeader(1, 0, 0, "float32", (1000,)))
            for _ in range(agreed):
                there.socket.send_multipart([launcher, header, bytes(4000)])
            assert not there.socket.poll(500), "nothing comes while the launcher is busy"
            found: list[Arrival] = []
            while len([a for a in found if isinstance(a, DataReceived)]) < agreed:
                found += (now := list(connections.wait(WAIT_S)))
                assert now
            assert not any(isinstance(arrival, Disconnected) for arrival in found)
    finally:
        there.socket.close()
        context.term()


def test_what_was_agreed_is_what_the_channels_hold() -> None:
    fed = ChannelSpec(0, "x", "float32", (10,), HOST, None, NODE, (0,), 100)
    feeds = ChannelSpec(1, "y", "float32", (1000,), NODE, 0, HOST, (), 30)
    other = ChannelSpec(2, "z", "float32", (5000,), "n1", 0, HOST, (), 7)
    blueprint = Blueprint(1, {}, (fed,), (feeds, other))
    opened: list[tuple[Any, ...]] = []

    class Noting(Connections):
        def open_data(self, *agreed: Any) -> None:
            opened.append(agreed)

        def send_data(self, *_: Any) -> None:
            pass

    with Noting() as connections:
        host = Host(blueprint, listed(RandomFrames(3), lambda *_: None), connections, 0.0)
        host.attach(blueprint, {NODE: "tcp://[::1]:1"})
    assert opened == [(NODE, "tcp://[::1]:1", 4000, 130)]


def test_a_peer_that_sends_without_pause_does_not_starve_the_others(
    board: tuple[Board, Connections, bytes],
) -> None:
    there, connections, launcher = board
    until(connections, DataConnected)
    for _ in range(3 * BATCH):
        there.socket.send_multipart([launcher, encode(Credit(0, 0, 1))])
    heard = 0
    until_s = time.monotonic() + WAIT_S
    while heard < 3 * BATCH:
        assert time.monotonic() < until_s
        now = len(list(connections.wait(0.1)))
        assert now <= BATCH
        heard += now
