"""An agent's connections: messages become events, and peers that leave or are cut off as well."""

from __future__ import annotations

import os
import socket
import threading
import time

import numpy as np
import pytest

from nodes.core import events as ev
from nodes.core.events import LinkChange
from nodes.net.curve import Context
from nodes.net.listener import Listener
from nodes.net.sockets import SHARED_BELOW_BYTES, AddressError, Dialler, SocketOptions
from nodes.net.waiter import BATCH, STREAK, Readable, Waiter
from nodes.net.wire import Wire
from nodes.protocol.messages import Attach, Credit, Ping, TensorHeader
from nodes.protocol.payload import as_array

WAIT_S = 10.0
LONG_MS = 100_000
"""Longer than any wait here."""


@pytest.fixture
def wires():
    """Makes wires; they are closed after the test."""
    made: list[Wire] = []

    def make(control: str | None = None, data: str | None = None) -> Wire:
        made.append(Wire())
        if control is not None:
            made[-1].listen_control(control)
        if data is not None:
            made[-1].listen_data(data)
        return made[-1]

    yield make
    for wire in made:
        wire.close()


@pytest.fixture
def pair(wires):
    """A wire with a data port, and one that has dialled it and sent a first message."""
    here = wires()
    address = here.listen_data("tcp://127.0.0.1:0")
    there = wires()
    there.dial("here", address)
    there.send("here", Attach(1, "there"))
    (event,) = here.wait(WAIT_S)
    assert isinstance(event.link, bytes)
    assert event.message == Attach(1, "there")
    return here, there, event.link


def test_messages_go_both_ways(pair):
    here, there, link = pair
    assert here.send(link, Credit(1, 2, 3))
    assert there.wait(WAIT_S) == [ev.DataReceived("here", Credit(1, 2, 3))]


