"""Provides a single FIFO that blocks at both ends, for the contract tests.

It consists of the parts of an agent's channels (`nodes.core.fifo`, `nodes.net.wire`), without
phases. `put` waits for a credit, `get` for a token, whose place is released after use. One thread
uses each end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Condition
from typing import Any, Protocol

import numpy.typing as npt

from nodes.core import events as ev
from nodes.core.fifo import Inlet, Outlet
from nodes.net.keys import Keyring
from nodes.net.wire import Wire
from nodes.protocol.errors import NodeError, RemoteProtocolError
from nodes.protocol.messages import Attach, Credit, TensorHeader
from nodes.protocol.payload import as_array

Array = npt.NDArray[Any]

EPOCH = 0
CHANNEL = 0
READER, WRITER = "reader", "writer"
"""What the ends call each other."""


class FifoClosedError(NodeError):
    """The other end is closed, and nothing is left to get."""


class FifoTimeoutError(NodeError):
    """No place or no token within the time allowed."""


@dataclass(frozen=True, slots=True)
class FifoSpec:
    """What a FIFO carries, and how many frames at most."""

    dtype: str
    shape: tuple[int, ...]
    capacity: int


class Writer(Protocol):
    """The producer's end."""

    def put(self, array: Array, timeout_s: float | None = None) -> int:
        """Put an array in, as soon as there is a place; returns its frame number.

        It must be C-contiguous and not be changed any more. Raises FifoTimeoutError, or
        FifoClosedError once the reader is closed.
        """
        ...

    def close(self) -> None:
        """Close this end; what was put in can still be got."""
        ...


class Reader(Protocol):
    """The consumer's end."""

    def get(self, timeout_s: float | None = None) -> tuple[int, Array]:
        """Wait for the next frame; returns its number and its array, read-only.

        Its place stays taken until `done`. Raises FifoTimeoutError, or FifoClosedError once the
        writer is closed and everything has been got.
        """
        ...

    def done(self) -> None:
        """Give back the place of the oldest frame that was got; its array may still be kept."""
        ...

    def close(self) -> None:
        """Close this end."""
        ...


class WireWriter:
    """The producer's end over a socket, connected to a `WireReader` at `address`; over TCP guarded
    with a `keyring`, which knows the other end as `READER`."""

    def __init__(self, spec: FifoSpec, address: str, keyring: Keyring | None = None) -> None:
        self._spec = spec
        self._outlet = Outlet(CHANNEL, spec.capacity)
        self._closed = False
        self._wire = Wire(keyring=keyring)
        self._wire.dial(READER, address)
        self._wire.send(READER, Attach(EPOCH, WRITER))

    def put(self, array: Array, timeout_s: float | None = None) -> int:
        """See `Writer.put`."""
        if not self._outlet.places:
            self._await_credit(timeout_s)
        frame = self._outlet.claim()
        header = TensorHeader(EPOCH, CHANNEL, frame, self._spec.dtype, self._spec.shape)
        self._wire.send(READER, header, array.data)
        return self._outlet.send()

    def _await_credit(self, timeout_s: float | None) -> None:
        for left_s in _patience(timeout_s):
            for event in self._wire.wait(left_s):
                self._take(event)
            if self._outlet.places:
                return
            if self._closed:
                raise FifoClosedError("the reader is closed")

    def _take(self, event: object) -> None:
        if isinstance(event, ev.DataReceived) and isinstance(event.message, Credit):
            self._outlet.grant(event.message.frames)
        elif isinstance(event, ev.LinkLost):
            self._closed = True
        else:
            raise RemoteProtocolError(f"the reader sent {event}")

    def close(self) -> None:
        """See `Writer.close`."""
        self._wire.close()


