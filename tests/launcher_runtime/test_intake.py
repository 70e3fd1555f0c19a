"""Back-pressure from end to end: a fast source waits, and drops frames only on request."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.core.intake import Intake, Pace
from launcher.core.stream import RunStream
from nodes.protocol.messages import Credit, TensorHeader
from partition.plan import Plan
from tests.launcher_runtime.plans import in_a_row, plans
from tests.launcher_runtime.simulation import World, blueprint_of

FRAMES = 30
POLICIES = ("block", "drop-oldest", "drop-newest")

paces = st.builds(Pace, st.floats(0.5, 50), st.sampled_from(POLICIES), st.integers(1, 5))
moves = st.lists(st.one_of(st.floats(0, 1), st.just("take")), max_size=60)


# ---------------------------------------------------------------- the queue


@given(paces, moves)
def test_the_queue_is_bounded_and_every_frame_is_sent_once_in_order_or_dropped(
    pace: Pace, steps: list[float | str]
) -> None:
    intake, now_s = Intake(FRAMES, pace), 0.0
    intake.begin(now_s)
    sent: list[int] = []
    dropped: list[int] = []
    for step in steps:
        if isinstance(step, float):
            now_s += step
            dropped += intake.advance(now_s)
        elif intake.waiting is not None:
            sent.append(intake.take())
        assert intake.offered - len(sent) <= pace.queue_frames
    while (due_s := intake.due_s) is not None or intake.waiting is not None:
        if intake.waiting is not None:
            sent.append(intake.take())
        now_s = max(now_s, due_s or 0.0)
        dropped += intake.advance(now_s)
    assert sent == sorted(set(sent))
    assert dropped == sorted(set(dropped))
    assert sorted(sent + dropped) == list(range(FRAMES))
    assert intake.dropped == len(dropped)
    if pace.on_overload == "block":
        assert dropped == []


@given(st.floats(0.5, 50), st.integers(1, 5), st.floats(0, 30))
def test_what_waits_is_the_newest_or_the_oldest_as_the_user_wants(
    rate: float, room: int, asleep_s: float
) -> None:
    """Nobody takes a frame for a while."""
    arrived = min(FRAMES, int(asleep_s * rate) + 1)
    waits: dict[str, list[int]] = {}
    for policy in POLICIES:
        intake = Intake(FRAMES, Pace(rate, policy, room))
        intake.begin(0.0)
        intake.advance(asleep_s)
        waits[policy] = []
        while intake.waiting is not None:
            waits[policy].append(intake.take())
    assert waits["block"] == waits["drop-newest"] == list(range(min(room, arrived)))
    assert waits["drop-oldest"] == list(range(max(0, arrived - room), arrived))


def test_a_source_that_is_held_up_goes_on_at_its_pace_from_there() -> None:
    intake = Intake(9, Pace(rate=2, queue_frames=1))
    intake.begin(10.0)
    assert intake.advance(11.0) == []
    assert intake.due_s is None, "it waits for room, not for a time"
    assert intake.take() == 0
    intake.advance(13.0)
    assert intake.waiting == 1
    assert intake.due_s == 13.5


def test_without_a_pace_a_frame_is_there_whenever_it_is_wanted() -> None:
    intake = Intake(3)
    assert [intake.take() for _ in range(3)] == [0, 1, 2]
    assert (intake.waiting, intake.due_s, intake.advance(9.0)) == (None, None, [])


# ---------------------------------------------------------------- the stream over epochs


@settings(deadline=None, max_examples=50)
@given(
    paces,
    st.lists(st.tuples(st.floats(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=12),
    st.data(),
)
def test_over_any_epochs_a_frame_that_was_sent_is_not_dropped(
    pace: Pace, steps: list[tuple[float, int, int]], data: st.DataObject
) -> None:
    first = replace(blueprint_of(in_a_row(1)), epoch=1)
    stream: RunStream[int] = RunStream(FRAMES, first, pace)
    stream.begin(first)
    (inward,), (outward,) = first.from_host, first.to_host
    now_s, epoch = 0.0, 0
    results: list[int] = []
    dropped: list[int] = []
    stream.intake.begin(now_s)
    waiting = deque([*steps, *[(1 / pace.rate, 2, 2)] * 2 * FRAMES])
    while waiting:
        passed_s, sent, came = waiting.popleft()
        epoch, now_s = epoch + 1, now_s + passed_s
        dropped += stream.advance(now_s)
        stream.credit(Credit(epoch, inward.number, 2))
        numbers = []
        while stream.may_send and len(numbers) < sent:
            numbers.append(stream.next_frame)
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
    assert results == sorted(set(results))
    assert sorted(results + dropped) == list(range(FRAMES))
    assert stream.taken == stream.frames == FRAMES - len(dropped)


def _take(stream: RunStream[int]) -> int:
    number, outputs = stream.result()
    assert list(outputs.values()) == [number], "the result is that frame's"
    stream.take()
    return number


# ---------------------------------------------------------------- the whole cluster


@settings(deadline=None, max_examples=5)
@given(plans(), st.sampled_from(["fast source", "paced source"]))
def test_a_slow_user_slows_the_source_down(plan: Plan, source: str) -> None:
    """A second per result: frames are sent as results are taken, and nothing is dropped."""
    pace = Pace(rate=100.0, queue_frames=3) if source == "paced source" else None
    world = World(plan, frames=FRAMES, take_s=1.0, pace=pace)
    most = 0

    def look() -> None:
        nonlocal most
        sent = world.stream.first + world.stream.source.next_frame
        most = max(most, sent - world.stream.taken)

    for tenth in range(FRAMES * 10):
        world.at(tenth / 10, look)
    world.run()
    room = sum(channel.capacity_frames for channel in plan.channels)
    assert most <= room
    assert world.results == list(range(FRAMES))
    assert world.dropped == []
    assert world.end_s >= FRAMES


@settings(deadline=None, max_examples=6)
@given(plans(), st.sampled_from(["drop-oldest", "drop-newest"]), st.booleans())
def test_what_a_camera_makes_too_much_of_is_dropped_and_counted(
    plan: Plan, policy: str, hopeless: bool
) -> None:
    rate = 10.0 if hopeless else 0.5
    world = World(plan, frames=FRAMES, take_s=1.0, pace=Pace(rate, policy, 2))
    world.run()
    assert world.end is not None
    assert world.end.error is None
    assert sorted(world.results + world.dropped) == list(range(FRAMES))
    assert bool(world.dropped) is hopeless
    assert world.supervisor.frames == len(world.results)


def test_a_source_slower_than_the_patience_with_nodes_is_nobodys_fault() -> None:
    world = World(in_a_row(2), frames=4, pace=Pace(rate=1 / 300))
    world.run(until_s=2000.0)
    assert world.end is not None
    assert world.end.error is None
    assert world.results == [0, 1, 2, 3]


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("policy", POLICIES)
def test_a_phase_that_hangs_is_found_although_the_source_goes_on(policy: str) -> None:
    world = World(in_a_row(2), frames=9999, pace=Pace(5.0, policy, 2))
    world.at(20.0, lambda: world.hanging.add("n1"))
    world.run(until_s=2000.0)
    assert world.end is not None
    assert "no result" in str(world.end.error)
    assert world.end_s < 100.0
