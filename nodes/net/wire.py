"""All connections of one agent behind one `wait`: received bytes become events of its core.

They are the control port, the data port and the links to nodes that the agent has dialled, each
optional. Payloads are passed on as buffers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from nodes.core import events as ev
from nodes.core.deployment import MAX_TENSOR_BYTES
from nodes.host.heap import HeapTrimmer
from nodes.net.curve import Context
from nodes.net.keys import CONTROL, DATA, Keyring, KeysError
from nodes.net.listener import MAX_ANSWERS, MAX_CONNECTIONS, Listener
from nodes.net.sockets import (
    LINGER_MS,
    AddressError,
    Buffer,
    Dialler,
    Part,
    SocketOptions,
    read_control,
    read_data,
)
from nodes.net.waiter import Readable, Waiter
from nodes.protocol.codec import MAX_MESSAGE_BYTES, encode
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import PROTOCOL, Attach, Control, Data

WITHDRAWN_KEY = "its key is no longer admitted"


class Wire:
    """All connections of one agent.

    With a `keyring`, every TCP connection is guarded. A peer that dials must have an admitted key
    and attach under its own name only; a node that is dialled must own its key in the keyring.

    The control port takes messages up to twice as long as the codec does, so that the agent can
    report one that is too long. ZeroMQ itself closes connections with longer messages, and data
    connections with payloads of more than `tensor_bytes`. Each port holds `max_connections`.
    """

    def __init__(
        self,
        *,
        keyring: Keyring | None = None,
        tensor_bytes: int = MAX_TENSOR_BYTES,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._context = Context(keyring)
        self._waiter = Waiter()
        self._trimmer = HeapTrimmer()
        self._waiter.add_alarm(lambda: self._trimmer.due_s, self._trim)
        self.has_new_secret = False
        self._tensor_bytes = tensor_bytes
        self._max_connections = max_connections
        self._dialled: dict[str, Dialler] = {}
        self._control: Listener | None = None
        self._data: Listener | None = None
        if self._context.authenticator is not None:
            self._waiter.add(self._context.authenticator.socket, self._authenticate)

    def listen_control(self, address: str, descriptor: int | None = None) -> str:
        """Open the control port, and return its address with the port that the system chose.

        With a `descriptor`, that socket listens there already. Raises `AddressError` if it cannot
        listen there.
        """
        options = SocketOptions(2 * MAX_MESSAGE_BYTES, max_unsent=MAX_ANSWERS, linger_ms=LINGER_MS)
        self._control = self._listen(address, options, CONTROL, _control_event, descriptor)
        return self._control.address

    def listen_data(self, address: str, descriptor: int | None = None) -> str:
        """Open the data port as `listen_control` does."""
        options = SocketOptions(self._tensor_bytes)
        self._data = self._listen(address, options, DATA, _data_event, descriptor)
        return self._data.address

    def _listen(
        self,
        address: str,
        options: SocketOptions,
        name: str,
        read: Callable[[Listener, bytes, list[Part]], ev.Event],
        descriptor: int | None,
    ) -> Listener:
        port = Listener(self._context, address, options, name, self._max_connections, descriptor)
        self._waiter.add(port.monitor, lambda: _closed(port))
        self._waiter.add_alarm(lambda: port.due_s, lambda: _closed(port))
        to_event = partial(read, port)
        self._waiter.add(port.socket, lambda: _received(port, port.receive(to_event)))
        return port

    def schedule_trim(self) -> None:
        """Return free memory to the system soon, when ZeroMQ's thread has also freed its part."""
        self._trimmer.schedule(time.monotonic())

    def _trim(self) -> list[ev.Event | Readable]:
        self._trimmer.trim_if_due(time.monotonic())
        return []

    def watch(self, descriptor: int) -> None:
        """Let `wait` return `Readable` whenever this file descriptor can be read."""
        self._waiter.watch(descriptor)

    def wait(self, timeout_s: float | None) -> list[ev.Event | Readable]:
        """Wait at most `timeout_s` seconds (None: for ever), and return what has arrived."""
        return self._waiter.wait(timeout_s)

    def close_if_unused(self) -> bool:
        """Close the control port permanently if it has no connection; return whether that is so.

        Raises `AddressError` if it cannot be opened again.
        """
        if self._control is None or self._control.close_if_unused():
            return True
        self._waiter.used(self._control.socket)
        self._waiter.used(self._control.monitor)
        return False

    # ------------------------------------------------------------ links

    def dial(self, node: str, address: str) -> None:
        """Connect to a node's data port.

        Raises `AddressError` if the address is invalid or the node's key is missing.
        """
        self.hang_up(node)
        keyring = self._context.keys_for(address)
        try:
            if keyring is not None:
                keyring.refresh()
        except KeysError as error:
            raise AddressError(str(error)) from error
        options = SocketOptions(self._tensor_bytes, linger_ms=LINGER_MS)
        dialler = self._dialled[node] = Dialler(self._context, node, address, options, keyring)
        read = partial(read_data, node)
        self._waiter.add(dialler.socket, lambda: dialler.receive(read))
        self._waiter.add(dialler.monitor, lambda: _lost(dialler))

    def hang_up(self, node: str) -> None:
        """Close the link to a node that was dialled, if there is one."""
        dialler = self._dialled.pop(node, None)
        if dialler is not None:
            self._waiter.remove(dialler.socket)
            self._waiter.remove(dialler.monitor)
            dialler.close()

    def cut_off_peer(self, peer: ev.Peer) -> None:
        """Close a launcher's control connection, and ignore what still comes from it."""
        if self._control is not None:
            self._control.cut_off(peer)

    def cut_off_link(self, link: ev.Link) -> None:
        """Close a data connection, and ignore what still comes from it."""
        if isinstance(link, str):
            self.hang_up(link)
        elif self._data is not None:
            self._data.cut_off(link)

    # ------------------------------------------------------------ keys

    @property
    def is_guarded(self) -> bool:
        """Whether TCP connections are encrypted and authenticated."""
        return self._context.keyring is not None

    def _authenticate(self) -> list[ev.Event]:
        """Answer the requests of connections to be admitted, after reading changed keys again."""
        keyring, authenticator = self._context.keyring, self._context.authenticator
        if keyring is None or authenticator is None:
            return []
        events = self.reread_keys()
        return events + [ev.Rejected(why) for why in authenticator.answer()]

    def reread_keys(self) -> list[ev.Event]:
        """Read the keyring again if it has changed, and return the events that this causes.

        Peers whose keys are gone are reported as malformed, so that the core cuts them off.
        """
        keyring = self._context.keyring
        if keyring is None:
            return []
        secret = keyring.secret
        if not keyring.refresh():
            return []
        self.has_new_secret |= keyring.secret != secret
        events: list[ev.Event] = [ev.Rejected(problem) for problem in keyring.problems]
        # Closed connections come first, because a descriptor may belong to a new one by now.
        if self._control is not None:
            events += _closed(self._control)
            events += [
                ev.ControlMalformed(peer, WITHDRAWN_KEY) for peer in self._control.withdrawn_peers()
            ]
        if self._data is not None:
            events += _closed(self._data)
            gone = self._data.withdrawn_peers()
            events += [ev.DataMalformed(peer, WITHDRAWN_KEY) for peer in gone]
        return events

    def rebind(self) -> None:
        """Listen again with the new secret, which closes all connections to the ports.

        Raises `AddressError` if that fails.
        """
        self.has_new_secret = False
        for port in (self._control, self._data):
            if port is not None:
                port.rebind()
                self._waiter.used(port.socket)
                self._waiter.used(port.monitor)

    # ------------------------------------------------------------ sending

    def reply(self, peer: ev.Peer, message: Control, protocol: int = PROTOCOL) -> bool:
        """Send a control message in that version; return False if the peer is gone."""
        if self._control is None:
            return False
        self._waiter.used(self._control.socket)
        return self._control.send(peer, [encode(message, protocol)])

    def send(self, link: ev.Link, message: Data, payload: Buffer | None = None) -> bool:
        """Send a data message, a payload with its header; return False if the link is gone."""
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
        """Close all connections; the last messages have `LINGER_MS` to leave."""
        for node in tuple(self._dialled):
            self.hang_up(node)
        for port in (self._control, self._data):
            if port is not None:
                port.close()
        self._waiter.close()
        self._context.close()