class WireReader:
    """The consumer's end over a socket; `address` is where it really listens."""

    def __init__(self, spec: FifoSpec, address: str, keyring: Keyring | None = None) -> None:
        self._spec = spec
        self._inlet = Inlet(CHANNEL, spec.capacity)
        self._got = 0
        self._done = 0
        self._link: ev.Link | None = None
        self._closed = False
        self._place = Credit(EPOCH, CHANNEL, 1)
        self._wire = Wire(keyring=keyring)
        self.address = self._wire.listen_data(address)

    def get(self, timeout_s: float | None = None) -> tuple[int, Array]:
        """See `Reader.get`."""
        if not self._inlet.has(self._got):
            self._await_token(timeout_s)
        frame = self._got
        self._got += 1
        return frame, as_array(self._inlet.token(frame), self._spec.dtype, self._spec.shape)

    def _await_token(self, timeout_s: float | None) -> None:
        for left_s in _patience(timeout_s):
            arrived = self._wire.wait(0.0 if self._closed else left_s)
            for event in arrived:
                self._take(event)
            if self._inlet.has(self._got):
                return
            if self._closed and not arrived:
                raise FifoClosedError("the writer is closed")

    def _take(self, event: object) -> None:
        if isinstance(event, ev.LinkLost):
            self._closed = True
        elif not isinstance(event, ev.DataReceived):
            raise RemoteProtocolError(f"the writer sent {event}")
        elif isinstance(event.message, TensorHeader):
            self._inlet.put(event.message.frame, event.payload)
        elif isinstance(event.message, Attach) and self._link is None:
            self._link = event.link
            self._grant(Credit(EPOCH, CHANNEL, self._spec.capacity))
        else:
            raise RemoteProtocolError(f"the writer sent {event.message}")

    def _grant(self, credit: Credit) -> None:
        if self._link is not None and not self._closed:
            self._wire.send(self._link, credit)

    def done(self) -> None:
        """See `Reader.done`."""
        self._inlet.end(0, self._done)
        self._done += 1
        self._grant(self._place)

    def close(self) -> None:
        """See `Reader.close`."""
        self._wire.close()


class LocalFifo:
    """Both ends in one process, joined by calls: a `Writer` and a `Reader` for one thread each."""

    def __init__(self, spec: FifoSpec) -> None:
        self._outlet = Outlet(CHANNEL, spec.capacity)
        self._inlet = Inlet(CHANNEL, spec.capacity)
        self._outlet.grant(spec.capacity)
        self._changed = Condition()
        self._got = 0
        self._done = 0
        self._closed = False

    def put(self, array: Array, timeout_s: float | None = None) -> int:
        """See `Writer.put`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._outlet.places, timeout_s):
                raise FifoTimeoutError("no place")
            if self._closed:
                raise FifoClosedError("the reader is closed")
            frame = self._outlet.claim()
            self._inlet.put(self._outlet.send(), array)
            self._changed.notify_all()
            return frame

    def get(self, timeout_s: float | None = None) -> tuple[int, Array]:
        """See `Reader.get`."""
        with self._changed:
            frame = self._got
            if not self._changed.wait_for(
                lambda: self._closed or self._inlet.has(frame), timeout_s
            ):
                raise FifoTimeoutError("no token")
            if not self._inlet.has(frame):
                raise FifoClosedError("the writer is closed")
            self._got += 1
            array: Any = self._inlet.token(frame)
            return frame, array

    def done(self) -> None:
        """See `Reader.done`."""
        with self._changed:
            self._outlet.grant(self._inlet.end(0, self._done))
            self._done += 1
            self._changed.notify_all()

    def close(self) -> None:
        """See `Writer.close` and `Reader.close`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _patience(timeout_s: float | None) -> Iterator[float | None]:
    """The seconds that are left of a timeout, until it raises FifoTimeoutError."""
    if timeout_s is None:
        while True:
            yield None
    until_s = time.monotonic() + timeout_s
    yield timeout_s
    while (left_s := until_s - time.monotonic()) > 0:
        yield left_s
    raise FifoTimeoutError(f"nothing within {timeout_s:g} s")
