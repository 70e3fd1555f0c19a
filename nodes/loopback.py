"""Tensors from this node to itself, over the wire that others are reached by: what does that cost?

The same messages, sockets and threads as between nodes, in one process. So the processor time of a
round is what a sender and a receiver spend together, kernel and ZeroMQ's own threads included.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy.typing as npt

from nodes.core import events as ev
from nodes.core.errors import NodeError
from nodes.core.messages import TensorHeader
from nodes.wire import Wire

TIMEOUT_S = 5.0
PEER = "loopback"

Array = npt.NDArray[Any]


def loopback_address(data_address: str) -> str:
    """Where an agent with this data port can reach itself, by the same kind of connection."""
    return f"{data_address}.self" if data_address.startswith("ipc://") else "tcp://127.0.0.1:0"


class Loopback:
    """Two ends in one process; a context manager. Raises `NodeError` if they do not connect."""

    def __init__(self, address: str) -> None:
        self._sender, self._receiver = Wire(), Wire()
        self._frame = 0
        try:
            self._sender.dial(PEER, self._receiver.listen_data(address))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Loopback:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def carry(self, arrays: Sequence[Array]) -> tuple[list[object], float]:
        """Send C-contiguous arrays all at once; returns the payloads that arrive and the seconds
        of processor time that this process spent."""
        began_s = time.process_time()
        for number, array in enumerate(arrays):
            header = TensorHeader(0, number, self._frame, str(array.dtype), array.shape)
            self._sender.send(PEER, header, array.data)
        self._frame += 1
        arrived: list[object] = []
        while len(arrived) < len(arrays):
            events = self._receiver.wait(TIMEOUT_S)
            if not events:
                raise NodeError(f"nothing came back from this node itself within {TIMEOUT_S:g} s")
            arrived += [event.payload for event in events if isinstance(event, ev.DataReceived)]
        return arrived, time.process_time() - began_s

    def close(self) -> None:
        """Close both ends."""
        self._sender.close()
        self._receiver.close()
