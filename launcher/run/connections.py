"""Holds the launcher's connections: one control and at most one data connection per node.

Sockets and waiting are those of the agents (`nodes.net.sockets`, `nodes.net.waiter`). Control
messages and changes of connections become events of the supervisor; data messages are passed to the
host as they are. Connections are made in the background, and again if they break; the supervisor
decides what follows from that. Tensors are sent and received without a copy unless they are small,
so a tensor that was sent must not be changed until the node has received it.

A run needs the agents' data ports as well. If they are wanted, the `Welcome` of an agent is held
back until its data port has been found (`launcher.run.doors`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

from launcher.config.access import barred
from launcher.core.events import (
    ClosedEarly,
    ControlConnected,
    DataConnected,
    Disconnected,
    DoorShut,
    MessageMalformed,
    MessageReceived,
    NodeEvent,
    NotAdmitted,
)
from launcher.run.doors import NO_EPOCH, DoorSearch, SearchStep, candidates
from nodes.core.events import DataMalformed, DataReceived, LinkChange
from nodes.host.owner import has_ended
from nodes.net.curve import Context
from nodes.net.keys import KeyFolder
from nodes.net.sockets import (
    LINGER_MS,
    MAX_UNREAD,
    AddressError,
    Dialler,
    Part,
    SocketOptions,
    peer_address,
    read_control,
    read_data,
)
from nodes.net.waiter import Readable, Waiter
from nodes.protocol.addresses import host_of
from nodes.protocol.codec import MAX_MESSAGE_BYTES, encode
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import (
    HOST,
    PROTOCOL,
    Attach,
    Control,
    Credit,
    GetStats,
    Hello,
    Refused,
    Stats,
    TensorHeader,
    Welcome,
    is_understood,
)
from nodes.protocol.payload import Array

CONTROL_OPTIONS = SocketOptions(
    MAX_MESSAGE_BYTES,
    max_unsent=1000,
    max_unread=1000,
    linger_ms=LINGER_MS,
    redial_ms=3_200,
    attempt_ms=3_000,
)
"""The terms of control connections. Messages wait while the user's code processes a result. A node
that cannot be reached is dialled ever more rarely, by short attempts."""


@dataclass(frozen=True, slots=True)
class _Answering:
    """Something answers at an address that may be that of a node's data port."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class _SearchDue:
    """A search has something to do, or has taken too long."""


@dataclass(slots=True)
class _Search:
    """The search for a node's data port, the Welcome that waits for it, and the connections to the
    candidates; `given` is what the user says."""

    arrival: MessageReceived
    welcome: Welcome
    given: str | None
    core: DoorSearch
    dialled: dict[str, Dialler] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    """The candidates in words: with an error where one cannot be dialled."""


Arrival = NodeEvent | DataReceived | Readable
"""The items that `Connections.wait` yields."""


