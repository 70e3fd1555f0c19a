"""The launcher's connections: one control and at most one data connection per node.

They are the sockets and the wait that agents use (`nodes.net.sockets`, `nodes.net.waiter`). What
arrives becomes the supervisor's events here; data messages go to the host as they are. Connections
are made in the background and made again if they break; what that means is the supervisor's
business. Tensors go out and come in without a copy unless they are small: what is sent must not be
changed until the node has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from launcher.core.events import (
    ClosedEarly,
    ControlConnected,
    DataConnected,
    Disconnected,
    MessageMalformed,
    MessageReceived,
    NodeEvent,
)
from launcher.run.runtime import Array
from nodes.core.events import DataMalformed, DataReceived, LinkChange
from nodes.net.curve import Context
from nodes.net.keys import Keyring
from nodes.net.sockets import (
    GOODBYE_MS,
    UNREAD,
    ConnectionTerms,
    Dialler,
    Part,
    peer_address,
    read_control,
    read_data,
)
from nodes.net.waiter import Readable, Waiter
from nodes.protocol.codec import MAX_MESSAGE_BYTES, encode
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import Attach, Control, Credit, TensorHeader

CONTROL_TERMS = ConnectionTerms(
    MAX_MESSAGE_BYTES,
    unsent=1000,
    unread=1000,
    linger_ms=GOODBYE_MS,
    redial_ms=3_200,
    attempt_ms=3_000,
)
"""Of control connections. Messages wait while the user's code has a result; a node that is gone is
dialled ever more rarely, by short attempts."""


@dataclass(frozen=True, slots=True)
class Barred:
    """A node's agent and we could not agree on who we are, or on being encrypted at all."""

    node: str
    why: LinkChange


Arrival = NodeEvent | Barred | DataReceived | Readable


class Connections:
    """All connections of one run; a context manager that closes them.

    Those to addresses that `guards` are encrypted, and made only with the nodes that have the keys
    in `keys`.
    """

    def __init__(
        self, keys: Keyring | None = None, guards: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._keys = keys
        self._guards = guards
        self._context = Context()
        self._waiter = Waiter()
        self._control: dict[str, Dialler] = {}
        self._data: dict[str, Dialler] = {}

    def __enter__(self) -> Connections:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for dialler in (*self._control.values(), *self._data.values()):
            dialler.close()
        self._waiter.close()
        self._context.close()

    def open_control(self, node: str, address: str) -> None:
        """Connect to a node's control address.

        Raises `AddressError` if it is not an address, or the node's key is not known.
        """
        dialler = self._dial(node, address, CONTROL_TERMS)
        self._control[node] = dialler
        self._read(dialler, partial(_control_message, node), _control_changes)

    def open_data(self, node: str, address: str, longest_bytes: int, agreed: int = 0) -> None:
        """Connect to a node's data address; likewise.

        Whoever sends a tensor of more than `longest_bytes` loses the connection. When `agreed`
        messages wait, or `UNREAD` if they are more, it is no longer read. Credits bound what is
        sent either way, but bind only those who heed them: whoever sends more is slowed down by
        its own connection. Whoever heeds them must not be: its heartbeats would go unanswered
        behind what waits. Of ours there are none here, since the node's control connection has
        them.
        """
        terms = ConnectionTerms(
            max(longest_bytes, MAX_MESSAGE_BYTES), unread=max(UNREAD, agreed), heartbeats=False
        )
        dialler = self._dial(node, address, terms)
        self._data[node] = dialler
        self._read(dialler, partial(_data_message, node), _data_changes)

    def _dial(self, node: str, address: str, terms: ConnectionTerms) -> Dialler:
        keys = self._keys if self._guards(address) else None
        return Dialler(self._context, node, address, terms, keys)

    def _read(
        self,
        dialler: Dialler,
        read: Callable[[list[Part]], Arrival],
        changes: Callable[[Dialler], list[Arrival]],
    ) -> None:
        """Report what comes over a connection and what becomes of it, each with the connection."""
        self._waiter.add(
            dialler.socket, lambda: [(dialler, arrival) for arrival in dialler.receive(read)]
        )
        self._waiter.add(
            dialler.monitor, lambda: [(dialler, arrival) for arrival in changes(dialler)]
        )

    def close_data(self) -> None:
        """Hang up on all data connections; nothing of them is reported any more."""
        for dialler in self._data.values():
            self._waiter.remove(dialler.socket)
            self._waiter.remove(dialler.monitor)
            dialler.close()
        self._data.clear()

    def watch(self, descriptor: int) -> None:
        """Report `Readable` whenever this file descriptor has something to read."""
        self._waiter.add(descriptor, lambda: [(None, Readable(descriptor))])

    def unwatch(self, descriptor: int) -> None:
        """No longer report on this file descriptor."""
        self._waiter.remove(descriptor)

    def send(self, node: str, message: Control) -> None:
        """Send a control message; it leaves once the connection stands.

        To a node that has turned this launcher away, nothing can be sent (`Dialler.send`). That it
        is gone is reported as `Barred` or `Disconnected`.
        """
        self._send(self._control[node], [encode(message)])

    def send_data(self, node: str, message: Attach | Credit) -> None:
        """Send a data message without a tensor; likewise."""
        self._send(self._data[node], [encode(message)])

    def send_tensor(self, node: str, header: TensorHeader, tensor: Array) -> None:
        """Send a C-contiguous tensor; likewise."""
        self._send(self._data[node], [encode(header), tensor.data])

    def _send(self, dialler: Dialler, parts: list[bytes | memoryview]) -> None:
        self._waiter.used(dialler.socket)
        dialler.send(parts)

    def wait(self, timeout_s: float | None) -> Iterator[Arrival]:
        """Wait until something arrives or the time is over; then what is there.

        In order of arrival on each connection, and no more than `nodes.net.waiter.BATCH` of each:
        one that never falls silent keeps nobody from being heard. None waits for ever. A connection
        that is closed meanwhile, on account of what came before, is not heard any more.
        """
        for dialler, arrival in self._waiter.wait(timeout_s):
            if dialler is None or not dialler.is_closed:
                yield arrival


def _control_message(node: str, parts: list[Part]) -> Arrival:
    try:
        return MessageReceived(node, read_control(parts), peer_address(parts[0]))
    except RemoteProtocolError as error:
        return MessageMalformed(node, str(error))


def _data_message(node: str, parts: list[Part]) -> Arrival:
    event = read_data(node, parts)
    return MessageMalformed(node, event.reason) if isinstance(event, DataMalformed) else event


def _control_changes(dialler: Dialler) -> list[Arrival]:
    return [_control_change(dialler.node, change) for change in dialler.changes()]


def _control_change(node: str, change: LinkChange) -> Arrival:
    match change:
        case LinkChange.STANDS:
            return ControlConnected(node)
        case LinkChange.GONE:
            return Disconnected(node)
        case LinkChange.CLOSED_EARLY:
            return ClosedEarly(node)
        case LinkChange.NO_HANDSHAKE | LinkChange.STRANGER | LinkChange.UNLIKE:
            return Barred(node, change)


def _data_changes(dialler: Dialler) -> list[Arrival]:
    """A connection that ends before its handshake does is dialled again: the node's control
    connection shows whether there is hope."""
    found: list[Arrival] = []
    for change in dialler.changes():
        match change:
            case LinkChange.STANDS:
                found.append(DataConnected(dialler.node))
            case LinkChange.GONE:
                found.append(Disconnected(dialler.node))
            case _:
                pass
    return found
