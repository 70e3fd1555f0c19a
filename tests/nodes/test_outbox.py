"""A node holds back firings while what it has made waits to be sent, and never for good."""

from __future__ import annotations

from random import Random

import pytest

from nodes.core import events as ev
from nodes.core.actions import Fire, SendData
from nodes.core.dataplane import DataPlane
from nodes.core.outbox import LONG_BYTES, Outbox, Sends
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

LONG = (LONG_BYTES // 4,)
HOST_LINK = b"host"


def test_what_fits_is_admitted_and_leaves_room_when_all_its_messages_have_left() -> None:
    outbox = Outbox(300, [Sends(200, 2), Sends(100, 1), Sends(150, 1), Sends()])
    outbox.claim(0, 0)
    assert [outbox.admits(phase) for phase in range(4)] == [False, True, False, True]
    outbox.claim(1, 0)
    outbox.sent(0, 0)
    assert outbox.unsent_bytes == 300
    outbox.sent(0, 0)
    assert outbox.unsent_bytes == 100
    assert [outbox.admits(phase) for phase in range(4)] == [True, True, True, True]


def test_a_firing_that_alone_exceeds_the_bound_is_admitted_while_nothing_waits() -> None:
    outbox = Outbox(100, [Sends(200, 1), Sends(10, 1)])
    assert outbox.admits(0)
    outbox.claim(1, 0)
    assert not outbox.admits(0)
    outbox.sent(1, 0)
    assert outbox.admits(0)


def test_without_a_bound_nothing_is_counted() -> None:
    outbox = Outbox(0, [Sends(10**9, 1)])
    for frame in range(3):
        assert outbox.admits(0)
        outbox.claim(0, frame)
    assert outbox.unsent_bytes == 0


def test_more_messages_than_were_made_are_a_bug() -> None:
    outbox = Outbox(10, [Sends(5, 1)])
    outbox.claim(0, 0)
    outbox.sent(0, 0)
    with pytest.raises(LocalProtocolError, match="phase 0, frame 0: more messages left than made"):
        outbox.sent(0, 0)


def channel(
    number: int, tensor: str, source: str, target: str, shape: tuple[int, ...]
) -> ChannelSpec:
    """From or to phase 0 of node n0, with places for ten frames."""
    return ChannelSpec(
        number, tensor, "float32", shape, source, 0 if source == "n0" else None,
        target, (0,) if target == "n0" else () if target == HOST else (0,), 10,
    )  # fmt: skip


def plane(unsent_bytes: int, shape: tuple[int, ...] = LONG) -> DataPlane:
    """A node with one phase that reads `x` and sends `y` to nodes n1 and n2."""
    phase = PhaseSpec("p", BlobInfo("a" * 64, 1), None, ("x",), ("y",))
    made = DataPlane(
        Deployment(
            7, "n0", "pipelined", (phase,),
            (
                channel(0, "x", HOST, "n0", (1,)),
                channel(1, "y", "n0", "n1", shape),
                channel(2, "y", "n0", "n2", shape),
            ),
            (PeerSpec("n1", "sim://n1"), PeerSpec("n2", "sim://n2")),
            unsent_bytes=unsent_bytes,
        )
    )  # fmt: skip
    made.start()
    made.attach(HOST_LINK, Attach(7, HOST))
    for peer, number in (("n1", 1), ("n2", 2)):
        made.credit(peer, Credit(7, number, 10))
    return made


def fired(made: DataPlane, frames: int) -> int:
    """How many of so many frames are dispatched once they have arrived."""
    actions = []
    for frame in range(frames):
        header = TensorHeader(7, 0, frame, "float32", (1,))
        actions += made.tensor(HOST_LINK, header, b"abcd", 4)
    return sum(isinstance(action, Fire) for action in actions)


def end(made: DataPlane, frame: int) -> list[object]:
    return list(made.ended(ev.FiringEnded(7, 0, frame, {"y": b"made"}, 0.1)))


def test_a_firing_waits_until_both_nodes_have_been_sent_what_the_last_one_made() -> None:
    made = plane(unsent_bytes=LONG_BYTES)
    assert fired(made, 2) == 1
    sends = [a for a in end(made, 0) if isinstance(a, SendData) and a.payload is not None]
    assert [send.report_sent for send in sends] == [True, True]
    assert made.sent(ev.Sent(7, 2, 0)) == []
    assert [type(action) for action in made.sent(ev.Sent(7, 1, 0))] == [Fire]


def test_room_for_two_firings_keeps_one_queued_behind_another() -> None:
    made = plane(unsent_bytes=2 * LONG_BYTES)
    assert fired(made, 3) == 2
    assert not any(isinstance(action, Fire) for action in end(made, 0))


def test_short_tensors_are_copied_and_do_not_count() -> None:
    made = plane(unsent_bytes=1, shape=(LONG[0] - 1,))
    assert fired(made, 2) == 2
    sends = [a for a in end(made, 0) if isinstance(a, SendData) and a.payload is not None]
    assert not any(send.report_sent for send in sends)


@pytest.mark.parametrize("limit_bytes", [1, 3, 7])
def test_whatever_the_bound_every_firing_is_dispatched_at_last(limit_bytes: int) -> None:
    """What waits to be sent leaves in any order, and never exceeds the bound but for one firing."""
    random = Random(limit_bytes)
    sends = [Sends(random.randint(0, 5), random.randint(1, 2)) for _ in range(5)]
    outbox, left = Outbox(limit_bytes, sends), [(p, f) for f in range(40) for p in range(5)]
    waiting: list[tuple[int, int]] = []
    while left or waiting:
        admitted = [one for one in left if outbox.admits(one[0])]
        if admitted and random.random() < 0.5:
            phase, frame = random.choice(admitted)
            left.remove((phase, frame))
            outbox.claim(phase, frame)
            waiting += [(phase, frame)] * sends[phase].messages
            assert outbox.unsent_bytes <= max(limit_bytes, sends[phase].size_bytes)
        elif waiting:
            outbox.sent(*waiting.pop(random.randrange(len(waiting))))
    assert outbox.unsent_bytes == 0