class Connections:
    """All connections of one run; a context manager that closes them.

    Connections to addresses for which `guards` is true are encrypted, and made only with nodes
    whose keys are in `keys`. If there are `doors`, agents' data ports are looked for; they map
    control addresses to the addresses of data ports that the user gives.
    """

    def __init__(
        self,
        keys: KeyFolder | None = None,
        guards: Callable[[str], bool] = lambda _: False,
        doors: Mapping[str, str] | None = None,
    ) -> None:
        self._keys = keys
        self._guards = guards
        self._context = Context()
        self._waiter = Waiter()
        self._protocol: dict[str, int] = {}
        self._control: dict[str, Dialler] = {}
        self._data: dict[str, Dialler] = {}
        self._given_doors = doors
        self._address: dict[str, str] = {}
        self._door: dict[str, str] = {}
        self._searches: dict[str, _Search] = {}
        self._waiter.add_alarm(self._search_due_s, lambda: [(None, _SearchDue())])

    def __enter__(self) -> Connections:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in tuple(self._searches):
            self._end_search(node)
        for dialler in (*self._control.values(), *self._data.values()):
            dialler.close()
        self._waiter.close()
        self._context.close()

    def open_control(self, node: str, address: str) -> None:
        """Connect to a node's control address.

        Raises `AddressError` if the address is invalid, or the node's key is not known.
        """
        dialler = self._dial(node, address, CONTROL_OPTIONS)
        self._control[node], self._address[node] = dialler, address
        self._read(dialler, partial(_control_message, node), self._control_changes)

    def redial_control(self, node: str, address: str) -> None:
        """Connect to a node's control address again, or to that of another of its slots, after the
        node has refused.

        Messages that the former connection received are no longer reported. Raises as
        `open_control`.
        """
        self._end_search(node)
        self._forget(self._control.pop(node))
        self.open_control(node, address)

    def _control_changes(self, dialler: Dialler) -> list[Arrival]:
        node, found = dialler.node, list[Arrival]()
        keys = self._keys if self._guards(self._address[node]) else None
        for change in dialler.changes():
            match change:
                case LinkChange.CONNECTED:
                    found.append(ControlConnected(node))
                case LinkChange.LOST:
                    found.append(Disconnected(node))
                case LinkChange.CLOSED_EARLY | LinkChange.HANDSHAKES_FAIL:
                    found.append(ClosedEarly(node))
                case LinkChange.KEY_REFUSED | LinkChange.KEYS_ON_ONE_END:
                    pass
            is_final = change in (LinkChange.KEY_REFUSED, LinkChange.KEYS_ON_ONE_END)
            if is_final or (change is LinkChange.HANDSHAKES_FAIL and keys is not None):
                folder = None if keys is None else keys.folder
                error = barred(node, self._address[node], folder, change)
                found.append(NotAdmitted(node, error, is_final))  # ZeroMQ then stops dialling
        return found

    def open_data(self, node: str, address: str, longest_bytes: int, agreed: int = 0) -> None:
        """Connect to a node's data port, at `address` if it was not looked for; raises as
        `open_control`.

        The connection is closed if a message is longer than `longest_bytes`. It is no longer read
        while `agreed` messages wait, or `MAX_UNREAD` if that is more. An honest node never sends
        more than the credits allow, so its connection is always read and its heartbeats are
        answered; a node that ignores credits is slowed down by its own connection. This end sends
        no heartbeats, because the control connection with the node does.
        """
        options = SocketOptions(
            max(longest_bytes, MAX_MESSAGE_BYTES),
            max_unread=max(MAX_UNREAD, agreed),
            heartbeats=False,
        )
        dialler = self._dial(node, self._door.get(node, address), options)
        self._data[node] = dialler
        self._read(dialler, partial(_data_message, node), _data_changes)

    def _dial(self, node: str, address: str, options: SocketOptions) -> Dialler:
        keys = self._keys if self._guards(address) else None
        if keys is None and self._guards(address):
            raise AddressError(
                f"{address!r} can be reached by other machines, and this launcher has no keys"
            )
        return Dialler(self._context, node, address, options, keys)

    def _read(
        self,
        dialler: Dialler,
        read: Callable[[list[Part]], Arrival],
        changes: Callable[[Dialler], list[Arrival]],
    ) -> None:
        """Report what a connection receives and how it changes, each with the connection."""
        self._waiter.add(
            dialler.socket, lambda: [(dialler, arrival) for arrival in dialler.receive(read)]
        )
        self._waiter.add(
            dialler.monitor, lambda: [(dialler, arrival) for arrival in changes(dialler)]
        )

    def close_data(self) -> None:
        """Close all data connections; messages that they received are no longer reported."""
        for dialler in self._data.values():
            self._forget(dialler)
        self._data.clear()

    def _forget(self, dialler: Dialler) -> None:
        self._waiter.remove(dialler.socket)
        self._waiter.remove(dialler.monitor)
        dialler.close()

    def watch(self, descriptor: int) -> None:
        """Report `Readable` whenever this file descriptor has something to read."""
        self._waiter.add(descriptor, lambda: [(None, Readable(descriptor))])

    def unwatch(self, descriptor: int) -> None:
        """Stop reporting this file descriptor."""
        self._waiter.remove(descriptor)

    def send(self, node: str, message: Control) -> None:
        """Send a control message as soon as the connection is established.

        It goes in the version of the protocol in which the node was greeted last.
        A message to a node that has rejected this launcher is dropped (`Dialler.send`); the
        rejection is reported as `NotAdmitted` or `Disconnected`.
        """
        if isinstance(message, Hello):
            self._protocol[node] = message.protocol
        protocol = self._protocol.get(node, PROTOCOL)
        self._send(self._control[node], [encode(message, protocol)])

    def send_data(self, node: str, message: Attach | Credit) -> None:
        """Send a data message without a tensor, as `send` does."""
        self._send(self._data[node], [encode(message)])

    def send_tensor(self, node: str, header: TensorHeader, tensor: Array) -> None:
        """Send a C-contiguous tensor, as `send` does."""
        self._send(self._data[node], [encode(header), tensor.data])

    def _send(self, dialler: Dialler, parts: list[bytes | memoryview]) -> None:
        self._waiter.used(dialler.socket)
        dialler.send(parts)

    def wait(self, timeout_s: float | None) -> Iterator[Arrival]:
        """Wait until something arrives or `timeout_s` has passed (None: without limit); yield it.

        Each connection yields its arrivals in order, and at most `nodes.net.waiter.BATCH` of them,
        so that a busy connection cannot starve the others. Arrivals of a connection that the
        reaction to an earlier arrival has closed are not yielded.
        """
        for dialler, arrival in self._waiter.wait(timeout_s):
            if dialler is not None and dialler.is_closed:
                continue
            if self._given_doors is None or not self._is_for_search(arrival):
                yield arrival
            else:
                yield from self._found()

    # ------------------------------------------------------------ data ports that are looked for

    def is_searching(self, node: str) -> bool:
        """Whether a node has answered, and the search for its data port continues."""
        return node in self._searches

    def _is_for_search(self, arrival: Arrival | _Answering | _SearchDue) -> bool:
        """Handle an arrival that concerns a search, and return whether it ends here."""
        now_s = time.monotonic()
        match arrival:
            case MessageReceived(node, Welcome() as welcome):
                return self._is_held_back(node, arrival, welcome)
            case MessageReceived(node, Stats(stale_messages=number)) if node in self._searches:
                self._take(node, self._searches[node].core.counted(number, now_s))
            case _Answering(node, address):
                if node in self._searches:
                    self._take(node, self._searches[node].core.connected(address, now_s))
            case _SearchDue():
                for node, search in self._searches.items():
                    self._take(node, search.core.due(now_s))
            case Disconnected(node):
                self._end_search(node)
                return False
            case _:
                return False
        return True

    def _is_held_back(self, node: str, arrival: MessageReceived, welcome: Welcome) -> bool:
        """Search for the data port of the agent that has sent a Welcome, if it has a TCP port."""
        control, offered = self._address[node], welcome.data_address
        if host_of(control) is None or host_of(offered) is None:
            return False
        if node in self._searches or not is_understood(welcome.protocol):
            return node in self._searches
        given = (self._given_doors or {}).get(control)
        found = candidates(given, offered, control, arrival.host)
        search = _Search(arrival, welcome, given, DoorSearch(found, time.monotonic()))
        self._searches[node] = search
        for address in found:
            try:
                dialler = self._dial(node, address, SocketOptions(MAX_MESSAGE_BYTES))
            except AddressError as error:
                search.tried.append(str(error))
                continue
            search.tried.append(address)
            search.dialled[address] = dialler
            self._waiter.add(dialler.socket, partial(_ignored, dialler))
            self._waiter.add(dialler.monitor, partial(_answering, dialler, address))
        if not search.dialled:
            search.core.until_s = time.monotonic()
        self._take(node, search.core.begin())
        return True

    def _take(self, node: str, steps: list[SearchStep]) -> None:
        """Take the steps of a search."""
        core = self._searches[node].core
        for step in steps:
            if step is SearchStep.KNOCK and core.knocked is not None:
                dialler = self._searches[node].dialled[core.knocked]
                self._send(dialler, [encode(Attach(NO_EPOCH, HOST))])
            self.send(node, GetStats())

    def _search_due_s(self) -> float | None:
        return min((s.core.deadline_s for s in self._searches.values()), default=None)

    def _found(self) -> Iterator[Arrival]:
        """End the searches that are over, and yield the arrivals held back for them."""
        for node, search in tuple(self._searches.items()):
            door = search.core.found
            if door is not None:
                self._door[node] = door
                welcome = replace(search.welcome, data_address=search.given or door)
                arrival: Arrival = replace(search.arrival, message=welcome)
            elif time.monotonic() >= search.core.until_s:
                arrival = DoorShut(node, tuple(search.tried))
            else:
                continue
            self._end_search(node)
            yield arrival

    def _end_search(self, node: str) -> None:
        search = self._searches.pop(node, None)
        if search is not None:
            for dialler in search.dialled.values():
                self._forget(dialler)


