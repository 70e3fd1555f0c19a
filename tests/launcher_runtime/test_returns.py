"""A node that returns is used at once, with consent, or when it is needed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from launcher.core import events as lev
from launcher.core.blueprint import Blueprint
from launcher.core.session import SessionState
from launcher.core.watch import Rebalance
from tests.launcher_runtime import simulated_host
from tests.launcher_runtime.faults import FaultyWorld, recovering


def three_daemons(rebalance: Rebalance = "auto", frames: int = 200) -> FaultyWorld:
    """Three nodes with as many phases at least, three results a second."""
    limits = recovering(rebalance=rebalance)
    given = {"frames": frames, "started_by_us": False, "take_s": 0.3, "limits": limits}
    world = FaultyWorld(Random(5), nodes=3, standby=0, room=None, delay_s=lambda: 0.01, **given)
    world.gain = lambda: 1.5
    return world


def finish(world: FaultyWorld) -> FaultyWorld:
    world.run(2000.0)
    world.check_end()
    assert world.end == lev.End(None)
    return world


def causes(world: FaultyWorld) -> list[str]:
    return [past.cause for past in world.supervisor.recoveries]


def told(world: FaultyWorld, text: str) -> bool:
    return any(text in notice for notice in world.notices)


def crash_and_restart(world: FaultyWorld, name: str, at_s: float, after_s: float = 3.0) -> None:
    world.at(at_s, lambda: world.crash(name))
    world.at(at_s + after_s, lambda: world.restart(name))


def test_a_restarted_node_is_used_again_if_that_is_worth_a_pause() -> None:
    world = three_daemons()
    crash_and_restart(world, "n1", 2.0)
    finish(world)
    assert causes(world) == ["loss", "return"]
    assert world.supervisor.recoveries[1].nodes == ("n1",)
    assert told(world, "1.50 times as fast: n1 is back")


def test_a_node_whose_link_was_only_silent_is_used_again() -> None:
    world = three_daemons()
    world.at(2.0, lambda: world.pause("n1"))
    world.at(9.0, lambda: world.resume("n1"))
    finish(world)
    assert causes(world) == ["loss", "return"]


def test_a_node_whose_engine_hangs_reports_it_restarts_and_is_used_again() -> None:
    world = three_daemons(frames=600)
    world.at(2.0, lambda: world.hang("n1"))
    finish(world)
    assert causes(world) == ["loss", "return"]
    (said,) = world.supervisor.recoveries[0].reasons
    assert "the engine hangs" in said
    assert any("n1 logs: the engine has not returned" in line for line in world.story)


def test_it_stands_by_where_no_plan_is_much_better() -> None:
    world = three_daemons()
    world.gain = lambda: 1.05
    crash_and_restart(world, "n1", 2.0)
    finish(world)
    assert causes(world) == ["loss"]
    assert told(world, "n1 stands by: there is no better plan")


def test_it_stands_by_where_too_few_frames_are_left_to_save_the_pause() -> None:
    world = three_daemons(frames=30)
    world.gain = lambda: 1.2
    crash_and_restart(world, "n1", 2.0, 1.0)
    finish(world)
    assert causes(world) == ["loss"]
    assert told(world, "n1 stands by: a better plan would save")


@pytest.mark.parametrize("rebalance", ["ask", "never"])
def test_unless_it_is_to_be_used_by_itself_it_stands_by_until_another_one_is_lost(
    rebalance: Rebalance,
) -> None:
    world = three_daemons(rebalance)
    crash_and_restart(world, "n1", 2.0)
    world.at(20.0, lambda: world.crash("n0"))
    world.at(25.0, lambda: world.crash("n2"))
    finish(world)
    assert set(causes(world)) == {"loss"}
    assert world.supervisor.sessions["n1"].state is SessionState.STOPPED
    assert told(world, "to use it: say so") == (rebalance == "ask")


def test_the_user_may_say_that_it_is_to_be_used_whatever_the_pause_costs() -> None:
    world = three_daemons("ask", frames=30)
    world.gain = lambda: 1.01
    crash_and_restart(world, "n1", 2.0, 1.0)
    world.at(7.0, lambda: world.event(lev.Consented()))
    finish(world)
    assert causes(world) == ["loss", "return"]


def test_consent_without_a_node_that_is_back_changes_nothing() -> None:
    world = three_daemons("ask")
    world.at(2.0, lambda: world.event(lev.Consented()))
    finish(world)
    assert causes(world) == []
    assert told(world, "no node has returned")


def test_a_node_whose_engine_breaks_does_not_come_back_by_itself_but_does_when_restarted() -> None:
    world = three_daemons()
    world.at(2.0, lambda: world.break_engine("n1"))
    crash_and_restart(world, "n1", 30.0)
    world.event(lev.Begin())
    while world.now_s < 29.0:
        assert world.step()
    assert causes(world) == ["loss"]
    world.go_on(2000.0)
    assert causes(world) == ["loss", "return"]
    assert world.end == lev.End(None)


def test_a_node_that_is_lost_again_and_again_is_used_ever_more_rarely() -> None:
    world = three_daemons(frames=3000)
    for turn in range(60):
        crash_and_restart(world, "n1", 2.0 + 15.0 * turn, 1.0)
    finish(world)
    assert world.now_s > 900.0
    assert 3 <= causes(world).count("loss") <= 10


def test_one_whose_losses_are_long_ago_is_used_again_at_once() -> None:
    world = three_daemons(frames=5500)
    for at_s in (2.0, 12.0, 40.0, 1500.0):
        crash_and_restart(world, "n1", at_s, 1.0)
    finish(world)
    greeted = [t for t in world.story if "n1 logs: launcher" in t]
    assert 1501.0 < float(greeted[-1].split()[0]) < 1505.0


def test_losses_while_standing_by_hardly_count() -> None:
    world = three_daemons("never", frames=600)
    crash_and_restart(world, "n1", 2.0, 1.0)
    for turn in range(4):
        crash_and_restart(world, "n1", 10.0 + 15.0 * turn, 1.0)
    world.at(100.0, lambda: world.crash("n0"))
    world.at(120.0, lambda: world.crash("n2"))
    finish(world)
    assert world.supervisor.sessions["n1"].state is SessionState.STOPPED


def test_another_loss_while_nodes_turn_to_the_better_plan_is_a_loss_like_any() -> None:
    world = three_daemons()
    crash_and_restart(world, "n1", 2.0)
    world.event(lev.Begin())
    while not told(world, "'n1' is back;"):
        assert world.step()
    while not told(world, "times as fast"):
        assert world.step()
    member = next(iter(world.supervisor.blueprint.deployments))
    world.event(lev.Disconnected(member))
    world.crash(member)
    world.go_on(2000.0)
    assert world.end == lev.End(None)
    assert causes(world)[:2] == ["loss", "loss"]
    assert world.supervisor.recoveries[1].nodes == (member,)


def test_consent_after_the_last_result_comes_too_late_and_does_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes are stopping then, and do not turn to another plan, however soon there is one."""
    monkeypatch.setattr(simulated_host, "PLANNING_S", 0.0)
    world = three_daemons("ask", frames=30)
    crash_and_restart(world, "n1", 2.0, 1.0)
    world.event(lev.Begin())
    while world.supervisor.taken < world.supervisor.frames:
        assert world.step()
    world.event(lev.Consented())
    world.go_on(2000.0)
    assert world.end == lev.End(None)
    assert causes(world) == ["loss"]