def _received(port: Listener, events: list[ev.Event]) -> list[ev.Event]:
    """Put the ends of connections, which `receive` may have noticed, before the messages."""
    return [*_closed(port), *events] if port.has_closed else events


def _closed(port: Listener) -> list[ev.Event]:
    events: list[ev.Event] = []
    for who in port.take_closed():
        if isinstance(who, str):
            events.append(ev.Rejected(who))
        elif port.name == DATA:
            events.append(ev.LinkLost(who, ev.LinkChange.LOST.value))
        else:
            events.append(ev.PeerLost(who))
    return events


def _lost(dialler: Dialler) -> list[ev.Event]:
    return [
        ev.LinkLost(dialler.node, change.value, is_barred=change in ev.AUTHENTICATION_FAILURES)
        for change in dialler.changes()
        if change is ev.LinkChange.LOST or change in ev.AUTHENTICATION_FAILURES
    ]


def _control_event(
    port: Listener, peer: bytes, parts: list[Part]
) -> ev.ControlReceived | ev.ControlMalformed:
    """Return the event for a message on the control port, with its sender's key."""
    try:
        return ev.ControlReceived(peer, read_control(parts), port.peer_key(peer))
    except RemoteProtocolError as error:
        return ev.ControlMalformed(peer, str(error))


def _data_event(
    port: Listener, link: bytes, parts: list[Part]
) -> ev.DataReceived | ev.DataMalformed:
    """Return the event for a message on the data port, refusing an `Attach` in another's name."""
    event = read_data(link, parts)
    if port.keyring is not None and isinstance(event, ev.DataReceived):
        message = event.message
        if isinstance(message, Attach) and not port.keyring.is_key_of(
            port.peer_key(link), message.node
        ):
            return ev.DataMalformed(
                link, f"it attached as {message.node!r} without the key of that node"
            )
    return event