@pytest.mark.parametrize("elements", [0, 1, SHARED_BELOW_BYTES // 4, SHARED_BELOW_BYTES // 4 + 1])
def test_tensors_arrive_whole_and_large_ones_without_a_copy(pair, elements):
    here, there, _ = pair
    array = np.arange(elements, dtype=np.float32)
    there.send("here", TensorHeader(1, 0, 0, "float32", (elements,)), array.data)
    (event,) = here.wait(WAIT_S)
    assert event.payload_bytes == 4 * elements
    assert isinstance(event.payload, bytes if 4 * elements <= SHARED_BELOW_BYTES else memoryview)
    np.testing.assert_array_equal(np.frombuffer(event.payload, np.float32), array)


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_tensors_of_any_dtype_and_shape_arrive_and_may_be_kept(wires, tmp_path, scheme):
    here, there = wires(), wires()
    address = {"tcp": "tcp://127.0.0.1:0", "ipc": f"ipc://{tmp_path}/port"}[scheme]
    there.dial("here", here.listen_data(address))
    arrays = [
        np.array(3.5, np.float32),
        np.array([True, False, True]),
        np.arange(7, dtype=np.float16),
        np.arange(5, dtype=np.uint8),
        np.arange(6, dtype=np.int64).reshape(1, 2, 3),
        np.zeros((2, 0, 3), np.float32),
        np.random.default_rng(1).random((3, 256, 256)),
        np.arange(1 << 18, dtype=np.float16),
        *(np.full(1 << 17, number) for number in range(4)),
    ]
    for number, array in enumerate(arrays):
        header = TensorHeader(1, 0, number, array.dtype.name, array.shape)
        there.send("here", header, array.data)
    events = []
    while len(events) < len(arrays):
        events += here.wait(WAIT_S)
    for array, event in zip(arrays, events, strict=True):
        got = as_array(event.payload, event.message.dtype, event.message.shape)
        assert (got.dtype, got.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(got, array)


def test_a_peer_that_hangs_up_is_noticed(pair):
    here, there, link = pair
    there.hang_up("here")
    (lost,) = here.wait(WAIT_S)
    assert isinstance(lost, ev.LinkLost)
    assert lost.link == link


def test_a_port_that_closes_is_noticed(pair):
    here, there, _ = pair
    here.close()
    (lost,) = there.wait(WAIT_S)
    assert isinstance(lost, ev.LinkLost)
    assert lost.link == "here"


def test_a_peer_that_is_gone_cannot_be_sent_to(pair):
    here, there, link = pair
    there.hang_up("here")
    here.wait(WAIT_S)
    for _ in range(1000):  # the connection is closed first, its queue a moment later
        if not here.send(link, Credit(1, 0, 1)):
            break
        here.wait(0.01)
    assert not here.send(link, Credit(1, 0, 1))
    assert not here.send("nobody", Credit(1, 0, 1))
    assert not here.reply(b"nobody", Ping())


def test_nothing_more_is_heard_of_a_link_that_was_cut_off(pair):
    here, there, link = pair
    there.send("here", Credit(1, 0, 1))
    there.send("here", Credit(1, 0, 2))
    heard = []
    while len(heard) < 2:
        heard += here.wait(WAIT_S)
    there.send("here", Credit(1, 0, 3))
    here.cut_off_link(link)
    (lost,) = there.wait(WAIT_S)
    assert isinstance(lost, ev.LinkLost)
    assert all(isinstance(e, ev.DataReceived) and e.link != link for e in here.wait(0.05))


@pytest.fixture
def ghost():
    """A port, a message that waits there, and how to end the connection that it came by. What the
    monitor tells has been taken in."""
    theirs, ours = Context(), Context()
    port = Listener(ours, "tcp://127.0.0.1:0", SocketOptions(1000))
    dialler = Dialler(theirs, "here", port.address, SocketOptions(1000, linger_ms=1000))
    dialler.send([b"last words"])
    assert port.socket.poll(WAIT_S * 1000)
    assert port.take_closed() == []

    def end() -> None:
        dialler.close()
        theirs.close()
        assert port.monitor.poll(WAIT_S * 1000)
        assert port.take_closed() == []  # it has not been heard of before

    yield port, end
    port.close()
    ours.close()


def test_a_peer_whose_end_was_told_before_its_first_message_is_not_heard(ghost):
    port, end = ghost
    end()
    assert port.receive(lambda peer, parts: peer) == []


def test_nor_does_one_stay_whose_descriptor_another_connection_has_by_then(ghost, stack):
    port, end = ghost
    others = [stack.enter_context(socket.socket()) for _ in range(32)]
    end()
    number = int(port.address.rpartition(":")[2])
    for other in others:
        other.connect(("127.0.0.1", number))
        assert other.recv(1)  # a greeting: it has been accepted
    (peer,) = port.receive(lambda peer, parts: peer)
    assert not port.send(peer, [b"welcome"])
    assert port.take_closed() == [peer]


def test_a_port_closes_though_nobody_has_taken_in_what_became_of_a_thousand_connections():
    context = Context()
    port = Listener(context, "tcp://127.0.0.1:0", SocketOptions(1000))
    host, number = "127.0.0.1", int(port.address.rpartition(":")[2])
    for _ in range(1500):
        socket.create_connection((host, number), WAIT_S).close()
    closing = threading.Thread(target=port.close, daemon=True)
    closing.start()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    context.close()


def test_what_is_said_last_over_a_connection_that_stands_arrives():
    theirs, ours = Context(), Context()
    port = Listener(ours, "tcp://127.0.0.1:0", SocketOptions(1000))
    dialler = Dialler(theirs, "here", port.address, SocketOptions(1000, linger_ms=LONG_MS))
    assert dialler.monitor.poll(WAIT_S * 1000)
    dialler.send([b"last words"])  # nobody has asked yet whether the connection stands
    dialler.close()
    theirs.close()
    assert port.socket.poll(WAIT_S * 1000)
    assert port.socket.recv_multipart()[1] == b"last words"
    port.close()
    ours.close()


def test_closing_does_not_wait_for_a_node_that_was_never_there(tmp_path):
    context = Context()
    dialler = Dialler(context, "n1", f"ipc://{tmp_path}/n1", SocketOptions(1000, linger_ms=LONG_MS))
    dialler.send([b"to nobody"])
    began_s = time.monotonic()
    dialler.close()
    context.close()
    assert time.monotonic() - began_s < WAIT_S


def test_what_becomes_of_a_connection_is_reported_once_and_in_order():
    theirs, ours = Context(), Context()
    port = Listener(ours, "tcp://127.0.0.1:0", SocketOptions(1000))
    dialler = Dialler(theirs, "here", port.address, SocketOptions(1000))
    found = []
    for _ in (LinkChange.CONNECTED, LinkChange.LOST):
        assert dialler.monitor.poll(WAIT_S * 1000)
        found += dialler.changes()
        port.close()
    assert found == [LinkChange.CONNECTED, LinkChange.LOST]
    assert dialler.changes() == []
    dialler.close()
    theirs.close()
    ours.close()


def test_a_busy_connection_does_not_keep_others_waiting():
    context = Context()
    port = Listener(context, "tcp://127.0.0.1:0", SocketOptions(1000))
    dialler = Dialler(context, "here", port.address, SocketOptions(1000))
    dialler.send([b"never read, so that there is always something to read"])
    waiter = Waiter()
    waiter.add(port.socket, lambda: ["busy"] * BATCH)
    assert waiter.wait(WAIT_S) == ["busy"] * BATCH
    reading, writing = os.pipe()
    os.write(writing, b"x")
    waiter.add(reading, lambda: ["idle"])
    heard = [waiter.wait(WAIT_S) for _ in range(STREAK)]
    busy = ["busy"] * BATCH
    assert heard == [busy] * (STREAK - 1) + [[*busy, "idle"]]
    for descriptor in (reading, writing):
        os.close(descriptor)
    dialler.close()
    port.close()
    context.close()


def test_an_alarm_rings_though_it_is_set_while_the_waiter_waits():
    due_s, rung = [None], []
    reading, writing = os.pipe()
    waiter = Waiter()

    def set_it():
        os.read(reading, 1)
        due_s[0] = time.monotonic() + 0.02
        return []

    def ring():
        rung.append(time.monotonic() >= due_s[0])
        due_s[0] = None
        return ["ring"]

    waiter.add(reading, set_it)
    waiter.add_alarm(lambda: due_s[0], ring)
    os.write(writing, b"x")
    assert waiter.wait(None) == ["ring"]
    assert waiter.wait(0.03) == []
    assert rung == [True]
    waiter.close()
    os.close(reading)
    os.close(writing)


def test_a_watched_descriptor_is_reported(wires):
    wire = wires()
    reading, writing = os.pipe()
    wire.watch(reading)
    assert wire.wait(0.0) == []
    os.write(writing, b"x")
    assert wire.wait(WAIT_S) == [Readable(reading)]
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("address", ["tcp://nowhere", "carrier-pigeon://x", ""])
def test_what_is_no_address_is_reported(wires, address):
    wire = wires()
    with pytest.raises(AddressError, match="cannot be dialled"):
        wire.dial("node", address)
    with pytest.raises(AddressError, match="cannot listen"):
        wires(address or "?")
