"""An agent's connections as its core sees them: events out of whatever arrives, messages into it.

The control port, the data port and the links to nodes that were dialled, each optional, behind one
`wait`. Payloads are handed on as buffers of their bytes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from nodes.core import events as ev
from nodes.core.deployment import MAX_TENSOR_BYTES
from nodes.host.heap import SpareMemory
from nodes.net.curve import Context
from nodes.net.keys import CONTROL, DATA, Keyring, KeysError
from nodes.net.listener import MAX_ANSWERS, MAX_CONNECTIONS, Listener
from nodes.net.sockets import (
    GOODBYE_MS,
    AddressError,
    Buffer,
    ConnectionTerms,
    Dialler,
    Part,
    read_control,
    read_data,
)
from nodes.net.waiter import Readable, Waiter
from nodes.protocol.codec import MAX_MESSAGE_BYTES, encode
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import Attach, Control, Data

WITHDRAWN_KEY = "its key is no longer admitted"


class Wire:
    """All connections of one agent; raises `AddressError` for an address it cannot listen on.

    With a `keyring` every TCP connection is guarded: whoever comes must have a key that is
    admitted, and be who it says it is; whoever is dialled must have the key that we know of it.

    A control port takes messages of up to twice what the codec does, so that one that is too long
    can still be answered for; beyond that, and beyond `tensor_bytes` on data connections, ZeroMQ
    itself drops the connection. Each port holds `max_connections`.
    """

    def __init__(
        self,
        control: str | None = None,
        data: str | None = None,
        *,
        keyring: Keyring | None = None,
        tensor_bytes: int = MAX_TENSOR_BYTES,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._context = Context(keyring)
        self._waiter = Waiter()
        self._spare = SpareMemory()
        self._waiter.wake(lambda: self._spare.due_s, self._give_back)
        self.has_new_secret = False
        self._tensor_bytes = tensor_bytes
        self._max_connections = max_connections
        self._dialled: dict[str, Dialler] = {}
        self._control: Listener | None = None
        self._data: Listener | None = None
        if self._context.doorkeeper is not None:
            self._waiter.add(self._context.doorkeeper.socket, self._at_the_door)
        try:
            if control is not None:
                self.listen_control(control)
            if data is not None:
                self.listen_data(data)
        except BaseException:
            self.close()
            raise

    def listen_control(self, address: str) -> str:
        """Open the control port; returns where it really listens."""
        terms = ConnectionTerms(2 * MAX_MESSAGE_BYTES, unsent=MAX_ANSWERS, linger_ms=GOODBYE_MS)
        port = Listener(self._context, address, terms, CONTROL, self._max_connections)
        self._control = port
        self._waiter.add(port.monitor, lambda: _closed(port, links=False))
        self._waiter.wake(lambda: port.due_s, lambda: _closed(port, links=False))
        read = partial(_from_peer, port)
        self._waiter.add(port.socket, lambda: _heard(port, port.receive(read), links=False))
        return port.address

    def listen_data(self, address: str) -> str:
        """Open the data port; returns where it really listens."""
        terms = ConnectionTerms(self._tensor_bytes)
        port = Listener(self._context, address, terms, DATA, self._max_connections)
        self._data = port
        self._waiter.add(port.monitor, lambda: _closed(port, links=True))
        self._waiter.wake(lambda: port.due_s, lambda: _closed(port, links=True))
        read = partial(_from_owner, port)
        self._waiter.add(port.socket, lambda: _heard(port, port.receive(read), links=True))
        return port.address

    def freed_memory(self) -> None:
        """Give free memory back to the system soon, when ZeroMQ's thread has freed its share."""
        self._spare.freed(time.monotonic())

    def _give_back(self) -> list[ev.Event | Readable]:
        self._spare.look(time.monotonic())
        return []

    def watch(self, descriptor: int) -> None:
        """Report `Readable` whenever this file descriptor has something to read."""
        self._waiter.watch(descriptor)

    def wait(self, timeout_s: float | None) -> list[ev.Event | Readable]:
        """Sleep until something arrives, `timeout_s` seconds at most; return what has."""
        return self._waiter.wait(timeout_s)

    # ------------------------------------------------------------ links

    def dial(self, node: str, address: str) -> None:
        """Connect to a node's data port; raises `AddressError` if it is not an address, or the
        node's key is not known."""
        self.hang_up(node)
        keyring = self._context.keys_for(address)
        try:
            if keyring is not None:
                keyring.refresh()
        except KeysError as error:
            raise AddressError(str(error)) from error
        terms = ConnectionTerms(self._tensor_bytes, linger_ms=GOODBYE_MS)
        dialler = self._dialled[node] = Dialler(self._context, node, address, terms, keyring)
        read = partial(read_data, node)
        self._waiter.add(dialler.socket, lambda: dialler.receive(read))
        self._waiter.add(dialler.monitor, lambda: _lost(dialler))

    def hang_up(self, node: str) -> None:
        """Close the connection to a node that was dialled, if there is one."""
        dialler = self._dialled.pop(node, None)
        if dialler is not None:
            self._waiter.remove(dialler.socket)
            self._waiter.remove(dialler.monitor)
            dialler.close()

    def cut_off_peer(self, peer: ev.Peer) -> None:
        """Close the control connection that the last control message came from."""
        if self._control is not None:
            self._control.cut_off(peer)

    def cut_off_link(self, link: ev.Link) -> None:
        """Close the data connection that the last data message came from."""
        if isinstance(link, str):
            self.hang_up(link)
        elif self._data is not None:
            self._data.cut_off(link)

    # ------------------------------------------------------------ keys

    @property
    def is_guarded(self) -> bool:
        """Whether TCP connections are encrypted and authenticated."""
        return self._context.keyring is not None

    def _at_the_door(self) -> list[ev.Event]:
        """Somebody knocks: who is known is looked up anew."""
        keyring, doorkeeper = self._context.keyring, self._context.doorkeeper
        if keyring is None or doorkeeper is None:
            return []
        events = self.reread_keys()
        return events + [ev.Rejected(why) for why in doorkeeper.answer()]

    def reread_keys(self) -> list[ev.Event]:
        """Read the keyring again if it has changed; what comes of keys that are gone."""
        keyring = self._context.keyring
        if keyring is None:
            return []
        secret = keyring.secret
        if not keyring.refresh():
            return []
        self.has_new_secret |= keyring.secret != secret
        events: list[ev.Event] = [ev.Rejected(problem) for problem in keyring.problems]
        # First what has closed meanwhile: a descriptor may be another connection's by now.
        if self._control is not None:
            events += _closed(self._control, links=False)
            events += [
                ev.ControlMalformed(peer, WITHDRAWN_KEY) for peer in self._control.withdrawn()
            ]
        if self._data is not None:
            events += _closed(self._data, links=True)
            gone = self._data.withdrawn()
            events += [ev.DataMalformed(peer, WITHDRAWN_KEY) for peer in gone]
        return events

    def renew(self) -> None:
        """Listen with the new secret, while nobody is connected who would be cut off by it.

        Raises `AddressError` if that fails.
        """
        self.has_new_secret = False
        for port in (self._control, self._data):
            if port is not None:
                port.renew()
                self._waiter.used(port.socket)
                self._waiter.used(port.monitor)

    # ------------------------------------------------------------ sending

    def reply(self, peer: ev.Peer, message: Control) -> bool:
        """Send a control message; False if the peer is gone."""
        if self._control is None:
            return False
        self._waiter.used(self._control.socket)
        return self._control.send(peer, [encode(message)])

    def send(self, link: ev.Link, message: Data, payload: Buffer | None = None) -> bool:
        """Send a data message, a tensor's bytes with its header; False if the link is gone."""
        header = encode(message)
        parts = [header] if payload is None else [header, payload]
        if isinstance(link, str):
            dialler = self._dialled.get(link)
            if dialler is None:
                return False
            self._waiter.used(dialler.socket)
            dialler.send(parts)
            return True
        if self._data is None:
            return False
        self._waiter.used(self._data.socket)
        return self._data.send(link, parts)

    def close(self) -> None:
        """Close everything; the last messages get `GOODBYE_MS` to leave."""
        for node in tuple(self._dialled):
            self.hang_up(node)
        for port in (self._control, self._data):
            if port is not None:
                port.close()
        self._waiter.close()
        self._context.close()


