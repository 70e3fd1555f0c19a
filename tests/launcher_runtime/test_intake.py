"""Back-pressure from end to end: what is pushed waits for room, and is sent once."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.core.stream import RunStream
from nodes.protocol.errors import LocalProtocolError
from nodes.protocol.messages import Credit, TensorHeader
from partition.plan import Plan
from tests.launcher_runtime.plans import in_a_row, plans
from tests.launcher_runtime.simulated_host import Program
from tests.launcher_runtime.simulation import World, blueprint_of

FRAMES = 30

# ---------------------------------------------------------------- the stream over epochs


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 2)), max_size=12),
    st.sets(st.integers(0, FRAMES - 1)),
    st.booleans(),
    st.data(),
)
def test_over_any_epochs_a_frame_is_withdrawn_or_has_one_result(
    steps: list[tuple[int, int, int]], unwanted: set[int], is_known: bool, data: st.DataObject
) -> None:
    """Whether the number of frames is known at the beginning or at the end."""
    first = replace(blueprint_of(in_a_row(1)), epoch=1)
    stream: RunStream[int] = RunStream(first, frames=FRAMES) if is_known else RunStream(first)
    stream.begin(first)
    (inward,), (outward,) = first.from_host, first.to_host
    pushed, epoch = 0, 0
    results: list[int] = []
    sent: set[int] = set()
    waiting = deque([*steps, *[(2, 2, 2)] * 2 * FRAMES])
    while waiting:
        more, most, came = waiting.popleft()
        epoch, pushed = epoch + 1, min(FRAMES, pushed + more)
        stream.push(pushed, is_end=pushed == FRAMES)
        stream.credit(Credit(epoch, inward.number, 2))
        numbers = []
        while stream.may_send and len(numbers) < most:
            number = stream.next_frame
            assert stream.is_new == (number not in sent)
            if stream.is_new and number in unwanted:
                stream.withdraw()
                continue
            numbers.append(number)
            sent.add(number)
            stream.send()
        for place, number in enumerate(numbers[:came]):
            header = TensorHeader(epoch, outward.number, place, outward.dtype, outward.shape)
            assert stream.tensor("n0", header, number)
        while stream.may_take and data.draw(st.booleans()):
            results.append(_take(stream))
        stream.halt()
        stream.begin(replace(first, epoch=epoch + 1))
    while stream.may_take:
        results.append(_take(stream))
    assert results == [number for number in range(FRAMES) if number not in unwanted]
    assert stream.taken == stream.frames == stream.offered == len(results)


def test_a_frame_that_was_sent_cannot_be_withdrawn() -> None:
    blueprint = blueprint_of(in_a_row(1))
    stream: RunStream[int] = RunStream(blueprint)
    stream.begin(blueprint)
    stream.push(1)
    stream.credit(Credit(blueprint.epoch, blueprint.from_host[0].number, 1))
    stream.send()
    stream.halt()
    stream.begin(replace(blueprint, epoch=blueprint.epoch + 1))
    with pytest.raises(LocalProtocolError, match="cannot be withdrawn"):
        stream.withdraw()


def _take(stream: RunStream[int]) -> int:
    number, outputs = stream.result()
    assert list(outputs.values()) == [number], "the result is that frame's"
    stream.take()
    return number


# ---------------------------------------------------------------- the whole cluster


@settings(deadline=None, max_examples=5)
@given(plans(), st.sampled_from(["all at once", "one after the other"]))
def test_a_slow_user_slows_the_source_down(plan: Plan, pushed: str) -> None:
    """A second per result: frames are sent as results are taken, and no more than are held."""
    programs = () if pushed == "all at once" else (Program((0.01,) * FRAMES),)
    world = World(plan, frames=FRAMES, take_s=1.0, programs=programs)
    most = 0

    def look() -> None:
        nonlocal most
        sent = world.stream.first + world.stream.source.next_frame
        most = max(most, sent - world.stream.taken)

    for tenth in range(FRAMES * 10):
        world.at(tenth / 10, look)
    world.run()
    assert most <= world.stream.blueprint.frames_held
    assert world.results == list(range(FRAMES))
    assert world.end_s >= FRAMES


def test_a_source_slower_than_the_patience_with_nodes_is_nobodys_fault() -> None:
    world = World(in_a_row(2), programs=(Program((300.0,) * 4),))
    world.run(until_s=2000.0)
    assert world.end is not None
    assert world.end.error is None
    assert world.results == [0, 1, 2, 3]


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("pushed", ["all at once", "now and then"])
def test_a_phase_that_hangs_is_found_although_the_source_continues(pushed: str) -> None:
    programs = () if pushed == "all at once" else (Program((0.2,) * 9999),)
    world = World(in_a_row(2), frames=9999, programs=programs)
    world.at(20.0, lambda: world.hanging.add("n1"))
    world.run(until_s=2000.0)
    assert world.end is not None
    assert "no result" in str(world.end.error)
    assert world.end_s < 100.0
