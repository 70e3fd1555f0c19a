"""How often a tensor is copied in user space on its way from one engine to the next."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from nodes.core import events as ev
from nodes.core.actions import Fire
from nodes.executors.base import InputCheck, TensorSpec, address
from nodes.net.sockets import COPY_BELOW_BYTES, SHARED_BELOW_BYTES
from nodes.net.wire import Wire
from nodes.protocol.messages import TensorHeader
from nodes.protocol.payload import as_array
from tests.nodes.test_worker import WAIT_S, Engine, frame, loaded, worker  # noqa: F401 - a fixture

SIZES = (
    4,
    SHARED_BELOW_BYTES,
    SHARED_BELOW_BYTES + 4,
    COPY_BELOW_BYTES - 4,
    COPY_BELOW_BYTES,
    1 << 20,
)
"""Bytes of a tensor, on both sides of where the way of doing it changes."""


@pytest.fixture
def engine():
    return Engine()


def copied_when_sent(size: int) -> bool:
    """Sends before anybody listens, and changes the array before it can have left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        there = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    sender, receiver = Wire(), Wire()
    try:
        sender.dial("there", there)
        array = np.zeros(size // 4, np.float32)
        sender.send("there", TensorHeader(1, 0, 0, "float32", array.shape), array.data)
        array[:] = 1
        receiver.listen_data(there)
        return not arrived(receiver, size).any()
    finally:
        sender.close()
        receiver.close()


def arrived(wire: Wire, size: int) -> np.ndarray:
    (event,) = wire.wait(WAIT_S)
    assert isinstance(event, ev.DataReceived)
    return as_array(event.payload, "float32", (size // 4,))


def copied_when_received(size: int) -> bool:
    """Whether what the engine reads lies elsewhere than what ZeroMQ received."""
    sender, receiver = Wire(), Wire()
    try:
        sender.dial("there", receiver.listen_data("tcp://127.0.0.1:0"))
        array = np.ones(size // 4, np.float32)
        sender.send("there", TensorHeader(1, 0, 0, "float32", array.shape), array.data)
        (event,) = receiver.wait(WAIT_S)
        if isinstance(event.payload, bytes):
            return True
        spec = TensorSpec("float32", array.shape)
        came = as_array(event.payload, "float32", array.shape)
        (read,) = InputCheck("subnet", {"x": spec}).arrays({"x": came})
        return address(read) != address(np.frombuffer(event.payload, np.uint8))
    finally:
        sender.close()
        receiver.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_hop_copies_once_at_most(size):
    """Only what is no longer than ZeroMQ's receive buffer is copied at both ends."""
    copies = copied_when_sent(size) + copied_when_received(size)
    assert copies == (2 if size <= SHARED_BELOW_BYTES else 1 if size < COPY_BELOW_BYTES else 0)


def test_between_phases_of_a_node_nothing_is_copied(worker, engine):  # noqa: F811 - a fixture
    loaded(worker)
    read, made = [], []
    for subnet in engine.loaded:
        run = subnet.run

        def watched(inputs, run=run):
            outputs = run(inputs)
            read.append(set(map(id, inputs.values())))
            made.append(list(outputs.values()))
            return outputs

        subnet.run = watched
    worker.fire(Fire(1, 0, 0, {"x": frame(0)}))
    worker.fire(Fire(1, 1, 0, {}))
    worker.fire(Fire(1, 2, 0, {}))
    first, _, _ = [worker.reported() for _ in range(3)]
    ((y,), _, _) = made
    assert read[1] == read[2] == {id(y)}
    assert np.shares_memory(np.frombuffer(first.outputs["y"], np.float32), y), "sent as it lies"
