"""Common faults of all nodes or of the launcher: every frame has its result."""

from __future__ import annotations

from random import Random

import pytest

from launcher.core import events as lev
from launcher.core.clocks import LATE_S, PatientClock
from launcher.core.events import Abandoned
from launcher.core.waiting import REGROUP_S, Waiting
from nodes.protocol.messages import HOST
from tests.launcher_runtime.faults import RECOVERING, recovering
from tests.launcher_runtime.outages import Outages

WAITING = "waiting for any node to come back (s)"


def cluster(nodes: int = 4, frames: int = 200, **given: object) -> Outages:
    """Daemons, three results a second."""
    drawn = {"frames": frames, "started_by_us": False, "take_s": 0.3, "limits": RECOVERING}
    delay = {"delay_s": lambda: 0.01}
    return Outages(Random(5), nodes=nodes, standby=0, **({"room": None} | drawn | delay | given))


def finish(world: Outages) -> Outages:
    world.run(2000.0)
    world.check_end()
    assert world.end == lev.End(None)
    return world


# ---------------------------------------------------------------- all are silent


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_all_agents_may_be_silent_for_3_s_and_none_is_lost(nodes: int) -> None:
    world = cluster(nodes)
    world.at(5.0, lambda: world.silence(world.nodes, 3.0))
    finish(world)
    assert not world.supervisor.recoveries


@pytest.mark.parametrize("seconds", [20.0, 60.0])
def test_for_longer_they_are_waited_for_and_greeted_again(seconds: float) -> None:
    world = cluster()
    world.at(5.0, lambda: world.silence(world.nodes, seconds))
    finish(world)
    first = world.supervisor.recoveries[0]
    assert set(first.nodes) == set(world.nodes)
    assert seconds - 15.0 < first.waited_s < seconds
    assert first.seconds < seconds + 5.0
    assert WAITING in {report.stage for report in world.reports}


@pytest.mark.parametrize("seconds", [3.0, 20.0, 60.0])
def test_a_switch_may_be_off_and_every_frame_comes_back(seconds: float) -> None:
    world = cluster()
    world.at(5.0, lambda: world.switch_fails(world.nodes, seconds))
    finish(world)


def test_all_of_it_in_one_run() -> None:
    world = cluster(frames=400)
    for at_s, seconds in ((5.0, 3.0), (30.0, 20.0), (80.0, 60.0)):
        world.at(at_s, lambda s=seconds: world.silence(world.nodes, s))
    world.at(170.0, lambda: world.stop_launcher(60.0))
    finish(world)
    assert world.now_s > 240.0
    assert len(world.supervisor.recoveries) <= 4


def test_most_agents_are_waited_for_together_before_any_is_lost() -> None:
    world = cluster()
    world.at(5.0, lambda: world.silence(["n0", "n1", "n2"], 6.0))
    finish(world)
    assert not world.supervisor.recoveries


def test_a_single_silent_agent_is_still_lost_after_the_heartbeat() -> None:
    world = cluster()
    world.at(5.0, lambda: world.silence(["n1"], 6.0))
    finish(world)
    assert world.supervisor.recoveries[0].nodes == ("n1",)
    assert "silent for 2 s" in world.supervisor.recoveries[0].reasons[0]


def test_nodes_that_come_back_one_by_one_are_planned_with_together() -> None:
    world = cluster()
    world.at(5.0, lambda: [world.silence([n], 30.0 + i) for i, n in enumerate(world.nodes)])
    finish(world)
    plans = [text for text in world.story if "plan epoch" in text]
    assert "('n0', 'n1', 'n2', 'n3')" in plans[0]


