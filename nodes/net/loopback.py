"""Send tensors from a node to itself, to measure what a tensor between two nodes costs.

The messages, sockets and threads are the same as between nodes, but in one process. The processor
time that this takes is therefore that of sender and receiver together, including the kernel and
ZeroMQ's own threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import numpy as np

from nodes.core import events as ev
from nodes.net.curve import new_pair
from nodes.net.keys import Keyring
from nodes.net.sockets import COPY_BELOW_BYTES
from nodes.net.wire import Wire
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import TensorHeader
from nodes.protocol.payload import Array

TIMEOUT_S = 5.0
PEER = "loopback"


def loopback_address(data_address: str) -> str:
    """Return an address at which an agent with this data port reaches itself, on its transport."""
    return f"{data_address}.self" if data_address.startswith("ipc://") else "tcp://127.0.0.1:0"


class Loopback:
    """Two connected ends in one process; a context manager.

    It may be created in one thread and then used in another one only. If it is `guarded` and uses
    TCP, the connection is encrypted with its own key pair. Raises `NodeError` if the ends do not
    connect.
    """

    def __init__(self, address: str, guarded: bool = False) -> None:
        keyring = None
        if guarded:
            public, secret = new_pair()
            keyring = Keyring(secret, nodes={PEER: public})
        self._sender, self._receiver = Wire(keyring=keyring), Wire(keyring=keyring)
        self._frame = 0
        try:
            self._sender.dial(PEER, self._receiver.listen_data(address))
            # This starts all threads of ZeroMQ and pyzmq before messages are timed; the first long
            # message starts the one that frees sent memory.
            self.send([np.zeros(COPY_BELOW_BYTES, np.uint8)])
            self.receive(1)
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

    def send(self, arrays: Sequence[Array]) -> None:
        """Send C-contiguous arrays; they must not change until they have arrived."""
        for number, array in enumerate(arrays):
            header = TensorHeader(0, number, self._frame, str(array.dtype), array.shape)
            self._sender.send(PEER, header, array.data)
        self._frame += 1

    def receive(self, number: int) -> list[object]:
        """Wait for the payloads of this number of arrays, and return them."""
        arrived: list[object] = []
        while len(arrived) < number:
            events = self._receiver.wait(TIMEOUT_S)
            if not events:
                raise NodeError(f"this node did not reach itself within {TIMEOUT_S:g} s")
            arrived += [event.payload for event in events if isinstance(event, ev.DataReceived)]
        return arrived

    def close(self) -> None:
        """Close both ends."""
        self._sender.close()
        self._receiver.close()
