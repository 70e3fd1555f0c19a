"""Guarded connections: which are admitted, refused or cut off, and what both ends report."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import numpy as np
import pytest

import nodes.net.listener
from nodes.core import events as ev
from nodes.core.deployment import MAX_TENSOR_BYTES
from nodes.net.curve import HANDSHAKE_BYTES, new_pair
from nodes.net.gate import UNKNOWN_PER_KNOWN
from nodes.net.keys import KeyFolder, Keyring, write_public, write_secret
from nodes.net.sockets import MAX_FAILED_HANDSHAKES, AddressError
from nodes.net.wire import Wire
from nodes.protocol.messages import HOST, PROTOCOL, Attach, Hello, Ping, TensorHeader
from tests.arm64.marks import not_in_qemu

WAIT_S = 20.0
ANY = "tcp://127.0.0.1:0"


class Machine:
    """A folder of keys and, if it was opened, an agent's wire."""

    def __init__(self, folder, name, stack):
        self.folder, self.name, self._stack = folder / name, name, stack
        self.public, secret = new_pair()
        write_secret(self.folder, name, secret, self.public)

    def admits(self, *others, part="nodes"):
        for other in others:
            write_public(self.folder / part / f"{other.name}.pub", other.name, other.public)
        return self

    def forgets(self, other, part="nodes"):
        (self.folder / part / f"{other.name}.pub").unlink()

    def open(self, control=None, data=None, **quotas):
        wire = Wire(keyring=KeyFolder(self.folder), **quotas)
        self._stack.callback(wire.close)
        if control is not None:
            wire.listen_control(control)
        if data is not None:
            wire.listen_data(data)
        return wire


@pytest.fixture
def machine(tmp_path, stack):
    return lambda name: Machine(tmp_path, name, stack)


@pytest.fixture
def pair(machine):
    """Two machines that admit each other."""
    a, b = machine("a"), machine("b")
    a.admits(b)
    b.admits(a)
    return a, b


def listen(wire, port="data"):
    """Its address."""
    return wire.listen_data(ANY) if port == "data" else wire.listen_control(ANY)


def next_event(wire, kind=object):
    """What happens next on a wire, of this kind."""
    while found := wire.wait(WAIT_S):
        for event in found:
            if isinstance(event, kind):
                return event
    pytest.fail("nothing happened")


def test_those_who_know_each_other_exchange_tensors_of_any_size(pair):
    a, b = pair
    there, here = b.open(), a.open()
    here.dial("b", listen(there))
    here.send("b", Attach(1, "a"))
    assert next_event(there).message == Attach(1, "a")
    for elements in (0, 1, 16_384, 1 << 20):
        array = np.arange(elements, dtype=np.float32)
        here.send("b", TensorHeader(1, 0, 0, "float32", (elements,)), array.data)
        event = next_event(there)
        assert bytes(event.payload) == array.tobytes()
        there.send(event.link, Attach(1, "answer"))
        assert next_event(here).message == Attach(1, "answer")


def test_a_stranger_is_turned_away_and_both_ends_are_reported(machine, pair):
    _, b = pair
    stranger = machine("stranger").admits(b)
    there, here = b.open(), stranger.open()
    here.dial("b", listen(there))
    event = next_event(there)
    assert isinstance(event, ev.Rejected)
    assert stranger.public.hex() in event.reason
    assert "127.0.0.1" in event.reason
    assert next_event(here) == ev.LinkLost("b", ev.LinkChange.KEY_REFUSED.value, is_barred=True)


def test_whoever_answers_at_an_address_without_its_key_is_not_talked_to(machine, pair):
    """Somebody else has taken the node's address."""
    a, _ = pair
    impostor = machine("impostor").admits(a)
    there, here = impostor.open(), a.open()
    here.dial("b", listen(there))
    here.send("b", Attach(1, "a"))
    event = next_event(
        here,
    )
    assert event == ev.LinkLost("b", ev.LinkChange.HANDSHAKES_FAIL.value, is_barred=True)
    assert all(isinstance(event, ev.Rejected) for event in there.wait(0.1))


def test_a_node_whose_key_is_not_here_is_not_dialled(pair):
    a, b = pair
    there, here = b.open(), a.open()
    with pytest.raises(AddressError, match=r"key of node 'c' is missing.*nodes/c\.pub"):
        here.dial("c", listen(there))