def test_one_that_is_lost_again_while_a_plan_with_it_is_searched_does_not_cost_the_others() -> None:
    """Two are back and the user agrees; one is gone again before there is a plan with both."""
    world = three_daemons("ask")
    asked: list[tuple[str, ...]] = []

    def replan(epoch: int, nodes: tuple[str, ...]) -> Blueprint | str:
        asked.append(nodes)
        found = world._plan_again(epoch, nodes)
        while isinstance(found, Blueprint) and found.deployments.keys() != set(nodes):
            found = world._plan_again(epoch, nodes)
        return found

    world._replan = replan
    crash_and_restart(world, "n1", 2.0)
    crash_and_restart(world, "n2", 2.0)
    world.event(lev.Begin())
    while world.supervisor.sessions["n2"].state is not SessionState.IDLE or world.now_s < 15.0:
        assert world.step()
    world.event(lev.Consented())
    world.event(lev.Disconnected("n2"))
    world.go_on(2000.0)
    assert asked[-1] == ("n0", "n1")
    assert causes(world) == ["loss", "return"]


@pytest.mark.parametrize(("source_period_s", "expected"), [(0.0, "return"), (0.4, "stands by")])
def test_no_pause_is_spent_on_a_plan_that_would_outrun_the_source(
    source_period_s: float, expected: str
) -> None:
    world = three_daemons()
    limits = replace(world.supervisor._limits, source_period_s=source_period_s)
    world.supervisor._improver._limits = limits
    crash_and_restart(world, "n1", 2.0)
    finish(world)
    assert causes(world) == ["loss", "return"][: 1 + (expected == "return")]
    assert told(world, "n1 stands by: a better plan would save 0.0 s") == (expected == "stands by")
