"""Frames that a node has made wait at the node for places of their consumers, and are bounded."""

from __future__ import annotations

import pytest

from nodes.core import events as ev
from nodes.core.actions import Fire, SendData
from nodes.core.dataplane import DataPlane
from nodes.core.deployment import DeploymentError
from nodes.core.fifo import Outlet
from nodes.protocol.errors import LocalProtocolError
from nodes.protocol.messages import (
    HOST,
    Attach,
    BlobInfo,
    ChannelSpec,
    Credit,
    Deployment,
    PeerSpec,
    PhaseSpec,
    TensorHeader,
)

HOST_LINK = b"host"


def channel(number: int, tensor: str, source: str, target: str, unsent: int = 0) -> ChannelSpec:
    """From or to phase 0 of node n0; its target has places for two frames, n0 for ten."""
    return ChannelSpec(
        number, tensor, "float32", (1,), source, 0 if source == "n0" else None, target,
        () if target == HOST else (0,), 10 if target == "n0" else 2 + unsent, unsent_frames=unsent,
    )  # fmt: skip


def plane(unsent: int) -> DataPlane:
    """A node with one phase that reads `x` and sends `y` to nodes n1 and n2."""
    phase = PhaseSpec("p", BlobInfo("a" * 64, 1), None, ("x",), ("y",))
    made = DataPlane(
        Deployment(
            7, "n0", "pipelined", (phase,),
            (
                channel(0, "x", HOST, "n0"),
                channel(1, "y", "n0", "n1", unsent),
                channel(2, "y", "n0", "n2", unsent),
            ),
            (PeerSpec("n1", "sim://n1"), PeerSpec("n2", "sim://n2")),
        )
    )  # fmt: skip
    made.start()
    made.attach(HOST_LINK, Attach(7, HOST))
    return made


def credit(made: DataPlane, number: int, frames: int) -> list[object]:
    return list(made.credit(f"n{number}", Credit(7, number, frames)))


def feed(made: DataPlane, frames: int) -> list[object]:
    actions: list[object] = []
    for frame in range(frames):
        header = TensorHeader(7, 0, frame, "float32", (1,))
        actions += made.tensor(HOST_LINK, header, b"abcd", 4)
    return actions


def end(made: DataPlane, frame: int) -> list[object]:
    return list(made.ended(ev.FiringEnded(7, 0, frame, {"y": b"made"}, 0.1)))


def fired(actions: list[object]) -> int:
    return sum(isinstance(action, Fire) for action in actions)


def sent(actions: list[object]) -> list[tuple[object, int]]:
    """The node and frame of each tensor that leaves."""
    sends = (a for a in actions if isinstance(a, SendData) and isinstance(a.message, TensorHeader))
    return [(send.link, send.message.frame) for send in sends]


def test_a_phase_fires_before_its_consumers_have_a_place() -> None:
    assert fired(feed(plane(unsent=1), 3)) == 1
    assert fired(feed(plane(unsent=0), 3)) == 0


def test_what_is_made_leaves_as_soon_as_its_consumer_has_a_place() -> None:
    made = plane(unsent=2)
    credit(made, 1, 1)
    assert fired(feed(made, 2)) == 2
    assert sent(end(made, 0)) == [("n1", 0)]
    assert sent(end(made, 1)) == []
    assert sent(credit(made, 2, 2)) == [("n2", 0), ("n2", 1)]
    assert sent(credit(made, 1, 1)) == [("n1", 1)]


def test_the_next_firing_waits_until_a_frame_has_left_to_every_node() -> None:
    made = plane(unsent=1)
    credit(made, 1, 2)
    credit(made, 2, 2)
    feed(made, 2)
    assert fired(end(made, 0)) == 0
    assert made.sent(ev.Sent(7, 2, 0)) == []
    assert fired(list(made.sent(ev.Sent(7, 1, 0)))) == 1


def test_two_places_keep_a_firing_queued_after_another() -> None:
    made = plane(unsent=2)
    assert fired(feed(made, 3)) == 2
    assert fired(end(made, 0)) == 0


def test_a_frame_that_left_without_having_been_sent_is_a_bug() -> None:
    outlet = Outlet(3, capacity=2, unsent=1)
    outlet.claim()
    with pytest.raises(LocalProtocolError, match="channel 3: more frames have left than were sent"):
        outlet.leave()
    with pytest.raises(LocalProtocolError, match="channel 3: frame 0 sent without a credit"):
        outlet.send()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (channel(0, "x", HOST, "n0", unsent=1), "only a channel that leaves a node has any"),
        (
            ChannelSpec(
                0, "y", "float32", (1,), "n0", 0, "n1", (0,), capacity_frames=2, unsent_frames=2
            ),
            "2 places for unsent frames of 2 in all, so none is left for its target",
        ),
    ],
)
def test_a_channel_without_a_place_at_its_target_is_refused(spec: ChannelSpec, why: str) -> None:
    phase = PhaseSpec("p", BlobInfo("a" * 64, 1), None, ("x",), ("y",))
    peers = (PeerSpec("n1", "sim://n1"),)
    with pytest.raises(DeploymentError, match=why):
        DataPlane(Deployment(7, "n0", "pipelined", (phase,), (spec,), peers))