def test_if_those_that_came_back_do_not_suffice_the_run_waits_for_more() -> None:
    world = cluster(room=2)
    least = -(-len(world.reads) // 2)
    world.at(5.0, lambda: world.silence(world.nodes, 30.0))
    for i, name in enumerate(world.nodes):
        world.at(6.0, lambda n=name: world.pause(n))
        world.at(50.0 + 10.0 * i, lambda n=name: world.resume(n))
    for name in world.nodes:
        world.at(35.1, lambda n=name: world.pause(n))
    finish(world)
    assert any(f"of {least}" in text or "other nodes" in text for text in world.notices)


def test_if_nobody_comes_back_the_run_ends_after_the_bound_and_says_so() -> None:
    world = cluster(limits=recovering(wait_s=30.0))
    world.at(5.0, lambda: [world.pause(name) for name in world.nodes])
    world.run(2000.0)
    assert world.end is not None
    assert "no node is left, and none came back in 30 s" in str(world.end.error)
    assert 40.0 < world.end_s < 50.0


def test_an_abandoned_run_that_waits_ends_at_once_and_says_goodbye() -> None:
    world = cluster()
    world.at(5.0, lambda: [world.pause(name) for name in world.nodes])
    world.at(30.0, lambda: world.event(Abandoned(None)))
    world.run(2000.0)
    assert (world.end, world.end_s) == (lev.End(None), 30.0)
    left = [r.note for r in world.reports if r.stage == WAITING]
    assert left[0] == "2 min left"


def test_a_frame_that_ends_every_agent_ends_the_run_in_the_end() -> None:
    """Each is started again at once, and comes no further."""
    world = cluster(2)

    def crash(name: str, _: object) -> None:
        world.at(world.now_s, lambda: world.crash(name))
        world.at(world.now_s + 0.5, lambda: world.restart(name))

    world.at(5.0, lambda: setattr(world, "begin_firing", crash))
    world.run(3000.0)
    assert world.end is not None
    assert "no node is left, and none came back in" in str(world.end.error)
    assert world.supervisor.recoveries[-1].frame == world.supervisor.recoveries[1].frame


# ---------------------------------------------------------------- the launcher itself


@pytest.mark.parametrize("seconds", [4.0, 10.0, 20.0, 60.0])
def test_a_launcher_may_be_stopped_and_blames_nobody(seconds: float) -> None:
    world = cluster()
    world.at(5.0, lambda: world.stop_launcher(seconds))
    finish(world)
    causes = [reason for past in world.supervisor.recoveries for reason in past.reasons]
    assert all("this launcher was stopped for" in reason for reason in causes)
    assert bool(causes) == (seconds > RECOVERING.run.lease_s)
    assert all(session.is_present for session in world.supervisor.sessions.values())


@pytest.mark.parametrize("at_s", [0.03, 0.1, 0.25])
def test_it_may_be_stopped_before_frames_stream_too(at_s: float) -> None:
    world = cluster()
    world.at(at_s, lambda: world.stop_launcher(40.0))
    finish(world)
    assert bool(world.supervisor.recoveries) == (at_s == 0.25)
    assert any("this launcher was stopped for 40 s" in text for text in world.notices)


@pytest.mark.parametrize("who", [HOST, "n1"])
@pytest.mark.parametrize("seconds", [3.0, 20.0])
def test_a_clock_may_jump(who: str, seconds: float) -> None:
    world = cluster()
    world.at(5.0, lambda: world.clock_jumps(who, seconds))
    finish(world)
    assert bool(world.supervisor.recoveries) == (who != HOST and seconds > RECOVERING.run.lease_s)


def test_time_limits_pause_while_the_launcher_is_stopped() -> None:
    clock = PatientClock()
    assert clock.read(10.0) == (10.0, 0.0)
    clock.due_s = 11.0
    assert clock.read(11.5) == (11.5, 0.0)
    clock.due_s = 12.0
    assert clock.read(12.0 + LATE_S) == (12.0 + LATE_S, 0.0)
    assert clock.read(100.0) == (12.0 + LATE_S, 86.0)
    assert clock.read(101.0) == (13.0 + LATE_S, 0.0)


# ---------------------------------------------------------------- patience


def test_patience_is_counted_over_several_waits_until_there_is_a_new_result() -> None:
    waiting = Waiting(100.0)
    waiting.begin("any node", float("inf"), 0.0)
    waiting.end(60.0)
    waiting.begin("any node", float("inf"), 200.0)
    assert not waiting.has_expired(239.0)
    assert waiting.has_expired(240.0)
    waiting.end(240.0)
    assert not waiting.is_possible
    waiting.restore()
    assert waiting.is_possible


def test_who_comes_back_is_planned_with_at_once_if_nobody_else_is_expected() -> None:
    for is_last, at_s in ((True, 10.0), (False, 10.0 + REGROUP_S)):
        waiting = Waiting(100.0)
        waiting.begin("any node", float("inf"), 0.0)
        waiting.node_returned(10.0, is_last=is_last)
        assert waiting.has_regrouped(at_s)
        assert is_last or not waiting.has_regrouped(at_s - 0.1)