@pytest.mark.parametrize("guarded", ["caller", "called"])
def test_one_end_without_keys_gets_no_connection(pair, stack, guarded):
    a, b = pair
    plain = Wire()
    stack.callback(plain.close)
    there, here = (plain, a.open()) if guarded == "caller" else (b.open(), plain)
    here.dial("b", listen(there))
    here.send("b", Attach(1, "a"))
    assert isinstance(next_event(here), ev.LinkLost)
    assert not [event for event in there.wait(0.1) if isinstance(event, ev.DataReceived)]


def test_a_node_gives_no_commands(machine, pair):
    """Only launchers come to the control port."""
    a, b = pair
    laptop = machine("laptop").admits(b)
    b.admits(laptop, part="launchers")
    there = b.open()
    control = listen(there, "control")
    node, launcher = a.open(), laptop.open()
    node.dial("b", control)
    assert isinstance(next_event(there), ev.Rejected)
    launcher.dial("b", control)
    launcher.send("b", Hello(PROTOCOL, "s", 5.0))
    assert next_event(there).message == Hello(PROTOCOL, "s", 5.0)


@pytest.mark.parametrize("name", ["c", HOST])
def test_nobody_attaches_under_another_ones_name(pair, name):
    a, b = pair
    there, here = b.open(), a.open()
    here.dial("b", listen(there))
    here.send("b", Attach(1, name))
    event = next_event(there)
    assert isinstance(event, ev.DataMalformed)
    assert repr(name) in event.reason


def test_a_key_is_admitted_as_soon_as_it_is_there(machine, pair):
    _, b = pair
    late = machine("late").admits(b)
    there, here = b.open(), late.open()
    address = listen(there)
    b.admits(late)
    here.dial("b", address)
    here.send("b", Attach(1, "late"))
    assert next_event(there).message == Attach(1, "late")


def test_a_key_that_is_withdrawn_costs_its_owner_the_connection(pair):
    a, b = pair
    there, here = b.open(), a.open()
    here.dial("b", listen(there))
    here.send("b", Attach(1, "a"))
    link = next_event(there).link
    assert there.reread_keys() == []
    b.forgets(a)
    (event,) = there.reread_keys()
    assert (event.link, event.reason) == (link, "its key is no longer admitted")
    there.cut_off_link(link)
    assert isinstance(next_event(here), ev.LinkLost)


def test_a_launchers_key_that_is_withdrawn_ends_its_commands(machine, pair):
    _, b = pair
    laptop = machine("laptop").admits(b)
    b.admits(laptop, part="launchers")
    there, launcher = b.open(), laptop.open()
    launcher.dial("b", listen(there, "control"))
    launcher.send("b", Ping())
    peer = next_event(there).peer
    b.forgets(laptop, part="launchers")
    assert there.reread_keys() == [ev.ControlMalformed(peer, "its key is no longer admitted")]


def test_a_new_secret_is_used_without_a_restart(pair):
    a, b = pair
    there, here = b.open(), a.open()
    address = listen(there)
    b.public, secret = new_pair()
    (b.folder / "secret.key").unlink()
    write_secret(b.folder, "b", secret, b.public)
    there.reread_keys()
    assert there.has_new_secret
    there.rebind()
    assert not there.has_new_secret
    a.admits(b)
    here.dial("b", address)
    here.send("b", Attach(1, "a"))
    assert next_event(there).message == Attach(1, "a")


def test_an_address_family_without_a_network_needs_no_keys(pair, tmp_path):
    a, b = pair
    there, here = b.open(), a.open()
    here.dial("anybody", there.listen_data(f"ipc://{tmp_path}/s"))
    here.send("anybody", Attach(1, "x"))
    assert next_event(there).message == Attach(1, "x")


# ---------------------------------------------------------------- floods


def connect(address):
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)), WAIT_S)