def _answering(dialler: Dialler, address: str) -> list[tuple[Dialler, _Answering]]:
    """Report that something answers at a candidate."""
    return [
        (dialler, _Answering(dialler.node, address))
        for change in dialler.changes()
        if change is LinkChange.CONNECTED
    ]


def _ignored(dialler: Dialler) -> list[Arrival]:
    """Drop messages of a candidate: a data port sends nothing before `Attach`."""
    dialler.receive(lambda _: None)
    return []


def _control_message(node: str, parts: list[Part]) -> Arrival:
    try:
        message = read_control(parts)
        is_free = isinstance(message, Refused) and has_ended(message.holder)
        return MessageReceived(node, message, peer_address(parts[0]), is_free)
    except RemoteProtocolError as error:
        return MessageMalformed(node, str(error))


def _data_message(node: str, parts: list[Part]) -> Arrival:
    event = read_data(node, parts)
    return MessageMalformed(node, event.reason) if isinstance(event, DataMalformed) else event


def _data_changes(dialler: Dialler) -> list[Arrival]:
    """Report changes of a data connection, except for failed handshakes: it is dialled again, and
    the control connection shows whether the node can be reached at all."""
    found: list[Arrival] = []
    for change in dialler.changes():
        match change:
            case LinkChange.CONNECTED:
                found.append(DataConnected(dialler.node))
            case LinkChange.LOST:
                found.append(Disconnected(dialler.node))
            case _:
                pass
    return found