def _heard(port: Listener, heard: Sequence[ev.Event], *, links: bool) -> list[ev.Event]:
    return [*_closed(port, links=links), *heard] if port.has_lost else [*heard]


def _closed(port: Listener, *, links: bool) -> list[ev.Event]:
    events: list[ev.Event] = []
    for who in port.closed():
        if isinstance(who, str):
            events.append(ev.Rejected(who))
        else:
            events.append(ev.LinkLost(who, ev.LinkChange.LOST.value) if links else ev.PeerLost(who))
    return events


def _lost(dialler: Dialler) -> list[ev.Event]:
    return [
        ev.LinkLost(dialler.node, change.value, is_barred=change in ev.AUTHENTICATION_FAILURES)
        for change in dialler.changes()
        if change is ev.LinkChange.LOST or change in ev.AUTHENTICATION_FAILURES
    ]


def _from_peer(
    port: Listener, peer: bytes, parts: list[Part]
) -> ev.ControlReceived | ev.ControlMalformed:
    """What came on the control port, and whose key says so."""
    try:
        return ev.ControlReceived(peer, read_control(parts), port.key_of(peer))
    except RemoteProtocolError as error:
        return ev.ControlMalformed(peer, str(error))


def _from_owner(
    port: Listener, link: bytes, parts: list[Part]
) -> ev.DataReceived | ev.DataMalformed:
    """What came on the data port; nobody attaches there under another one's name."""
    event = read_data(link, parts)
    if port.keyring is not None and isinstance(event, ev.DataReceived):
        message = event.message
        if isinstance(message, Attach) and not port.keyring.is_key_of(
            port.key_of(link), message.node
        ):
            return ev.DataMalformed(link, f"it attached as {message.node!r} without that one's key")
    return event
