"""Channels with encodings, in the agent's core: what is agreed, taken, counted and blamed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.dataplane import DataPlane
from nodes.core.deployment import DeploymentError, check
from nodes.core.lifecycle import Stage
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import (
    HOST,
    PROTOCOL,
    Attach,
    ChannelSpec,
    Credit,
    Deploy,
    Deployed,
    Deployment,
    Failed,
    Hello,
    PeerSpec,
    PhaseSpec,
    Start,
    TensorHeader,
)
from tests.nodes.lone_core import BLOB, USAGE, LoneCore, only, replies

SHAPE = (1, 2, 32)
RAW_BYTES = 4 * 64


def deployment(encoding: str) -> Deployment:
    """Node n reads x from a and sends y to b, both encoded."""
    return Deployment(
        7,
        "n0",
        "pipelined",
        (PhaseSpec("p", BLOB, None, ("x",), ("y",)),),
        (
            ChannelSpec(0, "x", "float32", SHAPE, "a", 0, "n0", (0,), 2, encoding=encoding),
            ChannelSpec(1, "y", "float32", SHAPE, "n0", 0, "b", (0,), 2, encoding=encoding),
        ),
        (PeerSpec("b", "tcp://b:1"),),
    )


def started(encoding: str) -> DataPlane:
    plane = DataPlane(deployment(encoding))
    plane.start()
    plane.attach(b"a", Attach(7, "a"))
    plane.credit("b", Credit(7, 1, 2))
    return plane


def frame(number: int = 0) -> TensorHeader:
    return TensorHeader(7, 0, number, "float32", SHAPE)


@pytest.mark.parametrize(("encoding", "size"), [("fp16", 128), ("bf16", 128), ("int8", 64 + 16)])
def test_a_frame_has_exactly_the_bytes_of_its_encoding(encoding: str, size: int) -> None:
    for wrong in (0, size - 1, size + 1, RAW_BYTES):
        with pytest.raises(RemoteProtocolError, match=f"its frames have {size} as {encoding}"):
            started(encoding).tensor(b"a", frame(), bytes(wrong), wrong)
    plane = started(encoding)
    fire = only(plane.tensor(b"a", frame(), b"payload", size), act.Fire)
    assert fire.inputs == {"x": b"payload"}
    assert plane.received_bytes == plane.fifo_peak_bytes == size


@pytest.mark.parametrize("size", [1, 100, RAW_BYTES])
def test_a_lossless_frame_may_be_as_long_as_a_raw_one(size: int) -> None:
    plane = started("lossless")
    assert plane.tensor(b"a", frame(), b"payload", size)
    assert plane.fifo_peak_bytes == size


@pytest.mark.parametrize("size", [0, RAW_BYTES + 1, 1 << 30])
def test_a_lossless_frame_that_is_longer_is_refused_when_it_comes(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="have at most 256 as lossless"):
        started("lossless").tensor(b"a", frame(), b"payload", size)


def test_what_leaves_encoded_is_counted_as_it_leaves() -> None:
    plane = started("lossless")
    plane.tensor(b"a", frame(), b"payload", 50)
    ended = ev.FiringEnded(7, 0, 0, {}, 0.1, encoded={1: memoryview(bytes(33))})
    actions = plane.ended(ended)
    (sent,) = (a for a in actions if isinstance(a, act.SendData) and a.payload is not None)
    assert sent.message == TensorHeader(7, 1, 0, "float32", SHAPE), "the header is the tensor's"
    assert sent.payload == bytes(33)
    assert plane.sent_bytes == 33


def test_frames_of_different_lengths_are_held_each_by_its_own() -> None:
    plane = started("lossless")
    plane.tensor(b"a", frame(0), b"payload", 50)
    plane.tensor(b"a", frame(1), b"payload", 30)
    assert plane.fifo_peak_bytes == 80
    plane.ended(ev.FiringEnded(7, 0, 0, {}, 0.1, encoded={1: memoryview(b"1")}))
    plane.tensor(b"a", frame(2), b"payload", 49)
    assert plane.fifo_peak_bytes == 80, "30 and 49 are held now"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dtype": "int32"}, "only float32 tensors"),
        ({"source_node": HOST, "source_phase": None}, "the launcher exchanges raw tensors"),
    ],
)
def test_only_float32_tensors_between_nodes_may_be_encoded(change: dict, why: str) -> None:
    planned = deployment("fp16")
    first = replace(planned.channels[0], **change)
    with pytest.raises(DeploymentError, match=why):
        check(replace(planned, channels=(first, planned.channels[1])))


def test_a_channel_within_a_node_is_never_encoded() -> None:
    planned = deployment("fp16")
    phases = (*planned.phases, PhaseSpec("q", BLOB, None, ("y",), ("z",)))
    inner = replace(planned.channels[1], target_node="n0", target_phases=(1,))
    with pytest.raises(DeploymentError, match="it does not leave its node"):
        check(replace(planned, phases=phases, channels=(planned.channels[0], inner)))


def test_a_frame_that_cannot_be_decoded_fails_the_deployment_because_of_its_sender() -> None:
    agent = LoneCore()
    agent.says(Hello(PROTOCOL, "s", 5.0))
    agent.says(Deploy(deployment("lossless")))
    agent.happens(Deployed(7, (0.1,), 100))
    agent.says(Start(7))
    agent.happens(ev.Measured("start", USAGE))
    assert agent.core.life.stage is Stage.RUNNING
    agent.data(b"a", Attach(7, "a"))
    agent.data("b", Credit(7, 1, 2))
    agent.data(b"a", frame(), b"junk", 4)
    actions = agent.happens(ev.FiringFailed(7, 0, 0, "'x' from 'a' cannot be decoded", "a"))
    (failed,) = replies(actions, Failed)
    assert failed.peer == "a"
