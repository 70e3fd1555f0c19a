"""Which agents of a node's slots are started and ended when: the core, with a clock of the test."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodes.core.slots import (
    CALM_S,
    LATE_S,
    LONGEST_PAUSE_S,
    START_S,
    STOP_S,
    Action,
    AgentEnded,
    Called,
    Event,
    KeysChanged,
    LogLine,
    NodeEnded,
    PortsOpened,
    Ready,
    Said,
    Signal,
    Slots,
    SlotState,
    StartAgent,
    StopWanted,
    TimeIsUp,
)

SILENCE_S = 10.0
IDLE, KILLED = 0, -9


def begun(count: int = 2) -> Slots:
    """A node whose first agent is ready."""
    slots = Slots(count, SILENCE_S)
    assert slots.handle(PortsOpened(), 0.0) == [StartAgent(1)]
    assert slots.handle(Said(1, "ready"), 0.0) == [Ready()]
    return slots


def acted(slots: Slots, event: Event, now_s: float) -> list[Action]:
    """The actions besides log lines."""
    return [action for action in slots.handle(event, now_s) if not isinstance(action, LogLine)]


def test_an_agent_is_started_when_its_slot_is_called_and_not_twice() -> None:
    slots = begun()
    assert slots.callable == [2]
    assert acted(slots, Called(2), 1.0) == [StartAgent(2)]
    assert slots.callable == []
    assert acted(slots, Called(2), 1.1) == []
    assert acted(slots, Said(2, "ready"), 2.0) == []
    assert slots.state(2) is SlotState.AWAKE


def test_an_agent_that_ends_by_itself_is_called_again() -> None:
    slots = begun()
    assert acted(slots, AgentEnded(1, IDLE), 60.0) == []
    assert slots.callable == [1, 2]
    assert acted(slots, Called(1), 61.0) == [StartAgent(1)]


def test_one_that_crashes_is_back_at_once_and_the_next_time_after_ever_longer_pauses() -> None:
    slots = begun()
    now_s, pauses = 1.0, []
    for _ in range(9):
        slots.handle(AgentEnded(1, KILLED), now_s)
        due_s = slots.deadline_s
        pauses.append(0.0 if slots.state(1) is SlotState.ASLEEP else (due_s or 0.0) - now_s)
        now_s += pauses[-1]
        if pauses[-1]:
            assert slots.callable == [2]
            assert acted(slots, TimeIsUp(), now_s) == []
        assert acted(slots, Called(1), now_s) == [StartAgent(1)]
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_S, LONGEST_PAUSE_S, 30.0]
    slots.handle(Said(1, "ready"), now_s)
    slots.handle(AgentEnded(1, KILLED), now_s + CALM_S)
    assert slots.state(1) is SlotState.ASLEEP, "it ran well in between"


def test_one_that_crashes_for_days_is_started_again_all_the_time() -> None:
    slots, now_s = begun(), 1.0
    for _ in range(3000):
        slots.handle(AgentEnded(1, KILLED), now_s)
        now_s += LONGEST_PAUSE_S
        slots.handle(TimeIsUp(), now_s)
        assert acted(slots, Called(1), now_s) == [StartAgent(1)]


def test_the_node_ends_as_its_first_agent_does_that_cannot_start() -> None:
    for code, told in ((2, 2), (KILLED, 1)):
        slots = Slots(2, SILENCE_S)
        slots.handle(PortsOpened(), 0.0)
        (exit_,) = slots.handle(AgentEnded(1, code), 1.0)
        assert isinstance(exit_, NodeEnded)
        assert exit_.code == told


def test_one_that_falls_silent_is_killed_and_no_other() -> None:
    slots = begun()
    slots.handle(Called(2), 0.0)
    slots.handle(Said(2, "ready"), 1.0)
    slots.handle(Said(1, "alive"), 9.0)
    assert slots.deadline_s == 1.0 + SILENCE_S
    assert acted(slots, TimeIsUp(), 11.0) == [Signal(2, "kill")]
    assert slots.deadline_s == 9.0 + SILENCE_S
    assert acted(slots, AgentEnded(2, KILLED), 11.1) == []
    assert slots.callable == [2]


def test_one_that_does_not_become_ready_is_killed() -> None:
    slots = begun()
    slots.handle(Called(2), 0.0)
    slots.handle(Said(1, "alive"), START_S)
    assert acted(slots, TimeIsUp(), START_S) == [Signal(2, "kill")]


def test_time_in_which_the_parent_itself_was_stopped_does_not_count() -> None:
    slots = begun()
    resumed_s = SILENCE_S + LATE_S + 100.0
    assert acted(slots, TimeIsUp(), resumed_s) == []
    assert slots.deadline_s == resumed_s + SILENCE_S


def test_keys_are_read_again_by_those_that_are_awake_and_by_one_that_starts_once_it_is() -> None:
    slots = begun(3)
    slots.handle(Called(2), 0.0)
    assert acted(slots, KeysChanged(), 1.0) == [Signal(1, "reread")]
    assert acted(slots, Said(2, "ready"), 2.0) == [Signal(2, "reread")]


def test_all_are_asked_to_end_and_who_does_not_is_killed() -> None:
    slots = begun()
    slots.handle(Called(2), 0.0)
    assert acted(slots, StopWanted("SIGTERM"), 5.0) == [Signal(1, "end"), Signal(2, "end")]
    assert slots.callable == []
    assert acted(slots, Called(1), 5.0) == []
    assert acted(slots, AgentEnded(1, IDLE), 5.1) == []
    assert slots.deadline_s == 5.0 + STOP_S
    assert acted(slots, TimeIsUp(), 5.0 + STOP_S) == [Signal(2, "kill")]
    assert acted(slots, AgentEnded(2, KILLED), 12.0) == [NodeEnded(0, "SIGTERM")]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["call", "ready", "alive", "end", "crash", "tick", "keys", "stop"]),
        st.integers(1, 3),
        st.floats(0.0, 40.0),
    ),
    max_size=60,
)


@given(STEPS)
def test_a_slot_never_has_two_agents_and_nobody_is_left_behind(
    steps: list[tuple[str, int, float]],
) -> None:
    slots, running, now_s, is_over = Slots(3, SILENCE_S), set[int](), 0.0, False

    def perform(actions: list[Action]) -> None:
        nonlocal is_over
        for action in actions:
            match action:
                case StartAgent(slot):
                    assert slot not in running
                    running.add(slot)
                case Signal(slot):
                    assert slot in running
                case NodeEnded():
                    assert not running
                    is_over = True
                case _:
                    pass

    perform(slots.handle(PortsOpened(), now_s))
    for what, slot, passed_s in steps:
        now_s += passed_s
        event: Event | None = {
            "call": Called(slot),
            "tick": TimeIsUp(),
            "keys": KeysChanged(),
            "stop": StopWanted("a test"),
        }.get(what)
        if event is None and slot in running:
            if what in ("ready", "alive"):
                event = Said(slot, "ready" if what == "ready" else "alive")
            else:
                running.discard(slot)
                event = AgentEnded(slot, 0 if what == "end" else KILLED)
        if event is not None and not is_over:
            perform(slots.handle(event, now_s))
            assert {s for s in (1, 2, 3) if slots.state(s).value in LIVING} == running
    if not is_over:
        perform(slots.handle(StopWanted("the end"), now_s))
        for slot in tuple(running):
            running.discard(slot)
            perform(slots.handle(AgentEnded(slot, 0), now_s))
        assert is_over


LIVING = ("starting", "awake", "killed")