def is_closed(connection):
    """Whether the other end closes it in time; what it says before is read."""
    connection.settimeout(WAIT_S)
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("guarded", [False, True])
def test_a_connection_too_many_closes_the_oldest_silent_one_and_the_others_stay(
    pair, stack, guarded
):
    a, b = pair
    if guarded:
        there, here = b.open(max_connections=1), a.open()
    else:
        there, here = Wire(max_connections=1), Wire()
        stack.callback(there.close)
        stack.callback(here.close)
    address = listen(there)
    here.dial("b", address)
    here.send("b", Attach(1, "a"))
    assert next_event(there).message == Attach(1, "a")
    oldest, *others = [stack.enter_context(connect(address)) for _ in range(UNKNOWN_PER_KNOWN + 1)]
    event = next_event(there)
    assert isinstance(event, ev.Rejected)
    assert "from 127.0.0.1 to the data port were closed to make room" in event.reason
    assert is_closed(oldest)
    for other in others:
        assert other.recv(1)  # a greeting, and it is not closed
    here.send("b", Attach(2, "a"))
    assert next_event(there, kind=ev.DataReceived).message == Attach(2, "a")


@not_in_qemu
def test_whoever_is_admitted_need_not_speak_to_stay(pair, stack):
    a, b = pair
    there, here = b.open(max_connections=1), a.open()
    address = listen(there)
    here.dial("b", address)
    with ExitStack() as strangers:
        for _ in range(4 * UNKNOWN_PER_KNOWN):
            strangers.enter_context(connect(address))
            there.wait(0.05)
    assert here.wait(0.0) == []
    here.send("b", Attach(1, "a"))
    assert next_event(there, kind=ev.DataReceived).message == Attach(1, "a")


@not_in_qemu
def test_whoever_says_more_than_a_handshake_before_it_is_cut_off_at_once(pair, stack):
    there = pair[1].open()
    connection = stack.enter_context(connect(listen(there)))
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
    long = b"\x06" + (1 << 20).to_bytes(8, "big") + b"\x05HELLO"
    connection.sendall(greeting + long + bytes(HANDSHAKE_BYTES))
    event = next_event(there)
    assert isinstance(event, ev.Rejected)
    assert f"sent more than {HANDSHAKE_BYTES} bytes before any handshake" in event.reason
    assert is_closed(connection)


def test_a_port_that_closes_connections_is_dialled_again(pair, stack):
    """It may be overrun; only one that does so again and again is given up."""
    a, b = pair
    door = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    here = a.open()
    here.dial("b", f"tcp://127.0.0.1:{door.getsockname()[1]}")
    here.send("b", Attach(1, "a"))
    for _ in range(MAX_FAILED_HANDSHAKES - 1):
        door.accept()[0].close()
    assert here.wait(0.1) == []
    number = door.getsockname()[1]
    door.close()
    there = b.open()
    there.listen_data(f"tcp://127.0.0.1:{number}")
    assert next_event(there).message == Attach(1, "a")


@pytest.mark.parametrize("said", [b"", b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", b"\xff"])
def test_whoever_does_not_finish_its_greeting_is_cut_off(pair, stack, monkeypatch, said):
    monkeypatch.setattr(nodes.net.listener, "HANDSHAKE_MS", 200)
    there = pair[1].open()
    connection = stack.enter_context(connect(listen(there)))
    connection.sendall(said)
    assert isinstance(next_event(there), ev.Rejected)
    assert is_closed(connection)


def test_a_message_longer_than_allowed_costs_the_connection(pair):
    a, b = pair
    there, here = b.open(tensor_bytes=1 << 20), a.open(tensor_bytes=MAX_TENSOR_BYTES)
    here.dial("b", listen(there))
    here.send("b", Attach(1, "a"))
    assert next_event(there).message == Attach(1, "a")
    fits = np.zeros(1 << 20, np.uint8)
    here.send("b", TensorHeader(1, 0, 0, "uint8", (1 << 20,)), fits.data)
    assert next_event(there).payload_bytes == 1 << 20
    here.send("b", TensorHeader(1, 0, 0, "uint8", (1 << 21,)), np.zeros(1 << 21, np.uint8).data)
    assert isinstance(
        next_event(
            here,
        ),
        ev.LinkLost,
    )
    assert isinstance(next_event(there), ev.LinkLost)


def test_a_keyring_without_names_lets_nobody_in(stack):
    there = Wire(keyring=Keyring(new_pair()[1]))
    stack.callback(there.close)
    _, secret = new_pair()
    here = Wire(keyring=Keyring(secret, nodes={"b": new_pair()[0]}))
    stack.callback(here.close)
    here.dial("b", listen(there))
    assert isinstance(next_event(here), ev.LinkLost)
