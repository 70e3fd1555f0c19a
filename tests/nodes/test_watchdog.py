"""The time limits of an agent's engine, by a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.lifecycle import Stage
from nodes.core.watchdog import (
    CHECK_PERIOD_S,
    FIRING_AT_LEAST_S,
    FIRING_TIMES,
    MAX_STEP_S,
    UNLOADING_AT_LEAST_S,
    UNLOADING_TIMES,
    UNLOADING_UNLOADED_S,
)
from nodes.protocol.messages import Bye, Credit, Failed, Ping, Shutdown, Stop
from tests.nodes.lone_core import HEADER, HOST_LINK, LoneCore, has, replies

REHEARSED_S = 0.1
"""As `LoneCore` says of its only phase."""

SLOW_S = 7.0


def firing(rehearsed_s: float = REHEARSED_S) -> LoneCore:
    """An agent whose engine has begun a firing."""
    agent = LoneCore().streaming()
    agent.core.life._rehearsed_s = (rehearsed_s,)
    assert has(agent.data(HOST_LINK, HEADER, b"12345678", 8), act.Fire)
    return agent


def waits(agent: LoneCore, seconds: float) -> list[act.Action]:
    """What it wants in this time, in which its launcher continues pinging."""
    actions: list[act.Action] = []
    until_s = agent.now_s + seconds
    while (due_s := agent.core.deadline_s) is not None and due_s <= until_s:
        agent.now_s = max(agent.now_s, due_s)
        agent.says(Ping())
        actions += agent.happens(ev.Tick())
    agent.now_s = until_s
    return actions


@pytest.mark.parametrize(
    ("rehearsed_s", "limit_s"),
    [(REHEARSED_S, FIRING_AT_LEAST_S), (SLOW_S, FIRING_TIMES * SLOW_S)],
)
def test_a_firing_that_takes_many_times_its_rehearsal_has_failed(
    rehearsed_s: float, limit_s: float
) -> None:
    agent = firing(rehearsed_s)
    assert not has(waits(agent, limit_s - 2.0), act.Unload)
    actions = waits(agent, 5.0)
    assert has(actions, act.Unload)
    (failed,) = replies(actions, Failed)
    assert "phase 'p' at frame 0 has not ended for " in failed.reason
    assert f"took {rehearsed_s:.3g} s in its rehearsal" in failed.reason


def test_firings_that_end_one_after_the_other_never_do() -> None:
    agent = firing()
    for frame in range(1, 4):
        assert not has(waits(agent, FIRING_AT_LEAST_S - 3.0), act.Unload)
        agent.happens(ev.FiringEnded(7, 0, frame - 1, {"y": b"12345678"}, 1.0))
        agent.data("n1", Credit(7, 1, 1))
        header = replace(HEADER, frame=frame)
        assert has(agent.data(HOST_LINK, header, b"12345678", 8), act.Fire)


def test_an_agent_that_was_stopped_or_asleep_blames_nobody() -> None:
    """Whatever the jump of the clock, it is one late look."""
    agent = firing()
    for jump_s in (3600.0, FIRING_AT_LEAST_S, 60.0):
        agent.now_s += jump_s
        agent.says(Ping())
        assert not has(agent.happens(ev.Tick()), act.Unload)
        assert not has(waits(agent, 1.0), act.Unload)


def test_time_in_which_it_is_late_each_time_counts_as_little_as_that() -> None:
    agent = firing()
    ticks = 0
    while not has(agent.happens(ev.Tick()), act.Unload):
        ticks += 1
        agent.now_s += 30.0
        agent.says(Ping())
    assert ticks >= FIRING_AT_LEAST_S / MAX_STEP_S


def test_it_wakes_up_for_that_only_while_there_is_a_firing() -> None:
    agent = LoneCore().streaming()
    idle_s = agent.core.deadline_s
    agent.data(HOST_LINK, HEADER, b"12345678", 8)
    agent.happens(ev.Tick())
    assert agent.core.deadline_s == agent.now_s + CHECK_PERIOD_S
    agent.happens(ev.FiringEnded(7, 0, 0, {"y": b"12345678"}, 1.0))
    assert agent.core.deadline_s == idle_s


@pytest.mark.parametrize(
    ("rehearsed_s", "limit_s"),
    [(REHEARSED_S, UNLOADING_AT_LEAST_S), (SLOW_S, UNLOADING_TIMES * SLOW_S)],
)
def test_an_engine_that_does_not_come_back_is_ended_with_the_process(
    rehearsed_s: float, limit_s: float
) -> None:
    agent = firing(rehearsed_s)
    assert has(agent.says(Stop(7)), act.Unload)
    assert not has(waits(agent, limit_s - 2.0), act.Restart)
    actions = waits(agent, 5.0)
    restarts = [action for action in actions if isinstance(action, act.Restart)]
    assert "the agent restarts" in restarts[0].why
    assert "the agent restarts" in replies(actions, Failed)[0].reason


def ticks(agent: LoneCore, seconds: float) -> list[act.Action]:
    """What it wants in this time, in which nobody says anything."""
    actions: list[act.Action] = []
    for _ in range(int(seconds)):
        agent.now_s += 1.0
        actions += agent.happens(ev.Tick())
    return actions


@pytest.mark.parametrize("stage", [Stage.LOADING, Stage.READY, Stage.RUNNING])
@pytest.mark.parametrize("ending", [Bye(), None])
def test_so_it_is_whatever_it_was_at_when_its_session_ended(
    stage: Stage, ending: Bye | None
) -> None:
    agent = LoneCore().at(stage)
    if ending is None:
        agent.now_s += 100.0
        assert has(agent.happens(ev.Tick()), act.Unload), "its lease is over"
    else:
        assert has(agent.says(ending), act.Unload)
    limit_s = UNLOADING_UNLOADED_S if stage is Stage.LOADING else UNLOADING_AT_LEAST_S
    assert not has(ticks(agent, limit_s - 2.0), act.Restart)
    assert has(ticks(agent, 5.0), act.Restart)


def test_one_that_shall_end_ends_instead() -> None:
    agent = LoneCore(obeys_shutdown=True).at(Stage.RUNNING)
    agent.says(Shutdown())
    actions = ticks(agent, 30.0)
    assert has(actions, act.Exit)
    assert not has(actions, act.Restart)


def test_loading_may_take_as_long_as_its_launcher_waits() -> None:
    agent = LoneCore().at(Stage.LOADING)
    assert not has(waits(agent, 24 * 3600.0), act.Unload)


def test_what_an_interrupted_engine_says_of_where_it_was_is_logged() -> None:
    agent = firing()
    agent.says(Stop(7))
    said = agent.happens(ev.FiringFailed(7, 0, 0, "phase 'p' at frame 0: interrupted in Loop"))
    assert said == [act.Log("info", "phase 'p' at frame 0: interrupted in Loop")]


def test_the_same_firing_of_another_deployment_is_another_firing() -> None:
    """Launches that come one after the other all begin with frame 0, and may have equal epochs."""
    agent = LoneCore()
    for _ in range(2 * int(FIRING_AT_LEAST_S / MAX_STEP_S)):
        agent.streaming()
        assert has(agent.data(HOST_LINK, HEADER, b"12345678", 8), act.Fire)
        assert not has(agent.happens(ev.Tick()), act.Unload)
        agent.happens(ev.FiringEnded(7, 0, 0, {"y": b"12345678"}, 1.0))
        assert has(agent.says(Bye()), act.Unload)
        agent.happens(ev.Unloaded(7))
        agent.now_s += 3.0
