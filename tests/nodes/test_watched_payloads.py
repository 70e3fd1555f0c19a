"""The end of a payload's sending is reported when the connection holds it no longer."""

from __future__ import annotations

import gc
from threading import Event

import numpy as np

from nodes.net.sockets import COPY_BELOW_BYTES, watched
from nodes.net.wire import Wire
from nodes.protocol.messages import Attach, TensorHeader

HEADER = TensorHeader(1, 0, 0, "uint8", (COPY_BELOW_BYTES,))


def test_it_is_reported_after_the_payload_has_been_received(tmp_path: object) -> None:
    left = Event()
    payload = np.arange(4 * COPY_BELOW_BYTES, dtype=np.uint32).astype(np.uint8)
    receiver, sender = Wire(), Wire()
    try:
        sender.dial("peer", receiver.listen_data(f"ipc://{tmp_path}/data"))
        sender.send("peer", Attach(1, "n"))
        assert sender.send("peer", HEADER, watched(payload.data, left.set))
        came = []
        while len(came) < 2:
            came += [e for e in receiver.wait(5.0) if hasattr(e, "message")]
            sender.wait(0.0)
        assert bytes(came[1].payload) == payload.tobytes()
        assert left.wait(5.0)
    finally:
        sender.close()
        receiver.close()


def test_it_is_reported_when_the_connection_is_closed_before(tmp_path: object) -> None:
    left = Event()
    sender = Wire()
    try:
        sender.dial("peer", f"ipc://{tmp_path}/nobody")
        sender.send("peer", HEADER, watched(bytes(COPY_BELOW_BYTES), left.set))
        assert not left.is_set()
        sender.hang_up("peer")
    finally:
        sender.close()
    gc.collect()
    assert left.wait(5.0)


def test_the_array_itself_may_live_on() -> None:
    """Phases of the same node may still read it."""
    left = Event()
    array = np.zeros(10, np.float32)
    view = watched(array.data, left.set)
    assert view.nbytes == 40
    assert not left.is_set()
    del view
    assert left.is_set()
    assert array.sum() == 0
